//! Questions to the runtime about memory objects.

use cl3::{
    error_codes::CL_INVALID_VALUE,
    memory::{
        CL_MEM_ASSOCIATED_MEMOBJECT, CL_MEM_CONTEXT, CL_MEM_FLAGS, CL_MEM_HOST_PTR,
        CL_MEM_MAP_COUNT, CL_MEM_OFFSET, CL_MEM_REFERENCE_COUNT, CL_MEM_SIZE, CL_MEM_TYPE,
        CL_MEM_USES_SVM_POINTER,
    },
};

use super::{ClError, ClResult, MemHandle, info};

const CALL: &str = "clGetMemObjectInfo";

/// The answers that change during the life of an object, and whether it lies over memory of the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    pub(crate) maps: u32,
    pub(crate) references: u32,
    pub(crate) has_host_pointer: bool,
    pub(crate) uses_svm_pointer: bool,
}

/// The unchanging answers about an object.
#[derive(Debug)]
pub(crate) struct Facts {
    /// The `cl_mem_object_type`.
    pub(crate) object_type: u32,
    /// The address of its context, to compare.
    pub(crate) context: usize,
    /// The `cl_mem_flags`.
    pub(crate) flags: u64,
    pub(crate) bytes: usize,
    /// Its offset in its parent, in bytes.
    pub(crate) offset: usize,
    /// The object that it is a part of.
    pub(crate) parent: Option<MemHandle>,
}

pub(crate) fn counts(memory: &MemHandle) -> ClResult<Counts> {
    Ok(Counts {
        maps: u32::from_ne_bytes(ask(memory, CL_MEM_MAP_COUNT)?),
        references: u32::from_ne_bytes(ask(memory, CL_MEM_REFERENCE_COUNT)?),
        has_host_pointer: usize::from_ne_bytes(ask(memory, CL_MEM_HOST_PTR)?) != 0,
        // Runtimes before OpenCL 2.0 do not answer this question.
        uses_svm_pointer: ask(memory, CL_MEM_USES_SVM_POINTER)
            .is_ok_and(|answer| u32::from_ne_bytes(answer) != 0),
    })
}

pub(crate) fn facts(memory: &MemHandle) -> ClResult<Facts> {
    let parent = usize::from_ne_bytes(ask(memory, CL_MEM_ASSOCIATED_MEMOBJECT)?);
    Ok(Facts {
        object_type: u32::from_ne_bytes(ask(memory, CL_MEM_TYPE)?),
        context: context(memory)?,
        flags: u64::from_ne_bytes(ask(memory, CL_MEM_FLAGS)?),
        bytes: usize::from_ne_bytes(ask(memory, CL_MEM_SIZE)?),
        offset: usize::from_ne_bytes(ask(memory, CL_MEM_OFFSET)?),
        parent: if parent == 0 {
            None
        } else {
            let parent = std::ptr::with_exposed_provenance_mut(parent);
            // SAFETY: The runtime has just named the parent, which `memory` keeps alive.
            Some(unsafe { MemHandle::retain(parent) }?)
        },
    })
}

/// Returns the answer to a question about an object that is answered with a number.
pub(crate) fn number(memory: &MemHandle, what: u32) -> ClResult<u64> {
    info::number(&answer(memory, what)?).ok_or(ClError::new(CALL, CL_INVALID_VALUE))
}

/// Returns the address of an object's context, to compare.
pub(crate) fn context(memory: &MemHandle) -> ClResult<usize> {
    ask(memory, CL_MEM_CONTEXT).map(usize::from_ne_bytes)
}

/// Returns the runtime's answer, which has as many bytes as the specification says.
fn ask<const BYTES: usize>(memory: &MemHandle, what: u32) -> ClResult<[u8; BYTES]> {
    <[u8; BYTES]>::try_from(answer(memory, what)?.as_slice())
        .map_err(|_| ClError::new(CALL, CL_INVALID_VALUE))
}

fn answer(memory: &MemHandle, what: u32) -> ClResult<Vec<u8>> {
    cl3::memory::get_mem_object_data(memory.raw(), what).map_err(|code| ClError::new(CALL, code))
}
