//! What the memory of a thread holds if its commands run one after another.

pub(crate) mod cells;
pub(crate) mod commands;
pub(crate) mod expected;
pub(crate) mod roots;
