//! `Debug` of values that stand for objects of a runtime.

/// Implements `Debug`, in a line, with the fields that say something to a program. For backends.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_by {
    ($name:ident $(, |$this:ident| $($field:ident: $value:expr),+)?) => {
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $(let $this = self;)?
                f.debug_struct(stringify!($name))
                    $($(.field(stringify!($field), &$value))+)?
                    .finish_non_exhaustive()
            }
        }
    };
}
