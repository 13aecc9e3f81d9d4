//! Programs in OpenCL C, built at run time.

use std::{ffi::CString, sync::Arc};

use binpool_allocators::{Backend, debug_by};
use cl3::error_codes::{
    CL_BUILD_PROGRAM_FAILURE, CL_COMPILE_PROGRAM_FAILURE, CL_INVALID_BUILD_OPTIONS,
};

use super::{
    kernel::{Built, ClKernel},
    parameter::Parameter,
};
use crate::{backend::OpenClBackend, error::OpenClError, sys::program};

/// A program in OpenCL C, built for one device. Clones are the same program.
///
/// Building is slow: keep the program, or let the backend keep it ([`cached`](OpenClBackend::cached)). The program does not keep the
/// backend alive, so that makes no cycle.
///
/// ```
/// use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// use binpool_opencl::{ClProgram, Extent, OpenClBackend, Parameter};
///
/// let backend = OpenClBackend::open(&"any".parse()?)?;
/// let source = "kernel void scale(global float *data, float factor)
///     { data[get_global_id(0)] *= factor; }";
/// let program = ClProgram::build(&backend, source, "")?;
/// let parameters = [
///     Parameter::in_out::<f32>(Extent::PerItem(1)),
///     Parameter::value::<f32>(),
/// ];
/// // SAFETY: each work item reads and writes the float of its id, and nothing else.
/// let scale = unsafe { program.kernel("scale", &parameters) }?;
///
/// let queue = backend.create_queue(QueueOrder::InOrder)?;
/// let data = backend.create_buffer_from(&[2.0_f32; 1000], MemoryFlags::empty())?;
/// let launch = scale.launch(&queue, &[1000]).memory(&data);
/// launch.value(&2.5_f32).enqueue()?;
/// let data = backend.map::<f32>(&queue, &data, 0..4000)?;
/// assert_eq!(*data, [5.0; 1000]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ClProgram {
    inner: Arc<Built>,
}

impl ClProgram {
    /// Builds `source`, in OpenCL C, for the backend's device, with the compiler's `options` (OpenCL 3.0, section
    /// 5.8.6), to which `-cl-kernel-arg-info` is added. Waits for the compiler.
    ///
    /// # Errors
    ///
    /// [`Build`](OpenClError::Build), with the messages of the compiler; or a failure of the runtime.
    pub fn build(
        backend: &OpenClBackend,
        source: &str,
        options: &str,
    ) -> Result<Self, OpenClError> {
        let refused = |log: String| OpenClError::Build {
            device: backend.limits().device_name.clone(),
            options: options.to_owned(),
            log,
        };
        if source.is_empty() {
            return Err(refused("the source is empty".into()));
        }
        let text = CString::new(format!("{options} -cl-kernel-arg-info"));
        let text = text.map_err(|_| refused("the options have a null byte in them".into()))?;
        let context = backend.context();
        let handle = program::create_program(&context.handle, source)?;
        program::build_program(&handle, context.device, &text).map_err(|error| {
            match error.code {
                CL_BUILD_PROGRAM_FAILURE
                | CL_COMPILE_PROGRAM_FAILURE
                | CL_INVALID_BUILD_OPTIONS => {
                    let log = program::build_log(&handle, context.device);
                    refused(log.unwrap_or_else(|error| format!("no log: {error}")))
                }
                _ => error.into(),
            }
        })?;
        let names = program::kernel_names(&handle)?;
        Ok(Self {
            inner: Arc::new(Built {
                handle,
                context: context.handle.raw().addr(),
                device: context.device,
                options: options.to_owned(),
                names,
            }),
        })
    }

    /// The names of its kernels.
    ///
    /// ```
    /// # use binpool_opencl::{ClProgram, OpenClBackend};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// let source = "
    /// kernel void fill(global float *data) { data[get_global_id(0)] = VALUE; }
    /// #ifdef WITH_DOUBLES
    /// kernel void fill_doubles(global double *data) { data[get_global_id(0)] = VALUE; }
    /// #endif
    /// float helper(float x) { return x; }";
    /// let program = ClProgram::build(&backend, source, "-D VALUE=1")?;
    /// assert_eq!(program.kernel_names(), ["fill"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn kernel_names(&self) -> &[String] {
        &self.inner.names
    }

    /// Returns the kernel of that name, with the declared parameters.
    ///
    /// Everything that the compiler reports about the kernel is compared with the declaration: the number and the kinds of
    /// its parameters, whether they are constant, and the sizes of scalars and vectors. The rest is the caller's promise.
    ///
    /// # Errors
    ///
    /// [`Kernel`](OpenClError::Kernel) for a name that is not one of the program's kernels, for a declaration that the kernel
    /// does not match, and for parameters of more bytes than the device passes; or a failure of the runtime.
    ///
    /// # Safety
    ///
    /// With any values, and any contents of its memory, in a launch of any size in one dimension (for more dimensions see
    /// [`in_dimensions`](ClKernel::in_dimensions)):
    ///
    /// 1. the kernel touches the memory of a parameter only within the declared [`Extent`](super::Extent), counted from the
    ///    address that it is given, images only within their pixels, unless it reads through a sampler of its own that
    ///    defines the value outside, and no other memory but its own;
    /// 2. it never writes what is declared as an input;
    /// 3. its work items have no data race, and each of them ends and calls barriers as OpenCL demands;
    /// 4. the address of a parameter's memory needs no more alignment than the type that the declaration names: it is a multiple of
    ///    the largest power of two that divides the size of that type, of at most 128. So `global float4 *` is declared with
    ///    elements of 16 bytes, and a pointer to smaller elements is not cast to one to larger ones, unless by `vload`.
    ///
    /// A kernel that follows addresses which it finds in memory cannot keep (1) for any contents. For such a kernel the
    /// caller promises to launch it only with contents whose every address lies in a block that the launch names as
    /// [`indirect`](super::Launch::indirect), and to touch the block only in the way that is named there.
    ///
    /// ```compile_fail,E0133
    /// # fn make(program: &binpool_opencl::ClProgram) -> Result<(), binpool_opencl::OpenClError> {
    /// let kernel = program.kernel("scale", &[])?; // there is no promise
    /// # Ok(()) }
    /// ```
    #[allow(unsafe_code)]
    pub unsafe fn kernel(
        &self,
        name: &str,
        parameters: &[Parameter],
    ) -> Result<ClKernel, OpenClError> {
        let names = &self.inner.names;
        if !names.iter().any(|known| known == name) {
            let problem = match names.as_slice() {
                [] => "is not in the program, which has no kernels".into(),
                names => format!("is not in the program, which has {}", names.join(", ")),
            };
            return Err(OpenClError::kernel(name, None, problem));
        }
        ClKernel::new(&self.inner, name, parameters)
    }
}

debug_by!(ClProgram, |this| handle: this.inner.handle, kernels: this.inner.names);
