//! The content of a document, pickle or JSON: numbers, texts, lists and dictionaries that refer to each other by number.
//!
//! A pickle may refer to one object in many places, even inside itself. Here each object is stored once, so that a document
//! takes about as much memory as it has bytes, and no walk over it has to recurse. A dictionary with many
//! keys may be referred to many times, so looking up a key takes logarithmic time.

#[cfg(test)]
use std::cell::Cell;
use std::collections::HashMap;

/// The number of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id(u32);

/// One object.
#[derive(Debug)]
pub(crate) enum Object {
    Integer(i64),
    Text(Box<str>),
    List(Vec<Id>),
    /// Keys and values: in the order in which they were added, and in a complete document by key, each key once.
    Dict(Vec<(Id, Id)>),
    /// `None`, booleans, fractions, tuples, and anything else that no recording needs.
    Other,
}

/// A document.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    all: Vec<Object>,
    /// The number of each text. Each text is stored once.
    texts: HashMap<Box<str>, Id>,
    root: Option<Id>,
    /// The number of keys that were compared in dictionaries.
    #[cfg(test)]
    pub(crate) compared: Cell<usize>,
}

impl Objects {
    /// Adds an object.
    pub(crate) fn add(&mut self, object: Object) -> Id {
        // A file with so many objects does not fit into memory.
        let id = Id(u32::try_from(self.all.len()).unwrap_or(u32::MAX));
        self.all.push(object);
        id
    }

    /// Adds a text, unless it is there already.
    pub(crate) fn add_text(&mut self, text: String) -> Id {
        if let Some(id) = self.texts.get(text.as_str()) {
            return *id;
        }
        let text = text.into_boxed_str();
        let id = self.add(Object::Text(text.clone()));
        self.texts.insert(text, id);
        id
    }

    /// Marks the document as complete, with `root` as its outermost object.
    pub(crate) fn complete(&mut self, root: Id) {
        self.root = Some(root);
        for object in &mut self.all {
            if let Object::Dict(pairs) = object {
                // Of several values of a key, the last one counts; the sort is stable.
                pairs.reverse();
                pairs.sort_by_key(|(key, _)| *key);
                pairs.dedup_by_key(|(key, _)| *key);
            }
        }
    }

    /// The outermost object.
    pub(crate) fn root(&self) -> Option<Id> {
        self.root
    }

    pub(crate) fn get(&self, id: Id) -> &Object {
        self.all.get(id.0 as usize).unwrap_or(&Object::Other)
    }

    pub(crate) fn get_mut(&mut self, id: Id) -> Option<&mut Object> {
        self.all.get_mut(id.0 as usize)
    }

    /// Returns the value of `key` in a dictionary of a complete document; `None` where there is no dictionary or no such key.
    pub(crate) fn field(&self, dict: Id, key: &str) -> Option<Id> {
        let Object::Dict(pairs) = self.get(dict) else {
            return None;
        };
        let key = self.texts.get(key)?;
        let found = pairs.binary_search_by(|(own, _)| {
            #[cfg(test)]
            self.compared.set(self.compared.get() + 1);
            own.cmp(key)
        });
        let (_, value) = pairs.get(found.ok()?)?;
        Some(*value)
    }

    pub(crate) fn integer(&self, id: Id) -> Option<i64> {
        match self.get(id) {
            Object::Integer(number) => Some(*number),
            _ => None,
        }
    }

    pub(crate) fn text(&self, id: Id) -> Option<&str> {
        match self.get(id) {
            Object::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn list(&self, id: Id) -> Option<&[Id]> {
        match self.get(id) {
            Object::List(items) => Some(items),
            _ => None,
        }
    }
}
