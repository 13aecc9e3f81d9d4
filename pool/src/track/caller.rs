//! The callers that request blocks: their tags, and their places in the program.

use std::{cell::Cell, panic::Location, ptr};

use crate::{
    Tag,
    track::names::{Name, number_of},
};
use binpool_lock::sync::thread_local;

/// The caller of a request: the numbers of its tag and call site, 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Caller {
    pub(crate) tag: u32,
    pub(crate) call_site: u32,
}

/// The call sites whose numbers a thread remembers. A power of two.
const REMEMBERED_SITES: usize = 64;

thread_local! {
    /// Indexed by some bits of the address.
    static SITES: [Cell<(*const Location<'static>, u32)>; REMEMBERED_SITES] =
        const { [const { Cell::new((ptr::null(), 0)) }; REMEMBERED_SITES] };
}

impl Caller {
    /// Returns the caller for this thread, at `site`.
    #[inline]
    pub(crate) fn here(site: &'static Location<'static>) -> Self {
        Self {
            tag: Tag::current(),
            call_site: number_of_location(site),
        }
    }

    /// Returns the caller for this thread, without a place.
    pub(crate) fn without_site() -> Self {
        Self {
            tag: Tag::current(),
            call_site: 0,
        }
    }

    /// Returns the caller for this thread with its call stack, which begins beyond these crates. Without the feature
    /// `backtrace`, at `site`.
    pub(crate) fn with_stack(
        site: &'static Location<'static>,
        beyond: &'static [&'static str],
    ) -> Self {
        Self {
            tag: Tag::current(),
            call_site: number_of_stack(site, beyond),
        }
    }

    /// Packs both numbers into one.
    pub(crate) fn packed(self) -> u64 {
        u64::from(self.tag) << 32 | u64::from(self.call_site)
    }

    pub(crate) fn unpacked(packed: u64) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the halves are taken apart"
        )]
        let [tag, call_site] = [(packed >> 32) as u32, packed as u32];
        Self { tag, call_site }
    }

    /// Returns the number of the tag, or else of the call site, by which a recording groups blocks.
    pub(crate) fn group(self) -> u32 {
        if self.tag == 0 {
            self.call_site
        } else {
            self.tag
        }
    }
}

#[inline]
fn number_of_location(site: &'static Location<'static>) -> u32 {
    let address = ptr::from_ref(site);
    // Locations have 24 bytes and lie next to each other.
    let index = (address.addr() / 8) % REMEMBERED_SITES;
    let remembered = SITES.try_with(|sites| sites[index].get());
    match remembered {
        Ok((remembered, number)) if remembered == address => number,
        _ => number_anew(site, index),
    }
}

/// Returns the number of a call site that the thread does not remember, and remembers it.
#[cold]
#[inline(never)]
fn number_anew(site: &'static Location<'static>, index: usize) -> u32 {
    let number = number_of(Name::Location(site));
    // A thread that ends has no table any more.
    let _remembered = SITES.try_with(|sites| sites[index].set((ptr::from_ref(site), number)));
    number
}

#[cfg(feature = "backtrace")]
fn number_of_stack(_site: &'static Location<'static>, beyond: &'static [&'static str]) -> u32 {
    number_of(Name::Stack(crate::track::stack::Stack::here(beyond)))
}

#[cfg(not(feature = "backtrace"))]
fn number_of_stack(site: &'static Location<'static>, _beyond: &'static [&'static str]) -> u32 {
    number_of_location(site)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::track::names::name_of;

    #[track_caller]
    fn here() -> Caller {
        Caller::here(Location::caller())
    }

    #[test]
    fn the_same_call_site_has_one_number_and_another_has_another() {
        let numbers: Vec<_> = (0..3).map(|_| here().call_site).collect();
        assert!(numbers.iter().all(|number| *number == numbers[0]));
        let other = here().call_site;
        assert_ne!(numbers[0], other);
        assert_eq!(std::thread::spawn(here).join().unwrap().tag, 0);
        let name = name_of(other).unwrap();
        assert!(name.contains("caller.rs:"), "{name}");
    }

    #[test]
    fn a_caller_is_packed_and_unpacked() {
        let caller = Caller {
            tag: 7,
            call_site: u32::MAX,
        };
        assert_eq!(Caller::unpacked(caller.packed()), caller);
    }

    #[test]
    fn a_tag_takes_precedence_over_the_call_site() {
        let plain = here();
        assert_eq!(plain.group(), plain.call_site);
        let tag = Tag::new("before the call site");
        let tagged = tag.within(here);
        assert_eq!(tagged.group(), tagged.tag);
        assert_eq!(name_of(tagged.group()).unwrap(), "before the call site");
        assert_eq!(name_of(0), None);
    }
}
