//! Images, samplers and pipes as arguments of kernels.

use binpool_allocators::{ObjectKind, runtime::Access};
use bytemuck::Pod;

use super::{
    argument::Argument,
    launch::Launch,
    parameter::{Parameter, ParameterAccess, ParameterRole},
    taken::Taken,
};
use crate::{
    context::Context,
    error::OpenClError,
    image::{ClImage, ClSampler, ImageKind},
    order::memory_use::MemoryUse,
    pipe::ClPipe,
    submit::foreign_unless,
    sys::kernel::ArgumentValue,
};

impl Parameter {
    /// An image, with the kind and the access of its type in the kernel.
    pub const fn image(kind: ImageKind, access: ParameterAccess) -> Self {
        Self(ParameterRole::Image { kind, access })
    }

    /// A sampler.
    pub const fn sampler() -> Self {
        Self(ParameterRole::Sampler)
    }

    /// A pipe of such packets, with the access of its type in the kernel.
    pub const fn pipe<T: Pod>(access: ParameterAccess) -> Self {
        Self(ParameterRole::Pipe {
            access,
            packet: size_of::<T>(),
        })
    }
}

impl<'a> Launch<'a> {
    /// Passes an image for the next parameter.
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::ImagePart;
    /// # use binpool_opencl::{
    /// #     ChannelOrder, ChannelType, ClProgram, HostPitches, ImageFormat, ImageKind, ImageRegion, ImageShape, OpenClBackend,
    /// #     Parameter, ParameterAccess,
    /// # };
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnsignedInt8);
    /// # let shape = ImageShape::d2(2, 1);
    /// # let flags = MemoryFlags::empty();
    /// # let dark =
    /// #     backend.create_image_with_data(flags, format, shape, &[[10_u8; 4], [20; 4]], HostPitches::TIGHT)?;
    /// let source = "kernel void brighten(read_only image2d_t from, write_only image2d_t to)
    ///     {
    ///         int2 at = (int2)(get_global_id(0), get_global_id(1));
    ///         if (all(at < get_image_dim(from)) && all(at < get_image_dim(to)))
    ///             write_imageui(to, at, read_imageui(from, at) * 2u);
    ///     }";
    /// # let program = ClProgram::build(&backend, source, "")?;
    /// let accesses = [ParameterAccess::Input, ParameterAccess::Output];
    /// let parameters = accesses.map(|access| Parameter::image(ImageKind::D2, access));
    /// // SAFETY: it touches pixels of the two images only, each work item those at its ids.
    /// let brighten = unsafe { program.kernel("brighten", &parameters)?.in_dimensions(2) };
    /// let bright = backend.create_image(flags, format, shape)?;
    /// let launch = brighten.launch(&queue, &[2, 1]).image(&dark);
    /// launch.image(&bright).enqueue()?;
    ///
    /// let mut pixels = [[0_u8; 4]; 2];
    /// let all = ImageRegion::all(shape);
    /// backend.read_part(&queue, ImagePart::new(&bright, all), &mut pixels)?;
    /// assert_eq!(pixels, [[20; 4], [40; 4]]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn image(self, image: &'a ClImage) -> Self {
        self.argument(Argument::Image(image))
    }

    /// Passes a sampler for the next parameter.
    ///
    /// The kernel names the coordinates, and the sampler decides which value is read there:
    ///
    /// ```
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::{
    /// #     Addressing, ChannelOrder, ChannelType, ClProgram, ClSampler, Extent, Filter, HostPitches, ImageFormat, ImageKind,
    /// #     ImageShape, OpenClBackend, Parameter, ParameterAccess,
    /// # };
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let source = "kernel void look_up(read_only image2d_t picture, sampler_t sampler, float2 at, global float4 *color)
    /// #     { color[get_global_id(0)] = read_imagef(picture, sampler, at); }";
    /// # let program = ClProgram::build(&backend, source, "")?;
    /// # let parameters = [
    /// #     Parameter::image(ImageKind::D2, ParameterAccess::Input),
    /// #     Parameter::sampler(),
    /// #     Parameter::value::<[f32; 2]>(),
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
    /// # let color = backend.create_buffer(16, MemoryFlags::empty())?;
    /// // A picture of two pixels, 0.25 and 0.75. In coordinates from 0.0 to 1.0, the second one is from 0.5 on.
    /// let sampler = ClSampler::new(&backend, true, Addressing::ClampToEdge, Filter::Nearest)?;
    /// let launch = look_up.launch(&queue, &[1]).image(&image).sampler(&sampler);
    /// launch.value(&[0.6_f32, 0.5]).memory(&color).enqueue()?;
    /// assert_eq!(*backend.map::<f32>(&queue, &color, 0..16)?, [0.75; 4]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sampler(self, sampler: &'a ClSampler) -> Self {
        self.argument(Argument::Sampler(sampler))
    }

    /// Passes a pipe for the next parameter.
    ///
    /// One kernel puts packets in, and another takes them out. The launches run one after the other, on any queues:
    ///
    /// ```no_run
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::{ClPipe, ClProgram, Extent, OpenClBackend, Parameter, ParameterAccess};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// let source = "
    /// kernel void put(global const uint *words, write_only pipe uint packets)
    /// { write_pipe(packets, &words[get_global_id(0)]); }
    /// kernel void take(read_only pipe uint packets, global uint *words)
    /// { read_pipe(packets, &words[get_global_id(0)]); }";
    /// let program = ClProgram::build(&backend, source, "-cl-std=CL2.0")?;
    /// let words = Parameter::input::<u32>(Extent::PerItem(1));
    /// let put = [words, Parameter::pipe::<u32>(ParameterAccess::Output)];
    /// // SAFETY: each work item reads the word of its id, and nothing else.
    /// let put = unsafe { program.kernel("put", &put) }?;
    /// # let taken = Parameter::output::<u32>(Extent::PerItem(1));
    /// # let take = [Parameter::pipe::<u32>(ParameterAccess::Input), taken];
    /// # // SAFETY: each work item writes the word of its id, and nothing else.
    /// # let take = unsafe { program.kernel("take", &take) }?;
    ///
    /// let pipe = ClPipe::new(&backend, 4, 16)?; // 16 packets of 4 bytes
    /// # let words = backend.create_buffer_from(&[7_u32; 16], MemoryFlags::empty())?;
    /// # let taken = backend.create_buffer(64, MemoryFlags::empty())?;
    /// let launch = put.launch(&queue, &[16]).memory(&words);
    /// launch.pipe(&pipe).enqueue()?;
    /// let launch = take.launch(&queue, &[16]).pipe(&pipe);
    /// launch.memory(&taken).enqueue()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pipe(self, pipe: &'a ClPipe) -> Self {
        self.argument(Argument::Pipe(pipe))
    }

    /// Returns what the kernel takes for a parameter of this role, if the argument is of its kind.
    pub(super) fn taken_object<'s>(
        &self,
        index: usize,
        role: ParameterRole,
        argument: &'s Argument<'_>,
    ) -> Result<Taken<'s>, OpenClError> {
        match (role, argument) {
            (ParameterRole::Image { kind, access }, Argument::Image(image)) => {
                let given = image.shape().kind();
                if given != kind {
                    return Err(
                        self.refused(index, format!("is a {kind}, but a {given} was given"))
                    );
                }
                self.check_flags(Some(index), access, image.flags())?;
                let value = ArgumentValue::Memory(image.handle());
                self.object(value, image.context(), Some(image.used(access.into())))
            }
            (ParameterRole::Sampler, Argument::Sampler(sampler)) => {
                let value = ArgumentValue::Sampler(sampler.handle());
                self.object(value, sampler.context(), None)
            }
            (ParameterRole::Pipe { packet, .. }, Argument::Pipe(pipe)) => {
                let given = usize::try_from(pipe.packet_bytes()?).unwrap_or(usize::MAX);
                if given != packet {
                    let problem = format!("takes packets of {packet} bytes, but was given {given}");
                    return Err(self.refused(index, problem));
                }
                // A kernel that reads packets takes them out, which is a write.
                let value = ArgumentValue::Memory(pipe.handle());
                self.object(value, pipe.context(), Some(pipe.used(Access::Write)))
            }
            // An object of another kind was refused before.
            _ => Err(self.refused(index, "takes another kind of argument")),
        }
    }

    /// Returns an image, a sampler or a pipe.
    fn object<'s>(
        &self,
        value: ArgumentValue<'s>,
        context: &Context,
        used: Option<MemoryUse<'s>>,
    ) -> Result<Taken<'s>, OpenClError> {
        foreign_unless(context.is_same(self.queue.context()), ObjectKind::Memory)?;
        Ok(Taken::Value(value, used))
    }
}
