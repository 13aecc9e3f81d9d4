//! Where in a program each of its threads is, as the program says itself: in which modules of a model, for example.

use std::{
    cell::Cell,
    collections::HashMap,
    sync::atomic::{AtomicU32, Ordering},
};

thread_local! {
    static HERE: Cell<Stay> = const { Cell::new(Stay { place: Place(0), backward: 0 }) };
}

/// The number of the backward pass that goes on, or will be the next one, from 1 on.
static BACKWARD: AtomicU32 = AtomicU32::new(1);

/// Where threads of backward passes are that have ended.
static AFTER_BACKWARD: AtomicU32 = AtomicU32::new(0);

/// A place of a program; 0 is none. Blocks that are allocated there have its frames at the outer end of their call stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Place(pub(crate) u32);

/// How long a thread is at a place: until it enters another one, or until a backward pass ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stay {
    place: Place,
    /// The number of the backward pass; 0 for none.
    backward: u32,
}

impl Place {
    /// Returns where this thread is.
    pub(super) fn here() -> Self {
        let Stay { place, backward } = HERE.try_with(Cell::get).unwrap_or_default();
        if backward == 0 || backward == BACKWARD.load(Ordering::Relaxed) {
            place
        } else {
            Self(AFTER_BACKWARD.load(Ordering::Relaxed))
        }
    }

    /// Returns a stay here until the thread enters another place.
    pub(crate) fn for_good(self) -> Stay {
        Stay {
            place: self,
            backward: 0,
        }
    }

    /// Returns a stay here until the backward pass ends.
    pub(crate) fn of_backward(self) -> Stay {
        Stay {
            place: self,
            backward: BACKWARD.load(Ordering::Relaxed),
        }
    }

    /// Ends the stays of the backward pass: their threads are here from now on.
    pub(crate) fn end_backward(self) {
        AFTER_BACKWARD.store(self.0, Ordering::Relaxed);
        BACKWARD.fetch_add(1, Ordering::Relaxed);
    }
}

impl Stay {
    /// Has this thread be there. Returns where it was.
    pub(crate) fn enter(self) -> Self {
        let entered = HERE.try_with(|here| here.replace(self));
        entered.unwrap_or_default()
    }

    /// Returns the stay as a number.
    pub(crate) fn number(self) -> u64 {
        u64::from(self.backward) << u32::BITS | u64::from(self.place.0)
    }

    /// Returns the stay of a number.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the halves are taken apart"
    )]
    pub(crate) fn of_number(number: u64) -> Self {
        Self {
            place: Place(number as u32),
            backward: (number >> u32::BITS) as u32,
        }
    }
}

/// The frames of each place, and its number.
#[derive(Debug, Default)]
pub(super) struct Places {
    frames: Vec<String>,
    numbers: HashMap<String, Place>,
}

impl Places {
    /// Returns the place with these frames, a line for each, innermost first.
    pub(super) fn named(&mut self, frames: &str) -> Place {
        if let Some(place) = self.numbers.get(frames) {
            return *place;
        }
        self.frames.push(frames.to_owned());
        let place = Place(u32::try_from(self.frames.len()).unwrap_or(0));
        self.numbers.insert(frames.to_owned(), place);
        place
    }

    /// Returns the frames of a place.
    pub(super) fn frames_of(&self, place: Place) -> impl Iterator<Item = &str> {
        // 0, which is none, is beyond all.
        let frames = self.frames.get((place.0 as usize).wrapping_sub(1));
        frames.into_iter().flat_map(|frames| frames.lines())
    }
}
