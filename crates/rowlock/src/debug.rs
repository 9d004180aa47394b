//! `Debug` of types that hold more than a log may show.

/// Implements `Debug` with the type's name and the fields that are listed. Connections, URLs, states and payloads are
/// left out: none of them belongs in a log.
macro_rules! debug_fields {
    ([$($generics:tt)*] $type:ty, $name:literal $(, $field:ident)*) => {
        impl<$($generics)*> std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct($name)$(.field(stringify!($field), &self.$field))*.finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use debug_fields;
