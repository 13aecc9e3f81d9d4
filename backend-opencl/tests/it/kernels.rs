//! Programs, kernels and their launches.

use std::slice::from_ref;

use binpool::MemoryPool;
use binpool_allocators::{
    AsMemory, Backend, Event, EventStatus, ImmediateAllocator, InvalidRequest, Memory, ObjectKind,
    Queue, Region, SvmBackend, SvmGrain,
};
use binpool_opencl::{
    Argument, ClMemory, ClProgram, Extent, LocalMemory, OpenClBackend, Parameter, ParameterAccess,
};

use crate::common::{
    Bench,
    launches::{ADD, Kernels, PER_ITEM, SCALE, SUM, elements, launch_refusal, parameter_refusal},
};

fn counted(count: u16) -> Vec<f32> {
    (0..count).map(f32::from).collect()
}

/// A coarse-grained block on a device that has SVM; all devices that these tests run on do.
fn svm(backend: &OpenClBackend, bytes: usize) -> ClMemory {
    backend
        .allocate_svm(bytes, None, SvmGrain::Coarse, None)
        .unwrap()
}

#[test]
fn a_kernel_works_on_buffers() {
    let kernels = Kernels::new();
    let add = kernels.kernel("add", &ADD);
    let values = counted(1000);
    let [left, right] = [(); 2].map(|()| kernels.floats(&values));
    let result = kernels.bench.buffer(4000);
    add.launch(&kernels.bench.queue, &[1000])
        .memory(&left)
        .memory(&right)
        .memory(&result)
        .enqueue()
        .unwrap()
        .wait()
        .unwrap();
    let doubled: Vec<f32> = values.iter().map(|value| value * 2.0).collect();
    assert_eq!(kernels.read_floats(&result), doubled);
}

#[test]
fn an_input_may_be_passed_twice() {
    let kernels = Kernels::new();
    let add = kernels.kernel("add", &ADD);
    let input = kernels.floats(&[1.0, 2.0]);
    let result = kernels.bench.buffer(8);
    add.launch(&kernels.bench.queue, &[2])
        .arguments([&input, &input, &result].map(|memory| Argument::Memory(memory)))
        .enqueue()
        .unwrap();
    assert_eq!(kernels.read_floats(&result), [2.0, 4.0]);
}

#[test]
fn a_kernel_works_on_regions_and_stays_inside() {
    let kernels = Kernels::new();
    let scale = kernels.kernel("scale", &SCALE);
    let step = kernels.bench.backend.limits().alignment.bytes().max(256);
    let floats = step / 4;
    let ones = vec![1.0; 3 * floats];
    let whole = kernels.floats(&ones);
    let middle = Region::new(step, step);
    let view = kernels.bench.backend.create_sub_region(&whole, middle);
    let view = view.unwrap();
    scale
        .launch(&kernels.bench.queue, &[floats])
        .memory(&view)
        .value(&3.0_f32)
        .enqueue()
        .unwrap();
    let expected = [1.0, 3.0, 1.0].map(|value| vec![value; floats]).concat();
    assert_eq!(kernels.read_floats(&whole), expected);
    let more = scale
        .launch(&kernels.bench.queue, &[floats + 1])
        .memory(&view)
        .value(&3.0_f32)
        .enqueue();
    let (_, problem) = parameter_refusal(more);
    assert!(problem.starts_with("was given "), "{problem}");
}

#[test]
fn a_kernel_works_on_shared_virtual_memory_and_on_regions_of_it() {
    let kernels = Kernels::new();
    let backend = &kernels.bench.backend;
    let scale = kernels.kernel("scale", &SCALE);
    let step = backend.limits().alignment.bytes().max(256);
    let block = svm(backend, 2 * step);
    let floats = step / 4;
    kernels
        .bench
        .write(&block, bytemuck::cast_slice(&vec![1.0_f32; 2 * floats]));
    let half = backend
        .create_sub_region(&block, Region::new(step, step))
        .unwrap();
    for memory in [&block, &half] {
        scale
            .launch(&kernels.bench.queue, &[floats])
            .memory(memory)
            .value(&5.0_f32)
            .enqueue()
            .unwrap();
    }
    assert_eq!(kernels.read_floats(&block), vec![5.0; 2 * floats]);
}

#[test]
fn shared_virtual_memory_outlives_the_kernel_that_uses_it() {
    let kernels = Kernels::new();
    let scale = kernels.kernel("scale", &SCALE);
    let block = svm(&kernels.bench.backend, 1 << 16);
    kernels.bench.write(&block, &vec![0; 1 << 16]);
    let gate = kernels.bench.gate();
    let launched = scale
        .launch(kernels.bench.queue.after(from_ref(&gate)), &[1 << 14])
        .memory(&block)
        .value(&5.0_f32)
        .enqueue()
        .unwrap();
    drop(block);
    kernels.bench.open_gate(&gate);
    launched.wait().unwrap();
}

#[test]
fn a_kernel_works_on_blocks_of_a_pool_as_far_as_they_were_asked_for() {
    let kernels = Kernels::new();
    let queue = &kernels.bench.queue;
    let scale = kernels.kernel("scale", &SCALE);
    let allocator = ImmediateAllocator::new(&kernels.bench.backend).unwrap();
    let pool = MemoryPool::new(allocator, queue).unwrap();
    let block = pool.allocate(4 * 1000).unwrap();
    let ones = vec![1.0_f32; 1000];
    block.write(queue, 0, &ones).unwrap();
    let launch = |items: usize| {
        scale
            .launch(queue, &[items])
            .memory(&block)
            .value(&2.0_f32)
            .enqueue()
    };
    launch(1000).unwrap();
    let bytes = crate::common::contents(&block, queue);
    assert_eq!(elements::<f32>(&bytes), [2.0; 1000]);
    assert!(block.memory_on(queue).unwrap().bytes() > 4000);
    let (parameter, problem) = parameter_refusal(launch(1001));
    assert_eq!(parameter, 0);
    let beyond = "was given 4000 bytes, but this launch touches 4004";
    assert!(problem.starts_with(beyond), "{problem}");
}

#[test]
fn a_reduction_has_local_memory_and_the_length_of_its_input() {
    let kernels = Kernels::new();
    let sum = kernels.kernel("sum", &SUM);
    let numbers: Vec<u32> = (1..=1000).collect();
    let data = kernels.bench.buffer(4000);
    kernels.bench.write(&data, bytemuck::cast_slice(&numbers));
    for local in [LocalMemory::per_item::<u32>(1), LocalMemory::bytes(4 * 16)] {
        let sums = kernels.bench.filled(4 * 4, 0);
        sum.launch(&kernels.bench.queue, &[64])
            .local_size(&[16])
            .memory(&data)
            .memory(&sums)
            .local(local)
            .enqueue()
            .unwrap();
        assert_eq!(kernels.words(&sums).iter().sum::<u32>(), 500_500);
    }
}

#[test]
fn a_length_counts_the_whole_elements_of_what_was_asked_for() {
    let kernels = Kernels::new();
    let queue = &kernels.bench.queue;
    let parameters = [
        Parameter::input::<f32>(Extent::Whole),
        Parameter::length_u32(0),
        Parameter::length_u64(0),
        Parameter::output::<u64>(Extent::Fixed(2)),
    ];
    let tell = kernels.kernel("tell_lengths", &parameters);
    let told = kernels.bench.buffer(16);
    let ask = |memory: &dyn AsMemory<OpenClBackend>| {
        let launch = tell.launch(queue, &[1]).memory(memory).memory(&told);
        launch.enqueue().unwrap();
        elements::<u64>(&kernels.bench.read(&told))
    };
    assert_eq!(ask(&kernels.bench.buffer(403)), [100, 100]);
    let allocator = ImmediateAllocator::new(&kernels.bench.backend).unwrap();
    let pool = MemoryPool::new(allocator, queue).unwrap();
    assert_eq!(ask(&pool.allocate(4 * 7).unwrap()), [7, 7]);
    assert_eq!(ask(&pool.allocate(0).unwrap()), [0, 0]);
}

#[test]
fn work_items_have_dimensions_and_an_offset() {
    let kernels = Kernels::new();
    let queue = &kernels.bench.queue;
    let coordinates = kernels.coordinates(PER_ITEM);
    let cells = kernels.bench.filled(4 * 12, 0);
    let launch = coordinates.launch(queue, &[4, 2]).offset(&[0, 1]);
    launch.memory(&cells).enqueue().unwrap();
    assert_eq!(
        kernels.words(&cells),
        [0, 0, 0, 0, 100, 101, 102, 103, 200, 201, 202, 203]
    );
    let launch = coordinates.launch(queue, &[4, 2]).offset(&[0, 2]);
    let (parameter, problem) = parameter_refusal(launch.memory(&cells).enqueue());
    assert_eq!(parameter, 0);
    let beyond = "was given 48 bytes, but this launch touches 64";
    assert!(problem.starts_with(beyond), "{problem}");
}

#[test]
fn constant_memory_is_an_input() {
    let kernels = Kernels::new();
    let result = Parameter::output::<u32>(PER_ITEM);
    let look_up = kernels.kernel("look_up", &[Parameter::input::<u32>(PER_ITEM), result]);
    let table = kernels.bench.filled(16, 7);
    let found = kernels.bench.buffer(16);
    let launch = look_up.launch(&kernels.bench.queue, &[4]);
    launch.memory(&table).memory(&found).enqueue().unwrap();
    assert_eq!(kernels.bench.read(&found), [7; 16]);
}

#[test]
fn a_kernel_reaches_the_shared_virtual_memory_that_its_launch_names() {
    let kernels = Kernels::new();
    let backend = &kernels.bench.backend;
    let queue = &kernels.bench.queue;
    let parameters = [
        Parameter::input::<u64>(PER_ITEM),
        Parameter::output::<u32>(PER_ITEM),
    ];
    let follow = kernels.kernel("follow", &parameters);
    let there = [11_u32, 22].map(|word| {
        let block = svm(backend, 64);
        kernels.bench.write(&block, &word.to_ne_bytes());
        block
    });
    let addresses = there.each_ref().map(|block| {
        let address = backend.svm_address(block).unwrap();
        u64::try_from(address.addr().get()).unwrap()
    });
    let list = kernels.bench.buffer(16);
    kernels.bench.write(&list, bytemuck::cast_slice(&addresses));
    let result = kernels.bench.buffer(8);
    // Twice: the second launch names what it needs itself.
    for _ in 0..2 {
        let launch = follow.launch(queue, &[2]).memory(&list).memory(&result);
        launch
            .indirect(&there[0], ParameterAccess::Input)
            .indirect(&there[1], ParameterAccess::Input)
            .enqueue()
            .unwrap();
        assert_eq!(kernels.words(&result), [11, 22]);
    }
    let buffer = kernels.bench.buffer(64);
    let launch = follow.launch(queue, &[2]).memory(&list).memory(&result);
    let refused = launch.indirect(&buffer, ParameterAccess::Input).enqueue();
    assert_eq!(launch_refusal(refused), InvalidRequest::NotSvm);
    let launch = follow.launch(queue, &[2]).memory(&list).memory(&there[0]);
    let overlap = launch.indirect(&there[0], ParameterAccess::Input).enqueue();
    let (parameter, problem) = parameter_refusal(overlap);
    assert_eq!(parameter, 1);
    assert!(
        problem.starts_with("shares bytes with indirect memory"),
        "{problem}"
    );
}

#[test]
fn a_write_comes_after_a_launch_that_reaches_the_same_bytes_by_their_address() {
    let kernels = Kernels::new();
    let bench = &kernels.bench;
    let parameters = [
        Parameter::input::<u64>(PER_ITEM),
        Parameter::output::<u32>(PER_ITEM),
    ];
    let follow = kernels.kernel("follow", &parameters);
    let (there, list, result) = (svm(&bench.backend, 64), bench.buffer(8), bench.buffer(4));
    let address = bench.backend.svm_address(&there).unwrap().addr().get();
    bench.write(&list, bytemuck::bytes_of(&u64::try_from(address).unwrap()));
    for region in [0..1, 32..33, 63..64] {
        let (queue, gate) = (bench.another_queue(), bench.gate());
        let launch = follow.launch(queue.after(from_ref(&gate)), &[1]);
        let launch = launch.memory(&list).memory(&result);
        let launched = launch.indirect(&there, ParameterAccess::Input).enqueue();
        let other = bench.another_queue();
        let written = bench
            .backend
            .enqueue_fill(&other, &there, region.clone(), &[1_u8])
            .unwrap();
        bench.fail_gate(&gate);
        assert!(launched.unwrap().wait().is_err());
        // It waits for the launch, so it fails with it.
        assert!(written.wait().is_err(), "bytes {region:?}");
    }
}

#[test]
fn options_reach_the_compiler() {
    let bench = Bench::new();
    let source = "kernel void put(global uint *word) { *word = WORD; }";
    let program = ClProgram::build(&bench.backend, source, "-D WORD=42u").unwrap();
    let parameters = [Parameter::output::<u32>(Extent::Fixed(1))];
    // SAFETY: It writes one word.
    let put = unsafe { program.kernel("put", &parameters) }.unwrap();
    let word = bench.buffer(4);
    let launch = put.launch(&bench.queue, &[1]).memory(&word);
    launch.enqueue().unwrap();
    assert_eq!(bench.read(&word), 42_u32.to_ne_bytes());
}

#[test]
fn a_kernel_that_is_compiled_for_a_local_size_is_launched_with_it() {
    let kernels = Kernels::new();
    let queue = &kernels.bench.queue;
    let by_fours = kernels.kernel("by_fours", &[Parameter::output::<u32>(PER_ITEM)]);
    let ids = kernels.bench.filled(32, 0);
    by_fours.launch(queue, &[8]).memory(&ids).enqueue().unwrap();
    assert_eq!(kernels.words(&ids), [4; 8]);
}

#[test]
fn kernels_of_two_queues_that_use_the_same_bytes_keep_their_order() {
    let kernels = Kernels::new();
    let [first, second] = [(); 2].map(|()| kernels.bench.another_queue());
    let (add, scale) = (kernels.kernel("add", &ADD), kernels.kernel("scale", &SCALE));
    let ones = kernels.floats(&[1.0; 4]);
    // Several times: the second kernel may come late by itself.
    for _ in 0..16 {
        let shared = kernels.floats(&[10.0; 4]);
        let gate = kernels.bench.gate();
        add.launch(first.after(from_ref(&gate)), &[4])
            .arguments([&ones, &ones, &shared].map(|memory| Argument::Memory(memory)))
            .enqueue()
            .unwrap();
        // It has no wait list.
        let launch = scale.launch(&second, &[4]).memory(&shared);
        let later = launch.value(&3.0_f32).enqueue().unwrap();
        assert_eq!(later.status().unwrap(), EventStatus::Pending);
        kernels.bench.open_gate(&gate);
        first.finish().unwrap();
        second.finish().unwrap();
        assert_eq!(kernels.read_floats(&shared), [6.0; 4]);
    }
}

#[test]
fn a_kernel_is_launched_from_several_threads_with_arguments_of_their_own() {
    let kernels = Kernels::new();
    let scale = kernels.kernel("scale", &SCALE);
    std::thread::scope(|scope| {
        for factor in 1..=4_u8 {
            let (kernels, scale) = (&kernels, &scale);
            scope.spawn(move || {
                let queue = kernels.bench.another_queue();
                let factor = f32::from(factor);
                for _ in 0..50 {
                    let data = kernels.floats(&[1.0; 64]);
                    let launch = scale.launch(&queue, &[64]).memory(&data);
                    launch.value(&factor).enqueue().unwrap().wait().unwrap();
                    assert_eq!(kernels.read_floats(&data), [factor; 64]);
                }
            });
        }
    });
}

#[test]
fn a_kernel_whose_event_failed_fails() {
    let kernels = Kernels::new();
    let scale = kernels.kernel("scale", &SCALE);
    let data = kernels.floats(&[1.0; 4]);
    let gate = kernels.bench.gate();
    let queue = kernels.bench.another_queue();
    let launched = scale
        .launch(queue.after(from_ref(&gate)), &[4])
        .memory(&data)
        .value(&3.0_f32)
        .enqueue()
        .unwrap();
    kernels.bench.fail_gate(&gate);
    assert!(launched.wait().is_err());
    assert_eq!(kernels.read_floats(&data), [1.0; 4]);
}

#[test]
fn a_program_and_its_kernels_outlive_the_backend() {
    let kernels = Kernels::new();
    let scale = kernels.kernel("scale", &SCALE);
    let program = kernels.program.clone();
    drop(kernels);
    assert!(program.kernel_names().contains(&"scale".to_owned()));
    drop(program);
    let other = Bench::new();
    let data = other.buffer(16);
    let launch = scale.launch(&other.queue, &[4]).memory(&data);
    let refused = launch_refusal(launch.value(&1.0_f32).enqueue());
    let kind = ObjectKind::Queue;
    assert_eq!(refused, InvalidRequest::ForeignObject { kind });
}
