//! What the runtime tells about memory objects.

use cl3::{
    error_codes::CL_INVALID_VALUE,
    memory::{
        CL_MEM_ASSOCIATED_MEMOBJECT, CL_MEM_CONTEXT, CL_MEM_FLAGS, CL_MEM_HOST_PTR,
        CL_MEM_MAP_COUNT, CL_MEM_OFFSET, CL_MEM_REFERENCE_COUNT, CL_MEM_SIZE, CL_MEM_TYPE,
        CL_MEM_USES_SVM_POINTER,
    },
};

use super::{MemHandle, info};
use crate::cl_error::{ClError, ClResult};

const CALL: &str = "clGetMemObjectInfo";

/// What changes while an object lives, and what it lies over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    pub(crate) maps: u32,
    pub(crate) references: u32,
    pub(crate) has_host_pointer: bool,
    pub(crate) uses_svm_pointer: bool,
}

/// What an object is.
#[derive(Debug)]
pub(crate) struct Facts {
    /// The `cl_mem_object_type`.
    pub(crate) object_type: u32,
    /// Its context, to compare.
    pub(crate) context: usize,
    /// The `cl_mem_flags`.
    pub(crate) flags: u64,
    pub(crate) bytes: usize,
    /// Where in its parent it starts, in bytes.
    pub(crate) offset: usize,
    /// The object that it is a part of.
    pub(crate) parent: Option<MemHandle>,
}

pub(crate) fn counts(memory: &MemHandle) -> ClResult<Counts> {
    Ok(Counts {
        maps: u32::from_ne_bytes(ask(memory, CL_MEM_MAP_COUNT)?),
        references: u32::from_ne_bytes(ask(memory, CL_MEM_REFERENCE_COUNT)?),
        has_host_pointer: usize::from_ne_bytes(ask(memory, CL_MEM_HOST_PTR)?) != 0,
        // Runtimes before OpenCL 2.0 do not know the question.
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
            // SAFETY: The runtime has just named the parent, and its part keeps it.
            Some(unsafe { MemHandle::retain(parent) }?)
        },
    })
}

/// What the runtime says about an object, of the questions that are answered with a number.
pub(crate) fn number(memory: &MemHandle, what: u32) -> ClResult<u64> {
    info::number(&answer(memory, what)?).ok_or(ClError::new(CALL, CL_INVALID_VALUE))
}

/// The context of an object, to compare.
pub(crate) fn context(memory: &MemHandle) -> ClResult<usize> {
    ask(memory, CL_MEM_CONTEXT).map(usize::from_ne_bytes)
}

/// The runtime's answer, which has as many bytes as the specification says.
fn ask<const BYTES: usize>(memory: &MemHandle, what: u32) -> ClResult<[u8; BYTES]> {
    <[u8; BYTES]>::try_from(answer(memory, what)?.as_slice())
        .map_err(|_| ClError::new(CALL, CL_INVALID_VALUE))
}

fn answer(memory: &MemHandle, what: u32) -> ClResult<Vec<u8>> {
    cl3::memory::get_mem_object_data(memory.raw(), what).map_err(|code| ClError::new(CALL, code))
}
