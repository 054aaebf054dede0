//! What SECURITY.md promises: secrets are not shown, no name or argument reaches beyond its limiter's
//! keys, the documented access rules suffice, and dependencies are those that were agreed on.

mod acl;
mod calls;
mod dependencies;
mod names;
mod secrets;
