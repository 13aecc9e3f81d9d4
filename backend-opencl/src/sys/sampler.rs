//! Samplers: their handles and their creation.

use cl3::error_codes::CL_INVALID_SAMPLER;

use super::{
    ClResult, ContextHandle,
    handle::{Call, Handle, Kind, Question, handles},
};

handles! {
    /// A sampler.
    SamplerHandle of Sampler: "Sampler",
        sampler::{retain_sampler, release_sampler, get_sampler_data}, CL_INVALID_SAMPLER;
}

/// A sampler, by the call of OpenCL 1.x, which every later version has too.
pub(crate) fn create_sampler(
    context: &ContextHandle,
    normalized: bool,
    addressing: u32,
    filter: u32,
) -> ClResult<SamplerHandle> {
    let created =
        cl3::sampler::create_sampler(context.raw(), u32::from(normalized), addressing, filter);
    // SAFETY: The call above has just returned this reference, and nothing else takes it.
    unsafe { SamplerHandle::own(created, "clCreateSampler") }
}

/// A sampler of keys and values, none of whose keys is 0. The device has OpenCL 2.0.
pub(crate) fn create_sampler_with_properties(
    context: &ContextHandle,
    properties: &[(u64, u64)],
) -> ClResult<SamplerHandle> {
    let list: Vec<u64> = properties
        .iter()
        .flat_map(|&(key, value)| [key, value])
        .chain([0])
        .collect();
    let created = cl3::sampler::create_sampler_with_properties(context.raw(), list.as_ptr());
    // SAFETY: The call above has just returned this reference, and nothing else takes it.
    unsafe { SamplerHandle::own(created, "clCreateSamplerWithProperties") }
}
