//! Ranges never overlap, nothing is lost, and a range that fits is found.

#![allow(clippy::unwrap_used, reason = "a failing test panics")]

use proptest::prelude::*;

use super::{Space, Taken};
use crate::lane::{LaneKey, Stamp, Use, Uses};

fn use_of(lane: usize) -> Uses {
    let stamp = Stamp::default().next();
    let lane = LaneKey(lane);
    std::iter::once(Use { lane, stamp }).collect()
}

#[test]
fn neighbours_become_one_again() {
    let mut space = Space::default();
    space.add(1000, false);
    let taken = [300, 400, 300].map(|bytes| space.take(bytes, false, |_, _| true).unwrap());
    assert_eq!(space.free_bytes(), 0);
    for place in [0, 2, 1] {
        space.give(taken[place].chunk, Uses::new());
    }
    assert_eq!((space.largest_free(), space.idle().count()), (1000, 1));
}

#[test]
fn the_smallest_range_that_fits_is_taken() {
    let mut space = Space::default();
    for bytes in [500, 200, 300] {
        space.add(bytes, false);
    }
    let taken = space.take(250, false, |_, _| true).unwrap();
    assert_eq!((taken.segment, taken.region.offset), (2, 0));
    assert_eq!(space.largest_free(), 500);
}

#[test]
fn different_queues_keep_neighbours_apart_until_they_have_caught_up() {
    let mut space = Space::default();
    space.add(200, false);
    let [one, two] = [(); 2].map(|()| space.take(100, false, |_, _| true).unwrap());
    space.give(one.chunk, use_of(1));
    space.give(two.chunk, use_of(2));
    assert_eq!(space.largest_free(), 100);
    assert!(space.take(100, false, |uses, _| uses.is_empty()).is_none());
    space.settle(|uses| uses[0].lane == LaneKey(1));
    assert_eq!(space.largest_free(), 200, "one lane is left");
    space.settle(|_| true);
    assert!(
        space
            .take(200, false, |uses, whole| uses.is_empty()
                && whole == Some(200))
            .is_some()
    );
}

proptest! {
    /// Against a map of bytes: what is taken is nobody else's, best fit, and the sums are right.
    #[test]
    fn the_space_is_a_map_of_bytes(
        segments in prop::collection::vec(1..200_usize, 1..4),
        steps in prop::collection::vec((any::<bool>(), 1..120_usize, 0..3_usize), 1..80),
    ) {
        let mut space = Space::default();
        let mut map: Vec<Vec<bool>> = Vec::new();
        for bytes in &segments {
            let key = space.add(*bytes, false);
            prop_assert_eq!(key, map.len());
            map.push(vec![false; *bytes]);
        }
        let mut live: Vec<Taken> = Vec::new();
        for (take, number, lane) in steps {
            if take {
                // With one lane in play, every two free neighbours are one range.
                let runs = map.iter().flat_map(|bytes| bytes.split(|taken| *taken)).map(<[bool]>::len);
                let best = runs.filter(|run| *run >= number).min();
                let largest = space.largest_free();
                let taken = space.take(number, false, |_, _| true);
                prop_assert_eq!(taken.is_some(), best.is_some(), "largest {}", largest);
                if let Some(taken) = taken {
                    let range = taken.region.offset..taken.region.offset + taken.region.bytes;
                    prop_assert_eq!(range.len(), number);
                    let bytes = &mut map[taken.segment][range];
                    prop_assert!(bytes.iter().all(|taken| !*taken));
                    bytes.fill(true);
                    live.push(taken);
                }
            } else if !live.is_empty() {
                let taken = live.swap_remove(number % live.len());
                let range = taken.region.offset..taken.region.offset + taken.region.bytes;
                map[taken.segment][range].fill(false);
                let uses = if lane == 0 { Uses::new() } else { use_of(1) };
                space.give(taken.chunk, uses);
            }
            let free: usize = map.iter().flatten().filter(|taken| !**taken).count();
            prop_assert_eq!(space.free_bytes(), free as u64);
        }
        for taken in live {
            space.give(taken.chunk, Uses::new());
        }
        prop_assert_eq!(space.idle().count(), segments.len());
        for key in 0..segments.len() {
            prop_assert!(space.remove(key).is_some());
        }
        prop_assert_eq!((space.bytes(), space.free_bytes(), space.largest_free()), (0, 0, 0));
    }
}
