//! Equality, hash and `{:?}` of values that stand for an object of the runtime.

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

/// Implements `Debug` with some fields, so that a value is printed in a line.
macro_rules! debug_by {
    ($name:ident, |$this:ident| $($field:ident: $value:expr),+) => {
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $this = self;
                f.debug_struct(stringify!($name))
                    $(.field(stringify!($field), &$value))+
                    .finish_non_exhaustive()
            }
        }
    };
}

pub(crate) use {debug_by, same_by};
