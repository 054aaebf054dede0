//! The store that asks a server, by the scripts in `lua/`.
