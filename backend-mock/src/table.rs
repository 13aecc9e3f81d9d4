//! A slab whose keys are never used twice.

use std::{fmt, marker::PhantomData};

use slab::Slab;

/// The key of one value of a [`Table`]. It never finds a later value in the same slot.
pub(crate) struct Key<T> {
    index: usize,
    generation: u64,
    table_of: PhantomData<fn() -> T>,
}

impl<T> Clone for Key<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Key<T> {}

impl<T> PartialEq for Key<T> {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index && self.generation == other.generation
    }
}

impl<T> Eq for Key<T> {}

impl<T> fmt::Debug for Key<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.generation)
    }
}

/// A [`Slab`] that tells apart the values that used the same slot, by a number that counts insertions.
#[derive(Debug)]
pub(crate) struct Table<T> {
    slots: Slab<(u64, T)>,
    insertions: u64,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            slots: Slab::new(),
            insertions: 0,
        }
    }
}

impl<T> Table<T> {
    pub(crate) fn insert(&mut self, value: T) -> Key<T> {
        self.insertions += 1;
        let generation = self.insertions;
        Key {
            index: self.slots.insert((generation, value)),
            generation,
            table_of: PhantomData,
        }
    }

    pub(crate) fn get(&self, key: Key<T>) -> Option<&T> {
        match self.slots.get(key.index) {
            Some((generation, value)) if *generation == key.generation => Some(value),
            _ => None,
        }
    }

    pub(crate) fn get_mut(&mut self, key: Key<T>) -> Option<&mut T> {
        match self.slots.get_mut(key.index) {
            Some((generation, value)) if *generation == key.generation => Some(value),
            _ => None,
        }
    }

    pub(crate) fn remove(&mut self, key: Key<T>) -> Option<T> {
        self.get(key)?;
        self.slots.try_remove(key.index).map(|(_, value)| value)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key<T>, &T)> {
        self.slots.iter().map(|(index, (generation, value))| {
            let key = Key {
                index,
                generation: *generation,
                table_of: PhantomData,
            };
            (key, value)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn a_key_never_finds_what_took_its_place() {
        let mut table = Table::default();
        let old = table.insert("old");
        assert_eq!(table.remove(old), Some("old"));
        let new = table.insert("new");
        assert_eq!(table.get(old), None);
        assert_eq!(table.get_mut(old), None);
        assert_eq!(table.remove(old), None);
        assert_eq!(table.get(new), Some(&"new"));
        assert_eq!(table.len(), 1);
    }
}
