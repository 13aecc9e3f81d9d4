//! The bytes of memory objects: views, images over buffers and buffers over shared memory have those of their root.

use super::{cells::Cell, commands::Gates};

/// Where an object lies: in which root, and how far from its start. `None` for memory that several threads write, of
/// which the model knows nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) root: Option<usize>,
    pub(crate) offset: usize,
}

#[derive(Debug)]
struct Root {
    cells: Vec<Cell>,
    /// What the commands on it may wait for.
    gates: Gates,
    /// How many maps of it the program holds.
    maps: usize,
    /// How many open maps keep an object in it, whatever the thread drops, until the steps within them are over.
    kept: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Roots {
    all: Vec<Root>,
}

impl Roots {
    pub(crate) fn add(&mut self, cells: Vec<Cell>) -> Place {
        self.all.push(Root {
            cells,
            gates: 0,
            maps: 0,
            kept: 0,
        });
        Place {
            root: Some(self.all.len() - 1),
            offset: 0,
        }
    }

    pub(crate) fn gates(&self, place: Place) -> Gates {
        place.root.map_or(0, |root| self.all[root].gates)
    }

    pub(crate) fn add_gates(&mut self, place: Place, gates: Gates) {
        if let Some(root) = place.root {
            self.all[root].gates |= gates;
        }
    }

    /// Returns whether a command may be refused because the memory is mapped.
    pub(crate) fn may_be_mapped(&self, place: Place) -> bool {
        place.root.is_none_or(|root| self.all[root].maps > 0)
    }

    pub(crate) fn mapped(&mut self, place: Place) {
        if let Some(root) = place.root {
            self.all[root].maps += 1;
        }
    }

    pub(crate) fn unmapped(&mut self, place: Place) {
        if let Some(root) = place.root {
            self.all[root].maps -= 1;
        }
    }

    pub(crate) fn is_kept(&self, place: Place) -> bool {
        place.root.is_none_or(|root| self.all[root].kept > 0)
    }

    pub(crate) fn keep(&mut self, place: Place) {
        if let Some(root) = place.root {
            self.all[root].kept += 1;
        }
    }

    pub(crate) fn let_go(&mut self, place: Place) {
        if let Some(root) = place.root {
            self.all[root].kept -= 1;
        }
    }

    /// The cells of `bytes` bytes from `offset` on.
    pub(crate) fn read(&self, place: Place, offset: usize, bytes: usize) -> Vec<Cell> {
        let Some(root) = place.root else {
            return vec![Cell::UNKNOWN; bytes];
        };
        let start = place.offset + offset;
        self.all[root].cells[start..start + bytes].to_vec()
    }

    pub(crate) fn write(&mut self, place: Place, offset: usize, cells: &[Cell]) {
        if let Some(root) = place.root {
            let start = place.offset + offset;
            self.all[root].cells[start..start + cells.len()].copy_from_slice(cells);
        }
    }

    pub(crate) fn forget(&mut self, place: Place, offset: usize, bytes: usize) {
        self.write(place, offset, &vec![Cell::UNKNOWN; bytes]);
    }
}
