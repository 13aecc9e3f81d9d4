//! What a program has on CUDA devices, by the addresses and handles that it passes.

use std::collections::HashMap;

use smallvec::{SmallVec, smallvec};

use super::{
    arguments::Arguments,
    function::{Effect, Space},
    pages::Pages,
};

/// The blocks of a program, and what is known of each.
///
/// What a call frees is [taken](Self::take) before it: once it has returned, another thread may get the same address. It
/// [ends](Self::after) once the call has succeeded.
#[derive(Debug, Default)]
pub(super) struct Live<T> {
    blocks: HashMap<(Space, usize), InContext<T>>,
    pages: Pages<T>,
    /// The primary context of each device.
    primaries: HashMap<usize, usize>,
}

/// A block, with the context that it ends with.
#[derive(Debug)]
pub(super) struct InContext<T> {
    what: T,
    context: usize,
}

/// What a call is to end.
#[derive(Debug)]
pub(super) enum Taken<T> {
    Nothing,
    Blocks(SmallVec<[(Space, usize, InContext<T>); 1]>),
    /// A handle of pages.
    Handle(usize, u64),
    /// Places of pages.
    Places(Vec<(usize, u64)>),
}

impl<T> Live<T> {
    /// Adds a block that was allocated in a context. Returns the one that had its address or handle, if its end was not seen.
    pub(super) fn put(
        &mut self,
        space: Space,
        handle: usize,
        context: usize,
        what: T,
    ) -> Option<T> {
        if space == Space::Pages {
            return self.pages.create(handle, what);
        }
        let old = self
            .blocks
            .insert((space, handle), InContext { what, context });
        old.map(|old| old.what)
    }

    /// Takes what a call is to end.
    pub(super) fn take(&mut self, effect: Effect, arguments: Arguments) -> Taken<T> {
        match effect {
            Effect::Frees {
                space: Space::Pages,
                block,
                ..
            } => {
                let handle = arguments.word(block);
                let id = self.pages.take_handle(handle);
                id.map_or(Taken::Nothing, |id| Taken::Handle(handle, id))
            }
            Effect::Frees { space, block, .. } => {
                let handle = arguments.word(block);
                let block = self.blocks.remove(&(space, handle));
                block.map_or(Taken::Nothing, |block| {
                    Taken::Blocks(smallvec![(space, handle, block)])
                })
            }
            Effect::UnmapsPages => {
                Taken::Places(self.pages.take_places(arguments.word(0), arguments.word(1)))
            }
            Effect::DestroysContext => self.take_context(arguments.word(0)),
            Effect::ResetsPrimary => self.take_primary(arguments.number(0)),
            _ => Taken::Nothing,
        }
    }

    /// Takes the blocks of the primary context of a device.
    pub(super) fn take_primary(&mut self, device: usize) -> Taken<T> {
        match self.primary(device) {
            Some(context) => self.take_context(context),
            None => Taken::Nothing,
        }
    }

    fn take_context(&mut self, context: usize) -> Taken<T> {
        let of_context = self.blocks.extract_if(|_, block| block.context == context);
        let taken = of_context.map(|((space, handle), block)| (space, handle, block));
        Taken::Blocks(taken.collect())
    }

    /// Returns the primary context of a device, if the program has retained it.
    pub(super) fn primary(&self, device: usize) -> Option<usize> {
        self.primaries.get(&device).copied()
    }

    /// Notes what a call that has succeeded has done beside allocating, and returns the blocks that have ended.
    pub(super) fn after(
        &mut self,
        effect: Effect,
        arguments: Arguments,
        taken: Taken<T>,
    ) -> SmallVec<[T; 1]> {
        match effect {
            Effect::RetainsPages => self.pages.retain(arguments.word(1), arguments.got(0)),
            Effect::MapsPages => self.pages.map(arguments.word(0), arguments.word(3)),
            Effect::RetainsPrimary => {
                let (device, context) = (arguments.number(1), arguments.got(0));
                self.primaries.insert(device, context);
            }
            _ => {}
        }
        match taken {
            Taken::Nothing => SmallVec::new(),
            Taken::Blocks(blocks) => blocks.into_iter().map(|(.., block)| block.what).collect(),
            Taken::Handle(_, id) => self.pages.ended(id).into_iter().collect(),
            Taken::Places(places) => {
                let ended = places
                    .into_iter()
                    .filter_map(|(_, id)| self.pages.ended(id));
                ended.collect()
            }
        }
    }

    /// Puts back what a call was to end that has failed.
    pub(super) fn put_back(&mut self, taken: Taken<T>) {
        match taken {
            Taken::Nothing => {}
            Taken::Blocks(blocks) => {
                let blocks = blocks.into_iter();
                let by_handle = blocks.map(|(space, handle, block)| ((space, handle), block));
                self.blocks.extend(by_handle);
            }
            Taken::Handle(handle, id) => self.pages.put_handle(handle, id),
            Taken::Places(places) => {
                for (place, id) in places {
                    self.pages.put_place(place, id);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_whose_end_was_not_seen_ends_when_another_has_its_handle() {
        let mut live = Live::default();
        for space in [Space::Memory, Space::Pages] {
            assert_eq!(live.put(space, 7, 1, 1), None);
            assert_eq!(live.put(space, 8, 1, 2), None);
            assert_eq!(live.put(space, 7, 1, 3), Some(1));
        }
    }
}
