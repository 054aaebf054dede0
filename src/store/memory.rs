//! The in-process store: the rules as plain Rust, the executable model.
