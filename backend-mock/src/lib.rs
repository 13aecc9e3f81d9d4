//! A whole simulated device, in process, deterministic.

#![deny(unsafe_code)]

mod backend;
mod builder;
mod call;
mod command;
mod completion;
mod device;
mod error;
mod event;
mod fault;
mod launch;
mod leak;
mod memory;
mod profile;
mod queue;
mod random;
mod shared;
mod state;
mod statistics;
#[allow(
    unsafe_code,
    reason = "the bytes of blocks, which host and kernels share"
)]
mod storage;
mod svm;
mod table;
mod violation;
mod work;

pub use backend::MockBackend;
pub use builder::MockDeviceBuilder;
pub use call::{Call, CallCounts, CallKind};
pub use command::{CommandId, CommandRecord};
pub use completion::{Completion, HostWait};
pub use device::MockDevice;
pub use error::MockError;
pub use event::MockEvent;
pub use fault::{Fault, Persistence};
pub use leak::{Holder, LeakReport, LiveMemory};
pub use memory::{MockHandle, MockMemory};
pub use profile::{CostModel, CostTable, DeviceProfile};
pub use queue::MockQueue;
pub use statistics::MockStatistics;
pub use violation::Violation;
