//! What an array framework says of its own allocator: the tensors of PyTorch and the arrays of CuPy, and the segments that they lie in.
//!
//! Such an allocator takes large segments from the driver and divides them, so the driver's calls say nothing of the blocks in them. The part
//! of the Python package that `binpool run` loads into a program calls the functions here.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    ffi::{CStr, c_char, c_int},
    sync::{
        Mutex, Once, OnceLock,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
};

use binpool_trace::PoolEvent;
use foldhash::fast::FixedState;

use crate::{
    pool_figures::count_of_framework,
    recording::{
        Device, Group, Lock, Place, Recording, Stay, contained, hold_over_fork, lock, recording,
    },
    settings::settings,
};

/// What happened to memory. The numbers are those of the functions' callers.
#[derive(Clone, Copy, Debug)]
enum What {
    /// The program has allocated a block.
    Allocated,
    /// The program has freed a block that commands of another stream still use.
    Waiting,
    /// A block is free for others.
    Freed,
    /// The allocator has got a segment from the driver.
    Taken,
    /// A segment went back to the driver.
    GivenBack,
    /// Pages were mapped.
    Mapped,
    /// Pages were unmapped.
    Unmapped,
    /// A request failed for lack of memory.
    Refused,
}

impl What {
    const ALL: [Self; 8] = [
        Self::Allocated,
        Self::Waiting,
        Self::Freed,
        Self::Taken,
        Self::GivenBack,
        Self::Mapped,
        Self::Unmapped,
        Self::Refused,
    ];
}

/// What frameworks tell of their memory. What they have from the driver is then not recorded as blocks of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tells {
    Nothing,
    Blocks,
    BlocksAndSegments,
}

static TELLS: AtomicU8 = AtomicU8::new(Tells::Nothing as u8);

/// Returns what frameworks tell.
pub(crate) fn tells() -> Tells {
    match TELLS.load(Ordering::Relaxed) {
        0 => Tells::Nothing,
        1 => Tells::Blocks,
        _ => Tells::BlocksAndSegments,
    }
}

/// Set once a framework has a pool of binpool.
static IS_POOLED: AtomicBool = AtomicBool::new(false);

/// Returns whether a framework has a pool of binpool, which takes its pages from the driver as any program does.
pub(crate) fn is_pooled() -> bool {
    IS_POOLED.load(Ordering::Relaxed)
}

/// An event, with sizes in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    /// The index of a [`What`]; with [`ARRAY`], that of an array of CuPy.
    what: u32,
    device: c_int,
    /// That of the block, the segment or the pages. Of a request that failed, the bytes that the device had free.
    address: u64,
    bytes: u64,
    /// What the block takes; 0 where that is not known.
    granted: u64,
    /// The handle of the stream.
    stream: u64,
    /// What the framework has noted of the part of the program that allocates, as a text that ends with a zero; or null.
    note: *const c_char,
    /// How many of the innermost frames of Python are of the package, not of the program.
    own_frames: u32,
}

/// Set in the number of what happened to an array of CuPy. What happened to others is about tensors of PyTorch.
const ARRAY: u32 = 1 << 16;

/// The frameworks of this process, and their recording.
#[derive(Debug)]
struct Frameworks {
    recording: &'static Recording,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    devices: HashMap<c_int, Known, FixedState>,
    /// The numbers of streams, by device and handle.
    streams: HashMap<(c_int, u64), u32, FixedState>,
    /// The addresses of live blocks.
    live: HashSet<u64, FixedState>,
    /// What the last block at each address took.
    granted: HashMap<u64, u64, FixedState>,
}

/// A device.
#[derive(Debug, Default)]
struct Known {
    device: Device,
    is_recorded: bool,
}

/// Returns the frameworks of this process; `None` if nothing is recorded.
fn frameworks() -> Option<&'static Frameworks> {
    static FRAMEWORKS: OnceLock<Option<Frameworks>> = OnceLock::new();
    static WATCHES: Once = Once::new();
    let made = FRAMEWORKS.get_or_init(|| {
        let recording = recording("CUDA")?;
        Some(Frameworks {
            recording,
            state: Mutex::default(),
        })
    });
    let frameworks = made.as_ref()?;
    WATCHES.call_once(|| {
        // The recording of a child has the blocks of the child.
        hold_over_fork(Lock::Frameworks, &frameworks.state, |state| {
            state.live.clear();
            state.granted.clear();
            for known in state.devices.values_mut() {
                known.is_recorded = false;
            }
        });
    });
    Some(frameworks)
}

impl Frameworks {
    fn happened(&self, event: Event) {
        let Event { address, bytes, .. } = event;
        let write = |event| self.recording.pool(event);
        match What::ALL.get((event.what & !ARRAY) as usize) {
            Some(What::Allocated) => self.allocated(event),
            Some(What::Refused) => {
                let (group, stream, device) = lock(&self.state).asked(event);
                self.note_device(group, device);
                self.recording.note("free", address, "");
                self.recording
                    .refused(group, clamped(bytes), stream, event.own_frames as usize);
            }
            Some(What::Waiting) if lock(&self.state).live.contains(&address) => {
                let block = number_of(address);
                write(PoolEvent::Waiting { block });
            }
            Some(What::Freed) if lock(&self.state).live.remove(&address) => {
                self.recording.freed(address);
            }
            Some(What::Taken) => write(PoolEvent::Taken {
                memory: address,
                bytes,
            }),
            Some(What::GivenBack) => write(PoolEvent::GivenBack { memory: address }),
            Some(What::Mapped) => write(PoolEvent::Mapped {
                reservation: 0,
                offset: address,
                bytes,
            }),
            Some(What::Unmapped) => write(PoolEvent::Unmapped {
                reservation: 0,
                offset: address,
                bytes,
            }),
            // Blocks from before the recording, and what a later version may say.
            Some(What::Waiting | What::Freed) | None => {}
        }
    }

    fn allocated(&self, event: Event) {
        let (address, granted) = (event.address, event.granted);
        let mut state = lock(&self.state);
        let (group, stream, device) = state.asked(event);
        let was_live = !state.live.insert(address);
        // 0 says that PyTorch's own allocator has divided the memory, after binpool had a block there.
        let is_known = match granted {
            0 => state.granted.remove(&address).is_none(),
            _ => state.granted.insert(address, granted) == Some(granted),
        };
        drop(state);
        self.note_device(group, device);
        if was_live {
            self.recording.freed(address);
        }
        if !is_known {
            self.recording.pool(PoolEvent::Placed {
                block: number_of(address),
                memory: 0,
                offset: address,
                bytes: granted,
            });
        }
        let outer = event
            .note()
            .map(|note| self.recording.place_within(&note).for_good().enter());
        let (bytes, own_frames) = (clamped(event.bytes), event.own_frames as usize);
        self.recording
            .allocated_as(address, group, bytes, stream, own_frames);
        if let Some(outer) = outer {
            outer.enter();
        }
    }

    /// Notes the device of a group, if it is new.
    fn note_device(&self, group: Group, device: Option<Device>) {
        if let Some(device) = device {
            self.recording.context(group.context, &[device]);
        }
    }
}

impl State {
    /// Returns the group of a request, the number of its stream, which is 0 for the default one of the first device, and its device if the recording
    /// does not have that.
    fn asked(&mut self, event: Event) -> (Group, u32, Option<Device>) {
        let known = self.devices.entry(event.device).or_default();
        let new = (!known.is_recorded).then(|| known.device.clone());
        known.is_recorded = true;
        let next = u32::try_from(self.streams.len() + 1).unwrap_or(u32::MAX);
        let stream = match (event.device, event.stream) {
            (0, 0) => 0,
            stream => *self.streams.entry(stream).or_insert(next),
        };
        let group = Group {
            kind: if event.what & ARRAY == 0 {
                "tensor"
            } else {
                "array"
            },
            // Numbered from 1 on.
            context: u32::try_from(event.device).map_or(0, |device| device + 1),
        };
        (group, stream, new)
    }
}

impl Event {
    fn note(&self) -> Option<Cow<'_, str>> {
        // SAFETY: a text that ends with a zero, which lives as long as the event.
        let text = || unsafe { CStr::from_ptr(self.note) }.to_string_lossy();
        (!self.note.is_null()).then(text)
    }
}

/// Returns the number of the block at an address, as the format wants it: all of a block's IDs are 256 times that, and less than 256.
const fn number_of(address: u64) -> u64 {
    address >> 8
}

fn clamped(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Begins to record the blocks of a framework from this allocator: PyTorch's tensors, or CuPy's arrays. Returns 1 if this process is recorded, 0 otherwise.
///
/// # Safety
///
/// `allocator` is a text that ends with a zero.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn binpool_run_attach(
    are_tensors: c_int,
    allocator: *const c_char,
) -> c_int {
    contained(|| {
        let Some(frameworks) = frameworks() else {
            return 0;
        };
        // SAFETY: the caller's.
        let allocator = unsafe { CStr::from_ptr(allocator) }.to_string_lossy();
        // CuPy says nothing of its segments.
        let tells = match are_tensors {
            0 => Tells::Blocks,
            _ => Tells::BlocksAndSegments,
        };
        let first = lock(&frameworks.state)
            .devices
            .get(&0)
            .map(|known| known.device.clone());
        frameworks.recording.begin_on(first.as_slice());
        frameworks.recording.note("allocator", 0, &allocator);
        TELLS.fetch_max(tells as u8, Ordering::Relaxed);
        1
    })
}

/// Notes that the blocks of the recording are segments of a framework of this name, which does not tell of the blocks in them.
///
/// # Safety
///
/// `framework` is a text that ends with a zero.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn binpool_run_divided(framework: *const c_char) {
    contained(|| {
        // SAFETY: the caller's.
        let framework = unsafe { CStr::from_ptr(framework) }.to_string_lossy();
        if let Some(frameworks) = frameworks() {
            frameworks.recording.note("divided", 0, &framework);
        }
    });
}

/// Names a device, and the bytes of its memory.
///
/// # Safety
///
/// `name` is a text that ends with a zero.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn binpool_run_device(number: c_int, name: *const c_char, bytes: u64) {
    contained(|| {
        let Some(frameworks) = frameworks() else {
            return;
        };
        // SAFETY: the caller's.
        let name = unsafe { CStr::from_ptr(name) }
            .to_string_lossy()
            .into_owned();
        let mut state = lock(&frameworks.state);
        state.devices.entry(number).or_default().device = Device { name, bytes };
    });
}

/// Records what happened to memory.
///
/// # Safety
///
/// `event` is null, or points to an event.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn binpool_run_event(event: *const Event) {
    contained(|| {
        // SAFETY: the caller's.
        let event = unsafe { event.as_ref() };
        if let (Some(frameworks), Some(event)) = (frameworks(), event) {
            frameworks.happened(*event);
        }
    });
}

/// Returns the number of the place of the program with these frames, a line for each, innermost first; 0 where nothing is recorded.
///
/// # Safety
///
/// `frames` is a text that ends with a zero.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn binpool_run_place(frames: *const c_char) -> u32 {
    contained(|| {
        // SAFETY: the caller's.
        let frames = unsafe { CStr::from_ptr(frames) }.to_string_lossy();
        frameworks().map_or(0, |frameworks| frameworks.recording.place(&frames).0)
    })
}

/// Has this thread be at a place from now on: that of a number, or where it was once, as this function has returned it. 0 is nowhere. Returns where
/// it was.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn binpool_run_enter(place: u64) -> u64 {
    Stay::of_number(place).enter().number()
}

/// Has this thread be at the place of this number until the backward pass ends.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn binpool_run_enter_backward(place: u32) {
    Place(place).of_backward().enter();
}

/// Ends the backward pass: the threads that are at places of it are at the place of this number from now on.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn binpool_run_end_backward(place: u32) {
    Place(place).end_backward();
}

/// Notes that a framework has a pool of binpool, and what that has done since this was called last: the requests that it has served and those that
/// the limit has refused, the most bytes that it had from the driver, and the part of these that the program did not have.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn binpool_run_pool(served: u64, refused: u64, reserved: u64, held: u64) {
    contained(|| {
        if settings().begin_pool() {
            IS_POOLED.store(true, Ordering::Relaxed);
            count_of_framework(served, refused, reserved, held);
        }
    });
}
