//! Pages of virtual memory: they live until their last handle is released, and until they are mapped nowhere.

use std::collections::{BTreeMap, HashMap};

/// Pages of the program, and what is known of them.
///
/// Handles and places are taken away before the call that ends them, and put back if that fails: once it has returned, another thread may get the
/// same ones.
#[derive(Debug, Default)]
pub(super) struct Pages<T> {
    by_handle: HashMap<usize, Handle>,
    mapped: BTreeMap<usize, u64>,
    uses: HashMap<u64, Uses<T>>,
    next_id: u64,
}

#[derive(Debug)]
struct Handle {
    id: u64,
    /// The driver gives the same handle again to a program that retains it, which releases it as often.
    count: u32,
}

#[derive(Debug)]
struct Uses<T> {
    what: T,
    handles: u32,
    maps: u32,
}

impl<T> Pages<T> {
    /// Adds pages of one handle. Returns what had that handle, if its end was not seen.
    pub(super) fn create(&mut self, handle: usize, what: T) -> Option<T> {
        let id = self.next_id;
        self.next_id += 1;
        let old = self.by_handle.insert(handle, Handle { id, count: 1 });
        let uses = Uses {
            what,
            handles: 1,
            maps: 0,
        };
        self.uses.insert(id, uses);
        let old = old?;
        if let Some(uses) = self.uses.get_mut(&old.id) {
            uses.handles = uses.handles.saturating_sub(old.count);
        }
        self.ended(old.id)
    }

    /// Adds a handle of the pages at an address.
    pub(super) fn retain(&mut self, address: usize, handle: usize) {
        let mapped = self.mapped.range(..=address).next_back();
        if let Some((_, id)) = mapped {
            self.put_handle(handle, *id);
        }
    }

    /// Adds a place where pages are mapped.
    pub(super) fn map(&mut self, address: usize, handle: usize) {
        if let Some(Handle { id, .. }) = self.by_handle.get(&handle) {
            self.put_place(address, *id);
        }
    }

    /// Takes a handle away, and returns its pages.
    pub(super) fn take_handle(&mut self, handle: usize) -> Option<u64> {
        let known = self.by_handle.get_mut(&handle)?;
        let id = known.id;
        known.count -= 1;
        if known.count == 0 {
            self.by_handle.remove(&handle);
        }
        if let Some(uses) = self.uses.get_mut(&id) {
            uses.handles = uses.handles.saturating_sub(1);
        }
        Some(id)
    }

    /// Puts a handle back that was not released.
    pub(super) fn put_handle(&mut self, handle: usize, id: u64) {
        if let Some(uses) = self.uses.get_mut(&id) {
            uses.handles += 1;
            let known = self.by_handle.entry(handle);
            known.or_insert(Handle { id, count: 0 }).count += 1;
        }
    }

    /// Takes away what is mapped there, and returns the places and their pages.
    pub(super) fn take_places(&mut self, address: usize, bytes: usize) -> Vec<(usize, u64)> {
        let range = address..address.saturating_add(bytes);
        let mapped = self.mapped.range(range);
        let places: Vec<_> = mapped.map(|(at, id)| (*at, *id)).collect();
        for (place, id) in &places {
            self.mapped.remove(place);
            if let Some(uses) = self.uses.get_mut(id) {
                uses.maps = uses.maps.saturating_sub(1);
            }
        }
        places
    }

    /// Puts a place back that was not unmapped.
    pub(super) fn put_place(&mut self, address: usize, id: u64) {
        if let Some(uses) = self.uses.get_mut(&id) {
            uses.maps += 1;
            self.mapped.insert(address, id);
        }
    }

    /// Forgets pages that have neither a handle nor a place, and returns what is known of them.
    pub(super) fn ended(&mut self, id: u64) -> Option<T> {
        let uses = self.uses.get(&id)?;
        if uses.handles > 0 || uses.maps > 0 {
            return None;
        }
        self.uses.remove(&id).map(|uses| uses.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release(pages: &mut Pages<u32>, handle: usize) -> Option<u32> {
        let id = pages.take_handle(handle)?;
        pages.ended(id)
    }

    fn unmap(pages: &mut Pages<u32>, address: usize, bytes: usize) -> Vec<u32> {
        let places = pages.take_places(address, bytes);
        let ended = places.into_iter().filter_map(|(_, id)| pages.ended(id));
        ended.collect()
    }

    #[test]
    fn pages_end_with_their_last_handle_and_map() {
        let mut pages = Pages::default();
        pages.create(7, 1);
        pages.map(0x1000, 7);
        assert_eq!(release(&mut pages, 7), None);
        assert_eq!(pages.create(7, 2), None); // The driver may use the handle again.
        assert_eq!(release(&mut pages, 7), Some(2));
        pages.retain(0x1800, 9);
        assert!(unmap(&mut pages, 0x1000, 0x1000).is_empty());
        assert_eq!(release(&mut pages, 9), Some(1));
        assert_eq!(release(&mut pages, 9), None);
    }

    #[test]
    fn a_handle_that_was_released_names_nothing() {
        let mut pages = Pages::default();
        pages.create(7, 1);
        pages.map(0x1000, 7);
        pages.retain(0x1000, 9);
        assert_eq!(release(&mut pages, 7), None);
        pages.map(0x5000, 7);
        assert_eq!(release(&mut pages, 7), None);
        assert!(unmap(&mut pages, 0x1000, 0x1000).is_empty());
        assert_eq!(release(&mut pages, 9), Some(1));
    }

    #[test]
    fn a_handle_is_released_as_often_as_it_was_given() {
        let mut pages = Pages::default();
        pages.create(7, 1);
        pages.map(0x1000, 7);
        pages.retain(0x1000, 7);
        assert!(unmap(&mut pages, 0x1000, 0x1000).is_empty());
        assert_eq!(release(&mut pages, 7), None);
        assert_eq!(release(&mut pages, 7), Some(1));
    }

    #[test]
    fn what_was_taken_is_put_back() {
        let mut pages = Pages::default();
        pages.create(7, 1);
        pages.map(0x1000, 7);
        let id = pages.take_handle(7).unwrap();
        pages.put_handle(7, id);
        for (place, id) in pages.take_places(0x1000, 0x1000) {
            pages.put_place(place, id);
        }
        assert_eq!(release(&mut pages, 7), None);
        assert_eq!(unmap(&mut pages, 0x1000, 0x1000), [1]);
    }

    #[test]
    fn a_range_of_maps_ends_together() {
        let mut pages = Pages::default();
        for id in 1..=3_u32 {
            pages.create(7, id);
            pages.map(0x1000 * id as usize, 7);
            release(&mut pages, 7);
        }
        assert_eq!(unmap(&mut pages, 0x1000, 0x2000), [1, 2]);
        assert_eq!(unmap(&mut pages, 0x3000, 0x1000), [3]);
    }
}
