//! Values that are equal where the runtime's object is the same one.

/// Equality and hash by the handle that `raw` gives.
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
