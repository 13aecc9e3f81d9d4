//! The bytes of its arguments that a launch touches, by their declarations.

use binpool_allocators::AsMemory;
use smallvec::SmallVec;

use super::{
    argument::{Argument, ArgumentBody},
    launch::Launch,
    parameter::{Extent, Parameter, ParameterAccess, ParameterRole},
    work_size::WorkSize,
};
use crate::{
    backend::OpenClBackend,
    context::Context,
    error::OpenClError,
    image::{ClImage, ImageKind},
    order::{access::Access, memory_use::MemoryUse},
    pipe::ClPipe,
    sys::kernel::ArgumentValue,
};

/// The part of an argument that a kernel touches.
pub(super) enum Touched<'a> {
    Memory {
        memory: &'a dyn AsMemory<OpenClBackend>,
        /// The number of whole elements that it has.
        elements: usize,
        /// The number of bytes that are touched, from the first one on.
        bytes: usize,
        access: ParameterAccess,
        /// Set if the kernel takes the whole buffer, and an offset.
        is_whole: bool,
    },
    Value(&'a [u8]),
    /// A length or an offset that is not filled in yet.
    Unfilled,
    Filled(SmallVec<[u8; 8]>),
    Local(usize),
    /// An image, a sampler or a pipe.
    Object {
        value: ArgumentValue<'a>,
        context: &'a Context,
        used: Option<MemoryUse<'a>>,
    },
}

/// The checks that need only sizes.
impl Launch<'_> {
    /// Returns the part of each argument that the kernel touches.
    pub(super) fn touched(
        &self,
        work: &WorkSize,
    ) -> Result<SmallVec<[Touched<'_>; 8]>, OpenClError> {
        let parameters = self.kernel.parameters();
        let takes_argument = |parameter: &&Parameter| parameter.takes_argument();
        let expected = parameters.iter().filter(takes_argument).count();
        if expected != self.arguments.len() {
            let given = self.arguments.len();
            let problem = format!("takes {expected} arguments, and a launch was given {given}");
            return Err(self.refused(None, problem));
        }
        let mut arguments = self.arguments.iter();
        let mut touched = SmallVec::new();
        for (index, parameter) in parameters.iter().enumerate() {
            touched.push(if !parameter.takes_argument() {
                Touched::Unfilled
            } else if let Some(argument) = arguments.next() {
                self.touched_of(index, parameter, argument, work)?
            } else {
                continue;
            });
        }
        self.check_local_memory(&touched)?;
        self.fill_lengths(&mut touched)?;
        Ok(touched)
    }

    fn touched_of<'s>(
        &self,
        index: usize,
        parameter: &Parameter,
        argument: &'s Argument<'_>,
        work: &WorkSize,
    ) -> Result<Touched<'s>, OpenClError> {
        let check = |given, needed: Option<usize>| match needed {
            Some(needed) if needed > given => {
                let problem = format!(
                    "was given {given} bytes, and this launch touches {needed}: give more, or launch fewer work items"
                );
                Err(self.refused(index, problem))
            }
            needed => Ok(needed.unwrap_or(given)),
        };
        match (parameter.0, &argument.0) {
            (
                ParameterRole::Memory {
                    access,
                    element,
                    extent,
                },
                ArgumentBody::Memory(memory),
            ) => {
                let size = memory.size();
                let bytes = check(size, extent.bytes(element, work.items(), work.groups()))?;
                Ok(Touched::Memory {
                    memory: *memory,
                    // No declared element has 0 bytes, which nothing could be divided by.
                    elements: size / element.max(1),
                    bytes,
                    access,
                    is_whole: false,
                })
            }
            (ParameterRole::Value { bytes: expected }, ArgumentBody::Value(value)) => {
                let given = value.len();
                if given != expected {
                    let problem =
                        format!("takes a value of {expected} bytes, and was given one of {given}");
                    return Err(self.refused(index, problem));
                }
                Ok(Touched::Value(value))
            }
            (ParameterRole::Local { element, extent }, ArgumentBody::Local(local)) => {
                let items = work.group_items();
                let is_per_item = matches!(extent, Extent::PerItem(_));
                let size = local
                    .for_group_of(items)
                    .filter(|_| !is_per_item || items.is_some());
                let size = size.ok_or_else(|| {
                    let problem = "cannot be launched with no local size, by which local memory is counted: say it";
                    self.refused(None, problem)
                })?;
                // No runtime takes local memory of 0 bytes.
                let needed = extent
                    .bytes(element, items.unwrap_or(0), 1)
                    .unwrap_or(1)
                    .max(1);
                check(size, Some(needed))?;
                Ok(Touched::Local(size))
            }
            (ParameterRole::Image { kind, access }, ArgumentBody::Image(image)) => {
                self.image_of(index, (kind, access), image)
            }
            (ParameterRole::Sampler, ArgumentBody::Sampler(sampler)) => Ok(Touched::Object {
                value: ArgumentValue::Sampler(sampler.handle()),
                context: sampler.context(),
                used: None,
            }),
            (ParameterRole::Pipe { packet, .. }, ArgumentBody::Pipe(pipe)) => {
                self.pipe_of(index, packet, pipe)
            }
            _ => {
                let (expected, given) = (parameter.kind(), argument.kind());
                Err(self.refused(index, format!("takes {expected}, and was given {given}")))
            }
        }
    }

    fn image_of<'s>(
        &self,
        index: usize,
        (actual, access): (ImageKind, ParameterAccess),
        image: &'s ClImage,
    ) -> Result<Touched<'s>, OpenClError> {
        let given = image.shape().kind();
        if given != actual {
            return Err(self.refused(index, format!("is a {actual}, and a {given} was given")));
        }
        self.check_flags(Some(index), access, image.flags())?;
        Ok(Touched::Object {
            value: ArgumentValue::Memory(image.handle()),
            context: image.context(),
            used: Some(image.used(access.into())),
        })
    }

    fn pipe_of<'s>(
        &self,
        index: usize,
        expected: usize,
        pipe: &'s ClPipe,
    ) -> Result<Touched<'s>, OpenClError> {
        let given = usize::try_from(pipe.packet_bytes()?).unwrap_or(usize::MAX);
        if given != expected {
            let problem = format!("takes packets of {expected} bytes, and was given {given}");
            return Err(self.refused(index, problem));
        }
        Ok(Touched::Object {
            value: ArgumentValue::Memory(pipe.handle()),
            context: pipe.context(),
            // A kernel that reads packets takes them out, which is a write.
            used: Some(pipe.used(Access::Write)),
        })
    }

    fn check_local_memory(&self, touched: &[Touched<'_>]) -> Result<(), OpenClError> {
        let limits = self.kernel.limits();
        let own = limits.own_local_bytes;
        let needed = touched.iter().fold(own, |sum, touched| match touched {
            Touched::Local(bytes) => sum.saturating_add(*bytes),
            _ => sum,
        });
        let available = limits.local_bytes;
        if needed > available {
            let problem = format!(
                "takes {needed} bytes of local memory in a work group: this device has {available}"
            );
            return Err(self.refused(None, problem));
        }
        Ok(())
    }

    /// Fills in the numbers of elements where lengths are declared.
    fn fill_lengths(&self, touched: &mut [Touched<'_>]) -> Result<(), OpenClError> {
        for (index, parameter) in self.kernel.parameters().iter().enumerate() {
            let ParameterRole::Length { of, bytes } = parameter.0 else {
                continue;
            };
            let elements = match touched.get(of) {
                Some(Touched::Memory { elements, .. }) => *elements,
                _ => 0,
            };
            let length = if bytes == size_of::<u32>() {
                u32::try_from(elements).map(|length| SmallVec::from_slice(&length.to_ne_bytes()))
            } else {
                u64::try_from(elements).map(|length| SmallVec::from_slice(&length.to_ne_bytes()))
            };
            touched[index] = Touched::Filled(length.map_err(|_| {
                let problem =
                    format!("has {bytes} bytes, which cannot hold a length of {elements}");
                self.refused(index, problem)
            })?);
        }
        Ok(())
    }
}

/// The offsets, which need the memory.
impl Launch<'_> {
    /// Fills in the places of first elements where offsets are declared, whose memory is passed as its whole buffer.
    pub(super) fn fill_offsets(&self, touched: &mut [Touched<'_>]) -> Result<(), OpenClError> {
        for (index, parameter) in self.kernel.parameters().iter().enumerate() {
            let ParameterRole::Offset { of } = parameter.0 else {
                continue;
            };
            let mut place = 0;
            if let Some(Touched::Memory {
                memory,
                bytes,
                is_whole,
                ..
            }) = touched.get_mut(of)
            {
                *is_whole = true;
                let found = self.own_memory(*memory, *bytes)?;
                let start = found.and_then(|(memory, region)| {
                    let (_, start) = memory.root()?;
                    Some(start.saturating_add(region.offset))
                });
                let offset = start.unwrap_or(0);
                let element = self.kernel.parameters()[of].element_bytes().max(1);
                if offset % element != 0 {
                    let problem = format!(
                        "was given memory from byte {offset} of a buffer on, which is no whole number of elements of \
                         {element} bytes"
                    );
                    return Err(self.refused(of, problem));
                }
                place = offset / element;
            }
            touched[index] = Touched::Filled(SmallVec::from_slice(&(place as u64).to_ne_bytes()));
        }
        Ok(())
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
