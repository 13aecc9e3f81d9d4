//! Objects that the program asks the driver for, by others that keep them.

use std::{
    ffi::{CString, c_void},
    ptr,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use opencl_sys::*;

use crate::{
    cl::cl,
    rig::{Rig, say},
    runs::rule,
};

static ENDED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn context_ended(_context: cl_context, _data: *mut c_void) {
    ENDED.fetch_add(1, Ordering::Release);
}

/// A context whose end is counted.
fn new_context(rig: &Rig) -> cl_context {
    let context = rig.new_context(&[rig.device]);
    let status = cl!(clSetContextDestructorCallback(
        context,
        Some(context_ended),
        ptr::null_mut()
    ));
    assert_eq!(status, CL_SUCCESS);
    context
}

/// Says whether `count` contexts have ended. Threads of the driver may have the last reference for a while.
fn have_ended(count: usize) -> bool {
    for _ in 0..100 {
        if ENDED.load(Ordering::Acquire) >= count {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    ENDED.load(Ordering::Acquire) == count
}

/// Asks an object for another by a function such as `clGetEventInfo`.
macro_rules! ask {
    ($function:ident($object:expr, $name:expr)) => {{
        let mut found: *mut c_void = ptr::null_mut();
        let status = cl!($function(
            $object as usize as _,
            $name,
            size_of::<usize>(),
            (&raw mut found).cast(),
            ptr::null_mut()
        ));
        assert_eq!(status, CL_SUCCESS);
        found.cast()
    }};
}

/// What keeps a context.
#[derive(Clone, Copy, Debug)]
enum Keeper {
    Queue,
    Buffer,
    Part,
    Event,
    Program,
    Kernel,
    Sampler,
}

impl Keeper {
    const ALL: [Self; 7] = [
        Self::Queue,
        Self::Buffer,
        Self::Part,
        Self::Event,
        Self::Program,
        Self::Kernel,
        Self::Sampler,
    ];

    /// Makes an object that alone keeps a context.
    fn keep(self, rig: &Rig, context: cl_context) -> usize {
        let mut status = 0;
        let object = match self {
            Self::Queue => rig.queue_in(context, rig.device, 0) as usize,
            Self::Buffer => buffer_in(context, 512) as usize,
            Self::Part => {
                let buffer = buffer_in(context, 512);
                let (part, of_part) = rig.sub_buffer(buffer, 0, 128);
                status = of_part;
                rig.release(buffer);
                part as usize
            }
            Self::Event => cl!(clCreateUserEvent(context, &raw mut status)) as usize,
            Self::Program => rig.program_in(context) as usize,
            Self::Kernel => {
                let program = rig.program_in(context);
                let name = CString::new("set").unwrap();
                let kernel = cl!(clCreateKernel(program, name.as_ptr(), &raw mut status));
                cl!(clReleaseProgram(program));
                kernel as usize
            }
            Self::Sampler => {
                let (address, filter) = (CL_ADDRESS_NONE, CL_FILTER_NEAREST);
                cl!(clCreateSampler(
                    context,
                    CL_FALSE,
                    address,
                    filter,
                    &raw mut status
                )) as usize
            }
        };
        assert_eq!(status, CL_SUCCESS);
        cl!(clReleaseContext(context));
        object
    }

    fn context(self, object: usize) -> cl_context {
        match self {
            Self::Queue => ask!(clGetCommandQueueInfo(object, CL_QUEUE_CONTEXT)),
            Self::Buffer | Self::Part => ask!(clGetMemObjectInfo(object, CL_MEM_CONTEXT)),
            Self::Event => ask!(clGetEventInfo(object, CL_EVENT_CONTEXT)),
            Self::Program => ask!(clGetProgramInfo(object, CL_PROGRAM_CONTEXT)),
            Self::Kernel => ask!(clGetKernelInfo(object, CL_KERNEL_CONTEXT)),
            Self::Sampler => ask!(clGetSamplerInfo(object, CL_SAMPLER_CONTEXT)),
        }
    }

    fn release(self, object: usize) {
        let status = match self {
            Self::Queue => cl!(clReleaseCommandQueue(object as _)),
            Self::Buffer | Self::Part => cl!(clReleaseMemObject(object as _)),
            Self::Event => cl!(clReleaseEvent(object as _)),
            Self::Program => cl!(clReleaseProgram(object as _)),
            Self::Kernel => cl!(clReleaseKernel(object as _)),
            Self::Sampler => cl!(clReleaseSampler(object as _)),
        };
        assert_eq!(status, CL_SUCCESS);
    }
}

fn buffer_in(context: cl_context, bytes: usize) -> cl_mem {
    let mut status = 0;
    let buffer = cl!(clCreateBuffer(
        context,
        0,
        bytes,
        ptr::null_mut(),
        &raw mut status
    ));
    assert_eq!(status, CL_SUCCESS);
    buffer
}

/// Makes buffers in a context, and uses them on a queue of it.
fn use_context(rig: &Rig, context: cl_context, queue: cl_command_queue) {
    for round in 0..4 {
        let buffer = buffer_in(context, 4096);
        rig.fill(queue, buffer, round, 4096);
        assert_is(rig, queue, buffer, round);
        rig.release(buffer);
    }
}

fn assert_is(rig: &Rig, queue: cl_command_queue, buffer: cl_mem, value: u8) {
    let read = rig.read(queue, buffer, 4096);
    assert!(read.iter().all(|byte| *byte == value));
}

#[test]
fn a_context_that_an_object_alone_keeps_is_retained_and_used_and_ends_with_that() {
    let runs = rule(|rig| {
        let mut count = 0;
        for keeper in Keeper::ALL {
            for _ in 0..3 {
                let context = new_context(rig);
                let object = keeper.keep(rig, context);
                let again = keeper.context(object);
                cl!(clRetainContext(again));
                let queue = rig.queue_in(again, rig.device, 0);
                use_context(rig, again, queue);
                cl!(clReleaseCommandQueue(queue));
                let last = buffer_in(again, 4096);
                cl!(clReleaseContext(again));
                rig.release(last);
                keeper.release(object);
                count += 1;
                say!(
                    rig,
                    "{keeper:?}: {} {}",
                    again == context,
                    have_ended(count)
                );
            }
        }
    });
    if let Some(runs) = runs {
        runs.reuse();
        for run in [&runs.recorded, &runs.pooled] {
            assert_eq!(run.count("a "), run.count("f "));
        }
    }
}

#[test]
fn a_context_that_an_object_alone_keeps_is_used_without_a_reference_and_ends_with_that() {
    rule(|rig| {
        let mut count = 0;
        for keeper in Keeper::ALL {
            for _ in 0..3 {
                let context = new_context(rig);
                let object = keeper.keep(rig, context);
                let again = keeper.context(object);
                let buffers: Vec<cl_mem> = (0..3).map(|_| buffer_in(again, 4096)).collect();
                for buffer in buffers {
                    rig.release(buffer);
                }
                if matches!(keeper, Keeper::Queue) {
                    use_context(rig, again, object as cl_command_queue);
                }
                keeper.release(object);
                count += 1;
                say!(rig, "{keeper:?}: {}", have_ended(count));
            }
        }
    });
}

/// Makes a queue that only an event of it keeps. Returns the event, and the context, without a reference to either of the others.
fn event_of_queue(rig: &Rig) -> (cl_event, cl_context) {
    let context = new_context(rig);
    let queue = rig.queue_in(context, rig.device, 0);
    let buffer = buffer_in(context, 4096);
    let mut event = ptr::null_mut();
    let value = 1_u8;
    let status = cl!(clEnqueueFillBuffer(
        queue,
        buffer,
        (&raw const value).cast(),
        1,
        0,
        4096,
        0,
        ptr::null(),
        &raw mut event
    ));
    assert_eq!(status, CL_SUCCESS);
    rig.finish(queue);
    rig.release(buffer);
    cl!(clReleaseCommandQueue(queue));
    (event, context)
}

#[test]
fn a_queue_that_an_event_alone_keeps_is_used_without_a_reference_and_ends_with_that() {
    let runs = rule(|rig| {
        for count in 1..4 {
            let (event, context) = event_of_queue(rig);
            let queue: cl_command_queue = ask!(clGetEventInfo(event, CL_EVENT_COMMAND_QUEUE));
            use_context(rig, context, queue);
            let of_queue: cl_context = ask!(clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT));
            cl!(clReleaseContext(context));
            let last = buffer_in(of_queue, 4096);
            rig.fill(queue, last, 9, 4096);
            assert_is(rig, queue, last, 9);
            rig.release(last);
            cl!(clReleaseEvent(event));
            say!(rig, "{} {}", of_queue == context, have_ended(count));
        }
    });
    if let Some(runs) = runs {
        let passed = "p passed 4096 ";
        assert!(runs.pooled.count(passed) > 0, "it is said");
    }
}

#[test]
fn a_queue_that_an_event_alone_keeps_is_retained_and_used_and_ends_with_that() {
    rule(|rig| {
        for count in 1..4 {
            let (event, context) = event_of_queue(rig);
            cl!(clReleaseContext(context));
            let queue: cl_command_queue = ask!(clGetEventInfo(event, CL_EVENT_COMMAND_QUEUE));
            cl!(clRetainCommandQueue(queue));
            cl!(clReleaseEvent(event));
            use_context(rig, context, queue);
            say!(rig, "{:?}", cl!(clReleaseCommandQueue(queue)));
            say!(rig, "{}", have_ended(count));
        }
    });
}

#[test]
fn memory_that_parts_alone_keep_is_retained_and_used_and_ends_with_that() {
    rule(|rig| {
        for round in 0..4 {
            let buffer = rig.buffer(4096);
            let (part, _) = rig.sub_buffer(buffer, 0, 128);
            rig.release(buffer);
            let again: cl_mem = ask!(clGetMemObjectInfo(part, CL_MEM_ASSOCIATED_MEMOBJECT));
            rig.retain(again);
            rig.release(part);
            let other = rig.buffer(4096);
            rig.fill(rig.queue, again, round, 4096);
            rig.fill(rig.queue, other, round + 100, 4096);
            assert_is(rig, rig.queue, again, round);
            say!(rig, "{} {}", again == buffer, rig.references(again));
            rig.release(again);
            rig.release(other);
        }
    });
}

#[test]
fn the_queue_of_a_device_is_asked_for_as_it_would_be() {
    rule(|rig| {
        let mut default: cl_command_queue = ptr::null_mut();
        let status = cl!(clGetCommandQueueInfo(
            rig.queue,
            CL_QUEUE_DEVICE_DEFAULT,
            size_of::<cl_command_queue>(),
            (&raw mut default).cast(),
            ptr::null_mut()
        ));
        say!(rig, "{status} {}", default.is_null());
        if status == CL_SUCCESS && !default.is_null() {
            say!(rig, "{}", cl!(clRetainCommandQueue(default)));
            say!(rig, "{}", cl!(clReleaseCommandQueue(default)));
        }
    });
}
