//! Memory of the host that the device works on.

use std::{
    convert::Infallible,
    ffi::c_void,
    fmt,
    marker::PhantomData,
    ptr::NonNull,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
};

use binpool_allocators::{OutOfMemory, Scope};
use bytemuck::{AnyBitPattern, NoUninit, Pod, Zeroable};
use parking_lot::Mutex;

/// Bytes of the host that a command reads, or that it writes to.
///
/// # Invariants
///
/// I1: as long as `'a`, all of the bytes can be read; those of a target can be written, are valid with any contents, and
/// nothing else touches them.
#[derive(Debug)]
pub(crate) struct HostSide<'a> {
    start: *mut c_void,
    bytes: usize,
    is_target: bool,
    borrowed: PhantomData<&'a mut [u8]>,
}

impl<'a> HostSide<'a> {
    /// Returns borrowed elements as the source of a transfer. They have no padding, so all their bytes can be read.
    pub(crate) const fn source<T: NoUninit>(data: &'a [T]) -> Self {
        Self::new(data.as_ptr().cast_mut().cast(), size_of_val(data), false)
    }

    /// Returns borrowed elements as the target of a transfer. Any bytes are valid elements.
    pub(crate) const fn target<T: AnyBitPattern + NoUninit>(data: &'a mut [T]) -> Self {
        Self::new(data.as_mut_ptr().cast(), size_of_val(data), true)
    }

    const fn new(start: *mut c_void, bytes: usize, is_target: bool) -> Self {
        Self {
            start,
            bytes,
            is_target,
            borrowed: PhantomData,
        }
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) const fn start(&self) -> *mut c_void {
        self.start
    }

    /// Returns whether the command writes to the host's bytes: it is a read of the device's.
    pub(crate) const fn is_target(&self) -> bool {
        self.is_target
    }
}

/// The bytes that an address is a multiple of if every type of OpenCL may start there: those of the largest vector, `long16`.
pub(crate) const LARGEST_ALIGNMENT: usize = 128;

/// A vector for commands to read or write. The host reaches its elements only by taking them, after the commands have
/// ended.
pub(crate) struct HostVec<T> {
    /// The start of the vector's bytes, which do not move while the vector is held.
    start: NonNull<u8>,
    bytes: usize,
    elements: Mutex<Vec<T>>,
}

// SAFETY: Only the runtime uses `start`, and only until the command ends. The vector, which `Mutex` guards, is taken after
// that.
unsafe impl<T: Send> Send for HostVec<T> {}
// SAFETY: As for `Send`.
unsafe impl<T: Send> Sync for HostVec<T> {}

impl<T> HostVec<T> {
    pub(crate) fn new(mut elements: Vec<T>) -> Self {
        Self {
            start: start_of(elements.as_mut_ptr()),
            bytes: size_of_val(elements.as_slice()),
            elements: Mutex::new(elements),
        }
    }

    /// Holds the elements at an address that fits every type of OpenCL: if they start at another one, they are moved within the memory of
    /// the vector, which grows a little for that. [`take`](Self::take) moves them back.
    pub(crate) fn aligned(mut elements: Vec<T>) -> Self {
        let before = elements.as_ptr().addr().wrapping_neg() % LARGEST_ALIGNMENT;
        let room = LARGEST_ALIGNMENT.div_ceil(size_of::<T>().max(1));
        // Without memory for more they stay, and launches of kernels that need another address are refused.
        let may_move = before > 0 && elements.try_reserve_exact(room).is_ok();
        let mut this = Self::new(elements);
        let first = this.start;
        let skipped = first.addr().get().wrapping_neg() % LARGEST_ALIGNMENT;
        if may_move && skipped > 0 {
            this.start = first.map_addr(|address| address.saturating_add(skipped));
            // SAFETY: The vector has room for all of its elements and `skipped` bytes more. Nothing but `take` touches them from now on.
            unsafe { first.copy_to(this.start, this.bytes) };
        }
        this
    }

    /// Takes the vector. The caller has waited for the command. A second call returns an empty vector.
    pub(crate) fn take(&self) -> Vec<T> {
        let mut elements = std::mem::take(&mut *self.elements.lock());
        let first = start_of(elements.as_mut_ptr());
        if first != self.start && !elements.is_empty() {
            // SAFETY: `aligned` moved the elements to `start`, in the memory of this vector, and commands no longer use them.
            unsafe { self.start.copy_to(first, self.bytes) };
        }
        elements
    }

    /// Returns the elements as the source of a transfer. They are taken only after the command has ended.
    pub(crate) const fn as_source(&self) -> HostSide<'_>
    where
        T: NoUninit,
    {
        HostSide::new(self.start.as_ptr().cast(), self.bytes, false)
    }

    /// Returns the elements as the target of a transfer. They are taken only after the command has ended.
    pub(crate) const fn as_target(&self) -> HostSide<'_>
    where
        T: AnyBitPattern,
    {
        HostSide::new(self.start.as_ptr().cast(), self.bytes, true)
    }
}

impl<T> fmt::Debug for HostVec<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostVec({:p}, {} bytes)", self.start, self.bytes)
    }
}

/// Returns the address of a vector's or a slice's elements, which is never null.
fn start_of<T>(elements: *mut T) -> NonNull<u8> {
    NonNull::new(elements).unwrap_or(NonNull::dangling()).cast()
}

/// Returns zeroed elements, so a command that fails cannot make uninitialised memory visible. The operating system gives
/// large allocations their memory only when they are touched.
///
/// # Errors
///
/// [`OutOfMemory`] of the host.
pub(crate) fn zeroed<T: Zeroable>(length: usize) -> Result<Vec<T>, OutOfMemory> {
    let bytes = length.saturating_mul(size_of::<T>());
    bytemuck::allocation::try_zeroed_vec(length).map_err(|()| OutOfMemory::new(bytes, Scope::Host))
}

/// The loan of memory of the host to a memory object. The object drops it when it is gone.
///
/// # Invariants
///
/// I1: the bytes are readable and writable, valid with any contents, and nothing else touches them until this is dropped.
pub(crate) struct Loan {
    start: NonNull<u8>,
    bytes: usize,
    /// The vector, if it is not borrowed.
    kept: Option<Box<dyn Send + Sync>>,
    /// Dropped last: the host waits for that.
    _returned: Sender<Infallible>,
}

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Loan({:p}, {} bytes)", self.start, self.bytes)
    }
}

// SAFETY: The pointer is only passed to the runtime.
unsafe impl Send for Loan {}
// SAFETY: As for `Send`.
unsafe impl Sync for Loan {}

impl Loan {
    pub(crate) const fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether the host waits for the end of the loan in the call that made it.
    pub(super) const fn is_of_a_call(&self) -> bool {
        self.kept.is_none()
    }
}

/// Elements that are lent to a memory object. Dropping this value leaves them to the object.
#[derive(Debug)]
pub(crate) struct Lent<T> {
    elements: Arc<HostVec<T>>,
    returned: Mutex<Receiver<Infallible>>,
}

impl<T> Lent<T> {
    /// Waits until the object is gone, and takes the elements back.
    pub(crate) fn wait(self) -> Vec<T> {
        let _the_end = self.returned.into_inner().recv();
        self.elements.take()
    }
}

/// Lends `elements` to the object that `create` makes of the loan.
///
/// # Errors
///
/// Those of `create`, and the elements.
pub(crate) fn lend<T: Pod + Send, O, E>(
    elements: HostVec<T>,
    create: impl FnOnce(Loan) -> Result<O, E>,
) -> Result<(O, Lent<T>), (E, Vec<T>)> {
    // Moving the vector does not move its elements, and any bytes are valid elements.
    let elements = Arc::new(elements);
    let (returned, wait) = mpsc::channel();
    let lent = Lent {
        elements: Arc::clone(&elements),
        returned: Mutex::new(wait),
    };
    let loan = Loan {
        start: elements.start,
        bytes: elements.bytes,
        kept: Some(Box::new(elements)),
        _returned: returned,
    };
    match create(loan) {
        Ok(object) => Ok((object, lent)),
        Err(error) => Err((error, lent.wait())),
    }
}

/// Lends `bytes` to the object that `create` makes of the loan, and passes it to `run`. Returns, even by a panic, only when
/// the object is gone, however long anything keeps a reference to it.
///
/// # Errors
///
/// Those of `create`: `run` was not called.
pub(crate) fn with_lent<O, R, E>(
    bytes: &mut [u8],
    create: impl FnOnce(Loan) -> Result<O, E>,
    run: impl FnOnce(O) -> R,
) -> Result<R, E> {
    struct Wait(Receiver<Infallible>);
    impl Drop for Wait {
        fn drop(&mut self) {
            let _the_end = self.0.recv();
        }
    }

    let (returned, wait) = mpsc::channel();
    let _wait = Wait(wait);
    let object = create(Loan {
        start: start_of(bytes.as_mut_ptr()),
        bytes: bytes.len(),
        kept: None,
        _returned: returned,
    })?;
    Ok(run(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved_and_given_back<T: Pod + PartialEq + fmt::Debug>(elements: &[T]) {
        // Vectors of several capacities, so that the allocator gives them several addresses.
        for spare in 0..40 {
            let mut given = Vec::with_capacity(elements.len() + spare);
            given.extend_from_slice(elements);
            let held = HostVec::aligned(given);
            let address = held.start.addr().get();
            assert!(address.is_multiple_of(LARGEST_ALIGNMENT));
            assert_eq!(held.bytes, size_of_val(elements));
            assert_eq!(held.take(), elements);
            assert_eq!(held.take(), [], "it was taken");
        }
    }

    #[test]
    fn elements_of_any_size_are_aligned_and_come_back_as_they_were() {
        for length in [1, 5, 64, 1000] {
            let bytes: Vec<u8> = (0..=250).cycle().take(length).collect();
            moved_and_given_back(&bytes);
            let triples: Vec<[u8; 3]> = bytes.iter().map(|byte| [*byte, 1, 2]).collect();
            moved_and_given_back(&triples);
            let words: Vec<u64> = bytes.iter().map(|byte| u64::from(*byte) << 40).collect();
            moved_and_given_back(&words);
            let wide: Vec<[u32; 64]> = bytes.iter().map(|byte| [u32::from(*byte); 64]).collect();
            moved_and_given_back(&wide);
        }
    }
}
