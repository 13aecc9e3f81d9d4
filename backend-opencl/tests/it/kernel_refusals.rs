//! Programs, kernels and launches that are refused.

use std::slice::from_ref;

use binpool::{ImmediateAllocator, MemoryPool};
use binpool_allocators::{
    AsMemory, Backend, Event, InvalidRequest, MemoryFlags, ObjectKind, Queue, Region, SvmBackend,
    SvmGrain,
};
use binpool_opencl::{
    Argument, ClEvent, ClMemory, ClProgram, ClQueue, Extent, ImageKind, LocalMemory, OpenClBackend,
    OpenClError, Parameter, ParameterAccess, SvmPointer,
};

use crate::common::{
    Bench,
    launches::{ADD, Kernels, PER_ITEM, SCALE, SUM, launch_refusal},
};

/// Fails unless the kernel or the launch is refused for a problem with that text, of that parameter if one is named.
macro_rules! refused {
    ($result:expr; $text:expr) => { refused!($result; None, $text) };
    ($result:expr; parameter $index:literal: $text:expr) => { refused!($result; Some($index), $text) };
    ($result:expr; $parameter:expr, $text:expr) => {{
        let error = $result.unwrap_err();
        let OpenClError::Kernel { parameter, problem, .. } = &error else {
            panic!("not about a kernel: {error}");
        };
        assert_eq!(*parameter, $parameter, "{error}");
        assert!(problem.to_string().contains($text), "{error}");
    }};
}

#[test]
fn a_program_that_does_not_build_comes_with_the_compilers_log() {
    let bench = Bench::new();
    let source = "kernel void broken(global float *data) { data[0] = undeclared_name; }";
    let error = ClProgram::build(&bench.backend, source, "-D LEVEL=3").unwrap_err();
    assert!(error.to_string().contains("undeclared_name"), "{error}");
    let OpenClError::Build {
        device,
        options,
        log,
    } = error
    else {
        panic!("not a failure to build: {error}");
    };
    assert_eq!(device, bench.backend.limits().device_name);
    assert_eq!(options, "-D LEVEL=3");
    assert!(log.contains("undeclared_name"), "{log}");
}

#[test]
fn texts_that_no_compiler_can_be_given_are_refused() {
    let bench = Bench::new();
    let says = |source, options, text| {
        let error = ClProgram::build(&bench.backend, source, options).unwrap_err();
        assert!(matches!(error, OpenClError::Build { .. }));
        assert!(error.to_string().ends_with(text), "{error}");
    };
    says("", "", "the source is empty");
    says(
        "kernel void nothing() {}",
        "-w\0",
        "the options have a null byte in them",
    );
}

#[test]
fn a_kernel_that_is_not_there_comes_with_those_that_are() {
    let kernels = Kernels::new();
    let names = kernels.program.kernel_names();
    assert_eq!(names.len(), 9, "{names:?}");
    let error = kernels.declared("divide", &ADD).unwrap_err();
    for name in names {
        assert!(error.to_string().contains(name), "{error}");
    }
    refused!(Err::<(), _>(error); "is not in the program, which has");
}

#[test]
fn all_parameters_are_declared_and_no_more() {
    let kernels = Kernels::new();
    refused!(
        kernels.declared("add", &ADD[..2]);
        "has 3 parameters, but 2 are declared"
    );
    refused!(
        kernels.declared("add", &[ADD[0]; 4]);
        "has 3 parameters, but 4 are declared"
    );
}

#[test]
fn parameters_are_declared_as_what_they_are() {
    let kernels = Kernels::new();
    refused!(
        kernels.declared("scale", &[SCALE[1], SCALE[1]]);
        parameter 0: "is memory, but is declared as a value"
    );
    refused!(
        kernels.declared("sum", &[SUM[0], SUM[1], SUM[2], SUM[2]]);
        parameter 3: "is local memory, but is declared as"
    );
    let (image, sampler) = (
        Parameter::image(ImageKind::D2, ParameterAccess::Input),
        Parameter::sampler(),
    );
    let result = Parameter::output::<[f32; 4]>(PER_ITEM);
    kernels.kernel("blur", &[image, sampler, result]);
    let volume = Parameter::image(ImageKind::D3, ParameterAccess::Input);
    refused!(
        kernels.declared("blur", &[volume, sampler, result]);
        parameter 0: "is a 2D image, but 3D image was declared"
    );
    refused!(
        kernels.declared("blur", &[ADD[0], sampler, result]);
        parameter 0: "is an image, but is declared as"
    );
    refused!(
        kernels.declared("blur", &[image, SCALE[1], result]);
        parameter 1: "is a sampler, but is declared as"
    );
}

#[test]
fn what_a_kernel_cannot_write_is_declared_as_an_input() {
    let kernels = Kernels::new();
    refused!(
        kernels.declared("add", &[ADD[2], ADD[1], ADD[2]]);
        parameter 0: "is declared as written, but its type is read only"
    );
    let words = Parameter::in_out::<u32>(PER_ITEM);
    refused!(
        kernels.declared("look_up", &[words, words]);
        parameter 0: "is declared as read and written, but its type is"
    );
    let written = Parameter::image(ImageKind::D2, ParameterAccess::Output);
    let result = Parameter::output::<[f32; 4]>(PER_ITEM);
    refused!(
        kernels.declared("blur", &[written, Parameter::sampler(), result]);
        parameter 0: "but its type is read only"
    );
}

#[test]
fn elements_are_declared_with_their_sizes() {
    let kernels = Kernels::new();
    refused!(
        kernels.declared("scale", &[SCALE[0], Parameter::value::<f64>()]);
        parameter 1: "is declared with elements of 8 bytes, but its type is float, of 4 bytes"
    );
    refused!(
        kernels.declared("scale", &[Parameter::in_out::<u8>(PER_ITEM), SCALE[1]]);
        parameter 0: "is declared with elements of 1 bytes, but its type is float, of 4 bytes"
    );
    refused!(
        kernels.declared("scale", &[SCALE[0], Parameter::value::<()>()]);
        parameter 1: "is declared with a type of 0 bytes"
    );
}

#[test]
fn lengths_are_declared_of_memory() {
    let kernels = Kernels::new();
    for of in [1, 3, 4] {
        refused!(
            kernels.declared("sum", &[SUM[0], Parameter::length_u32(of), SUM[2], SUM[3]]);
            parameter 1: &format!("is the length or the offset of parameter {of}, which is not memory")
        );
    }
}

#[test]
fn arguments_are_what_their_parameters_take() {
    let kernels = Kernels::new();
    let scale = kernels.kernel("scale", &SCALE);
    let data = kernels.floats(&[1.0; 4]);
    let launch = || scale.launch(&kernels.bench.queue, &[4]);
    refused!(
        launch().memory(&data).enqueue();
        "takes 2 arguments, but the launch has 1"
    );
    refused!(
        launch().memory(&data).value(&1.0_f32).value(&1.0_f32).enqueue();
        "takes 2 arguments, but the launch has 3"
    );
    refused!(
        launch().value(&1.0_f32).value(&1.0_f32).enqueue();
        parameter 0: "takes memory, but was given a value"
    );
    refused!(
        launch().memory(&data).value(&1.0_f64).enqueue();
        parameter 1: "takes a value of 4 bytes, but was given one of 8"
    );
    assert_eq!(kernels.read_floats(&data), [1.0; 4]);
}

#[test]
fn memory_has_all_that_is_touched_whatever_the_numbers() {
    let kernels = Kernels::new();
    let scale = kernels.kernel("scale", &SCALE);
    let data = kernels.floats(&[1.0; 4]);
    let launch = |items: &[usize]| {
        let launch = scale.launch(&kernels.bench.queue, items).memory(&data);
        launch.value(&2.0_f32).enqueue()
    };
    refused!(launch(&[5]); parameter 0: "was given 16 bytes, but this launch touches 20");
    let most = usize::MAX / 4 + 2;
    refused!(launch(&[most]); parameter 0: &format!("this launch touches {}", usize::MAX));
    let coordinates = kernels.coordinates(PER_ITEM);
    let launch = |items: &[usize]| {
        let launch = coordinates.launch(&kernels.bench.queue, items);
        launch.memory(&data).enqueue()
    };
    refused!(launch(&[2, 3]); parameter 0: "this launch touches 24");
    refused!(
        launch(&[most, most]);
        parameter 0: &format!("this launch touches {}", usize::MAX)
    );
    assert_eq!(kernels.read_floats(&data), [1.0; 4]);
}

#[test]
fn what_is_written_is_passed_once() {
    let kernels = Kernels::new();
    let backend = &kernels.bench.backend;
    let add = kernels.kernel("add", &ADD);
    let step = backend.limits().alignment.bytes().max(256);
    let whole = kernels.bench.filled(3 * step, 0);
    let views = [0, 1, 2].map(|place| {
        let region = Region::new(place * step, step);
        backend.create_sub_region(&whole, region).unwrap()
    });
    let launch = |arguments: [&ClMemory; 3]| {
        let launch = add.launch(&kernels.bench.queue, &[step / 4]);
        let arguments = arguments.map(|memory| Argument::Memory(memory));
        launch.arguments(arguments).enqueue()
    };
    let [first, second, third] = &views;
    // Regions of one block that do not meet are as good as several blocks.
    launch([first, second, third]).unwrap();
    // So is what is touched of the whole block, as few as the items are.
    launch([&whole, second, third]).unwrap();
    refused!(
        launch([first, third, third]);
        parameter 1: "shares bytes with parameter 2"
    );
    refused!(
        launch([first, second, &whole]);
        parameter 0: "shares bytes with parameter 2"
    );
}

/// Fails unless the launch is refused because its first argument has `flag`.
fn refused_for_flag(
    result: Result<ClEvent, OpenClError>,
    name: &str,
    access: ParameterAccess,
    flag: MemoryFlags,
) {
    let error = result.unwrap_err();
    let text = error.to_string();
    let says = format!(
        "parameter 0 of {name} is {access}, but was given memory that was made with {flag}"
    );
    assert!(text.starts_with(&says), "{text}");
}

#[test]
fn kernels_use_memory_as_its_flags_allow() {
    let kernels = Kernels::new();
    let (backend, queue) = (&kernels.bench.backend, &kernels.bench.queue);
    let scale = kernels.kernel("scale", &SCALE);
    let fours = kernels.kernel("by_fours", &[Parameter::output::<u32>(PER_ITEM)]);
    let add = kernels.kernel("add", &ADD);
    let (read_only, write_only) = (MemoryFlags::READ_ONLY, MemoryFlags::WRITE_ONLY);
    let (input, output) = (ParameterAccess::Input, ParameterAccess::Output);
    let in_out = ParameterAccess::InOut;
    let other = kernels.floats(&[1.0; 4]);
    let scaled = |memory| {
        let launch = scale.launch(queue, &[4]).memory(memory);
        launch.value(&2.0_f32).enqueue()
    };
    let written = |memory| fours.launch(queue, &[4]).memory(memory).enqueue();
    let added = |memory| {
        let launch = add.launch(queue, &[4]).memory(memory);
        launch.memory(memory).memory(&other).enqueue()
    };
    let buffer = |flags| backend.create_buffer_from(&[1.0_f32; 4], flags).unwrap();

    let inputs = buffer(read_only | MemoryFlags::HOST_READ_ONLY);
    refused_for_flag(written(&inputs), "by_fours", output, read_only);
    refused_for_flag(scaled(&inputs), "scale", in_out, read_only);
    added(&inputs).unwrap();

    let results = buffer(write_only);
    refused_for_flag(added(&results), "add", input, write_only);
    refused_for_flag(scaled(&results), "scale", in_out, write_only);
    written(&results).unwrap();
    assert_eq!(kernels.words(&results), [4; 4]);
    assert_eq!(kernels.read_floats(&inputs), [1.0; 4]);
}

#[test]
fn views_and_buffers_over_shared_memory_and_pooled_blocks_have_flags_too() {
    let kernels = Kernels::new();
    let (backend, queue) = (&kernels.bench.backend, &kernels.bench.queue);
    let fours = kernels.kernel("by_fours", &[Parameter::output::<u32>(PER_ITEM)]);
    let refused = |memory: &dyn AsMemory<OpenClBackend>| {
        let launch = fours.launch(queue, &[4]).memory(memory);
        let (output, flag) = (ParameterAccess::Output, MemoryFlags::READ_ONLY);
        refused_for_flag(launch.enqueue(), "by_fours", output, flag);
    };
    let whole = backend.create_buffer(64, MemoryFlags::READ_ONLY).unwrap();
    refused(&whole.slice(..16).unwrap());
    let handle = whole.raw().unwrap();
    // SAFETY: the buffer lives, is retained, and only values of this crate use it.
    refused(&unsafe { backend.wrap_raw_memory(handle, true) }.unwrap());

    let shared = backend.allocate_svm(64, None, SvmGrain::Coarse, None);
    let shared = shared.unwrap();
    let over = shared.as_buffer(MemoryFlags::READ_ONLY, None).unwrap();
    refused(&over);
    let all = shared.as_buffer(MemoryFlags::empty(), None).unwrap();
    fours.launch(queue, &[4]).memory(&all).enqueue().unwrap();

    let allocator = ImmediateAllocator::with_flags(backend, MemoryFlags::READ_ONLY).unwrap();
    let pool = MemoryPool::new(allocator, queue).unwrap();
    refused(&pool.allocate(16).unwrap());
}

#[test]
fn work_sizes_are_checked_against_kernel_and_device() {
    let kernels = Kernels::new();
    let coordinates = kernels.coordinates(Extent::Whole);
    let cells = kernels.bench.buffer(1 << 16);
    let launch = |global: &[usize], local: &[usize]| {
        let launch = coordinates.launch(&kernels.bench.queue, global);
        launch.local_size(local).memory(&cells).enqueue()
    };
    refused!(launch(&[], &[]); "cannot be launched with 0 dimensions: use 1 to 3");
    refused!(launch(&[1; 4], &[1; 4]); "cannot be launched with 4 dimensions: use 1 to 3");
    refused!(launch(&[1; 3], &[1; 3]); "3 dimensions of a kernel for 2");
    refused!(launch(&[8, 0], &[1, 1]); "a global size of 0 in dimension 1");
    refused!(launch(&[8, 8], &[8]); "1 dimensions of the local size and 2 of the global size");
    refused!(
        launch(&[10, 1], &[4, 1]);
        "global size 10 and local size 4 in dimension 0"
    );
    let most = 1 << 20;
    for (size, group) in [([most, 1], most), ([256, 256], 65_536)] {
        let refused = launch(&size, &size).unwrap_err().to_string();
        let [local, group] = [
            format!("a local size of {} in dimension 0", size[0]),
            format!("{group} work items in a group"),
        ];
        assert!(
            refused.contains(&local) || refused.contains(&group),
            "{refused}"
        );
    }
}

#[test]
fn a_kernel_is_launched_in_one_dimension_unless_its_maker_says_more() {
    let kernels = Kernels::new();
    let scale = kernels.kernel("scale", &SCALE);
    let data = kernels.floats(&[1.0; 4]);
    // Two work items would have each float.
    let launch = scale.launch(&kernels.bench.queue, &[2, 2]).memory(&data);
    refused!(
        launch.value(&2.0_f32).enqueue();
        "2 dimensions of a kernel for 1"
    );
    assert_eq!(kernels.read_floats(&data), [1.0; 4]);
}

#[test]
fn a_kernel_that_is_compiled_for_a_local_size_has_no_other() {
    let kernels = Kernels::new();
    let by_fours = kernels.kernel("by_fours", &[Parameter::output::<u32>(PER_ITEM)]);
    let ids = kernels.bench.buffer(32);
    let launch = by_fours.launch(&kernels.bench.queue, &[8]).memory(&ids);
    refused!(
        launch.local_size(&[8]).enqueue();
        "the kernel is compiled for"
    );
}

#[test]
fn local_memory_is_checked_against_what_is_touched_and_what_there_is() {
    let kernels = Kernels::new();
    let sum = kernels.kernel("sum", &SUM);
    let (data, sums) = (kernels.bench.filled(64, 0), kernels.bench.buffer(64));
    let launch = || {
        let launch = sum.launch(&kernels.bench.queue, &[16]);
        launch.memory(&data).memory(&sums)
    };
    refused!(
        launch().local_size(&[16]).local(LocalMemory::bytes(63)).enqueue();
        parameter 3: "was given 63 bytes, but this launch touches 64"
    );
    refused!(
        launch().local_size(&[16]).local(LocalMemory::bytes(1 << 30)).enqueue();
        "bytes of local memory in a work group"
    );
    for local in [LocalMemory::per_item::<u32>(1), LocalMemory::bytes(64)] {
        refused!(
            launch().local(local).enqueue();
            "needs a local size"
        );
    }
}

#[test]
fn local_memory_that_a_kernel_has_by_itself_is_counted_too() {
    const SOURCE: &str = "
kernel void both(global uint *result, local uint *given)
{
    local uint own[256];
    own[get_local_id(0)] = get_global_id(0);
    given[get_local_id(0)] = 1;
    barrier(CLK_LOCAL_MEM_FENCE);
    result[get_global_id(0)] = own[0] + given[0];
}
";
    let bench = Bench::new();
    let program = ClProgram::build(&bench.backend, SOURCE, "").unwrap();
    let declared = [
        Parameter::output::<u32>(PER_ITEM),
        Parameter::local::<u32>(PER_ITEM),
    ];
    // SAFETY: The declaration is what the source does.
    let both = unsafe { program.kernel("both", &declared) }.unwrap();
    let result = bench.buffer(16);
    let launch = |bytes| {
        let launch = both.launch(&bench.queue, &[4]).memory(&result);
        let launch = launch.local_size(&[4]).local(LocalMemory::bytes(bytes));
        launch.enqueue()
    };
    let refused = launch(1 << 30).unwrap_err().to_string();
    let numbers = refused.split(' ').filter_map(|word| word.parse().ok());
    let [needed, available] = numbers.collect::<Vec<usize>>()[..] else {
        panic!("not about local memory: {refused}");
    };
    assert_eq!(
        available,
        bench.backend.characterize().unwrap().local_memory_bytes
    );
    // A runtime may need a few bytes more than the array has.
    assert!(((1 << 30) + 1024..(1 << 30) + 1280).contains(&needed));
    refused!(launch(available - 512); "bytes of local memory in a work group");
    launch(16).unwrap().wait().unwrap();
}

#[test]
fn objects_of_another_context_are_refused() {
    let kernels = Kernels::new();
    let other = Bench::new();
    let scale = kernels.kernel("scale", &SCALE);
    let (own, foreign) = (kernels.bench.buffer(16), other.buffer(16));
    let gate = other.gate();
    let refused = |queue: &ClQueue, memory, events| {
        let launch = scale.launch(queue.after(events), &[4]).memory(memory);
        launch_refusal(launch.value(&1.0_f32).enqueue())
    };
    let of = |kind| InvalidRequest::ForeignObject { kind };
    let queue = &kernels.bench.queue;
    assert_eq!(refused(&other.queue, &own, &[]), of(ObjectKind::Queue));
    assert_eq!(refused(queue, &foreign, &[]), of(ObjectKind::Memory));
    assert_eq!(refused(queue, &own, from_ref(&gate)), of(ObjectKind::Event));
}

/// Memory whose owner is mistaken about its size.
struct Boastful(Option<ClMemory>);

impl AsMemory<OpenClBackend> for Boastful {
    fn size(&self) -> usize {
        1 << 20
    }

    fn memory_on(&self, _queue: &ClQueue) -> Option<&ClMemory> {
        self.0.as_ref()
    }
}

#[test]
fn a_size_that_memory_does_not_have_is_not_believed() {
    let kernels = Kernels::new();
    let scale = kernels.kernel("scale", &SCALE);
    for (memory, size) in [(Some(kernels.bench.buffer(16)), 16), (None, 0)] {
        let memory = Boastful(memory);
        let launch = scale.launch(&kernels.bench.queue, &[5]).memory(&memory);
        let expected = InvalidRequest::OutOfBounds {
            offset: 0,
            bytes: 20,
            size,
        };
        assert_eq!(launch_refusal(launch.value(&1.0_f32).enqueue()), expected);
    }
}
