//! Tests of the store against a server of its own.
