//! The call stacks of an import, each stored once.
//!
//! Many entries of a recording share a stack, and a hostile file may name one long frame in many stacks. What all stacks take
//! together is limited, therefore; the stacks beyond are left out and counted.

use std::collections::HashMap;

/// The most bytes that all stacks may take together. Each frame counts as its text and what stores it.
const MOST_BYTES: usize = 64 << 20;

/// The bytes that store a frame beside its text.
const OF_FRAME: usize = size_of::<String>();

#[derive(Debug, Default)]
pub(crate) struct Stacks {
    /// The number of each frame.
    frames: HashMap<String, u32>,
    /// The index of each stack in `all`, by the numbers of its frames.
    known: HashMap<Vec<u32>, u32>,
    all: Vec<Vec<String>>,
    bytes: usize,
    left_out: usize,
}

impl Stacks {
    /// Returns the index of the stack with these frames, innermost first; `None` if there is none, or no room for it.
    pub(crate) fn index(&mut self, frames: impl Iterator<Item = String>) -> Option<u32> {
        let (mut numbers, mut texts) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        for frame in frames {
            bytes += frame.len() + OF_FRAME;
            // One long stack of long frames would take much before it is known to be too much.
            if bytes > MOST_BYTES {
                self.left_out += 1;
                return None;
            }
            let next = u32::try_from(self.frames.len()).ok()?;
            numbers.push(match self.frames.get(&frame) {
                Some(number) => *number,
                None => *self.frames.entry(frame.clone()).or_insert(next),
            });
            texts.push(frame);
        }
        if numbers.is_empty() {
            return None;
        }
        if let Some(index) = self.known.get(&numbers) {
            return Some(*index);
        }
        if self.bytes + bytes > MOST_BYTES {
            self.left_out += 1;
            return None;
        }
        self.bytes += bytes;
        let index = u32::try_from(self.all.len()).ok()?;
        self.known.insert(numbers, index);
        self.all.push(texts);
        Some(index)
    }

    /// Returns the frames of each stack, and how many stacks were left out.
    pub(crate) fn into_parts(self) -> (Vec<Vec<String>>, usize) {
        (self.all, self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, iter};

    use super::*;

    #[test]
    fn equal_stacks_are_one_and_an_empty_one_is_none() {
        let mut stacks = Stacks::default();
        let stack = |names: [&str; 2]| names.map(str::to_owned).into_iter();
        assert_eq!(stacks.index(stack(["a", "b"])), Some(0));
        assert_eq!(stacks.index(stack(["b", "a"])), Some(1));
        assert_eq!(stacks.index(stack(["a", "b"])), Some(0));
        assert_eq!(stacks.index(iter::empty()), None);
        assert_eq!(stacks.into_parts().0.len(), 2);
    }

    #[test]
    fn stacks_that_take_too_much_are_left_out_and_counted() {
        let mut stacks = Stacks::default();
        let long = "x".repeat(1 << 20);
        let taken = (0..70).filter_map(|stack| stacks.index(iter::once(format!("{stack}{long}"))));
        assert_eq!(taken.count(), 63);
        // A known one is given further on.
        assert_eq!(stacks.index(iter::once(format!("0{long}"))), Some(0));
        assert_eq!(stacks.into_parts().1, 7);
    }

    #[test]
    fn a_stack_that_is_too_long_is_not_read_to_its_end() {
        let mut stacks = Stacks::default();
        let read = Cell::new(0);
        let endless = iter::repeat_with(|| {
            read.set(read.get() + 1);
            "x".repeat(1 << 20)
        });
        assert_eq!(stacks.index(endless), None);
        assert_eq!((read.get(), stacks.into_parts().1), (64, 1));
    }
}
