//! Streams that are captured, and the graphs that come of it.

use std::{
    cell::Cell,
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
    commands: Vec<Command>,
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

/// Begins to capture a stream, which is none of the default ones.
pub(crate) fn begin(device: &Device, stream: usize, mode: u32) -> Result<(), Code> {
    if status(stream) != 0 {
        return Err(INVALID_VALUE);
    }
    CAPTURES.lock().push(Capture {
        ordinal: device.ordinal,
        stream,
        thread: thread::current().id(),
        mode,
        commands: Vec::new(),
        is_valid: true,
    });
    Ok(())
}

/// Ends a capture, and returns its commands.
pub(crate) fn end(stream: usize) -> Result<Vec<Command>, Code> {
    let mut captures = CAPTURES.lock();
    let place = captures.iter().position(|capture| capture.stream == stream);
    let capture = captures.swap_remove(place.ok_or(CAPTURE_UNMATCHED)?);
    capture
        .is_valid
        .then_some(capture.commands)
        .ok_or(CAPTURE_INVALIDATED)
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
    capture.commands.push(command);
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

/// The commands of a graph.
pub(crate) type Graph = Arc<Vec<Command>>;
