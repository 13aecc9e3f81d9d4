//! Where in a program each of its threads is, as the program says itself: in which modules of a model, for example.

use std::{cell::Cell, collections::HashMap};

thread_local! {
    static PLACE: Cell<Place> = const { Cell::new(Place(0)) };
}

/// A place of a program; 0 is none. Blocks that are allocated there have its frames at the outer end of their call stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Place(pub(crate) u32);

impl Place {
    /// Returns where this thread is.
    pub(super) fn here() -> Self {
        PLACE.try_with(Cell::get).unwrap_or_default()
    }

    /// Has this thread be here from now on. Returns where it was.
    pub(crate) fn enter(self) -> Self {
        let entered = PLACE.try_with(|place| place.replace(self));
        entered.unwrap_or_default()
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
        let index = place.0.checked_sub(1).map(|index| index as usize);
        let frames = index.and_then(|index| self.frames.get(index));
        frames.into_iter().flat_map(|frames| frames.lines())
    }
}
