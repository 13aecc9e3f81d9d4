//! The checks, a promise each. The suites name them; their macros need them to be public.

pub mod allocation;
pub mod buffers;
pub mod commits;
pub mod events;
pub mod failure_order;
pub mod failures;
pub mod foreign;
pub mod hazards;
pub mod kernels;
pub mod lifetimes;
pub mod ordering;
pub mod queues;
pub mod regions;
pub mod shortage;
pub mod svm;
pub mod svm_binding;
pub mod svm_lifetimes;
pub mod threads;
pub mod transfers;
pub mod virtual_memory;
