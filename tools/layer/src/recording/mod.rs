//! The recording of this process.

mod calls;
mod contained;
mod fork;
mod mapped_file;
mod modules;
mod place;
mod process_mark;
mod python;
mod report_once;
mod stack;
mod unlocked_python;
mod writer;

use std::{
    borrow::Cow,
    sync::{Mutex, MutexGuard, Once, OnceLock},
    time::Instant,
};

use binpool_trace::{Line, PoolEvent, Request, What};

pub(crate) use calls::Call;
pub(crate) use contained::contained;
pub(crate) use fork::{Lock, hold_over_fork, lock};
pub(crate) use mapped_file::map;
pub(crate) use modules::loaded_files;
pub(crate) use place::{Place, Stay};
pub(crate) use process_mark::ProcessMark;
pub(crate) use report_once::{report_once, say};
use writer::Writer;
pub(crate) use writer::{Device, Group, numbered, program_name};

use crate::settings::settings;

/// The recording of this process: what its programs do with device memory, as the lines of a trace. All functions may be called from any thread,
/// and while the program is being ended.
#[derive(Debug)]
pub(crate) struct Recording {
    writer: Mutex<Writer>,
    begin: Instant,
}

/// Returns the recording of this process, if there is one. `source` is the interface of the program that asks first, such as `OpenCL`.
pub(crate) fn recording(source: &'static str) -> Option<&'static Recording> {
    static RECORDING: OnceLock<Option<Recording>> = OnceLock::new();
    static WATCHES: Once = Once::new();
    let made = RECORDING.get_or_init(|| {
        let path = settings().record.as_deref()?;
        let recording = Recording {
            writer: Mutex::new(Writer::new(path, source)),
            begin: Instant::now(),
        };
        Some(recording)
    });
    let recording = made.as_ref()?;
    WATCHES.call_once(|| {
        hold_over_fork(Lock::Recording, &recording.writer, Writer::begin_again);
        // SAFETY: the function lives as long as the process, since this library is never unloaded.
        unsafe { libc::atexit(end) };
    });
    Some(recording)
}

impl Recording {
    /// Notes a block of `bytes` bytes that was allocated by the caller on this thread, for stream number `stream`, and returns its ID.
    /// Stream 0 is none.
    pub(crate) fn allocated(&self, group: Group, bytes: usize, stream: u32) -> u64 {
        self.request(group, bytes, stream, 0, |id, request| Line::Allocated {
            id,
            request,
        })
    }

    /// Notes a block as [`allocated`](Self::allocated) does, with an ID that no live block has. As many of the innermost frames of Python as
    /// `own_frames` says are not the program's.
    pub(crate) fn allocated_as(
        &self,
        id: u64,
        group: Group,
        bytes: usize,
        stream: u32,
        own_frames: usize,
    ) {
        self.request(group, bytes, stream, own_frames, |_, request| {
            Line::Allocated { id, request }
        });
    }

    /// Notes a request that was refused for lack of memory.
    pub(crate) fn refused(&self, group: Group, bytes: usize, stream: u32, own_frames: usize) {
        let line = |_, request| Line::Refused { request };
        self.request(group, bytes, stream, own_frames, line);
    }

    fn request(
        &self,
        group: Group,
        bytes: usize,
        stream: u32,
        own_frames: usize,
        line: impl FnOnce(u64, Request) -> Line<'static>,
    ) -> u64 {
        let stack = settings().has_stacks.then(|| stack::here(own_frames));
        let thread = stack::thread_number();
        let mut writer = self.writer();
        let place = Place::here();
        let mut number = None;
        if let Some(stack) = &stack {
            number = writer.stack_number(stack, place);
            if number.is_none() {
                drop(writer);
                // Python may run any code of the program for this, which may come here again.
                let texts = stack.texts(own_frames);
                writer = self.writer();
                number = Some(writer.number_stack(stack, place, texts));
            }
        }
        let group = writer.group_number(group, thread);
        let id = writer.next_id();
        let request = Request {
            bytes,
            stream,
            time: Some(self.time()),
            group: Some(group),
            stack: number,
        };
        writer.write(&line(id, request));
        id
    }

    /// Notes that a block was freed.
    pub(crate) fn freed(&self, id: u64) {
        let mut writer = self.writer();
        let time = Some(self.time());
        writer.write_of(id, &Line::Freed { id, time });
    }

    /// Notes that a block is used on a stream for the first time.
    pub(crate) fn used(&self, id: u64, stream: u32) {
        let mut writer = self.writer();
        let time = Some(self.time());
        writer.write_of(id, &Line::Used { id, stream, time });
    }

    /// Returns the place of the program with these frames, a line for each, innermost first.
    pub(crate) fn place(&self, frames: &str) -> Place {
        self.writer().place(frames)
    }

    /// Returns the place with these frames within that where this thread is.
    pub(crate) fn place_within(&self, frames: &str) -> Place {
        self.writer().place_within(frames, Place::here())
    }

    /// Has the header name the device of the program, if it is one, unless it is written.
    pub(crate) fn begin_on(&self, devices: &[Device]) {
        self.writer().set_devices(devices);
    }

    /// Notes a context of the program, which has this number, and these devices.
    pub(crate) fn context(&self, number: u32, devices: &[Device]) {
        self.begin_on(devices);
        let names: Vec<&str> = devices.iter().map(|device| &*device.name).collect();
        self.note("context", 0, &format!("{number}: {}", names.join(", ")));
    }

    /// Notes anything else: `what` is a word.
    pub(crate) fn note(&self, what: &str, bytes: u64, text: &str) {
        self.pool(PoolEvent::did(What::of(what), bytes, text));
    }

    /// Notes what an allocator did.
    pub(crate) fn pool(&self, event: PoolEvent) {
        let mut writer = self.writer();
        let time = Some(self.time());
        let event = Cow::Owned(event);
        writer.write(&Line::Pool { event, time });
    }

    /// Writes the totals of all calls, and cuts the file to what was written. Events that come later are written, too.
    fn end(&self) {
        if !self.writer().has_begun() {
            return;
        }
        for (name, call) in calls::by_name() {
            self.note("call", call.count, &format!("{name} {}", call.nanoseconds));
        }
        self.writer().cut();
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        let mut writer = lock(&self.writer);
        writer.follow_fork();
        writer
    }

    /// The time now, in nanoseconds since the recording began. Taken under the writer's lock, so that lines are in its order.
    fn time(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

extern "C" fn end() {
    contained(|| {
        if let Some(recording) = recording("") {
            recording.end();
        }
    });
}
