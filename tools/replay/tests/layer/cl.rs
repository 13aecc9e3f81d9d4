//! The functions of OpenCL, from the loader that programs load.

use std::sync::OnceLock;

use libloading::Library;
use opencl_sys::cl_icd::cl_icd_dispatch;

/// Returns the functions of the loader. The library stays loaded.
pub(crate) fn functions() -> &'static cl_icd_dispatch {
    static FUNCTIONS: OnceLock<cl_icd_dispatch> = OnceLock::new();
    FUNCTIONS.get_or_init(|| {
        let path = std::env::var("OPENCL_DYLIB_PATH");
        let path = path.as_deref().unwrap_or("libOpenCL.so.1");
        of_loader(path).unwrap_or_else(|error| panic!("{path}: {error}"))
    })
}

/// Loads a loader of OpenCL, for good, and returns its functions.
pub(crate) fn of_loader(path: &str) -> Result<cl_icd_dispatch, libloading::Error> {
    // SAFETY: the initializers of a loader ask nothing of a program.
    let library = Box::leak(Box::new(unsafe { Library::new(path) }?));
    // SAFETY: each entry is an `Option` of a function or a number, and all zeros are `None` and 0.
    let mut table: cl_icd_dispatch = unsafe { std::mem::zeroed() };
    macro_rules! load {
        ($($name:ident)*) => {
            $(
                // SAFETY: the loader's function of this name has the type of the field.
                table.$name = unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) }
                    .ok()
                    .and_then(|function| *function);
            )*
        };
    }
    load! {
        clGetPlatformIDs clGetPlatformInfo clGetDeviceIDs clGetDeviceInfo clCreateSubDevices clReleaseDevice clCreateContext
        clCreateContextFromType clRetainContext clReleaseContext clGetContextInfo clSetContextDestructorCallback clCreateCommandQueue
        clCreateCommandQueueWithProperties clRetainCommandQueue clReleaseCommandQueue clGetCommandQueueInfo clCreateBuffer
        clCreateBufferWithProperties clCreateSubBuffer clCreateImage clCreateImage2D clRetainMemObject clReleaseMemObject
        clGetMemObjectInfo clGetImageInfo clSetMemObjectDestructorCallback clCreateProgramWithSource clBuildProgram clReleaseProgram
        clCreateKernel clCreateKernelsInProgram clCloneKernel clRetainKernel clReleaseKernel clSetKernelArg clSetKernelArgSVMPointer
        clSetKernelExecInfo clEnqueueNDRangeKernel clEnqueueTask clEnqueueNativeKernel clEnqueueReadBuffer clEnqueueWriteBuffer
        clEnqueueCopyBuffer clEnqueueFillBuffer clEnqueueReadBufferRect clEnqueueWriteBufferRect clEnqueueCopyBufferRect
        clEnqueueReadImage clEnqueueWriteImage clEnqueueCopyImageToBuffer clEnqueueCopyBufferToImage clEnqueueMapBuffer clEnqueueMapImage
        clEnqueueUnmapMemObject clEnqueueMigrateMemObjects clEnqueueMarkerWithWaitList clEnqueueBarrierWithWaitList clCreateUserEvent
        clSetUserEventStatus clSetEventCallback clWaitForEvents clGetEventInfo clRetainEvent clReleaseEvent clFlush clFinish clSVMAlloc
        clSVMFree clEnqueueSVMFree clEnqueueSVMMemcpy clEnqueueSVMMemFill clEnqueueSVMMap clEnqueueSVMUnmap clEnqueueSVMMigrateMem
        clGetExtensionFunctionAddress clGetExtensionFunctionAddressForPlatform clGetProgramInfo clGetKernelInfo clCreateSampler
        clGetSamplerInfo clReleaseSampler
    }
    Ok(table)
}

/// Calls a function of OpenCL, as a program would.
macro_rules! cl {
    ($name:ident($($argument:expr),* $(,)?)) => {
        match $crate::cl::functions().$name {
            // SAFETY: what a rule passes is what the specification lets a program pass.
            #[allow(unused_unsafe, reason = "an argument may be a call")]
            Some(function) => unsafe { function($($argument),*) },
            None => panic!("the loader has no {}", stringify!($name)),
        }
    };
}

pub(crate) use cl;
