//! The order of commands that conflict, and who is kept out by maps.
//!
//! ```text
//! access        what a command does with which bytes of which object
//! access_log    what commands and maps do with one object
//! logged        a command as it stands in such logs
//! admission     a command enters the logs of all that it uses, and comes after what stands there
//! ```

pub(crate) mod access;
pub(crate) mod access_log;
pub(crate) mod admission;
pub(crate) mod logged;
