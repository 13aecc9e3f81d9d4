//! The arguments of launches.

use std::fmt;

use binpool_allocators::AsMemory;
use bytemuck::Pod;
use smallvec::SmallVec;

use super::parameter::ParameterKind;
use crate::backend::OpenClBackend;
#[cfg(feature = "images")]
use crate::{
    image::{ClImage, ClSampler},
    pipe::ClPipe,
};

/// The value that a launch passes for one parameter.
///
/// Most launches pass arguments by the methods of [`Launch`](super::Launch). A list that is made beforehand is passed by
/// [`arguments`](super::Launch::arguments).
///
/// ```
/// use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// use binpool_opencl::{
///     Argument, ClProgram, Extent, LocalMemory, OpenClBackend, Parameter, ParameterKind,
/// };
///
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let source = "kernel void shift(global const uint *from, uint by, global uint *to, local uint *group)
/// #     {
/// #         size_t index = get_local_id(0), items = get_local_size(0);
/// #         group[index] = from[get_global_id(0)];
/// #         barrier(CLK_LOCAL_MEM_FENCE);
/// #         to[get_global_id(0)] = group[(index + by % items) % items];
/// #     }";
/// # let program = ClProgram::build(&backend, source, "")?;
/// # let parameters = [
/// #     Parameter::input::<u32>(Extent::PerItem(1)),
/// #     Parameter::value::<u32>(),
/// #     Parameter::output::<u32>(Extent::PerItem(1)),
/// #     Parameter::local::<u32>(Extent::PerItem(1)),
/// # ];
/// # // SAFETY: each work item reads and writes the words of its id, after the barrier also the local ones of its group.
/// # let shift = unsafe { program.kernel("shift", &parameters) }?;
/// # let from = backend.create_buffer_from(&[1_u32, 2, 3, 4], MemoryFlags::empty())?;
/// # let to = backend.create_buffer(16, MemoryFlags::empty())?;
/// // kernel void shift(global const uint *from, uint by, global uint *to, local uint *group)
/// let arguments = [
///     Argument::Memory(&from),
///     Argument::value(&1_u32),
///     Argument::Memory(&to),
///     Argument::Local(LocalMemory::per_item::<u32>(1)),
/// ];
/// assert_eq!(arguments[3].kind(), ParameterKind::Local);
/// let launch = shift.launch(&queue, &[4]).local_size(&[4]);
/// launch.arguments(arguments).enqueue()?;
/// let to = backend.map::<u32>(&queue, &to, 0..16)?;
/// assert_eq!(*to, [2, 3, 4, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// ```compile_fail,E0277
/// use binpool_opencl::Argument;
///
/// // A pointer of the host is not a value for a kernel.
/// let argument = Argument::value(&"text");
/// ```
///
/// An image and a sampler:
///
/// ```
/// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// # use binpool_opencl::{
/// #     Addressing, Argument, ChannelOrder, ChannelType, ClProgram, ClSampler, Extent, Filter, HostPitches, ImageFormat,
/// #     ImageKind, ImageShape, OpenClBackend, Parameter, ParameterAccess,
/// # };
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let source = "kernel void look_up(read_only image2d_t picture, sampler_t sampler, global float4 *colors)
/// #     {
/// #         size_t i = get_global_id(0);
/// #         colors[i] = read_imagef(picture, sampler, (float2)(i + 0.5f, 0.5f));
/// #     }";
/// # let program = ClProgram::build(&backend, source, "")?;
/// # let parameters = [
/// #     Parameter::image(ImageKind::D2, ParameterAccess::Input),
/// #     Parameter::sampler(),
/// #     Parameter::output::<[f32; 4]>(Extent::PerItem(1)),
/// # ];
/// # // SAFETY: each work item writes the colour of its id, and reads the image through a sampler that says what is beyond.
/// # let look_up = unsafe { program.kernel("look_up", &parameters) }?;
/// # let image = backend.create_image_with_data(
/// #     MemoryFlags::READ_ONLY,
/// #     ImageFormat::new(ChannelOrder::Rgba, ChannelType::Float),
/// #     ImageShape::d2(2, 1),
/// #     &[[0.25_f32; 4], [0.75; 4]],
/// #     HostPitches::TIGHT,
/// # )?;
/// # let colors = backend.create_buffer(32, MemoryFlags::empty())?;
/// // kernel void look_up(read_only image2d_t picture, sampler_t sampler, global float4 *colors)
/// let sampler = ClSampler::new(&backend, false, Addressing::ClampToEdge, Filter::Nearest)?;
/// let read = [Argument::Image(&image), Argument::Sampler(&sampler)];
/// let launch = look_up.launch(&queue, &[2]).arguments(read);
/// launch.memory(&colors).enqueue()?;
/// let colors = backend.map::<[f32; 4]>(&queue, &colors, 0..32)?;
/// assert_eq!(*colors, [[0.25; 4], [0.75; 4]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub enum Argument<'a> {
    /// Memory: a buffer, shared virtual memory, a region of either, or a block of a pool.
    Memory(&'a dyn AsMemory<OpenClBackend>),
    /// A [value](Self::value).
    Value(ValueBytes),
    /// Local memory.
    Local(LocalMemory),
    /// An image.
    #[cfg(feature = "images")]
    Image(&'a ClImage),
    /// A sampler.
    #[cfg(feature = "images")]
    Sampler(&'a ClSampler),
    /// A pipe.
    #[cfg(feature = "images")]
    Pipe(&'a ClPipe),
}

/// The bytes of a [value](Argument::value).
///
/// ```
/// use binpool_opencl::{Argument, ParameterKind};
///
/// assert_eq!(Argument::value(&2.5_f32).kind(), ParameterKind::Value);
/// ```
#[derive(Clone, Debug)]
pub struct ValueBytes(pub(super) SmallVec<[u8; 16]>);

impl Argument<'_> {
    /// Returns a value, by its bytes.
    pub fn value<T: Pod>(value: &T) -> Self {
        let bytes = SmallVec::from_slice(bytemuck::bytes_of(value));
        Self::Value(ValueBytes(bytes))
    }

    /// Its kind.
    pub fn kind(&self) -> ParameterKind {
        match self {
            Self::Memory(_) => ParameterKind::Memory,
            Self::Value(_) => ParameterKind::Value,
            Self::Local(_) => ParameterKind::Local,
            #[cfg(feature = "images")]
            Self::Image(_) => ParameterKind::Image,
            #[cfg(feature = "images")]
            Self::Sampler(_) => ParameterKind::Sampler,
            #[cfg(feature = "images")]
            Self::Pipe(_) => ParameterKind::Pipe,
        }
    }
}

impl fmt::Debug for Argument<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Argument").field(&self.kind()).finish()
    }
}

/// The local memory that each work group of a launch gets for one `local` pointer of its kernel.
///
/// ```
/// use binpool_opencl::LocalMemory;
///
/// // A float for each work item of a group, however large the groups are.
/// let scratch = LocalMemory::per_item::<f32>(1);
/// // 4 KiB in all.
/// let table = LocalMemory::bytes(4096);
/// # let _ = (scratch, table);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LocalMemory {
    bytes: usize,
    per_item: bool,
}

impl LocalMemory {
    /// That many bytes for each group.
    pub const fn bytes(bytes: usize) -> Self {
        Self {
            bytes,
            per_item: false,
        }
    }

    /// That many elements for each work item of a group. The launch needs a [`local_size`](crate::Launch::local_size),
    /// unless the kernel is compiled for one.
    pub const fn per_item<T>(elements: usize) -> Self {
        Self {
            bytes: elements.saturating_mul(size_of::<T>()),
            per_item: true,
        }
    }

    /// Returns the bytes for each group, if a group has that many work items; `None` if that number is needed and unknown.
    pub(super) fn for_group_of(self, items: Option<usize>) -> Option<usize> {
        if self.per_item {
            items.map(|items| self.bytes.saturating_mul(items))
        } else {
            Some(self.bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_for_a_group_and_elements_for_each_of_its_items() {
        assert_eq!(LocalMemory::bytes(100).for_group_of(None), Some(100));
        assert_eq!(LocalMemory::bytes(100).for_group_of(Some(8)), Some(100));
        let pair = LocalMemory::per_item::<f32>(2);
        assert_eq!(pair.for_group_of(Some(8)), Some(64));
        assert_eq!(pair.for_group_of(None), None);
        let huge = LocalMemory::per_item::<u64>(usize::MAX);
        assert_eq!(huge.for_group_of(Some(2)), Some(usize::MAX));
    }
}
