//! Calls of OpenCL that build programs.

use std::{ffi::CStr, ptr};

use cl3::{
    error_codes::CL_INVALID_VALUE,
    program::{CL_PROGRAM_BUILD_LOG, CL_PROGRAM_KERNEL_NAMES},
};

pub(crate) use super::handle::ProgramHandle;
use super::{ClError, ClResult, ContextHandle, DeviceId, answer::Answer};

/// A program that is not built yet. The runtime copies `source`, which must not be empty: the runtime takes a length of 0
/// for a text that ends with a null byte.
pub(crate) fn create_program(context: &ContextHandle, source: &str) -> ClResult<ProgramHandle> {
    const CALL: &str = "clCreateProgramWithSource";
    if source.is_empty() {
        return Err(ClError::new(CALL, CL_INVALID_VALUE));
    }
    let created = cl3::program::create_program_with_source(context.raw(), &[source]);
    // SAFETY: The call above has just returned this reference, and nothing else takes it.
    unsafe { ProgramHandle::own(created, CALL) }
}

/// Builds a program for one device, and waits for it.
pub(crate) fn build_program(
    program: &ProgramHandle,
    device: DeviceId,
    options: &CStr,
) -> ClResult<()> {
    let devices = [device.raw()];
    cl3::program::build_program(program.raw(), &devices, options, None, ptr::null_mut())
        .map_err(|code| ClError::new("clBuildProgram", code))
}

/// Returns the messages of the compiler.
pub(crate) fn build_log(program: &ProgramHandle, device: DeviceId) -> ClResult<String> {
    let answered =
        cl3::program::get_program_build_data(program.raw(), device.raw(), CL_PROGRAM_BUILD_LOG);
    Ok(Answer::new(answered, "clGetProgramBuildInfo")?.text())
}

/// The names of the kernels of a program that was built.
pub(crate) fn kernel_names(program: &ProgramHandle) -> ClResult<Vec<String>> {
    let names = program.info(CL_PROGRAM_KERNEL_NAMES)?.text();
    let names = names.split(';').filter(|name| !name.is_empty());
    Ok(names.map(str::to_owned).collect())
}
