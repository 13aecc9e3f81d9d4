//! Programs and kernels.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;

use std::slice::from_ref;

use binpool::MemoryPool;
use binpool_allocators::{
    AsMemory, Backend, Error, Event, EventStatus, ImmediateAllocator, InvalidRequest, Memory,
    ObjectKind, Queue, Region, SvmBackend, SvmGrain,
};
use binpool_opencl::{
    Argument, ClKernel, ClMemory, ClProgram, Extent, KernelError, LaunchMemory, LocalMemory,
    OpenClBackend, Parameter, ParameterAccess, ParameterKind, WorkSizeProblem,
};

use common::Bench;

const SOURCE: &str = "
kernel void add(global const float *left, global const float *right, global float *result)
{
    size_t i = get_global_id(0);
    result[i] = left[i] + right[i];
}

kernel void scale(global float *data, float factor)
{
    data[get_global_id(0)] *= factor;
}

kernel void sum(global const uint *data, uint length, global uint *sums, local uint *scratch)
{
    size_t place = get_local_id(0);
    uint sum = 0;
    for (uint i = get_global_id(0); i < length; i += get_global_size(0))
        sum += data[i];
    scratch[place] = sum;
    for (size_t reach = get_local_size(0) / 2; reach > 0; reach /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (place < reach)
            scratch[place] += scratch[place + reach];
    }
    if (place == 0)
        sums[get_group_id(0)] = scratch[0];
}

kernel void tell_lengths(global const float *data, uint few, ulong many, global ulong *told)
{
    told[0] = few;
    told[1] = many;
}

kernel void coordinates(global uint *cells)
{
    size_t width = get_global_size(0);
    cells[get_global_id(1) * width + get_global_id(0)] = get_global_id(1) * 100 + get_global_id(0);
}

kernel void look_up(constant uint *table, global uint *result)
{
    result[get_global_id(0)] = table[get_global_id(0)];
}

kernel void follow(global const ulong *addresses, global uint *result)
{
    global const uint *there = (global const uint *) addresses[get_global_id(0)];
    result[get_global_id(0)] = *there;
}

kernel __attribute__((reqd_work_group_size(4, 1, 1))) void by_fours(global uint *ids)
{
    ids[get_global_id(0)] = get_local_size(0);
}

kernel void blur(read_only image2d_t picture, sampler_t sampler, global float4 *result)
{
    result[get_global_id(0)] = read_imagef(picture, sampler, (float2)(0.0f, 0.0f));
}
";

/// A device, and the kernels above with what they are declared as.
struct Kernels {
    bench: Bench,
    program: ClProgram,
}

const PER_ITEM: Extent = Extent::PerItem(1);
const ADD: [Parameter; 3] = [
    Parameter::input::<f32>(PER_ITEM),
    Parameter::input::<f32>(PER_ITEM),
    Parameter::output::<f32>(PER_ITEM),
];
const SCALE: [Parameter; 2] = [
    Parameter::in_out::<f32>(PER_ITEM),
    Parameter::value::<f32>(),
];
const SUM: [Parameter; 4] = [
    Parameter::input::<u32>(Extent::Whole),
    Parameter::length_u32(0),
    Parameter::output::<u32>(Extent::PerGroup(1)),
    Parameter::local::<u32>(PER_ITEM),
];

impl Kernels {
    fn new() -> Self {
        let bench = Bench::new();
        let program = ClProgram::build(&bench.backend, SOURCE, "").unwrap();
        Self { bench, program }
    }

    fn declared(&self, name: &str, parameters: &[Parameter]) -> Result<ClKernel, KernelError> {
        // SAFETY: Every declaration in this file is what the source above does, or is refused.
        unsafe { self.program.kernel(name, parameters) }
    }

    fn kernel(&self, name: &str, parameters: &[Parameter]) -> ClKernel {
        self.declared(name, parameters).unwrap()
    }

    fn floats(&self, values: &[f32]) -> ClMemory {
        let memory = self.bench.buffer(size_of_val(values));
        self.bench.write(&memory, bytemuck::cast_slice(values));
        memory
    }

    fn words(&self, memory: &ClMemory) -> Vec<u32> {
        elements(&self.bench.read(memory))
    }

    fn read_floats(&self, memory: &ClMemory) -> Vec<f32> {
        elements(&self.bench.read(memory))
    }
}

fn elements<T: bytemuck::Pod>(bytes: &[u8]) -> Vec<T> {
    let elements = bytes.chunks_exact(size_of::<T>());
    elements.map(bytemuck::pod_read_unaligned).collect()
}

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
        .arguments([&input, &input, &result].map(|memory| Argument::memory(memory)))
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
    let result = kernels.read_floats(&whole);
    assert!(result[..floats].iter().all(|&value| value == 1.0));
    assert!(result[floats..2 * floats].iter().all(|&value| value == 3.0));
    assert!(result[2 * floats..].iter().all(|&value| value == 1.0));
    let more = scale
        .launch(&kernels.bench.queue, &[floats + 1])
        .memory(&view)
        .value(&3.0_f32)
        .enqueue();
    assert!(matches!(more, Err(KernelError::TooSmall { .. })));
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
    kernels.bench.write(&block, &[0; 1 << 16]);
    let gate = kernels.bench.gate();
    let launched = scale
        .launch(&kernels.bench.queue, &[1 << 14])
        .memory(&block)
        .value(&5.0_f32)
        .wait_for(from_ref(&gate))
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
    block
        .write(queue, 0, bytemuck::cast_slice(&ones), &[])
        .unwrap();
    let launch = |items: usize| {
        scale
            .launch(queue, &[items])
            .memory(&block)
            .value(&2.0_f32)
            .enqueue()
    };
    launch(1000).unwrap();
    let bytes = common::contents(&block, queue);
    assert_eq!(elements::<f32>(&bytes), [2.0; 1000]);
    assert!(block.memory_on(queue).unwrap().bytes() > 4000);
    let beyond = launch(1001).unwrap_err();
    assert!(
        matches!(
            beyond,
            KernelError::TooSmall {
                index: 0,
                given: 4000,
                needed: 4004,
                ..
            }
        ),
        "{beyond}"
    );
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
fn work_items_have_up_to_three_dimensions_and_an_offset() {
    let kernels = Kernels::new();
    let queue = &kernels.bench.queue;
    let coordinates = kernels.kernel("coordinates", &[Parameter::output::<u32>(PER_ITEM)]);
    let cells = kernels.bench.filled(4 * 12, 0);
    let launch = coordinates.launch(queue, &[4, 2]).offset(&[0, 1]);
    launch.memory(&cells).enqueue().unwrap();
    assert_eq!(
        kernels.words(&cells),
        [0, 0, 0, 0, 100, 101, 102, 103, 200, 201, 202, 203]
    );
    let launch = coordinates.launch(queue, &[4, 2]).offset(&[0, 2]);
    let beyond = launch.memory(&cells).enqueue().unwrap_err();
    assert!(
        matches!(
            beyond,
            KernelError::TooSmall {
                given: 48,
                needed: 64,
                ..
            }
        ),
        "{beyond}"
    );
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
    let written = kernels.declared("look_up", &[Parameter::in_out::<u32>(PER_ITEM), result]);
    assert!(matches!(
        written,
        Err(KernelError::ParameterAccess { index: 0, .. })
    ));
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
    assert_eq!(refusal(refused), InvalidRequest::NotSvm);
    let launch = follow.launch(queue, &[2]).memory(&list).memory(&there[0]);
    let overlap = launch.indirect(&there[0], ParameterAccess::Input).enqueue();
    assert!(matches!(
        overlap,
        Err(KernelError::Overlap {
            first: LaunchMemory::Parameter(1),
            second: LaunchMemory::Indirect(0),
            ..
        })
    ));
}

/// What a launch's memory is refused for.
fn refusal<T: std::fmt::Debug>(result: Result<T, KernelError>) -> InvalidRequest {
    match result.unwrap_err() {
        KernelError::Memory(Error::InvalidRequest(request)) => request,
        error => panic!("not a refusal: {error}"),
    }
}

#[test]
fn a_program_that_does_not_build_comes_with_the_compilers_log() {
    let bench = Bench::new();
    let source = "kernel void broken(global float *data) { data[0] = undeclared_name; }";
    let error = ClProgram::build(&bench.backend, source, "-D LEVEL=3").unwrap_err();
    let KernelError::Build {
        device,
        options,
        log,
    } = &error
    else {
        panic!("not a failure to build: {error}");
    };
    assert_eq!(device, &bench.backend.limits().device_name);
    assert_eq!(options, "-D LEVEL=3");
    assert!(log.contains("undeclared_name"), "{log}");
    assert!(error.to_string().contains("undeclared_name"), "{error}");
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
fn texts_that_no_compiler_can_be_given_are_refused() {
    let bench = Bench::new();
    let empty = ClProgram::build(&bench.backend, "", "");
    assert!(matches!(empty, Err(KernelError::EmptySource)));
    let options = ClProgram::build(&bench.backend, SOURCE, "-w\0");
    assert!(matches!(options, Err(KernelError::NullByte { .. })));
}

#[test]
fn a_kernel_that_is_not_there_comes_with_those_that_are() {
    let kernels = Kernels::new();
    assert_eq!(kernels.program.kernel_names().len(), 9);
    let error = kernels.declared("divide", &ADD).unwrap_err();
    let KernelError::NoSuchKernel { available, .. } = &error else {
        panic!("found: {error}");
    };
    assert!(available.iter().any(|name| name == "add"), "{error}");
}

#[test]
fn a_declaration_that_the_kernel_does_not_match_is_refused() {
    let kernels = Kernels::new();
    let refused = |name, parameters: &[Parameter]| kernels.declared(name, parameters).unwrap_err();
    let error = refused("add", &ADD[..2]);
    assert!(
        matches!(
            error,
            KernelError::ParameterCount {
                declared: 2,
                actual: 3,
                ..
            }
        ),
        "{error}"
    );
    let error = refused("scale", &[SCALE[1], SCALE[1]]);
    assert!(
        matches!(
            error,
            KernelError::ParameterKind {
                index: 0,
                declared: ParameterKind::Value,
                actual: ParameterKind::Memory,
                ..
            }
        ),
        "{error}"
    );
    let error = refused("sum", &[SUM[0], SUM[1], SUM[2], SUM[2]]);
    assert!(
        matches!(
            error,
            KernelError::ParameterKind {
                index: 3,
                actual: ParameterKind::Local,
                ..
            }
        ),
        "{error}"
    );
    let error = refused("add", &[ADD[2], ADD[1], ADD[2]]);
    assert!(
        matches!(
            error,
            KernelError::ParameterAccess {
                index: 0,
                declared: ParameterAccess::Output,
                actual: ParameterAccess::Input,
                ..
            }
        ),
        "{error}"
    );
    let error = refused("scale", &[SCALE[0], Parameter::value::<f64>()]);
    assert!(
        matches!(
            error,
            KernelError::ElementSize {
                index: 1,
                declared: 8,
                actual: 4,
                ..
            }
        ),
        "{error}"
    );
    let error = refused("scale", &[Parameter::in_out::<u8>(PER_ITEM), SCALE[1]]);
    assert!(
        matches!(error, KernelError::ElementSize { index: 0, .. }),
        "{error}"
    );
    let error = refused("scale", &[SCALE[0], Parameter::value::<()>()]);
    assert!(
        matches!(error, KernelError::EmptyType { index: 1, .. }),
        "{error}"
    );
    for of in [1, 4] {
        let error = refused("sum", &[SUM[0], Parameter::length_u32(of), SUM[2], SUM[3]]);
        assert!(
            matches!(error, KernelError::LengthOfNothing { index: 1, .. }),
            "{error}"
        );
    }
}

#[test]
fn images_and_samplers_are_declared_as_what_they_are() {
    let kernels = Kernels::new();
    let result = Parameter::output::<[f32; 4]>(PER_ITEM);
    let image = Parameter::image(ParameterAccess::Input);
    kernels.kernel("blur", &[image, Parameter::sampler(), result]);
    let memory = Parameter::input::<f32>(Extent::Whole);
    let error = kernels
        .declared("blur", &[memory, Parameter::sampler(), result])
        .unwrap_err();
    assert!(
        matches!(
            error,
            KernelError::ParameterKind {
                index: 0,
                actual: ParameterKind::Image,
                ..
            }
        ),
        "{error}"
    );
    let written = Parameter::image(ParameterAccess::Output);
    let error = kernels
        .declared("blur", &[written, Parameter::sampler(), result])
        .unwrap_err();
    assert!(
        matches!(error, KernelError::ParameterAccess { index: 0, .. }),
        "{error}"
    );
    let blur = kernels.kernel("blur", &[image, Parameter::sampler(), result]);
    let memory = kernels.bench.buffer(64);
    let launch = blur.launch(&kernels.bench.queue, &[1]);
    let error = launch
        .arguments([(); 3].map(|()| Argument::memory(&memory)))
        .enqueue()
        .unwrap_err();
    assert!(
        matches!(
            error,
            KernelError::ArgumentKind {
                index: 0,
                given: ParameterKind::Memory,
                expected: ParameterKind::Image,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn arguments_are_checked_before_anything_is_enqueued() {
    let kernels = Kernels::new();
    let queue = &kernels.bench.queue;
    let scale = kernels.kernel("scale", &SCALE);
    let data = kernels.floats(&[1.0; 4]);
    let launch = || scale.launch(queue, &[4]);
    let error = launch().memory(&data).enqueue().unwrap_err();
    assert!(
        matches!(
            error,
            KernelError::ArgumentCount {
                given: 1,
                expected: 2,
                ..
            }
        ),
        "{error}"
    );
    let error = launch()
        .value(&1.0_f32)
        .value(&1.0_f32)
        .enqueue()
        .unwrap_err();
    assert!(
        matches!(error, KernelError::ArgumentKind { index: 0, .. }),
        "{error}"
    );
    let error = launch()
        .memory(&data)
        .value(&1.0_f64)
        .enqueue()
        .unwrap_err();
    assert!(
        matches!(
            error,
            KernelError::ValueSize {
                index: 1,
                given: 8,
                expected: 4,
                ..
            }
        ),
        "{error}"
    );
    let error = scale
        .launch(queue, &[usize::MAX])
        .memory(&data)
        .value(&1.0_f32)
        .enqueue()
        .unwrap_err();
    assert!(
        matches!(
            error,
            KernelError::TooSmall {
                needed: usize::MAX,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(kernels.read_floats(&data), [1.0; 4]);
}

#[test]
fn what_is_written_is_passed_once() {
    let kernels = Kernels::new();
    let queue = &kernels.bench.queue;
    let backend = &kernels.bench.backend;
    let add = kernels.kernel("add", &ADD);
    let step = backend.limits().alignment.bytes().max(256);
    let whole = kernels.bench.filled(3 * step, 0);
    let view = |place| {
        let region = Region::new(place * step, step);
        backend.create_sub_region(&whole, region).unwrap()
    };
    let views = [0, 1, 2].map(view);
    let launch = |arguments: [&ClMemory; 3], items: usize| {
        add.launch(queue, &[items])
            .arguments(arguments.map(|memory| Argument::memory(memory)))
            .enqueue()
    };
    // Regions of one block that do not meet are as good as several blocks.
    launch([&views[0], &views[1], &views[2]], step / 4).unwrap();
    // Nor does what is touched of the whole block, as few as the items are.
    launch([&whole, &views[1], &views[2]], step / 4).unwrap();
    let same = launch([&views[0], &views[2], &views[2]], 4).unwrap_err();
    assert!(
        matches!(
            same,
            KernelError::Overlap {
                first: LaunchMemory::Parameter(1),
                second: LaunchMemory::Parameter(2),
                ..
            }
        ),
        "{same}"
    );
    let inside = launch([&whole, &views[1], &views[2]], step / 2 + 1);
    assert!(matches!(inside, Err(KernelError::TooSmall { .. })));
    let written_whole = launch([&views[0], &views[1], &whole], 4).unwrap_err();
    assert!(
        matches!(
            written_whole,
            KernelError::Overlap {
                first: LaunchMemory::Parameter(0),
                ..
            }
        ),
        "{written_whole}"
    );
}

#[test]
fn work_sizes_are_checked_against_kernel_and_device() {
    let kernels = Kernels::new();
    let queue = &kernels.bench.queue;
    let coordinates = kernels.kernel("coordinates", &[Parameter::output::<u32>(Extent::Whole)]);
    let cells = kernels.bench.buffer(1 << 16);
    let problem = |global: &[usize], local: &[usize]| {
        let launch = coordinates.launch(queue, global).local_size(local);
        match launch.memory(&cells).enqueue().unwrap_err() {
            KernelError::WorkSize { problem, .. } => problem,
            error => panic!("not about sizes: {error}"),
        }
    };
    for (found, expected) in [
        (
            problem(&[], &[]),
            WorkSizeProblem::Dimensions {
                given: 0,
                largest: 3,
            },
        ),
        (
            problem(&[1, 1, 1, 1], &[1, 1, 1, 1]),
            WorkSizeProblem::Dimensions {
                given: 4,
                largest: 3,
            },
        ),
        (
            problem(&[8, 0], &[1, 1]),
            WorkSizeProblem::Zero {
                what: "global size",
                dimension: 1,
            },
        ),
        (
            problem(&[8, 8], &[8]),
            WorkSizeProblem::OtherDimensions {
                what: "the local size",
                given: 1,
                expected: 2,
            },
        ),
        (
            problem(&[10, 1], &[4, 1]),
            WorkSizeProblem::Uneven {
                dimension: 0,
                global: 10,
                local: 4,
            },
        ),
    ] {
        assert_eq!(found, expected);
    }
    let most = 1 << 20;
    assert!(matches!(
        problem(&[most, 1], &[most, 1]),
        WorkSizeProblem::LocalTooLarge { dimension: 0, .. } | WorkSizeProblem::GroupTooLarge { .. }
    ));
    assert!(matches!(
        problem(&[1 << 10, 1 << 10], &[1 << 10, 1 << 10]),
        WorkSizeProblem::LocalTooLarge { .. } | WorkSizeProblem::GroupTooLarge { .. }
    ));
}

#[test]
fn a_kernel_that_is_compiled_for_a_local_size_is_launched_with_it() {
    let kernels = Kernels::new();
    let queue = &kernels.bench.queue;
    let by_fours = kernels.kernel("by_fours", &[Parameter::output::<u32>(PER_ITEM)]);
    let ids = kernels.bench.filled(32, 0);
    by_fours.launch(queue, &[8]).memory(&ids).enqueue().unwrap();
    assert_eq!(kernels.words(&ids), [4; 8]);
    let launch = by_fours.launch(queue, &[8]).local_size(&[8]);
    let error = launch.memory(&ids).enqueue().unwrap_err();
    assert!(
        matches!(
            error,
            KernelError::WorkSize {
                problem: WorkSizeProblem::NotAsCompiled { .. },
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn local_memory_is_checked_against_what_is_touched_and_what_there_is() {
    let kernels = Kernels::new();
    let sum = kernels.kernel("sum", &SUM);
    let (data, sums) = (kernels.bench.filled(64, 0), kernels.bench.buffer(64));
    let launch = |local: LocalMemory| {
        let launch = sum.launch(&kernels.bench.queue, &[16]).local_size(&[16]);
        launch.memory(&data).memory(&sums).local(local).enqueue()
    };
    let small = launch(LocalMemory::bytes(63)).unwrap_err();
    assert!(
        matches!(
            small,
            KernelError::TooSmall {
                index: 3,
                given: 63,
                needed: 64,
                ..
            }
        ),
        "{small}"
    );
    let huge = launch(LocalMemory::bytes(1 << 30)).unwrap_err();
    assert!(
        matches!(huge, KernelError::LocalMemory { needed, .. } if needed >= 1 << 30),
        "{huge}"
    );
    let unsaid = sum
        .launch(&kernels.bench.queue, &[16])
        .memory(&data)
        .memory(&sums)
        .local(LocalMemory::per_item::<u32>(1))
        .enqueue()
        .unwrap_err();
    assert!(
        matches!(
            unsaid,
            KernelError::WorkSize {
                problem: WorkSizeProblem::NoLocalSize,
                ..
            }
        ),
        "{unsaid}"
    );
}

#[test]
fn objects_of_another_context_are_refused() {
    let kernels = Kernels::new();
    let other = Bench::new();
    let scale = kernels.kernel("scale", &SCALE);
    let (own, foreign) = (kernels.bench.buffer(16), other.buffer(16));
    let gate = other.gate();
    let launch = |queue, memory, events| {
        let launch = scale.launch(queue, &[4]).memory(memory).value(&1.0_f32);
        launch.wait_for(events).enqueue()
    };
    let refused = |result| refusal::<binpool_opencl::ClEvent>(result);
    let of = |kind| InvalidRequest::ForeignObject { kind };
    let queue = &kernels.bench.queue;
    assert_eq!(
        refused(launch(&other.queue, &own, &[])),
        of(ObjectKind::Queue)
    );
    assert_eq!(
        refused(launch(queue, &foreign, &[])),
        of(ObjectKind::Memory)
    );
    let events = from_ref(&gate);
    assert_eq!(refused(launch(queue, &own, events)), of(ObjectKind::Event));
}

/// Memory whose owner is mistaken about its size.
struct Boastful(ClMemory);

impl AsMemory<OpenClBackend> for Boastful {
    fn size(&self) -> usize {
        1 << 20
    }

    fn memory_on(&self, _queue: &binpool_opencl::ClQueue) -> Option<&ClMemory> {
        Some(&self.0)
    }
}

#[test]
fn a_size_that_memory_does_not_have_is_not_believed() {
    let kernels = Kernels::new();
    let scale = kernels.kernel("scale", &SCALE);
    let memory = Boastful(kernels.bench.buffer(16));
    let launch = scale.launch(&kernels.bench.queue, &[5]).memory(&memory);
    let refused = refusal(launch.value(&1.0_f32).enqueue());
    assert_eq!(
        refused,
        InvalidRequest::OutOfBounds {
            offset: 0,
            bytes: 20,
            size: 16
        }
    );
}

#[test]
fn kernels_of_two_queues_that_use_the_same_bytes_keep_their_order() {
    let kernels = Kernels::new();
    let [first, second] = [(); 2].map(|()| kernels.bench.another_queue());
    let add = kernels.kernel("add", &ADD);
    let scale = kernels.kernel("scale", &SCALE);
    let ones = kernels.floats(&[1.0; 4]);
    let shared = kernels.floats(&[10.0; 4]);
    let gate = kernels.bench.gate();
    let one = add
        .launch(&first, &[4])
        .arguments([&ones, &ones, &shared].map(|memory| Argument::memory(memory)))
        .wait_for(from_ref(&gate))
        .enqueue()
        .unwrap();
    // Nobody has told it to wait.
    let two = scale
        .launch(&second, &[4])
        .memory(&shared)
        .value(&3.0_f32)
        .enqueue()
        .unwrap();
    second.flush().unwrap();
    assert_eq!(two.status().unwrap(), EventStatus::Pending);
    kernels.bench.open_gate(&gate);
    for (queue, event) in [(&first, one), (&second, two)] {
        queue.finish().unwrap();
        event.wait().unwrap();
    }
    assert_eq!(kernels.read_floats(&shared), [6.0; 4]);
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
        .launch(&queue, &[4])
        .memory(&data)
        .value(&3.0_f32)
        .wait_for(from_ref(&gate))
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
    let Kernels { bench, program } = kernels;
    drop(bench);
    assert!(program.kernel_names().contains(&"scale".to_owned()));
    drop(program);
    let other = Bench::new();
    let data = other.buffer(16);
    let launch = scale.launch(&other.queue, &[4]).memory(&data);
    let refused = refusal(launch.value(&1.0_f32).enqueue());
    let kind = ObjectKind::Queue;
    assert_eq!(refused, InvalidRequest::ForeignObject { kind });
}
