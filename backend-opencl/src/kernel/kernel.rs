//! A kernel of a program, and what is known of its parameters.

use std::{ffi::CString, sync::Arc};

use parking_lot::Mutex;
use smallvec::SmallVec;

use binpool_allocators::debug_by;

use super::{declaration, parameter::Parameter, work_size::LaunchLimits};
use crate::{
    error::OpenClError,
    queue::ClQueue,
    sys::{
        ClResult, DeviceId,
        kernel::{self, ArgumentValue, KernelHandle},
        program::ProgramHandle,
    },
};

/// A program as the runtime has built it. It holds no reference to the context, which the runtime keeps for it: with one, a
/// program in the context's cache would be a cycle.
pub(super) struct Built {
    pub(super) handle: ProgramHandle,
    /// The address of the context, to compare. While the program lives, no other context can have it.
    pub(super) context: usize,
    pub(super) device: DeviceId,
    pub(super) options: String,
    pub(super) names: Vec<String>,
}

impl Built {
    /// Makes a kernel, whose name is that of one of this program.
    pub(super) fn create_kernel(&self, name: &str) -> ClResult<KernelHandle> {
        // No name of a kernel has a null byte.
        kernel::create_kernel(&self.handle, &CString::new(name).unwrap_or_default())
    }
}

/// A kernel, with the promise of the bytes that it touches; made by [`ClProgram::kernel`](super::ClProgram::kernel).
///
/// It may be launched from several threads at once. It does not keep the backend, and may be
/// [cached](crate::OpenClBackend::cached) with it.
///
/// ```
/// use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// use binpool_opencl::{ClProgram, Extent, OpenClBackend, Parameter};
///
/// let backend = OpenClBackend::open(&"any".parse()?)?;
/// let source = "kernel void halve(global float *data) { data[get_global_id(0)] *= 0.5f; }";
/// let program = ClProgram::build(&backend, source, "")?;
/// let parameters = [Parameter::in_out::<f32>(Extent::PerItem(1))];
/// // SAFETY: each work item reads and writes the float of its id, and nothing else.
/// let halve = unsafe { program.kernel("halve", &parameters) }?;
/// assert_eq!((halve.name(), halve.parameters().len()), ("halve", 1));
///
/// // From here on nothing is unsafe.
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let data = backend.create_buffer_from(&[1.0_f32, 2.0, 3.0, 4.0], MemoryFlags::empty())?;
/// halve.launch(&queue, &[4]).memory(&data).enqueue()?;
/// halve.launch(&queue, &[2]).memory(&data).enqueue()?;
/// let data = backend.map::<f32>(&queue, &data, 0..16)?;
/// assert_eq!(*data, [0.25, 0.5, 1.5, 2.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ClKernel {
    name: String,
    parameters: Box<[Parameter]>,
    limits: LaunchLimits,
    /// Locked while the arguments are set and the kernel is enqueued, since the arguments are part of the runtime's object.
    ready: Mutex<Ready>,
    program: Arc<Built>,
}

/// The runtime's kernel, and whether each of its arguments was set to an address last time.
#[derive(Debug)]
struct Ready {
    handle: KernelHandle,
    addresses: SmallVec<[bool; 8]>,
}

impl ClKernel {
    /// Makes the kernel of that name, and checks it against its declaration.
    pub(super) fn new(
        program: &Arc<Built>,
        name: &str,
        parameters: &[Parameter],
    ) -> Result<Self, OpenClError> {
        let handle = program.create_kernel(name)?;
        declaration::check(&handle, name, parameters)?;
        let limits = LaunchLimits::query(&handle, program.device, &program.options)?;
        let bytes = parameters.iter().map(Parameter::passed_bytes);
        let bytes = bytes.fold(0, usize::saturating_add);
        let largest = limits.parameter_bytes;
        if bytes > largest {
            let problem =
                format!("takes {bytes} bytes of parameters: this device passes at most {largest}");
            return Err(OpenClError::kernel(name, None, problem));
        }
        Ok(Self {
            name: name.to_owned(),
            parameters: parameters.into(),
            limits,
            ready: Mutex::new(Ready {
                handle,
                addresses: SmallVec::new(),
            }),
            program: Arc::clone(program),
        })
    }

    /// Its name in the program.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The parameters that it was declared with.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Returns the kernel for launches of up to `dimensions` dimensions, instead of one.
    ///
    /// In a launch of two dimensions several work items have the same `get_global_id(0)`. A kernel that uses only that
    /// number would write the same bytes in all of them. So a kernel is launched in one dimension, unless the program
    /// promises by this call that it is for more.
    ///
    /// ```
    /// use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// use binpool_opencl::{ClProgram, Extent, OpenClBackend, Parameter};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let source = "kernel void steps(global uint *out)
    ///     {
    ///         size_t x = get_global_id(0), y = get_global_id(1);
    ///         out[y * get_global_size(0) + x] = x + y;
    ///     }";
    /// let program = ClProgram::build(&backend, source, "")?;
    /// let parameters = [Parameter::output::<u32>(Extent::PerItem(1))];
    /// // SAFETY: each work item of a plane, or of a line, has a word of its own, and writes that only.
    /// let steps = unsafe { program.kernel("steps", &parameters)?.in_dimensions(2) };
    ///
    /// let out = backend.create_buffer(24, MemoryFlags::empty())?;
    /// steps.launch(&queue, &[3, 2]).memory(&out).enqueue()?;
    /// assert_eq!(*backend.map::<u32>(&queue, &out, 0..24)?, [0, 1, 2, 1, 2, 3]);
    ///
    /// let refused = steps.launch(&queue, &[3, 2, 1]).memory(&out).enqueue().unwrap_err();
    /// let problem = "steps cannot be launched with 3 dimensions of a kernel for 2";
    /// assert!(refused.to_string().starts_with(problem));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Safety
    ///
    /// The promises of [`ClProgram::kernel`](super::ClProgram::kernel) also hold in launches of up to that many dimensions,
    /// of any size in each.
    #[must_use]
    #[allow(unsafe_code)]
    pub unsafe fn in_dimensions(mut self, dimensions: usize) -> Self {
        self.limits.promised_dimensions = dimensions;
        self
    }

    pub(super) fn limits(&self) -> &LaunchLimits {
        &self.limits
    }

    /// Returns whether the queue is one of the context and device that the kernel is built for.
    pub(super) fn is_for(&self, queue: &ClQueue) -> bool {
        queue.is_on(self.program.context, self.program.device)
    }

    /// Calls `run`, alone, with the runtime's kernel, to set those arguments.
    ///
    /// If an argument was an address last time and is none now, the runtime's kernel is made anew: NVIDIA's driver no longer
    /// takes a buffer there.
    pub(super) fn with_handle<R>(
        &self,
        values: &[ArgumentValue<'_>],
        run: impl FnOnce(&mut KernelHandle) -> ClResult<R>,
    ) -> ClResult<R> {
        let is_address = |value: &ArgumentValue<'_>| matches!(value, ArgumentValue::Svm(_));
        let mut ready = self.ready.lock();
        let stale = |(was, value): (&bool, _)| *was && !is_address(value);
        if ready.addresses.iter().zip(values).any(stale) {
            ready.handle = self.fresh_handle()?;
        }
        ready.addresses = values.iter().map(is_address).collect();
        run(&mut ready.handle)
    }

    /// Returns a handle of its own, with no arguments.
    pub(super) fn fresh_handle(&self) -> ClResult<KernelHandle> {
        self.program.create_kernel(&self.name)
    }
}

debug_by!(ClKernel, |this| name: this.name, parameters: this.parameters);
