//! A whole simulated device for binpool: in process, deterministic, and stricter than real ones.
//!
//! [`MockDevice`] is the test's side: it decides when commands run, makes calls fail, and reports what happened.
//! [`MockBackend`] is for the program under test, which uses it like a real device's backend: it implements
//! [`Backend`](binpool_allocators::Backend) and [`SvmBackend`](binpool_allocators::SvmBackend).
//!
//! ```
//! use binpool_allocators::{Queue, Backend, Error, MemoryFlags, QueueOrder, Region};
//! use binpool_mock::{Completion, Fault, CallKind, MockDevice, Persistence};
//!
//! let device = MockDevice::builder()
//!     .capacity_bytes(1 << 20)
//!     .completion(Completion::Seeded(42))
//!     .build();
//! let backend = device.backend();
//! let queue = backend.create_queue(QueueOrder::OutOfOrder)?;
//!
//! // Memory is only promised at first. A shortage shows later.
//! let [one, two] = [(); 2].map(|()| backend.create_buffer(1 << 20, MemoryFlags::empty()).unwrap());
//! backend.commit(&queue, &one)?;
//! assert!(backend.commit(&queue, &two).unwrap_err().is_out_of_memory());
//!
//! // Commands move bytes when they run.
//! let fill = backend.enqueue_fill(&queue, &one, Region::first(16), &[7_u8])?;
//! let mut bytes = [0_u8; 16];
//! backend.read(queue.after(&[fill]), &one, 0, &mut bytes)?;
//! assert_eq!(bytes, [7; 16]);
//!
//! // Calls fail when a test injects faults.
//! device.fail_nth(CallKind::Marker, 1, Fault::Backend(-5), Persistence::Once);
//! assert!(matches!(backend.enqueue_marker(&queue), Err(Error::Backend(_))));
//! # Ok::<(), Error>(())
//! ```
//!
//! # What it simulates
//!
//! - **Memory**: a capacity; buffers that are committed by the first command that uses them, which is where
//!   out-of-memory appears; views with an alignment; SVM with real addresses ([`MockDeviceBuilder`]).
//! - **Commands** that really move bytes, kernels ([`MockBackend::launch`]) among them, in any order that
//!   queues, barriers and wait lists allow ([`Completion`]).
//! - **Failures**: the nth call of a kind, or calls at random ([`Fault`]); commands that wait for a failed event, and the
//!   effect on the commands after them ([`Failures`]).
//! - **Misuse**: double free, use after free, SVM freed in use ([`Violation`]), leaks ([`LeakReport`]).
//! - **Races**: two commands that touch the same bytes without an order, in whichever order they happened to run
//!   ([`Race`]).
//! - **Time**: the cost of the calls on a real device ([`DeviceProfile`]).
//!
//! # Determinism
//!
//! While one thread drives a device, the same program gives the same run, whatever else the process does:
//! nothing depends on a clock, an address, or the identities of objects, which are unique in the process.
//!
//! # Features
//!
//! Both are off by default.
//!
//! - `conformance`: devices for the sweeps of `binpool_conformance::sweep`, in which every call fails once.
//! - `serde`: [`DeviceProfile`] as a document.
//!
//! # Implementation
//!
//! A device is one state behind one lock. Kernels run without the lock, on the thread that drives the device,
//! with a claim on their blocks; every other command runs under the lock. No closure, destructor or log
//! subscriber of the program is called while it is held. Contents are allocated on the host by the first
//! command that uses them, so creating and committing cost no memory; SVM reserves zeroed pages, which cost
//! nothing until they are used.
//!
//! # What this crate does not do
//!
//! Every command counts as flushed. All threads of the host count as one: what one of them has waited for counts as
//! seen by all, and accesses of the host to the bytes of SVM are not checked. Unflushed commands, maps, images and kernels
//! in a device language are not simulated. Costs do not depend on what runs at the same time.

// Says of each item on docs.rs which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]

mod backend;
mod builder;
mod call;
mod cause;
mod clock;
mod command;
mod completion;
mod config;
mod device;
mod event;
mod failures;
mod fault;
mod launch;
mod leak;
mod memory;
mod profile;
mod queue;
mod race;

mod effect;
mod shared;
mod state;
mod statistics;
#[allow(
    unsafe_code,
    reason = "the bytes of blocks, which host and kernels share"
)]
mod storage;
mod svm;
#[cfg(feature = "conformance")]
mod swept;
mod sync;
mod table;
mod turnstile;
mod violation;
mod virtual_memory;

pub use backend::MockBackend;
pub use builder::MockDeviceBuilder;
pub use call::{Call, CallCounts, CallKind};
pub use command::{CommandId, CommandRecord};
pub use completion::{Completion, HostWait};
pub use device::MockDevice;
pub use event::MockEvent;
pub use failures::Failures;
pub use fault::{Fault, Persistence};
pub use leak::{Holder, LeakReport, LiveMemory};
pub use memory::{MockHandle, MockMemory};
pub use profile::{CostModel, CostTable, DeviceProfile};
pub use queue::MockQueue;
pub use race::{Race, Touch};
pub use statistics::MockStatistics;
#[cfg(feature = "conformance")]
pub use swept::SweptDevices;
pub use violation::Violation;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;

// Every handle may be used from any thread.
const _: fn() = || {
    fn assert_handle<T: Send + Sync + 'static>() {}
    fn assert_backend<B: binpool_allocators::SvmBackend>() {}
    assert_handle::<MockDevice>();
    assert_backend::<MockBackend>();
};
