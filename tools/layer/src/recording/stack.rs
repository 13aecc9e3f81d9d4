//! The call stack of the thread that makes a request.

use std::{
    cell::RefCell,
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use super::python::{self, PythonFrame};

/// The most frames of a stack.
const MAX_FRAMES: usize = 64;

/// The stacks that a thread remembers: sets by the address of the frame, and the stacks of each.
const SETS: usize = 64;
const STACKS_PER_SET: usize = 8;

/// The frames of a stack, innermost first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stack {
    /// Return addresses.
    Native(Arc<[usize]>),
    /// The lines of a Python program.
    Python(Vec<PythonFrame>),
}

impl Stack {
    /// Returns the frames as text, for a stack of Python of this thread without as many of the innermost frames as `own_frames` says.
    pub(super) fn texts(&self, own_frames: usize) -> Option<Vec<String>> {
        let is_python = matches!(self, Self::Python(_));
        is_python.then(|| python::texts().into_iter().skip(own_frames).collect())
    }
}

/// A stack that was walked, and where its return addresses lie.
///
/// To walk a stack by its tables takes microseconds. When the same call comes again from the same place, none of these words has changed.
#[derive(Debug)]
struct Walked {
    /// The address of a frame below all places.
    lowest: usize,
    /// The places of the return addresses, innermost first; empty if they are not all known.
    places: Box<[usize]>,
    addresses: Arc<[usize]>,
}

/// What a thread remembers of its stacks.
#[derive(Debug)]
struct Remembered {
    stacks: Vec<Walked>,
    /// Which of a set is forgotten next.
    oldest: usize,
}

/// The number of a thread, which another thread gets once this one has ended.
struct ThreadNumber(u32);

thread_local! {
    // A constant: what a function makes is on the stack first, and threads may have small ones.
    static REMEMBERED: RefCell<[Remembered; SETS]> = const { RefCell::new([const { Remembered { stacks: Vec::new(), oldest: 0 } }; SETS]) };
    static THREAD: ThreadNumber = ThreadNumber::new();
    static OWN_STACK: Range<usize> = own_stack();
}

/// The numbers of threads that have ended.
static ENDED: Mutex<Vec<u32>> = Mutex::new(Vec::new());

impl ThreadNumber {
    fn new() -> Self {
        static THREADS: AtomicU32 = AtomicU32::new(0);
        // Not a lock to wait for: the child of a fork may find it taken forever.
        let ended = ENDED.try_lock().ok().and_then(|mut ended| ended.pop());
        Self(ended.unwrap_or_else(|| THREADS.fetch_add(1, Ordering::Relaxed) + 1))
    }
}

impl Drop for ThreadNumber {
    fn drop(&mut self) {
        if let Ok(mut ended) = ENDED.try_lock() {
            ended.push(self.0);
        }
    }
}

/// Returns the number of this thread, from 1 on, in the order in which threads make requests; 0 for one that is being ended.
pub(super) fn thread_number() -> u32 {
    THREAD.try_with(|thread| thread.0).unwrap_or(0)
}

/// Returns the stack that this thread was started with: empty if it is not known.
fn own_stack() -> Range<usize> {
    let mut attributes = std::mem::MaybeUninit::uninit();
    // SAFETY: this returns the handle of the thread.
    let thread = unsafe { libc::pthread_self() };
    // SAFETY: the thread is this one, and the place is for attributes.
    if unsafe { libc::pthread_getattr_np(thread, attributes.as_mut_ptr()) } != 0 {
        return 0..0;
    }
    let (mut begin, mut bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: the previous call has filled in the attributes.
    let is_known =
        unsafe { libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut begin, &raw mut bytes) }
            == 0;
    // SAFETY: as above; nothing uses them from here on.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    if is_known {
        begin.addr()..begin.addr() + bytes
    } else {
        0..0
    }
}

/// Returns the stack of this thread: if it runs Python now, the lines of that without as many of the innermost ones as `own_frames` says.
pub(super) fn here(own_frames: usize) -> Stack {
    let mut frames = python::frames();
    // Where C has called the package, no frame is the program's: a callback at the end, for example.
    if frames.len() > own_frames {
        frames.drain(..own_frames);
        return Stack::Python(frames);
    }
    // A thread that is ending no longer remembers its stacks.
    let remembered =
        REMEMBERED.try_with(|sets| sets.try_borrow_mut().ok().map(|mut sets| native(&mut sets)));
    let addresses = remembered.ok().flatten();
    Stack::Native(addresses.unwrap_or_else(|| walk(0).addresses))
}

/// Returns the return addresses of this thread.
#[inline(never)]
fn native(sets: &mut [Remembered; SETS]) -> Arc<[usize]> {
    let here = 0_u8;
    let lowest = std::ptr::from_ref(&here).addr();
    let set = &mut sets[(lowest >> 4) % SETS];
    if let Some(known) = set.stacks.iter().find(|walked| walked.is_as_it_was(lowest)) {
        return Arc::clone(&known.addresses);
    }
    let walked = walk(lowest);
    let addresses = Arc::clone(&walked.addresses);
    if set.stacks.len() < STACKS_PER_SET {
        set.stacks.push(walked);
    } else {
        set.oldest = (set.oldest + 1) % STACKS_PER_SET;
        set.stacks[set.oldest] = walked;
    }
    addresses
}

impl Walked {
    /// Returns whether this is the stack of this thread now, whose frame is at `lowest`.
    fn is_as_it_was(&self, lowest: usize) -> bool {
        let mut words = self.places.iter().zip(&*self.addresses);
        let is_there = |(place, address): (&usize, &usize)| {
            // SAFETY: the place lies above a frame of this thread, in the stack that it runs on: it was there when that was walked from
            // the same frame, and each frame so far is where it was, so that the stack reaches to the next one at least.
            unsafe { read_word(*place) == *address }
        };
        self.lowest == lowest && !self.places.is_empty() && words.all(is_there)
    }
}

/// Walks the stack, for the return addresses above `lowest`.
#[inline(never)]
fn walk(lowest: usize) -> Walked {
    let mut places = Vec::new();
    let mut addresses = Vec::new();
    let step = |frame: &backtrace::Frame| {
        let address = frame.ip().addr();
        // Where the program or its thread begins, there is nothing to return to.
        if address == 0 {
            return false;
        }
        let place = frame.sp().addr().wrapping_sub(size_of::<usize>());
        if place > lowest {
            places.push(place);
            addresses.push(address);
        }
        addresses.len() < MAX_FRAMES
    };
    // SAFETY: what has to be synchronized is the lookup of names, and there is none. The lock for it, in `trace`, would be a trap for the child of a fork while
    // another thread has it.
    unsafe { backtrace::trace_unsynchronized(step) };
    // It is not known how long other stacks exist, such as those of coroutines.
    let own = OWN_STACK.try_with(Range::clone).unwrap_or(0..0);
    let is_known = |(place, address): (&usize, &usize)| {
        // SAFETY: the unwinder has just read this frame, in the stack that this thread was started with.
        own.contains(place)
            && place.is_multiple_of(size_of::<usize>())
            && unsafe { read_word(*place) } == *address
    };
    if !own.contains(&lowest) || !places.iter().zip(&addresses).all(is_known) {
        places.clear();
    }
    Walked {
        lowest,
        places: places.into(),
        addresses: addresses.into(),
    }
}

/// Reads a word.
///
/// # Safety
///
/// It is an aligned word of this thread's stack, above its innermost frame.
unsafe fn read_word(place: usize) -> usize {
    let place: *const usize = std::ptr::with_exposed_provenance(place);
    // SAFETY: the caller's.
    unsafe { place.read_volatile() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn called_from_here() -> Stack {
        std::hint::black_box(here(0))
    }

    #[inline(never)]
    fn called_from_there() -> Stack {
        std::hint::black_box(here(0))
    }

    #[test]
    fn the_same_call_has_the_same_stack_and_another_call_another() {
        let stacks: Vec<Stack> = (0..3).map(|_| called_from_here()).collect();
        assert!(stacks.windows(2).all(|pair| pair[0] == pair[1]));
        assert_ne!(called_from_there(), stacks[0]);
        let Stack::Native(addresses) = &stacks[0] else {
            panic!("no Python runs here");
        };
        assert!(addresses.len() > 5);
    }

    #[test]
    fn a_remembered_stack_is_what_a_walk_finds() {
        for depth in [0, 1, 2, 1, 0, 30] {
            let (remembered, walked) = at_depth(depth);
            assert_eq!(remembered, walked);
        }
    }

    /// Both have the same frames above this one.
    #[inline(never)]
    fn at_depth(depth: usize) -> (Vec<usize>, Vec<usize>) {
        if depth > 0 {
            return std::hint::black_box(at_depth(depth - 1));
        }
        let mut found = (0..2).map(|_| called_from_here());
        found.next();
        let Some(Stack::Native(remembered)) = found.next() else {
            panic!("no Python runs here");
        };
        let marker = 0_u8;
        let walked = walk(std::ptr::from_ref(&marker).addr()).addresses;
        let common = remembered.iter().rev().zip(walked.iter().rev());
        let common = common.take_while(|(one, other)| one == other).count();
        let last = |all: &[usize]| all[all.len() - common..].to_vec();
        assert!(common + 2 >= walked.len(), "{common} of {}", walked.len());
        (last(&remembered), last(&walked))
    }

    #[test]
    fn all_return_addresses_of_a_stack_are_found_again() {
        let marker = 0_u8;
        let walked = walk(std::ptr::from_ref(&marker).addr());
        assert_eq!(walked.places.len(), walked.addresses.len());
        assert!(walked.is_as_it_was(walked.lowest));
    }

    #[test]
    fn threads_are_numbered() {
        let own = thread_number();
        assert_eq!(thread_number(), own);
        assert_ne!(std::thread::spawn(thread_number).join().unwrap(), own);
    }
}
