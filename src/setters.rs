//! The setters of builders.

/// Defines setters, each of which takes the builder, sets one field, and returns the builder:
/// `pub fn name(argument: Type) => field = value;`
macro_rules! setters {
    ($builder:ident $(<$parameter:ident>)?: $(
        $(#[$meta:meta])*
        pub fn $name:ident($($argument:ident: $type:ty),*) => $($field:ident).+ = $value:expr;
    )*) => {
        impl $(<$parameter>)? $builder $(<$parameter>)? {
            $(
                $(#[$meta])*
                pub fn $name(mut self, $($argument: $type),*) -> Self {
                    self.$($field).+ = $value;
                    self
                }
            )*
        }
    };
}
