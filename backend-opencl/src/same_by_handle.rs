//! Equality of values that stand for the same object of the runtime.

/// Implements equality and hash by the handle that `raw` returns.
macro_rules! same_by_handle {
    ($name:ident) => {
        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.raw() == other.raw()
            }
        }

        impl Eq for $name {}

        impl std::hash::Hash for $name {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                self.raw().hash(state);
            }
        }
    };
}

pub(crate) use same_by_handle;
