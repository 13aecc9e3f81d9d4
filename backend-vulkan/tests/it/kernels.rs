//! Kernels: what they compute, what they come after, and what is refused. They are the array crate's: element by element, as its source says.

use std::slice::from_ref;

use binpool_allocators::{
    Backend, Error, Event, EventStatus, InvalidRequest, Memory, MemoryFlags, On, Outcome, Queue,
    QueueOrder,
};
use binpool_vulkan::{
    Argument, VulkanBackend, VulkanEvent, VulkanKernel, VulkanMemory, VulkanQueue,
};

use crate::common;

const COUNT: usize = 1000;
/// The invocations of a group.
const GROUP: usize = 128;

/// Loads the kernel for an operation: 0 adds, 1 subtracts, 2 multiplies.
pub(crate) fn load(backend: &VulkanBackend, operation: u32) -> Result<VulkanKernel, Error> {
    let bytes = include_bytes!("../../../checks/array/src/element_wise.spv");
    let (words, _) = bytes.as_chunks();
    let words: Vec<_> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    // SAFETY: It is a module for Vulkan 1.2 that needs 64-bit integers, which the device has.
    unsafe { VulkanKernel::load(backend, &words, "main", &[operation]) }
}

fn kernel(backend: &VulkanBackend, operation: u32) -> VulkanKernel {
    load(backend, operation).unwrap()
}

struct Bench {
    backend: VulkanBackend,
    queue: VulkanQueue,
}

impl Bench {
    fn new() -> Self {
        let backend = common::backend();
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        Self { backend, queue }
    }

    fn floats(&self, of: impl Fn(u16) -> f32) -> VulkanMemory {
        let bytes: Vec<u8> = (0..1000).flat_map(|i| of(i).to_ne_bytes()).collect();
        let memory = self
            .backend
            .create_buffer(bytes.len(), MemoryFlags::empty());
        let memory = memory.unwrap();
        self.backend.write(&self.queue, &memory, 0, &bytes).unwrap();
        memory
    }

    fn read(&self, queue: &VulkanQueue, memory: &VulkanMemory) -> Vec<f32> {
        let mut bytes = vec![0; 4 * COUNT];
        self.backend.read(queue, memory, 0, &mut bytes).unwrap();
        let (floats, _) = bytes.as_chunks();
        floats
            .iter()
            .map(|float| f32::from_ne_bytes(*float))
            .collect()
    }
}

/// Adds the elements of `operand` to those of `sum`.
pub(crate) fn add(
    backend: &VulkanBackend,
    on: On<'_, VulkanQueue, VulkanEvent>,
    sum: &VulkanMemory,
    operand: &VulkanMemory,
) -> VulkanEvent {
    launch(
        on.queue,
        &kernel(backend, 0),
        [sum, operand, sum],
        on.wait_for,
    )
    .unwrap()
}

/// Launches a kernel over all elements of three blocks.
fn launch(
    queue: &VulkanQueue,
    kernel: &VulkanKernel,
    [left, right, result]: [&VulkanMemory; 3],
    wait_for: &[VulkanEvent],
) -> Result<VulkanEvent, Error> {
    let start = Argument::U64(0);
    let count = left.bytes() / 4;
    let arguments = [
        Argument::Memory(left),
        start,
        Argument::Memory(right),
        start,
        Argument::Memory(result),
        start,
        Argument::U64(count as u64),
    ];
    // SAFETY: These are its arguments, and all blocks have as many elements.
    unsafe { kernel.launch(queue, groups(count), &arguments, wait_for) }
}

fn groups(count: usize) -> [u32; 3] {
    [u32::try_from(count.div_ceil(GROUP)).unwrap(), 1, 1]
}

#[test]
fn a_kernel_computes_by_its_constants_what_the_host_computes() {
    let bench = Bench::new();
    let of_host: [fn(f32, f32) -> f32; 3] = [|a, b| a + b, |a, b| a - b, |a, b| a * b];
    for (operation, of_host) in (0_u32..).zip(of_host) {
        let [left, right] = [2.0, 3.0].map(|factor| bench.floats(|i| f32::from(i) * factor));
        let result = bench.floats(|_| -1.0);
        let kernel = kernel(&bench.backend, operation);
        launch(&bench.queue, &kernel, [&left, &right, &result], &[]).unwrap();
        let expected = (0..1000_u16).map(|i| of_host(f32::from(i) * 2.0, f32::from(i) * 3.0));
        let expected: Vec<_> = expected.collect();
        assert_eq!(bench.read(&bench.queue, &result), expected, "{operation}");
    }
}

/// As in a block of GLSL's layout `std430`: numbers of 64 bits begin at multiples of eight bytes.
#[test]
fn arguments_lie_where_the_kernel_looks_for_them() {
    let bench = Bench::new();
    let [left, right, result] =
        [1.0, 100.0, 10_000.0].map(|factor| bench.floats(|i| f32::from(i) * factor));
    let arguments = [
        Argument::Memory(&left),
        // Filled up with zeros before the next address.
        Argument::U32(5),
        Argument::Memory(&right),
        // The two halves of one number.
        Argument::U32(7),
        Argument::U32(0),
        Argument::Memory(&result),
        Argument::F32(f32::from_bits(2)),
        Argument::U64(300),
    ];
    let kernel = kernel(&bench.backend, 0);
    // SAFETY: Element 5 and 7 on of the operands have 300 elements, and so has 2 on of the result.
    let launched = unsafe { kernel.launch(&bench.queue, groups(300), &arguments, &[]) };
    launched.unwrap();
    let read = bench.read(&bench.queue, &result);
    for (index, element) in (0_u16..).zip(read) {
        let expected = match index {
            2..302 => f32::from(index + 3) + 100.0 * f32::from(index + 5),
            _ => 10_000.0 * f32::from(index),
        };
        assert_eq!(element.to_bits(), expected.to_bits(), "{index}");
    }
}

#[test]
fn all_groups_of_each_dimension_run() {
    let bench = Bench::new();
    let ones = bench.floats(|_| 1.0);
    for (groups, is_all) in [
        ([1, 1, 1], true),
        ([2, 3, 2], true),
        ([0, 1, 1], false),
        ([1, 0, 1], false),
        ([1, 1, 0], false),
    ] {
        let result = bench.floats(|_| 0.0);
        let start = Argument::U64(0);
        let arguments = [
            Argument::Memory(&ones),
            start,
            Argument::Memory(&ones),
            start,
            Argument::Memory(&result),
            start,
            Argument::U64(COUNT as u64),
        ];
        // SAFETY: These are its arguments. An invocation takes every n-th element, and groups of further dimensions write the same.
        unsafe { kernel(&bench.backend, 0).launch(&bench.queue, groups, &arguments, &[]) }.unwrap();
        let expected = if is_all { 2.0 } else { 0.0 };
        assert_eq!(
            bench.read(&bench.queue, &result),
            [expected; COUNT],
            "{groups:?}"
        );
    }
}

/// Synchronization validation looks at what each of them sees of the one before.
#[test]
fn kernels_and_transfers_of_a_queue_come_one_after_the_other() {
    let bench = Bench::new();
    let Bench { backend, queue } = &bench;
    let (add, multiply) = (kernel(backend, 0), kernel(backend, 2));
    let [one, two, other] = [1.0, 2.0, 0.0].map(|float| bench.floats(|_| float));
    for _ in 0..3 {
        backend
            .enqueue_fill(queue, &other, .., &5.0_f32.to_ne_bytes())
            .unwrap();
        launch(queue, &add, [&one, &other, &one], &[]).unwrap();
        launch(queue, &multiply, [&one, &two, &other], &[]).unwrap();
        backend.enqueue_copy(queue, &other, .., &one, 0).unwrap();
    }
    assert_eq!(
        bench.read(queue, &one),
        [((1.0 + 5.0) * 2.0 + 5.0) * 4.0 + 10.0; COUNT]
    );
}

#[test]
fn a_kernel_comes_after_its_wait_list() {
    let bench = Bench::new();
    let Bench { backend, queue } = &bench;
    let other = backend.create_queue(QueueOrder::InOrder).unwrap();
    let gate = backend.create_user_event().unwrap();
    let [one, result] = [1.0, 0.0].map(|float| bench.floats(|_| float));
    queue.finish().unwrap();
    let filled = backend
        .enqueue_fill(
            other.after(from_ref(&gate)),
            &one,
            ..,
            &4.0_f32.to_ne_bytes(),
        )
        .unwrap();
    let kernel = kernel(backend, 0);
    let launched = launch(queue, &kernel, [&one, &one, &result], from_ref(&filled)).unwrap();
    // It needs neither, once it is enqueued.
    drop((kernel, one));
    assert_eq!(launched.status().unwrap(), EventStatus::Pending);
    backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    launched.wait().unwrap();
    assert_eq!(bench.read(queue, &result), [8.0; COUNT]);
}

/// A kernel counts as writing all of its memory.
#[test]
fn what_uses_the_memory_of_a_kernel_comes_after_it_on_any_queue() {
    let bench = Bench::new();
    let Bench { backend, queue } = &bench;
    binpool_allocators::runtime::Runtime::core(backend).order_conflicts();
    let [reader, writer] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    let [one, result] = [1.0, 0.0].map(|float| bench.floats(|_| float));
    let gate = backend.create_user_event().unwrap();
    backend
        .enqueue_barrier(queue.after(from_ref(&gate)))
        .unwrap();
    let kernel = kernel(backend, 0);
    launch(queue, &kernel, [&one, &one, &result], &[]).unwrap();
    let read = backend.enqueue_read(&reader, &result, ..4).unwrap();
    let written = backend.enqueue_fill(&writer, &one, .., &[0_u8]).unwrap();
    assert_eq!(read.event().status().unwrap(), EventStatus::Pending);
    assert_eq!(written.status().unwrap(), EventStatus::Pending);
    backend
        .resolve_user_event(&gate, Outcome::Complete)
        .unwrap();
    assert_eq!(read.wait().unwrap(), 2.0_f32.to_ne_bytes());
    written.wait().unwrap();
}

#[test]
fn arguments_that_a_kernel_cannot_have_are_refused() {
    let bench = Bench::new();
    let kernel = kernel(&bench.backend, 0);
    // SAFETY: The device is of the instance.
    let properties =
        unsafe { common::instance().get_physical_device_properties(common::parts().physical) };
    let most = properties.limits.max_push_constants_size as usize;
    let many = vec![Argument::U32(0); most / 4];
    // SAFETY: All addresses are null, and there is no element.
    unsafe { kernel.launch(&bench.queue, [1, 1, 1], &many, &[]) }.unwrap();
    let more = vec![Argument::U32(0); most / 4 + 1];
    // SAFETY: As above.
    let refused = unsafe { kernel.launch(&bench.queue, [1, 1, 1], &more, &[]) };
    let text = refused.unwrap_err().to_string();
    assert!(
        text.contains(&format!(
            "{} bytes of arguments: this device takes {most}",
            most + 4
        )),
        "{text}"
    );
    let (other, own) = (Bench::new(), bench.floats(|_| 1.0));
    let foreign = other.floats(|_| 1.0);
    let event = other.backend.enqueue_marker(&other.queue).unwrap();
    for refused in [
        launch(&bench.queue, &kernel, [&own, &foreign, &own], &[]),
        launch(&other.queue, &kernel, [&own, &own, &own], &[]),
        launch(&bench.queue, &kernel, [&own, &own, &own], &[event]),
    ] {
        assert!(
            matches!(
                refused,
                Err(Error::InvalidRequest(InvalidRequest::ForeignObject { .. }))
            ),
            "{refused:?}"
        );
    }
    // SAFETY: It is refused before the words are looked at.
    let refused = unsafe { VulkanKernel::load(&bench.backend, &[], "ma\0in", &[]) };
    assert!(refused.unwrap_err().to_string().contains("a zero byte"));
}
