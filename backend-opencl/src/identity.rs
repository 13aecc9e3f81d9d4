//! Equality and hash of values that stand for an object of the runtime.

/// Implements equality and hash by a key.
macro_rules! same_by {
    ($name:ident, |$this:ident| $key:expr) => {
        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                let key = |$this: &Self| $key;
                key(self) == key(other)
            }
        }

        impl Eq for $name {}

        impl std::hash::Hash for $name {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                let key = |$this: &Self| $key;
                key(self).hash(state);
            }
        }
    };
}

pub(crate) use same_by;
