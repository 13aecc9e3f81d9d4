//! What the kernel takes for each parameter of a launch, which is checked against the declarations here.

use binpool_allocators::{AsMemory, Region, runtime::Access};
use smallvec::SmallVec;

use super::{
    argument::{Argument, LocalMemory},
    launch::Launch,
    parameter::{Extent, Parameter, ParameterAccess, ParameterRole},
    problem::KernelProblem,
    work_size::WorkSize,
};
use crate::{
    backend::OpenClBackend, error::OpenClError, memory::cl_memory::ClMemory,
    order::memory_use::MemoryUse, sys::kernel::ArgumentValue,
};

/// What the kernel takes for a parameter.
pub(super) enum Taken<'a> {
    Memory {
        /// The bytes that are touched; `None` for the block of 0 bytes.
        bytes: Option<(&'a ClMemory, Region)>,
        access: ParameterAccess,
        /// The number of whole elements that the argument has.
        elements: usize,
        /// Set if the kernel takes the whole buffer, and an offset.
        is_whole: bool,
        /// A view of the bytes, where they start within a buffer. The runtime keeps it until the kernel has ended.
        view: Option<ClMemory>,
    },
    /// A length or an offset.
    Number(SmallVec<[u8; 8]>),
    /// Anything else, and the memory that is used by it.
    Value(ArgumentValue<'a>, Option<MemoryUse<'a>>),
}

impl Launch<'_> {
    /// Returns what the kernel takes for each parameter. The pools of the memory note the use.
    pub(super) fn taken(&self, work: &WorkSize) -> Result<SmallVec<[Taken<'_>; 8]>, OpenClError> {
        let parameters = self.kernel.parameters();
        let takes_argument = |parameter: &&Parameter| parameter.takes_argument();
        let expected = parameters.iter().filter(takes_argument).count();
        if expected != self.arguments.len() {
            let given = self.arguments.len();
            let problem = format!("takes {expected} arguments, but the launch has {given}");
            return Err(self.refused(None, problem));
        }
        let mut arguments = self.arguments.iter();
        let mut taken = SmallVec::new();
        for (index, parameter) in parameters.iter().enumerate() {
            let argument = takes_argument(&parameter).then(|| arguments.next());
            taken.push(match argument.flatten() {
                Some(argument) => self.taken_for(index, argument, work)?,
                None => Taken::Number(SmallVec::new()),
            });
        }
        self.check_local_memory(&taken)?;
        for index in 0..parameters.len() {
            if let Some(number) = self.number_for(index, &taken)? {
                taken[index] = Taken::Number(number);
            }
        }
        Ok(taken)
    }

    fn taken_for<'s>(
        &self,
        index: usize,
        argument: &'s Argument<'_>,
        work: &WorkSize,
    ) -> Result<Taken<'s>, OpenClError> {
        let parameter = &self.kernel.parameters()[index];
        let check = |given, needed: Option<usize>| match needed {
            Some(needed) if needed > given => {
                Err(self.refused(index, KernelProblem::TooFewBytes { given, needed }))
            }
            needed => Ok(needed.unwrap_or(given)),
        };
        match (parameter.0, argument) {
            (
                ParameterRole::Memory {
                    access,
                    element,
                    extent,
                },
                Argument::Memory(memory),
            ) => {
                let size = memory.size();
                let bytes = check(size, extent.bytes(element, work.items(), work.groups()))?;
                let bytes = self.own_memory(*memory, bytes)?;
                if let Some((memory, _)) = bytes {
                    self.check_flags(Some(index), access, memory.flags())?;
                }
                let is_offset = |other: &Parameter| matches!(other.0, ParameterRole::Offset { of } if of == index);
                let is_whole = self.kernel.parameters().iter().any(is_offset);
                Ok(Taken::Memory {
                    bytes,
                    access,
                    // No declared element has 0 bytes, which nothing could be divided by.
                    elements: size / element.max(1),
                    is_whole,
                    view: match bytes {
                        Some((memory, region)) if !is_whole => self.view(index, memory, region)?,
                        _ => None,
                    },
                })
            }
            (ParameterRole::Value { bytes: expected }, Argument::Value(value)) => {
                let value = &value.0;
                let given = value.len();
                if given != expected {
                    let problem =
                        format!("takes a value of {expected} bytes, but was given one of {given}");
                    return Err(self.refused(index, problem));
                }
                Ok(Taken::Value(ArgumentValue::Bytes(value), None))
            }
            (ParameterRole::Local { element, extent }, Argument::Local(local)) => {
                let size = self.local_bytes(extent, local, work)?;
                // No runtime takes local memory of 0 bytes.
                let needed = extent.bytes(element, work.group_items().unwrap_or(0), 1);
                check(size, Some(needed.unwrap_or(1).max(1)))?;
                Ok(Taken::Value(ArgumentValue::Local(size), None))
            }
            #[cfg(feature = "images")]
            (role, argument) if parameter.kind() == argument.kind() => {
                self.taken_object(index, role, argument)
            }
            _ => {
                let (expected, given) = (parameter.kind(), argument.kind());
                Err(self.refused(index, format!("takes {expected}, but was given {given}")))
            }
        }
    }

    /// Returns the local memory's bytes for a group, which must be known where they are counted by its work items.
    fn local_bytes(
        &self,
        extent: Extent,
        local: &LocalMemory,
        work: &WorkSize,
    ) -> Result<usize, OpenClError> {
        let items = work.group_items();
        let is_known = !matches!(extent, Extent::PerItem(_)) || items.is_some();
        let size = local.for_group_of(items).filter(|_| is_known);
        size.ok_or_else(|| {
            let problem =
                "needs a local size, since its local memory is counted per work item: set one";
            self.refused(None, problem)
        })
    }

    /// Returns the memory for this launch's queue, and the region of the first `bytes` bytes of the argument in it; `None`
    /// for the block of 0 bytes.
    pub(super) fn own_memory<'s>(
        &self,
        memory: &'s dyn AsMemory<OpenClBackend>,
        bytes: usize,
    ) -> Result<Option<(&'s ClMemory, Region)>, OpenClError> {
        let backend = OpenClBackend::of_context(self.queue.context());
        Ok(backend.bytes_on(self.queue, memory, Region::first(bytes))?)
    }

    /// Checks the address that a parameter is given, which is where the memory of the argument starts.
    pub(super) fn check_alignment(&self, index: usize, address: usize) -> Result<(), OpenClError> {
        let parameter = &self.kernel.parameters()[index];
        let (element, alignment) = (parameter.element_bytes(), parameter.alignment());
        if address.is_multiple_of(alignment) {
            return Ok(());
        }
        let problem = format!(
            "was given memory at address {address:#x}, which is not a multiple of {alignment}, as its elements of {element} bytes need: \
             start the memory at one, or take smaller elements and have the kernel load them with `vload`"
        );
        Err(self.refused(index, problem))
    }

    /// Returns a view of `region`, where it starts within a buffer.
    fn view(
        &self,
        index: usize,
        memory: &ClMemory,
        region: Region,
    ) -> Result<Option<ClMemory>, OpenClError> {
        if memory.svm().is_some() || region.offset == 0 || region.bytes == 0 {
            return Ok(None);
        }
        let limits = &memory.context().limits;
        let offset = memory.offset().saturating_add(region.offset);
        if !limits.alignment.divides(offset) {
            let problem = format!(
                "was given memory at byte {offset} of a buffer, which is not a multiple of {}: declare its offset \
                 (`Parameter::offset_u64`), so that the kernel takes the whole buffer",
                limits.alignment
            );
            return Err(self.refused(index, problem));
        }
        Ok(Some(memory.view(region)?))
    }

    fn check_local_memory(&self, taken: &[Taken<'_>]) -> Result<(), OpenClError> {
        let limits = self.kernel.limits();
        let own = limits.own_local_bytes;
        let needed = taken.iter().fold(own, |sum, taken| match taken {
            Taken::Value(ArgumentValue::Local(bytes), _) => sum.saturating_add(*bytes),
            _ => sum,
        });
        let available = limits.local_bytes;
        if needed > available {
            return Err(self.refused(None, KernelProblem::LocalMemory { needed, available }));
        }
        Ok(())
    }

    /// Returns the bytes of a length or an offset, which is not given but counted; `None` for other parameters.
    fn number_for(
        &self,
        index: usize,
        taken: &[Taken<'_>],
    ) -> Result<Option<SmallVec<[u8; 8]>>, OpenClError> {
        let (number, bytes) = match self.kernel.parameters()[index].0 {
            ParameterRole::Length { of, bytes } => match &taken[of] {
                Taken::Memory { elements, .. } => (*elements, bytes),
                _ => (0, bytes),
            },
            ParameterRole::Offset { of } => (self.elements_before(of, taken)?, size_of::<u64>()),
            _ => return Ok(None),
        };
        let filled = if bytes == size_of::<u32>() {
            let number = u32::try_from(number).ok();
            number.map(|number| SmallVec::from_slice(&number.to_ne_bytes()))
        } else {
            Some(SmallVec::from_slice(&(number as u64).to_ne_bytes()))
        };
        filled.map(Some).ok_or_else(|| {
            let problem = format!("has {bytes} bytes, which cannot hold a length of {number}");
            self.refused(index, problem)
        })
    }

    /// Returns the number of elements before the first one of a memory argument, in the whole buffer.
    fn elements_before(&self, of: usize, taken: &[Taken<'_>]) -> Result<usize, OpenClError> {
        let bytes = match &taken[of] {
            Taken::Memory { bytes, .. } => *bytes,
            _ => None,
        };
        let start = bytes.and_then(|(memory, region)| {
            let (_, start) = memory.root()?;
            Some(start.saturating_add(region.offset))
        });
        let offset = start.unwrap_or(0);
        let element = self.kernel.parameters()[of].element_bytes().max(1);
        if offset % element != 0 {
            let problem = format!(
                "was given memory at byte {offset} of a buffer, which is not a whole number of elements of \
                 {element} bytes"
            );
            return Err(self.refused(of, problem));
        }
        Ok(offset / element)
    }
}

impl From<ParameterAccess> for Access {
    fn from(access: ParameterAccess) -> Self {
        match access {
            ParameterAccess::Input => Self::Read,
            ParameterAccess::Output | ParameterAccess::InOut => Self::Write,
        }
    }
}
