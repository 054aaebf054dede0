//! The programs of pages that need axum, reqwest, an exporter or a subscriber, as doc tests. Were they tests of the crate
//! itself, as those of the other pages are, all its tests would build these crates too.

macro_rules! page {
    ($name:ident, $path:literal) => {
        #[cfg(doctest)]
        #[doc = include_str!($path)]
        struct $name;
    };
}

page!(Readme, "../../../README.md");
page!(Web, "../../../docs/web.md");
page!(Observability, "../../../docs/observability.md");
