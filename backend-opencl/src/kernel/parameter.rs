//! The declaration of the parameters of a kernel.

use std::fmt;

use binpool_allocators::MemoryFlags;
use bytemuck::Pod;

#[cfg(feature = "images")]
use crate::image::ImageKind;
use crate::sys::host::LARGEST_ALIGNMENT;

/// The declaration of a parameter of a kernel: the kind of its argument, and the bytes that the kernel touches there.
///
/// The element is the type that the kernel's pointer points to: `float` is `f32`, `float4` is `[f32; 4]`; vectors of three
/// are as large as those of four. Its size also says where memory may start: at a multiple of the largest power of two that divides it, of
/// at most 128, as OpenCL C's compilers assume. A struct of floats may start at any float if its parameter is declared with as many floats.
///
/// ```
/// use binpool_opencl::{Extent, Parameter, ParameterKind};
///
/// // kernel void scale(global float *data, float factor)
/// let scale = [
///     Parameter::in_out::<f32>(Extent::PerItem(1)),
///     Parameter::value::<f32>(),
/// ];
/// // kernel void sum(global const float *data, ulong length, global float *sums, local float *scratch)
/// let sum = [
///     Parameter::input::<f32>(Extent::Whole),
///     Parameter::length_u64(0), // the launch fills it in
///     Parameter::output::<f32>(Extent::PerGroup(1)),
///     Parameter::local::<f32>(Extent::PerItem(1)),
/// ];
/// assert_eq!(scale[0].kind(), ParameterKind::Memory);
/// assert_eq!(sum[1].kind(), ParameterKind::Value);
/// ```
///
/// Images, samplers and pipes have no extent: kernels touch them as a whole.
///
/// ```
/// use binpool_opencl::{Extent, ImageKind, Parameter, ParameterAccess, ParameterKind};
///
/// // kernel void resize(read_only image2d_t from, sampler_t sampler, write_only image2d_t to)
/// let resize = [
///     Parameter::image(ImageKind::D2, ParameterAccess::Input),
///     Parameter::sampler(),
///     Parameter::image(ImageKind::D2, ParameterAccess::Output),
/// ];
/// // kernel void take(read_only pipe uint packets, global uint *words)
/// let take = [
///     Parameter::pipe::<u32>(ParameterAccess::Input),
///     Parameter::output::<u32>(Extent::PerItem(1)),
/// ];
/// assert_eq!(resize[1].kind(), ParameterKind::Sampler);
/// assert_eq!(take[0].kind(), ParameterKind::Pipe);
/// ```
///
/// A value is plain bytes:
///
/// ```compile_fail,E0277
/// use binpool_opencl::Parameter;
///
/// let text = Parameter::value::<String>();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter(pub(super) ParameterRole);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParameterRole {
    Memory {
        access: ParameterAccess,
        /// The bytes of an element.
        element: usize,
        extent: Extent,
    },
    Value {
        bytes: usize,
    },
    /// The number of elements of another parameter, which the launch fills in.
    Length {
        of: usize,
        bytes: usize,
    },
    /// The place of the first element of another parameter in its buffer, which the launch fills in.
    Offset {
        of: usize,
    },
    Local {
        element: usize,
        extent: Extent,
    },
    #[cfg(feature = "images")]
    Image {
        kind: ImageKind,
        access: ParameterAccess,
    },
    #[cfg(feature = "images")]
    Sampler,
    #[cfg(feature = "images")]
    Pipe {
        access: ParameterAccess,
        /// The bytes of a packet.
        packet: usize,
    },
}

/// The access of a kernel to the memory of a parameter.
///
/// ```
/// use binpool_opencl::{ClProgram, Extent, OpenClBackend, Parameter, ParameterAccess};
///
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// let source = "kernel void scale(global const float *from, global float *to)
///     { to[get_global_id(0)] = 2.0f * from[get_global_id(0)]; }";
/// let program = ClProgram::build(&backend, source, "")?;
/// let each = Extent::PerItem(1);
/// let to = Parameter::output::<f32>(each);
/// // SAFETY: each work item reads the one float of its id, and writes the other.
/// let declared = |from| unsafe { program.kernel("scale", &[from, to]) };
/// // Launches that only read the first floats need not wait for one another.
/// declared(Parameter::input::<f32>(each))?;
///
/// let refused = declared(Parameter::in_out::<f32>(each)).unwrap_err();
/// let declared = ParameterAccess::InOut;
/// let problem = format!("parameter 0 of scale is declared as {declared}, but its type is read only"); // it is const
/// assert_eq!(refused.to_string(), problem);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParameterAccess {
    /// The kernel only reads it.
    Input,
    /// The kernel writes it.
    Output,
    /// The kernel reads and writes it.
    InOut,
}

/// The number of elements that a kernel touches, counted from the first one.
///
/// Work items are counted as if their ids started at 0: with an [`offset`](crate::Launch::offset) their number is the
/// product of offset plus size over the dimensions. A product that overflows is too large for any memory.
///
/// ```
/// use binpool_allocators::{Backend, Event, MemoryFlags, QueueOrder};
/// use binpool_opencl::{ClProgram, Extent, KernelProblem, OpenClBackend, OpenClError, Parameter};
///
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let source = "kernel void join(global const float *weights, global const float *pairs, global float *means)
/// #     {
/// #         size_t i = get_global_id(0);
/// #         means[i] = weights[0] * pairs[2 * i] + weights[1] * pairs[2 * i + 1];
/// #     }";
/// # let program = ClProgram::build(&backend, source, "")?;
/// // kernel void join(global const float *weights, global const float *pairs, global float *means)
/// let parameters = [
///     Parameter::input::<f32>(Extent::Fixed(2)),
///     Parameter::input::<f32>(Extent::PerItem(2)),
///     Parameter::output::<f32>(Extent::PerItem(1)),
/// ];
/// // SAFETY: each work item reads both weights and the pair of its id, and writes the mean of its id.
/// let join = unsafe { program.kernel("join", &parameters) }?;
///
/// let floats = |count: usize| backend.create_buffer(4 * count, MemoryFlags::empty());
/// let (weights, pairs, means) = (floats(2)?, floats(6)?, floats(3)?);
/// let launch = |items| {
///     let launch = join.launch(&queue, &[items]).memory(&weights);
///     launch.memory(&pairs).memory(&means).enqueue()
/// };
/// launch(3)?.wait()?;
/// let Err(OpenClError::Kernel { parameter: Some(1), problem, .. }) = launch(4) else {
///     panic!("there are three pairs")
/// };
/// assert_eq!(problem, KernelProblem::TooFewBytes { given: 24, needed: 32 });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extent {
    /// That many for each work item; of local memory, for each work item of a group.
    PerItem(usize),
    /// That many for each work group. A launch that leaves the local size to the runtime may have as many groups as
    /// work items.
    PerGroup(usize),
    /// That many.
    Fixed(usize),
    /// Any number: the kernel finds out how many there are from a length
    /// ([`length_u32`](Parameter::length_u32), [`length_u64`](Parameter::length_u64)), and touches no others.
    Whole,
}

impl Parameter {
    const fn memory<T>(access: ParameterAccess, extent: Extent) -> Self {
        Self(ParameterRole::Memory {
            access,
            element: size_of::<T>(),
            extent,
        })
    }

    /// A `global` or `constant` pointer to elements that the kernel only reads.
    pub const fn input<T: Pod>(extent: Extent) -> Self {
        Self::memory::<T>(ParameterAccess::Input, extent)
    }

    /// A `global` pointer to elements that the kernel writes. Elements that it does not write keep their values.
    pub const fn output<T: Pod>(extent: Extent) -> Self {
        Self::memory::<T>(ParameterAccess::Output, extent)
    }

    /// A `global` pointer to elements that the kernel reads and writes.
    pub const fn in_out<T: Pod>(extent: Extent) -> Self {
        Self::memory::<T>(ParameterAccess::InOut, extent)
    }

    /// A value, passed by its bytes.
    pub const fn value<T: Pod>() -> Self {
        Self(ParameterRole::Value {
            bytes: size_of::<T>(),
        })
    }

    /// A `uint`: the number of whole elements of the memory that is passed for parameter number `of`, counted
    /// from 0. The launch fills it in; no argument is passed for it.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::{ClProgram, Extent, OpenClBackend, Parameter};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let source = "kernel void tell(global const float *data, uint length, global uint *told)
    ///     { told[get_global_id(0)] = length; }";
    /// # let program = ClProgram::build(&backend, source, "")?;
    /// let parameters = [
    ///     Parameter::input::<f32>(Extent::Whole),
    ///     Parameter::length_u32(0),
    ///     Parameter::output::<u32>(Extent::PerItem(1)),
    /// ];
    /// // SAFETY: each work item writes the word of its id, and none reads a float.
    /// let tell = unsafe { program.kernel("tell", &parameters) }?;
    ///
    /// let data = backend.create_buffer(10, MemoryFlags::empty())?;
    /// let told = backend.create_buffer(4, MemoryFlags::empty())?;
    /// let launch = tell.launch(&queue, &[1]).memory(&data);
    /// launch.memory(&told).enqueue()?; // the second argument, for the third parameter
    /// assert_eq!(*backend.map::<u32>(&queue, &told, 0..4)?, [2]); // 10 bytes hold two floats
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn length_u32(of: usize) -> Self {
        Self(ParameterRole::Length { of, bytes: 4 })
    }

    /// A `ulong` with the number of whole elements of the memory that is passed for parameter number `of`.
    pub const fn length_u64(of: usize) -> Self {
        Self(ParameterRole::Length { of, bytes: 8 })
    }

    /// A `ulong` with the place of the first element of the memory that is passed for parameter number `of`, counted in whole
    /// elements from the start of that parameter's pointer. The launch fills it in, and passes the whole buffer for parameter
    /// `of`, which may be any part of the memory: the kernel adds this number to every index.
    ///
    /// So the part needs no object of the runtime, and it may start at any whole element, where a launch without an offset needs the
    /// device's [alignment](binpool_allocators::DeviceLimits::alignment). For shared virtual memory, the kernel gets the address of the
    /// part, and 0.
    ///
    /// The kernel keeps to the declared extent, counted from that place on: other bytes of the buffer may be others' blocks.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, QueueOrder};
    /// # use binpool_opencl::{ClProgram, Extent, OpenClBackend, Parameter};
    /// use binpool::{ImmediateAllocator, PoolOptions};
    ///
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let source = "kernel void scale(global float *data, ulong first, float factor)
    ///     { data[first + get_global_id(0)] *= factor; }";
    /// # let program = ClProgram::build(&backend, source, "")?;
    /// let parameters = [
    ///     Parameter::in_out::<f32>(Extent::PerItem(1)),
    ///     Parameter::offset_u64(0),
    ///     Parameter::value::<f32>(),
    /// ];
    /// // SAFETY: each work item reads and writes the float of its id, counted from `first`.
    /// let scale = unsafe { program.kernel("scale", &parameters) }?;
    ///
    /// // Blocks of a pool are parts of its segments, mostly.
    /// let pool = PoolOptions::new().segments(true).build(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let [_first, block] = [(); 2].map(|()| pool.allocate(4000).unwrap());
    /// block.write(&queue, 0, &[2.0_f32; 1000])?;
    /// let launch = scale.launch(&queue, &[1000]).memory(&block);
    /// launch.value(&2.5_f32).enqueue()?; // the second argument, for the third parameter
    /// let mut scaled = [0.0_f32; 1000];
    /// block.read(&queue, 0, &mut scaled)?;
    /// assert_eq!(scaled, [5.0; 1000]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn offset_u64(of: usize) -> Self {
        Self(ParameterRole::Offset { of })
    }

    /// A `local` pointer, for which a launch passes a [`LocalMemory`](crate::LocalMemory).
    pub const fn local<T: Pod>(extent: Extent) -> Self {
        Self(ParameterRole::Local {
            element: size_of::<T>(),
            extent,
        })
    }

    /// The kind of its argument.
    pub const fn kind(&self) -> ParameterKind {
        match self.0 {
            ParameterRole::Memory { .. } => ParameterKind::Memory,
            ParameterRole::Value { .. }
            | ParameterRole::Length { .. }
            | ParameterRole::Offset { .. } => ParameterKind::Value,
            ParameterRole::Local { .. } => ParameterKind::Local,
            #[cfg(feature = "images")]
            ParameterRole::Image { .. } => ParameterKind::Image,
            #[cfg(feature = "images")]
            ParameterRole::Sampler => ParameterKind::Sampler,
            #[cfg(feature = "images")]
            ParameterRole::Pipe { .. } => ParameterKind::Pipe,
        }
    }

    /// Returns what the address of an element is a multiple of: the largest power of two that divides its size, since the size of a type is a
    /// multiple of its alignment, but no more than the largest vector needs.
    pub(super) fn alignment(&self) -> usize {
        let bytes = self.element_bytes();
        (bytes & bytes.wrapping_neg()).clamp(1, LARGEST_ALIGNMENT)
    }

    /// Returns the bytes of an element, a packet, or the value; 0 without any of these.
    pub(super) const fn element_bytes(&self) -> usize {
        match self.0 {
            ParameterRole::Memory { element, .. } | ParameterRole::Local { element, .. } => element,
            ParameterRole::Value { bytes } | ParameterRole::Length { bytes, .. } => bytes,
            ParameterRole::Offset { .. } => size_of::<u64>(),
            #[cfg(feature = "images")]
            ParameterRole::Pipe { packet, .. } => packet,
            #[cfg(feature = "images")]
            ParameterRole::Image { .. } | ParameterRole::Sampler => 0,
        }
    }

    /// Returns the bytes that its argument takes in a launch.
    pub(super) const fn passed_bytes(&self) -> usize {
        match self.0 {
            ParameterRole::Value { bytes } | ParameterRole::Length { bytes, .. } => bytes,
            ParameterRole::Offset { .. } => size_of::<u64>(),
            _ => size_of::<usize>(),
        }
    }

    /// Returns whether a launch passes an argument for it.
    pub(super) const fn takes_argument(&self) -> bool {
        !matches!(
            self.0,
            ParameterRole::Length { .. } | ParameterRole::Offset { .. }
        )
    }
}

impl ParameterAccess {
    /// Checks that a parameter which is declared with this access has this one by its type.
    pub(super) fn check_is(self, actual: Self) -> Result<(), String> {
        if self == actual {
            return Ok(());
        }
        Err(format!("is declared as {self}, but its type is {actual}"))
    }

    /// Returns the flag among `flags` that forbids this access.
    pub(super) fn ruled_out_by(self, flags: MemoryFlags) -> Option<MemoryFlags> {
        let against = match self {
            Self::Input => MemoryFlags::WRITE_ONLY,
            Self::Output => MemoryFlags::READ_ONLY,
            Self::InOut => MemoryFlags::READ_ONLY | MemoryFlags::WRITE_ONLY,
        };
        Some(flags & against).filter(|flag| !flag.is_empty())
    }
}

impl Extent {
    /// Returns the bytes that are touched, or the largest number if they are more; `None` if any size will do.
    pub(super) fn bytes(self, element: usize, items: usize, groups: usize) -> Option<usize> {
        let elements = match self {
            Self::PerItem(elements) => elements.saturating_mul(items),
            Self::PerGroup(elements) => elements.saturating_mul(groups),
            Self::Fixed(elements) => elements,
            Self::Whole => return None,
        };
        Some(elements.saturating_mul(element))
    }
}

/// The kind of argument that a parameter takes.
///
/// ```
/// use binpool_allocators::{Backend, QueueOrder};
/// use binpool_opencl::{Argument, ClProgram, Extent, OpenClBackend, Parameter, ParameterKind};
///
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let source = "kernel void fill(global float *data) { data[get_global_id(0)] = 2.0f; }";
/// # let program = ClProgram::build(&backend, source, "")?;
/// # // SAFETY: each work item writes the float of its id, and touches nothing else.
/// # let fill = unsafe { program.kernel("fill", &[Parameter::output::<f32>(Extent::PerItem(1))]) }?;
/// // kernel void fill(global float *data)
/// let two = Argument::value(&2.0_f32);
/// assert_eq!((fill.parameters()[0].kind(), two.kind()), (ParameterKind::Memory, ParameterKind::Value));
/// let refused = fill.launch(&queue, &[4]).argument(two).enqueue().unwrap_err();
/// assert_eq!(refused.to_string(), "parameter 0 of fill takes memory, but was given a value");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ParameterKind {
    /// Memory of the device.
    Memory,
    /// A value.
    Value,
    /// Local memory of a work group.
    Local,
    /// An image.
    Image,
    /// A sampler.
    Sampler,
    /// A pipe.
    Pipe,
}

impl fmt::Display for ParameterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Value => "a value",
            Self::Local => "local memory",
            Self::Image => "an image",
            Self::Sampler => "a sampler",
            Self::Pipe => "a pipe",
        })
    }
}

impl fmt::Display for ParameterAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Input => "read only",
            Self::Output => "written",
            Self::InOut => "read and written",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_count_elements_and_never_wrap() {
        assert_eq!(Extent::PerItem(2).bytes(4, 100, 7), Some(800));
        assert_eq!(Extent::PerGroup(2).bytes(4, 100, 7), Some(56));
        assert_eq!(Extent::Fixed(3).bytes(4, 100, 7), Some(12));
        assert_eq!(Extent::Whole.bytes(4, 100, 7), None);
        let huge = Extent::PerItem(usize::MAX / 2);
        assert_eq!(huge.bytes(16, 3, 1), Some(usize::MAX));
    }
}
