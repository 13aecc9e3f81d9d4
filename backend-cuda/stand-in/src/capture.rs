//! Streams that are captured, and the graphs that come of it.

use std::{
    cell::Cell,
    collections::HashMap,
    ffi::c_void,
    sync::{Arc, LazyLock},
    thread::{self, ThreadId},
};

use parking_lot::Mutex;

use crate::{
    CAPTURE_INVALIDATED, CAPTURE_UNMATCHED, CAPTURE_UNSUPPORTED, Code, INVALID_VALUE,
    device::Device,
};

/// `CU_STREAM_CAPTURE_MODE_GLOBAL`, `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL` and `CU_STREAM_CAPTURE_MODE_RELAXED`.
const GLOBAL: u32 = 0;
const THREAD_LOCAL: u32 = 1;
const RELAXED: u32 = 2;

thread_local! {
    /// Which captures forbid the calling thread something.
    static MODE: Cell<u32> = const { Cell::new(GLOBAL) };
}

/// Sets the mode of the calling thread, and returns that before.
pub(crate) fn exchange_mode(mode: u32) -> Result<u32, Code> {
    if mode > RELAXED {
        return Err(INVALID_VALUE);
    }
    Ok(MODE.replace(mode))
}

/// What a stream does.
pub(crate) type Command = Arc<dyn Fn(&Device) + Send + Sync>;

/// A stream that is captured: its commands are kept here instead of being run.
struct Capture {
    ordinal: i32,
    stream: usize,
    thread: ThreadId,
    mode: u32,
    /// The handle of the graph, and itself.
    handle: usize,
    graph: Graph,
    is_valid: bool,
}

impl Capture {
    /// Returns whether it forbids the calling thread what is not safe in a capture. One of global mode forbids it to all threads of global mode that
    /// use its device: those of tests have devices of their own.
    fn forbids(&self, device: &Device) -> bool {
        let is_ours = self.thread == thread::current().id() && self.mode != RELAXED;
        let is_for_all = self.mode == GLOBAL && self.ordinal == device.ordinal;
        match MODE.get() {
            GLOBAL => is_ours || is_for_all,
            THREAD_LOCAL => is_ours,
            _ => false,
        }
    }
}

static CAPTURES: LazyLock<Mutex<Vec<Capture>>> = LazyLock::new(Mutex::default);

/// `CUstreamCaptureStatus` of a stream: 0 if it is not captured, 1 if it is, 2 if the capture is spoilt.
pub(crate) fn status(stream: usize) -> i32 {
    let captures = CAPTURES.lock();
    let capture = captures.iter().find(|capture| capture.stream == stream);
    capture.map_or(0, |capture| if capture.is_valid { 1 } else { 2 })
}

/// Begins to capture a stream into a graph with this handle. It must not be a default stream.
pub(crate) fn begin(
    device: &Device,
    stream: usize,
    mode: u32,
    graph: impl FnOnce() -> (usize, Graph),
) -> Result<(), Code> {
    if status(stream) != 0 {
        return Err(INVALID_VALUE);
    }
    let (handle, graph) = graph();
    CAPTURES.lock().push(Capture {
        ordinal: device.ordinal,
        stream,
        thread: thread::current().id(),
        mode,
        handle,
        graph,
        is_valid: true,
    });
    Ok(())
}

/// Ends a capture, and returns the handle of its graph; as an error, the handle of one that was spoilt.
pub(crate) fn end(stream: usize) -> Result<Result<usize, usize>, Code> {
    let mut captures = CAPTURES.lock();
    let place = captures.iter().position(|capture| capture.stream == stream);
    let capture = captures.swap_remove(place.ok_or(CAPTURE_UNMATCHED)?);
    let handle = capture.handle;
    Ok(if capture.is_valid {
        Ok(handle)
    } else {
        Err(handle)
    })
}

/// Returns the handle of the graph that a stream is captured into. It serves as the number of the capture, too.
pub(crate) fn graph_of(stream: usize) -> Option<usize> {
    let captures = CAPTURES.lock();
    let mut captures = captures.iter();
    let capture = captures.find(|capture| capture.stream == stream && capture.is_valid);
    capture.map(|capture| capture.handle)
}

/// Takes a command of a stream that is captured, or gives it back to be run.
pub(crate) fn take(stream: usize, command: Command) -> Result<Option<Command>, Code> {
    let mut captures = CAPTURES.lock();
    let mut captures = captures.iter_mut();
    let Some(capture) = captures.find(|capture| capture.stream == stream) else {
        return Ok(Some(command));
    };
    if !capture.is_valid {
        return Err(CAPTURE_INVALIDATED);
    }
    capture.graph.commands.lock().push(command);
    Ok(None)
}

/// Spoils the capture of a stream, where it is captured, and returns the error.
pub(crate) fn spoil(stream: usize, code: Code) -> Code {
    spoil_those(|capture| capture.stream == stream);
    code
}

fn spoil_those(is_one: impl Fn(&Capture) -> bool) -> bool {
    let mut captures = CAPTURES.lock();
    let spoilt = captures.iter_mut().filter(|capture| is_one(capture));
    spoilt.map(|capture| capture.is_valid = false).count() > 0
}

/// Refuses a call that is not safe in a capture, which spoils the capture.
pub(crate) fn check_safe(device: &Device) -> Result<(), Code> {
    if spoil_those(|capture| capture.forbids(device)) {
        return Err(CAPTURE_UNSUPPORTED);
    }
    Ok(())
}

/// Refuses a wait for the device while one of its streams is captured, which spoils the capture, in whatever mode.
pub(crate) fn check_wait_for_device(device: &Device) -> Result<(), Code> {
    if spoil_those(|capture| capture.ordinal == device.ordinal) {
        return Err(CAPTURE_UNSUPPORTED);
    }
    Ok(())
}

/// A graph, which its executables share.
pub(crate) type Graph = Arc<Captured>;

/// What was captured into a graph.
#[derive(Default)]
pub(crate) struct Captured {
    pub(crate) commands: Mutex<Vec<Command>>,
    pub(crate) kept: Mutex<Vec<UserObject>>,
}

/// `CUhostFn`.
pub(crate) type Destroy = unsafe extern "C" fn(*mut c_void);

/// What is called with what, when the last reference to a user object is gone.
pub(crate) struct UserObject {
    pointer: usize,
    destroy: Destroy,
}

impl Drop for UserObject {
    /// Calls it on another thread, as the driver does.
    fn drop(&mut self) {
        let (pointer, destroy) = (self.pointer, self.destroy);
        let called = thread::spawn(move || {
            // SAFETY: The program has passed both for this one call.
            unsafe { destroy(std::ptr::with_exposed_provenance_mut(pointer)) };
        });
        // So that tests know when it was called.
        let _ended = called.join();
    }
}

/// The user objects that no graph has yet.
static OBJECTS: LazyLock<Mutex<HashMap<usize, UserObject>>> = LazyLock::new(Mutex::default);

/// Makes a user object, and returns its handle, which is the address that it points to.
pub(crate) fn make_object(pointer: *mut c_void, destroy: Destroy) -> usize {
    let pointer = pointer.expose_provenance();
    OBJECTS
        .lock()
        .insert(pointer, UserObject { pointer, destroy });
    pointer
}

/// Takes the reference to a user object that the program has.
pub(crate) fn take_object(handle: usize) -> Result<UserObject, Code> {
    OBJECTS.lock().remove(&handle).ok_or(INVALID_VALUE)
}
