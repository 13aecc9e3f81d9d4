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
    /// Booleans are 0 and 1, as in Python.
    Integer(i64),
    Text(Box<str>),
    List(Vec<Id>),
    /// Keys and values: in the order in which they were added, and in a complete document by key, each key once.
    Dict(Vec<(Id, Id)>),
    /// `None`, fractions, tuples, and anything else that no recording needs.
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
        // A file with more objects does not fit into memory.
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
    pub(crate) fn root(&self) -> Option<Node<'_>> {
        Some(self.node(self.root?))
    }

    pub(crate) fn get_mut(&mut self, id: Id) -> Option<&mut Object> {
        self.all.get_mut(id.0 as usize)
    }

    fn node(&self, id: Id) -> Node<'_> {
        Node { objects: self, id }
    }
}

/// An object of a complete document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<'o> {
    objects: &'o Objects,
    pub(crate) id: Id,
}

impl<'o> Node<'o> {
    fn object(self) -> &'o Object {
        let object = self.objects.all.get(self.id.0 as usize);
        object.unwrap_or(&Object::Other)
    }

    pub(crate) fn as_integer(self) -> Option<i64> {
        match self.object() {
            Object::Integer(number) => Some(*number),
            _ => None,
        }
    }

    pub(crate) fn as_text(self) -> Option<&'o str> {
        match self.object() {
            Object::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn as_list(self) -> Option<List<'o>> {
        match self.object() {
            Object::List(items) => Some(List {
                objects: self.objects,
                items,
            }),
            _ => None,
        }
    }

    /// Returns the value of `key` in a dictionary; `None` if there is no dictionary or no such key.
    pub(crate) fn field(self, key: &str) -> Option<Self> {
        let Object::Dict(pairs) = self.object() else {
            return None;
        };
        let key = self.objects.texts.get(key)?;
        let found = pairs.binary_search_by(|(own, _)| {
            #[cfg(test)]
            self.objects.compared.set(self.objects.compared.get() + 1);
            own.cmp(key)
        });
        let (_, value) = pairs.get(found.ok()?)?;
        Some(self.objects.node(*value))
    }

    pub(crate) fn integer(self, key: &str) -> Option<i64> {
        self.field(key)?.as_integer()
    }

    /// Returns the number of a field, unless it is negative.
    pub(crate) fn natural(self, key: &str) -> Option<u64> {
        u64::try_from(self.integer(key)?).ok()
    }

    pub(crate) fn text(self, key: &str) -> Option<&'o str> {
        self.field(key)?.as_text()
    }

    pub(crate) fn list(self, key: &str) -> Option<List<'o>> {
        self.field(key)?.as_list()
    }
}

/// The items of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct List<'o> {
    objects: &'o Objects,
    items: &'o [Id],
}

impl<'o> List<'o> {
    pub(crate) fn len(self) -> usize {
        self.items.len()
    }

    pub(crate) fn is_empty(self) -> bool {
        self.items.is_empty()
    }

    pub(crate) fn get(self, index: usize) -> Option<Node<'o>> {
        Some(self.objects.node(*self.items.get(index)?))
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Node<'o>> {
        self.items.iter().map(move |id| self.objects.node(*id))
    }
}
