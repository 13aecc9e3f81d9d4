//! What printed programs name.

#![allow(
    clippy::enum_glob_use,
    unused_imports,
    reason = "programs name operations, not their types, and no program names all"
)]

pub(crate) use binpool::ReusePolicy::*;
pub(crate) use binpool_allocators::FailureOrder::*;
pub(crate) use binpool_mock::{
    CallKind::{
        AllocateSvm, Barrier, Commit, CreateBuffer, CreateSubRegion, Finish, Flush, Marker, Release,
    },
    Completion::*,
    Failures,
    Fault::*,
};

pub(crate) use crate::model::operation::{
    Block, Bytes, Hook::*, Operation::*, Queue, Setting, Source::*, Thread, View, Way::*,
};
