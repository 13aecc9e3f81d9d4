//! What printed programs name.

#![allow(
    clippy::enum_glob_use,
    unused_imports,
    reason = "programs name operations, not their types, and no program names all"
)]

pub(crate) use binpool::ReusePolicy::*;
pub(crate) use binpool_mock::{
    CallKind::{
        AllocateSvm, Barrier, Commit, CreateBuffer, CreateSubRegion, Finish, Flush, Marker, Release,
    },
    Completion::*,
    Fault::*,
};

pub(crate) use crate::operation::{
    Block, Bytes, Hook::*, Operation::*, Queue, Setting, Source::*, Thread, Way::*,
};
