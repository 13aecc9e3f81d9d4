//! No out of memory while a free range fits, whatever a program does.

use binpool_allocators::{Allocator, Memory};
use binpool_mock::{MockEvent, MockMemory};
use proptest::{collection::vec, prelude::*};

use crate::segment_allocator::{KIB, Rig, immediate, manual};

/// What a step of a program does.
#[derive(Clone, Copy, Debug)]
enum Step {
    Allocate(usize),
    /// Releases the block at this place.
    Release(usize),
    /// Releases the block at this place while a command uses it.
    ReleaseInUse(usize),
    /// Releases the block at this place, to be free when a gate is opened.
    ReleaseGated(usize),
    OpenGates,
    FreeIdle,
}

const CAPACITY: usize = 256 * KIB;

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..30 * KIB).prop_map(Step::Allocate),
        4 => (1..3 * KIB).prop_map(Step::Allocate),
        1 => (1..CAPACITY).prop_map(Step::Allocate),
        3 => any::<usize>().prop_map(Step::Release),
        3 => any::<usize>().prop_map(Step::ReleaseInUse),
        1 => any::<usize>().prop_map(Step::ReleaseGated),
        1 => Just(Step::OpenGates),
        1 => Just(Step::FreeIdle),
    ]
}

/// Takes the block at this place out.
fn take<T>(live: &mut Vec<T>, place: usize) -> Option<T> {
    (!live.is_empty()).then(|| live.swap_remove(place % live.len()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(500), ..ProptestConfig::default() })]

    /// An allocation fails only if no free range fits, the device has no room once every idle segment is back, and nothing
    /// can be waited for. Blocks keep their bytes, no two commands race, and all of it comes back.
    #[test]
    fn no_block_is_refused_while_a_free_range_fits(steps in vec(step(), 1..150)) {
        let rig = Rig::over(&manual(CAPACITY), immediate);
        let mut live: Vec<(MockMemory, u8, MockEvent)> = Vec::new();
        let mut gated = 0;
        let mut gate = rig.gate();
        for (mark, step) in (0..=u8::MAX).cycle().zip(steps) {
            match step {
                Step::Allocate(bytes) => match rig.allocator.allocate(bytes) {
                    Ok(block) => {
                        prop_assert!(block.bytes() >= bytes);
                        let fill = rig.fill(usize::from(mark % 2), &block, mark, &[]);
                        live.push((block, mark, fill));
                    }
                    Err(error) => {
                        prop_assert!(error.is_out_of_memory());
                        let statistics = rig.allocator.statistics();
                        let size = bytes.next_multiple_of(256);
                        prop_assert!(statistics.largest_free_bytes < size, "{:?}", statistics);
                        let room = CAPACITY as u64 - rig.device.statistics().committed_bytes;
                        prop_assert!(room < size as u64, "{} for {}", room, size);
                        prop_assert_eq!(statistics.pending_bytes, gated);
                        prop_assert_eq!(rig.allocator.free_idle(), 0);
                    }
                },
                Step::Release(place) => {
                    if let Some((block, mark, fill)) = take(&mut live, place) {
                        prop_assert_eq!(rig.read(&block, &fill), vec![mark; block.bytes()]);
                        rig.allocator.release(block, &[]).unwrap();
                    }
                }
                Step::ReleaseInUse(place) => {
                    if let Some((block, mark, fill)) = take(&mut live, place) {
                        let other = rig.fill(usize::from(mark % 2), &block, 255 - mark, &[]);
                        rig.allocator.release(block, &[fill, other]).unwrap();
                    }
                }
                Step::ReleaseGated(place) => {
                    if let Some((block, _, fill)) = take(&mut live, place) {
                        gated += block.bytes() as u64;
                        rig.allocator.release(block, &[gate.clone(), fill]).unwrap();
                    }
                }
                Step::OpenGates => {
                    rig.open(&gate);
                    gate = rig.gate();
                    gated = 0;
                }
                Step::FreeIdle => {
                    rig.allocator.free_idle();
                }
            }
            let statistics = rig.allocator.statistics();
            let taken: u64 = live.iter().map(|(block, ..)| block.bytes() as u64).sum();
            let sum = taken + statistics.pending_bytes + statistics.free_bytes;
            prop_assert_eq!(sum, statistics.segment_bytes);
            prop_assert_eq!(statistics.segment_bytes, rig.device.statistics().committed_bytes);
            prop_assert_eq!(statistics.live_blocks, live.len());
        }
        for (block, mark, fill) in live {
            prop_assert_eq!(rig.read(&block, &fill), vec![mark; block.bytes()]);
            rig.allocator.release(block, &[]).unwrap();
        }
        rig.open(&gate);
        drop(gate);
        rig.device.run();
        rig.allocator.free_idle();
        rig.ends_clean();
    }
}
