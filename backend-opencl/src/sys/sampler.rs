//! Samplers.

use cl3::{error_codes::CL_INVALID_VALUE, info_type::InfoType};

use super::{ClError, ClResult, ContextHandle, SamplerHandle};

/// A sampler, by the call of OpenCL 1.x, which every later version has too.
pub(crate) fn create(
    context: &ContextHandle,
    normalized: bool,
    addressing: u32,
    filter: u32,
) -> ClResult<SamplerHandle> {
    const CALL: &str = "clCreateSampler";
    let raw =
        cl3::sampler::create_sampler(context.raw(), u32::from(normalized), addressing, filter)
            .map_err(|code| ClError::new(CALL, code))?;
    // SAFETY: The call above has just returned this reference, and nothing else takes it.
    unsafe { SamplerHandle::own(raw, CALL) }
}

/// A sampler of keys and values, none of whose keys is 0. The device has OpenCL 2.0.
pub(crate) fn create_with_properties(
    context: &ContextHandle,
    properties: &[(u64, u64)],
) -> ClResult<SamplerHandle> {
    const CALL: &str = "clCreateSamplerWithProperties";
    let list: Vec<u64> = properties
        .iter()
        .flat_map(|&(key, value)| [key, value])
        .chain([0])
        .collect();
    let raw = cl3::sampler::create_sampler_with_properties(context.raw(), list.as_ptr())
        .map_err(|code| ClError::new(CALL, code))?;
    // SAFETY: The call above has just returned this reference, and nothing else takes it.
    unsafe { SamplerHandle::own(raw, CALL) }
}

const CALL: &str = "clGetSamplerInfo";

/// Returns the answer to a question about a sampler that is answered with a number of 32 bits.
pub(crate) fn number(sampler: &SamplerHandle, what: u32) -> ClResult<u32> {
    match cl3::sampler::get_sampler_info(sampler.raw(), what) {
        Ok(InfoType::Uint(number)) => Ok(number),
        Ok(_) => Err(ClError::new(CALL, CL_INVALID_VALUE)),
        Err(code) => Err(ClError::new(CALL, code)),
    }
}

/// Returns the address of a sampler's context, to compare.
pub(crate) fn context_of(sampler: &SamplerHandle) -> ClResult<usize> {
    match cl3::sampler::get_sampler_info(sampler.raw(), cl3::sampler::CL_SAMPLER_CONTEXT) {
        Ok(InfoType::Ptr(raw)) => Ok(usize::from_ne_bytes(raw.to_ne_bytes())),
        Ok(_) => Err(ClError::new(CALL, CL_INVALID_VALUE)),
        Err(code) => Err(ClError::new(CALL, code)),
    }
}

/// Returns the keys and values that a sampler was made of, as a list with a 0 at its end; empty if it was made of none.
pub(crate) fn properties(sampler: &SamplerHandle) -> ClResult<Vec<u64>> {
    match cl3::sampler::get_sampler_info(sampler.raw(), cl3::sampler::CL_SAMPLER_PROPERTIES) {
        Ok(InfoType::VecUlong(list)) => Ok(list),
        Ok(_) => Err(ClError::new(CALL, CL_INVALID_VALUE)),
        Err(code) => Err(ClError::new(CALL, code)),
    }
}
