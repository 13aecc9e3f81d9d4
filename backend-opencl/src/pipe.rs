//! Pipes: packets that kernels pass on to other kernels.

use std::{ffi::c_void, sync::Arc};

use binpool_allocators::{InvalidRequest, ObjectKind, Region, Result, debug_by, runtime::Access};
use cl3::{
    device::{CL_DEVICE_PIPE_MAX_PACKET_SIZE, CL_DEVICE_PIPE_SUPPORT},
    error_codes::CL_INVALID_MEM_OBJECT,
    memory::{
        CL_MEM_CONTEXT, CL_MEM_OBJECT_PIPE, CL_MEM_TYPE, CL_PIPE_MAX_PACKETS, CL_PIPE_PACKET_SIZE,
    },
};

use crate::{
    backend::OpenClBackend,
    context::Context,
    identity::same_by,
    order::{access_log::AccessLog, memory_use::MemoryUse},
    sys::{self, ClError, ClResult, MemHandle, Purpose},
};

/// Packets that kernels pass on to other kernels, first in, first out (`Pipe` of `PyOpenCL`; OpenCL 3.0, section 5.4).
/// Clones are the same pipe.
///
/// The host neither reads nor writes packets. Values are equal if they are the same object of the runtime.
///
/// ```
/// use binpool_allocators::{Backend, Error};
/// use binpool_opencl::{ClPipe, OpenClBackend};
///
/// let backend = OpenClBackend::open(&"any".parse()?)?;
/// match ClPipe::new(&backend, 16, 1024) {
///     Ok(pipe) => {
///         assert_eq!((pipe.packet_bytes()?, pipe.max_packets()?), (16, 1024));
///     }
///     // Many devices have no pipes, and the error says what to do instead.
///     Err(Error::Unsupported { what }) => {
///         assert!(what.contains(&backend.limits().device_name));
///         assert!(what.ends_with("pass packets on in a buffer with an atomic counter"));
///     }
///     Err(error) => return Err(error.into()),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ClPipe {
    inner: Arc<PipeInner>,
}

struct PipeInner {
    handle: MemHandle,
    context: Arc<Context>,
    log: AccessLog,
}

impl ClPipe {
    /// Makes a pipe for at most `max_packets` packets of `packet_bytes` bytes each.
    ///
    /// # Errors
    ///
    /// A device without pipes; [`ZeroSize`](InvalidRequest::ZeroSize); [`TooLarge`](InvalidRequest::TooLarge) for packets
    /// that are larger than the device's largest; exhausted memory.
    pub fn new(backend: &OpenClBackend, packet_bytes: u32, max_packets: u32) -> Result<Self> {
        let context = backend.context();
        let device = context.device;
        if !has_pipes(context)? {
            let instead = "pass packets on in a buffer with an atomic counter";
            return Err(context.lacks("pipes", instead));
        }
        if packet_bytes == 0 || max_packets == 0 {
            return Err(InvalidRequest::ZeroSize.into());
        }
        let largest = device.info(CL_DEVICE_PIPE_MAX_PACKET_SIZE)?.size()?;
        let [requested, packets] =
            [packet_bytes, max_packets].map(|number| usize::try_from(number).unwrap_or(usize::MAX));
        if requested > largest {
            return Err(InvalidRequest::TooLarge { requested, largest }.into());
        }
        let purpose = Purpose::Memory(requested.saturating_mul(packets));
        // No flags: by default kernels read and write it and the host does neither.
        let handle = sys::create_pipe(&context.handle, 0, packet_bytes, max_packets)
            .map_err(|error| error.into_error(purpose))?;
        Ok(Self::of(backend, handle))
    }

    /// Returns a pipe of the program's own, by its bare handle (`from_int_ptr`).
    ///
    /// With `retain`, the program keeps its own reference. Without it, this value takes over the program's reference, even if the call fails.
    ///
    /// ```no_run
    /// # use binpool_opencl::{ClPipe, OpenClBackend};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let theirs = ClPipe::new(&backend, 16, 1024)?;
    /// // A handle from a program that makes its pipes itself.
    /// let handle = theirs.raw();
    /// // SAFETY: the pipe lives, and no other code enqueues commands on it.
    /// let pipe = unsafe { ClPipe::from_raw(&backend, handle, true) }?;
    /// drop(theirs); // this reference was retained
    /// assert_eq!(pipe.raw(), handle);
    /// assert_eq!(pipe.max_packets()?, 1024);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A pipe of another context; a handle that is not that of a pipe.
    ///
    /// # Safety
    ///
    /// `pipe` is null or a live memory object, and unless `retain`, the caller gives away one reference to it. Commands on
    /// it that are not enqueued through this value or its clones are ordered by the program with those that are.
    #[allow(unsafe_code)]
    pub unsafe fn from_raw(
        backend: &OpenClBackend,
        pipe: *mut c_void,
        retain: bool,
    ) -> Result<Self> {
        // SAFETY: The object is null or alive, and unless `retain` one reference is the caller's to give, as the caller
        // promises.
        let handle = unsafe { MemHandle::adopt(pipe, retain) }?;
        backend.check_context(handle.info(CL_MEM_CONTEXT)?.value()?, ObjectKind::Memory)?;
        let kind = handle.info(CL_MEM_TYPE)?.number()?;
        if kind != u64::from(CL_MEM_OBJECT_PIPE) {
            return Err(ClError::new("clGetPipeInfo", CL_INVALID_MEM_OBJECT).into());
        }
        Ok(Self::of(backend, handle))
    }

    fn of(backend: &OpenClBackend, handle: MemHandle) -> Self {
        let inner = PipeInner {
            handle,
            context: Arc::clone(backend.context()),
            log: AccessLog::default(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The size of a packet in bytes (`packet_size`).
    ///
    /// # Errors
    ///
    /// A failure of the runtime.
    pub fn packet_bytes(&self) -> Result<u32> {
        sys::pipe_number(self.handle(), CL_PIPE_PACKET_SIZE).map_err(Into::into)
    }

    /// The number of packets that it can hold (`max_packets`).
    ///
    /// # Errors
    ///
    /// A failure of the runtime.
    pub fn max_packets(&self) -> Result<u32> {
        sys::pipe_number(self.handle(), CL_PIPE_MAX_PACKETS).map_err(Into::into)
    }

    /// The runtime's `cl_mem` (`int_ptr`).
    ///
    /// It is borrowed: valid while this value or a clone lives, and not to be released. Code that keeps it longer has to
    /// retain it.
    pub fn raw(&self) -> *mut c_void {
        self.handle().raw()
    }

    pub(crate) fn handle(&self) -> &MemHandle {
        &self.inner.handle
    }

    pub(crate) fn context(&self) -> &Context {
        &self.inner.context
    }

    /// Describes a use of the pipe. A kernel that reads packets takes them out, which is a write, too.
    pub(crate) fn used(&self, access: Access) -> MemoryUse<'_> {
        MemoryUse {
            log: &self.inner.log,
            region: Region::first(1),
            access,
            is_svm: false,
        }
    }
}

/// Returns whether the device has pipes. All devices of OpenCL 2 do, later ones answer a question, and earlier ones have
/// none.
fn has_pipes(context: &Context) -> ClResult<bool> {
    match context.version {
        (2, _) => Ok(true),
        (3.., _) => Ok(context.device.info(CL_DEVICE_PIPE_SUPPORT)?.number()? != 0),
        _ => Ok(false),
    }
}

debug_by!(ClPipe, |this| handle: this.inner.handle);

same_by!(ClPipe, |this| this.raw());
