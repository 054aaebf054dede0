//! The setters of builders.

/// Defines setters, each of which takes the value by itself, sets one field, and returns the value:
/// `pub fn name(argument: Type) => field = value;`
macro_rules! setters {
    ($builder:ident $(<$parameter:ident>)?: $(
        $(#[$meta:meta])*
        $vis:vis fn $name:ident($($argument:ident: $type:ty),*) =>
            $($field:ident $(($($call:tt)*))?).+ = $value:expr;
    )*) => {
        impl $(<$parameter>)? $builder $(<$parameter>)? {
            $(
                $(#[$meta])*
                $vis fn $name(mut self, $($argument: $type),*) -> Self {
                    self.$($field $(($($call)*))?).+ = $value;
                    self
                }
            )*
        }
    };
}
