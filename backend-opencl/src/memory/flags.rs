//! The flags of memory, in the words of the traits and in the runtime's.

use binpool_allocators::MemoryFlags;
use cl3::memory::{
    CL_MEM_ALLOC_HOST_PTR, CL_MEM_HOST_NO_ACCESS, CL_MEM_HOST_READ_ONLY, CL_MEM_HOST_WRITE_ONLY,
    CL_MEM_READ_ONLY, CL_MEM_WRITE_ONLY,
};

const BITS: [(MemoryFlags, u64); 6] = [
    (MemoryFlags::READ_ONLY, CL_MEM_READ_ONLY),
    (MemoryFlags::WRITE_ONLY, CL_MEM_WRITE_ONLY),
    (MemoryFlags::HOST_READ_ONLY, CL_MEM_HOST_READ_ONLY),
    (MemoryFlags::HOST_WRITE_ONLY, CL_MEM_HOST_WRITE_ONLY),
    (MemoryFlags::HOST_NO_ACCESS, CL_MEM_HOST_NO_ACCESS),
    (MemoryFlags::HOST_RESIDENT, CL_MEM_ALLOC_HOST_PTR),
];

/// The flags of `clCreateBuffer`.
pub(crate) fn to_cl(flags: MemoryFlags) -> u64 {
    BITS.into_iter()
        .filter(|(flag, _)| flags.contains(*flag))
        .fold(0, |all, (_, bit)| all | bit)
}

/// What a memory object was made with, as far as there are words for it.
pub(crate) fn from_cl(bits: u64) -> MemoryFlags {
    BITS.into_iter()
        .filter(|(_, bit)| bits & bit != 0)
        .map(|(flag, _)| flag)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_goes_there_and_back() {
        for flag in MemoryFlags::all().iter() {
            assert_eq!(from_cl(to_cl(flag)), flag);
        }
        assert_eq!(from_cl(to_cl(MemoryFlags::all())), MemoryFlags::all());
        assert_eq!(to_cl(MemoryFlags::empty()), 0);
        // CL_MEM_READ_WRITE and CL_MEM_USE_HOST_PTR.
        assert_eq!(from_cl(1 | 8), MemoryFlags::empty());
    }
}
