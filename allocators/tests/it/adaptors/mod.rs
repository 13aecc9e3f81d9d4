//! The adaptors that wrap any allocator.

mod answers;
mod budget_model;
mod conformance;
mod failing;
mod fallback;
mod limit;
mod locks;
mod odd;
mod soft_limits;
mod statistics;

use binpool_allocators::{DeferredAllocator, ImmediateAllocator};
use binpool_mock::{MockBackend, MockDevice};

type Immediate = ImmediateAllocator<MockBackend>;
type Deferred = DeferredAllocator<MockBackend>;

const KIB: usize = 1024;

/// A device with 1 MiB.
fn device() -> MockDevice {
    MockDevice::builder().capacity_bytes(1 << 20).build()
}

fn immediate(device: &MockDevice) -> Immediate {
    ImmediateAllocator::new(&device.backend()).unwrap()
}

fn deferred(device: &MockDevice) -> Deferred {
    DeferredAllocator::new(&device.backend())
}
