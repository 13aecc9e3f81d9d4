//! Programs.

use std::{ffi::CStr, ptr};

use cl3::{
    error_codes::CL_INVALID_VALUE,
    program::{CL_PROGRAM_BUILD_LOG, CL_PROGRAM_KERNEL_NAMES},
};

pub(crate) use super::handle::ProgramHandle;
use super::{ContextHandle, DeviceId, info};
use crate::cl_error::{ClError, ClResult};

/// A program that is not built yet. The runtime copies `source`, which has to have a byte at least: one without is
/// read up to a null byte that it does not have.
pub(crate) fn create_program(context: &ContextHandle, source: &str) -> ClResult<ProgramHandle> {
    const CALL: &str = "clCreateProgramWithSource";
    if source.is_empty() {
        return Err(ClError::new(CALL, CL_INVALID_VALUE));
    }
    let raw = cl3::program::create_program_with_source(context.raw(), &[source])
        .map_err(|code| ClError::new(CALL, code))?;
    // SAFETY: The call has just returned this reference to us.
    unsafe { ProgramHandle::own(raw, CALL) }
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

/// What the compiler had to say.
pub(crate) fn build_log(program: &ProgramHandle, device: DeviceId) -> ClResult<String> {
    cl3::program::get_program_build_data(program.raw(), device.raw(), CL_PROGRAM_BUILD_LOG)
        .map(|bytes| info::text(&bytes))
        .map_err(|code| ClError::new("clGetProgramBuildInfo", code))
}

/// The names of the kernels of a program that was built.
pub(crate) fn kernel_names(program: &ProgramHandle) -> ClResult<Vec<String>> {
    let bytes = cl3::program::get_program_data(program.raw(), CL_PROGRAM_KERNEL_NAMES)
        .map_err(|code| ClError::new("clGetProgramInfo", code))?;
    let names = info::text(&bytes);
    let names = names.split(';').filter(|name| !name.is_empty());
    Ok(names.map(str::to_owned).collect())
}
