//! What a document holds, pickle or JSON: numbers, texts, lists and dictionaries that name each other by number.
//!
//! A pickle may name one object in many places, itself among them. Here each is stored once, so that a document takes as
//! much memory as it has bytes, about, however it is knotted; and nothing that walks it has to recurse.

use std::collections::HashMap;

/// The number of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Id(u32);

/// One object.
#[derive(Debug)]
pub(crate) enum Object {
    Integer(i64),
    Text(Box<str>),
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    /// `None`, booleans, fractions, tuples, and whatever else no recording needs.
    Other,
}

/// A document.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    all: Vec<Object>,
    /// The number of each text, which is there once.
    texts: HashMap<Box<str>, Id>,
    root: Option<Id>,
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

    /// Says which object the document is.
    pub(crate) fn set_root(&mut self, root: Id) {
        self.root = Some(root);
    }

    /// The document itself.
    pub(crate) fn root(&self) -> Option<Id> {
        self.root
    }

    pub(crate) fn get(&self, id: Id) -> &Object {
        self.all.get(id.0 as usize).unwrap_or(&Object::Other)
    }

    pub(crate) fn get_mut(&mut self, id: Id) -> Option<&mut Object> {
        self.all.get_mut(id.0 as usize)
    }

    /// The value of `key` in a dictionary; `None` where it is none, or has no such key. Of several, the last.
    pub(crate) fn field(&self, dict: Id, key: &str) -> Option<Id> {
        let Object::Dict(pairs) = self.get(dict) else {
            return None;
        };
        let key = self.texts.get(key)?;
        let pair = pairs.iter().rev().find(|(own, _)| own == key);
        pair.map(|(_, value)| *value)
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
