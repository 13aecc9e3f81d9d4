//! A driver with queues, whose commands end when a test lets them, and which writes down what it is asked for. It ends the process where it is
//! called with what was released.

use std::{
    collections::BTreeMap,
    ffi::c_void,
    fmt::Write,
    ptr,
    sync::{Mutex, MutexGuard},
};

use opencl_sys::{
    CL_CONTEXT_DEVICES, CL_EVENT_COMMAND_EXECUTION_STATUS, CL_INVALID_VALUE,
    CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_RESOURCES, CL_QUEUE_CONTEXT, CL_QUEUE_PROPERTIES,
    CL_QUEUE_REFERENCE_COUNT, CL_SUCCESS, cl_command_queue, cl_command_queue_properties,
    cl_context, cl_device_id, cl_event, cl_icd::cl_icd_dispatch, cl_int, cl_mem, cl_mem_flags,
    cl_uint,
};

use crate::driver::{CONTEXT, Device, entries, functions, init_layer};

#[derive(Default)]
struct State {
    log: String,
    /// The references to each queue, its properties, and its context.
    queues: BTreeMap<usize, (u32, u64, usize)>,
    /// The references to each event.
    events: BTreeMap<usize, u32>,
    /// The events of commands that have not ended, with their queues.
    pending: BTreeMap<usize, usize>,
    /// The bytes of each buffer.
    buffers: BTreeMap<usize, usize>,
    refuses_markers: bool,
    refuses_references: bool,
    /// The buffers that there may be for requests and commands to succeed.
    most_buffers: usize,
    last: usize,
}

static STATE: Mutex<State> = Mutex::new(State {
    log: String::new(),
    queues: BTreeMap::new(),
    events: BTreeMap::new(),
    pending: BTreeMap::new(),
    buffers: BTreeMap::new(),
    refuses_markers: false,
    refuses_references: false,
    most_buffers: usize::MAX,
    last: 0,
});

fn state() -> MutexGuard<'static, State> {
    STATE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Ends the process unless this is so: a program that does so breaks a rule of OpenCL.
fn check(is_right: bool, what: &str) {
    if !is_right {
        eprintln!("misuse: {what}\n{}", state().log);
        std::process::abort();
    }
}

impl State {
    fn next(&mut self) -> usize {
        self.last += 1;
        self.last
    }

    fn say(&mut self, what: std::fmt::Arguments<'_>) {
        writeln!(self.log, "{what}").unwrap();
    }

    /// Makes an event of a command, where the program wants one.
    fn event(&mut self, queue: usize, place: *mut cl_event) -> String {
        if place.is_null() {
            return String::new();
        }
        let event = self.next();
        self.events.insert(event, 1);
        self.pending.insert(event, queue);
        unsafe { place.write(ptr::without_provenance_mut(event)) };
        format!(" -> e{event}")
    }
}

/// A command on a queue.
fn command(
    name: &str,
    queue: cl_command_queue,
    what: &str,
    (count, list): (cl_uint, *const cl_event),
    event: *mut cl_event,
) -> cl_int {
    let queue = queue.addr();
    let list = if count == 0 {
        &[]
    } else {
        unsafe { std::slice::from_raw_parts(list, count as usize) }
    };
    let waits: Vec<usize> = list.iter().map(|event| event.addr()).collect();
    let are_alive = {
        let state = state();
        state.queues.contains_key(&queue)
            && waits.iter().all(|event| state.events.contains_key(event))
    };
    check(are_alive, &format!("{name} on q{queue} after {waits:?}"));
    let mut state = state();
    if name == "marker" && state.refuses_markers {
        return CL_OUT_OF_RESOURCES;
    }
    let names: Vec<String> = waits.iter().map(|event| format!(" e{event}")).collect();
    let after = if names.is_empty() {
        String::new()
    } else {
        format!(" after{}", names.concat())
    };
    let made = state.event(queue, event);
    state.say(format_args!("{name} q{queue}{what}{after}{made}"));
    CL_SUCCESS
}

unsafe extern "C" fn create_queue(
    context: cl_context,
    _: cl_device_id,
    properties: cl_command_queue_properties,
    status: *mut cl_int,
) -> cl_command_queue {
    let mut state = state();
    let queue = state.next();
    state.queues.insert(queue, (1, properties, context.addr()));
    unsafe { status.write(CL_SUCCESS) };
    ptr::without_provenance_mut(queue)
}

unsafe extern "C" fn retain_queue(queue: cl_command_queue) -> cl_int {
    if state().refuses_references {
        return CL_OUT_OF_RESOURCES;
    }
    state().queues.get_mut(&queue.addr()).unwrap().0 += 1;
    CL_SUCCESS
}

unsafe extern "C" fn release_queue(queue: cl_command_queue) -> cl_int {
    let queue = queue.addr();
    check(
        state().queues.contains_key(&queue),
        "a queue is released too often",
    );
    let mut state = state();
    let references = &mut state.queues.get_mut(&queue).unwrap().0;
    *references -= 1;
    if *references == 0 {
        state.queues.remove(&queue);
    }
    state.say(format_args!("release q{queue}"));
    CL_SUCCESS
}

unsafe extern "C" fn queue_info(
    queue: cl_command_queue,
    name: cl_uint,
    _: usize,
    value: *mut c_void,
    _: *mut usize,
) -> cl_int {
    let known = state().queues.get(&queue.addr()).copied();
    check(
        known.is_some(),
        "a question about a queue that was released",
    );
    let (references, properties, context) = known.unwrap();
    match name {
        CL_QUEUE_CONTEXT => unsafe { value.cast::<usize>().write(context) },
        CL_QUEUE_PROPERTIES => unsafe { value.cast::<u64>().write(properties) },
        CL_QUEUE_REFERENCE_COUNT => unsafe { value.cast::<u32>().write(references) },
        _ => return CL_INVALID_VALUE,
    }
    CL_SUCCESS
}

unsafe extern "C" fn marker(
    queue: cl_command_queue,
    count: cl_uint,
    list: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    command("marker", queue, "", (count, list), event)
}

unsafe extern "C" fn barrier(
    queue: cl_command_queue,
    count: cl_uint,
    list: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    command("barrier", queue, "", (count, list), event)
}

unsafe extern "C" fn fill(
    queue: cl_command_queue,
    buffer: cl_mem,
    _: *const c_void,
    _: usize,
    _: usize,
    _: usize,
    count: cl_uint,
    list: *const cl_event,
    event: *mut cl_event,
) -> cl_int {
    let buffer = buffer.addr();
    check(
        state().buffers.contains_key(&buffer),
        "a command on a buffer that was released",
    );
    let mut now = state();
    if now.buffers.len() > now.most_buffers {
        now.say(format_args!("no memory for a command"));
        return CL_OUT_OF_RESOURCES;
    }
    drop(now);
    command("fill", queue, &format!(" b{buffer}"), (count, list), event)
}

unsafe extern "C" fn flush(queue: cl_command_queue) -> cl_int {
    command("flush", queue, "", (0, ptr::null()), ptr::null_mut())
}

unsafe extern "C" fn finish(queue: cl_command_queue) -> cl_int {
    let code = command("finish", queue, "", (0, ptr::null()), ptr::null_mut());
    end_commands_on(queue.addr());
    code
}

unsafe extern "C" fn wait(count: cl_uint, list: *const cl_event) -> cl_int {
    let list = unsafe { std::slice::from_raw_parts(list, count as usize) };
    for event in list {
        state().say(format_args!("wait e{}", event.addr()));
        state().pending.remove(&event.addr());
    }
    CL_SUCCESS
}

unsafe extern "C" fn event_info(
    event: cl_event,
    name: cl_uint,
    _: usize,
    value: *mut c_void,
    _: *mut usize,
) -> cl_int {
    let event = event.addr();
    check(
        state().events.contains_key(&event),
        "a question about an event that was released",
    );
    if name != CL_EVENT_COMMAND_EXECUTION_STATUS {
        return CL_INVALID_VALUE;
    }
    let status = cl_int::from(state().pending.contains_key(&event));
    unsafe { value.cast::<cl_int>().write(status) };
    CL_SUCCESS
}

unsafe extern "C" fn release_event(event: cl_event) -> cl_int {
    let event = event.addr();
    check(
        state().events.contains_key(&event),
        "an event is released too often",
    );
    let mut state = state();
    let references = state.events.get_mut(&event).unwrap();
    *references -= 1;
    if *references == 0 {
        state.events.remove(&event);
    }
    CL_SUCCESS
}

unsafe extern "C" fn create_user_event(_: cl_context, status: *mut cl_int) -> cl_event {
    let mut event = ptr::null_mut();
    state().event(0, &raw mut event);
    unsafe { status.write(CL_SUCCESS) };
    event
}

unsafe extern "C" fn set_user_event(event: cl_event, _: cl_int) -> cl_int {
    state().pending.remove(&event.addr());
    CL_SUCCESS
}

unsafe extern "C" fn create(
    _: cl_context,
    _: cl_mem_flags,
    bytes: usize,
    _: *mut c_void,
    status: *mut cl_int,
) -> cl_mem {
    let mut state = state();
    if state.buffers.len() >= state.most_buffers {
        state.say(format_args!("no memory for a buffer"));
        unsafe { status.write(CL_MEM_OBJECT_ALLOCATION_FAILURE) };
        return ptr::null_mut();
    }
    let buffer = state.next();
    state.buffers.insert(buffer, bytes);
    unsafe { status.write(CL_SUCCESS) };
    ptr::without_provenance_mut(buffer)
}

unsafe extern "C" fn create_part(
    _: cl_mem,
    _: cl_mem_flags,
    _: cl_uint,
    _: *const c_void,
    status: *mut cl_int,
) -> cl_mem {
    unsafe { create(ptr::null_mut(), 0, 0, ptr::null_mut(), status) }
}

unsafe extern "C" fn buffer_info(
    _: cl_mem,
    _: cl_uint,
    _: usize,
    value: *mut c_void,
    _: *mut usize,
) -> cl_int {
    // That of a part: its bytes.
    unsafe { value.cast::<usize>().write(10) };
    CL_SUCCESS
}

unsafe extern "C" fn set_callback(
    _: cl_mem,
    _: Option<unsafe extern "C" fn(cl_mem, *mut c_void)>,
    _: *mut c_void,
) -> cl_int {
    CL_SUCCESS
}

unsafe extern "C" fn release(buffer: cl_mem) -> cl_int {
    let known = state().buffers.remove(&buffer.addr());
    check(known.is_some(), "a buffer is released too often");
    CL_SUCCESS
}

unsafe extern "C" fn release_context(_: cl_context) -> cl_int {
    CL_SUCCESS
}

unsafe extern "C" fn context_info(
    context: cl_context,
    name: cl_uint,
    size: usize,
    value: *mut c_void,
    bytes: *mut usize,
) -> cl_int {
    let inner = functions().clGetContextInfo.unwrap();
    if name == CL_CONTEXT_DEVICES {
        return unsafe { inner(context, name, size, value, bytes) };
    }
    CL_INVALID_VALUE
}

/// A program on this driver, with the layer in front.
pub(crate) fn load() -> Device {
    load_with(|_| ())
}

/// As [`load`], with further functions.
pub(crate) fn load_with(add: impl FnOnce(&mut cl_icd_dispatch)) -> Device {
    let mut functions: cl_icd_dispatch = functions();
    functions.clCreateCommandQueue = Some(create_queue);
    functions.clRetainCommandQueue = Some(retain_queue);
    functions.clReleaseCommandQueue = Some(release_queue);
    functions.clGetCommandQueueInfo = Some(queue_info);
    functions.clEnqueueMarkerWithWaitList = Some(marker);
    functions.clEnqueueBarrierWithWaitList = Some(barrier);
    functions.clEnqueueFillBuffer = Some(fill);
    functions.clFlush = Some(flush);
    functions.clFinish = Some(finish);
    functions.clWaitForEvents = Some(wait);
    functions.clGetEventInfo = Some(event_info);
    functions.clReleaseEvent = Some(release_event);
    functions.clCreateUserEvent = Some(create_user_event);
    functions.clSetUserEventStatus = Some(set_user_event);
    functions.clCreateBuffer = Some(create);
    functions.clReleaseMemObject = Some(release);
    functions.clReleaseContext = Some(release_context);
    functions.clGetContextInfo = Some(context_info);
    functions.clCreateSubBuffer = Some(create_part);
    functions.clGetMemObjectInfo = Some(buffer_info);
    functions.clSetMemObjectDestructorCallback = Some(set_callback);
    add(&mut functions);
    Device::of(init_layer(&entries(&functions)))
}

/// What the driver was asked for since the last time, in lines.
pub(crate) fn log() -> Vec<String> {
    let log = std::mem::take(&mut state().log);
    log.lines().map(str::to_owned).collect()
}

/// Lets the commands of a queue end.
pub(crate) fn end_commands_on(queue: usize) {
    state().pending.retain(|_, of| *of != queue);
}

/// A queue that the program does not have from the layer.
pub(crate) fn unknown_queue() -> usize {
    let mut state = state();
    let queue = state.next();
    state.queues.insert(queue, (1, 0, CONTEXT));
    queue
}

/// Refuses markers from now on.
pub(crate) fn refuse_markers() {
    state().refuses_markers = true;
}

/// Refuses references to queues from now on.
pub(crate) fn refuse_references() {
    state().refuses_references = true;
}

/// Refuses buffers above this number, and commands while there are more.
pub(crate) fn set_most_buffers(count: usize) {
    state().most_buffers = count;
}

/// Notes a command that a test has a function for.
pub(crate) fn note(what: std::fmt::Arguments<'_>) {
    state().say(what);
}

/// The bytes of all buffers.
pub(crate) fn bytes() -> usize {
    state().buffers.values().sum()
}

/// How many queues, events and buffers were not released.
pub(crate) fn left() -> [usize; 3] {
    let state = state();
    [state.queues.len(), state.events.len(), state.buffers.len()]
}
