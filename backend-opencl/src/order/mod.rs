//! The order of commands that conflict, and the commands that maps refuse.
//!
//! ```text
//! access            the two kinds of use: read and write
//! memory_use        the bytes of an object that a command uses, and how
//! companions        PoCL: what a command waits for beside a user event
//! weak_queue        the queue of a tracked command
//! tracked_command   a command as logs track it
//! failures          what failed commands were to come after
//! access_log        the commands and maps of one object
//! role              the part of a command in the order of its queue
//! admission         a command enters all of its logs, and comes after the commands in them
//! ```

pub(crate) mod access_log;
pub(crate) mod admission;
pub(crate) mod companions;
pub(crate) mod failures;
pub(crate) mod memory_use;
pub(crate) mod role;
pub(crate) mod tracked_command;
pub(crate) mod weak_queue;
