//! Two devices in one context, whose memory commands of both can take.

use std::{process::Command, slice::from_ref};

use binpool::{MemoryPool, PoolOptions};
use binpool_allocators::{
    Backend, Event, EventStatus, ImmediateAllocator, Outcome, Queue, QueueOrder, Region,
};
use binpool_opencl::{ClQueue, OpenClBackend};
use opencl3::{
    context::Context,
    device::{CL_DEVICE_TYPE_ALL, Device},
    platform::get_platforms,
};

/// Two devices of one context, each with a queue.
struct Pair {
    backends: [OpenClBackend; 2],
    queues: [ClQueue; 2],
}

impl Pair {
    fn open() -> Self {
        let platforms = get_platforms().unwrap();
        let devices = platforms
            .iter()
            .map(|platform| platform.get_devices(CL_DEVICE_TYPE_ALL).unwrap_or_default())
            .find(|devices| devices.len() == 2)
            .expect("PoCL was to have two devices");
        let [one, two] = [devices[0], devices[1]];
        let context = Context::from_devices(&devices, &[], None, std::ptr::null_mut()).unwrap();
        let backends = [one, two].map(|device| {
            let device = Device::new(device);
            // SAFETY: context and device are ones that `opencl3` has made.
            unsafe { OpenClBackend::from_raw(context.get(), device.id()) }.unwrap()
        });
        let queues = backends
            .each_ref()
            .map(|backend| backend.create_queue(QueueOrder::InOrder).unwrap());
        Self { backends, queues }
    }

    /// A pool of the first device.
    fn pool(&self) -> MemoryPool<OpenClBackend> {
        let allocator = ImmediateAllocator::new(&self.backends[0]).unwrap();
        let options = PoolOptions::new().segments(false);
        options.build(allocator, &self.queues[0]).unwrap()
    }
}

/// Runs one test of this module, which is otherwise ignored, in a process where `PoCL` has two devices: it reads how many when
/// it is loaded.
fn run_with_two_devices(test: &str) {
    if !binpool_opencl::list_devices()
        .unwrap()
        .iter()
        .any(|device| device.platform() == "Portable Computing Language")
    {
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            &format!("two_devices::{test}"),
            "--ignored",
            "--nocapture",
        ])
        .env("POCL_DEVICES", "pthread pthread")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{output:?}");
    assert!(said.contains("1 passed"), "{said}");
}

#[test]
fn a_block_that_another_device_uses_is_not_reused_before_its_commands_have_ended() {
    run_with_two_devices("use_by_another_device");
}

#[test]
#[ignore = "run by the test above"]
fn use_by_another_device() {
    let pair = Pair::open();
    let [_, backend] = &pair.backends;
    let [home, other] = &pair.queues;
    let pool = pair.pool();
    let block = pool.allocate(1 << 20).unwrap();
    let used = block.memory_id();
    let gate = backend.create_user_event().unwrap();
    let memory = block.memory_on(other).unwrap();
    let fill = backend.enqueue_fill(
        other.after(from_ref(&gate)),
        memory,
        Region::first(16),
        &[7_u8],
    );
    drop(block);
    assert_eq!(pool.statistics().pending_blocks, 1);
    let another = pool.allocate_on(home, 1 << 20).unwrap();
    assert_ne!(another.memory_id(), used);
    backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    fill.unwrap().wait().unwrap();
    other.finish().unwrap();
    let again = pool.allocate_on(home, 1 << 20).unwrap();
    assert_eq!(again.memory_id(), used);
    drop((another, again));
    assert_eq!(pool.statistics().active_blocks, 0);
}

#[test]
fn commands_of_another_device_can_be_put_behind_a_blocks_own_queue() {
    run_with_two_devices("order_before_another_device");
}

#[test]
#[ignore = "run by the test above"]
fn order_before_another_device() {
    let pair = Pair::open();
    let [backend, other_backend] = &pair.backends;
    let [home, other] = &pair.queues;
    let block = pair.pool().allocate(4096).unwrap();
    let gate = backend.create_user_event().unwrap();
    block
        .enqueue_fill(home.after(from_ref(&gate)), 0..4096, &[1_u8])
        .unwrap();
    block.order_before(other).unwrap();
    let behind = other_backend.enqueue_marker(other).unwrap();
    other.flush().unwrap();
    assert_eq!(behind.status().unwrap(), EventStatus::Pending);
    backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    behind.wait().unwrap();
}

#[test]
fn a_block_is_for_a_queue_of_its_own_device() {
    run_with_two_devices("queues_of_another_device");
}

#[test]
#[ignore = "run by the test above"]
fn queues_of_another_device() {
    let pair = Pair::open();
    let [backend, _] = &pair.backends;
    let [home, other] = &pair.queues;
    assert!(backend.check_use(home).is_ok() && backend.check_use(other).is_ok());
    assert!(backend.check_queue(home).is_ok() && backend.check_queue(other).is_err());
    let pool = pair.pool();
    assert!(pool.allocate_on(other, 4096).is_err());
    let mut block = pool.allocate(4096).unwrap();
    assert!(block.record_use(other).is_ok());
    assert!(block.bind_to_queue(other).is_err());
}
