//! What a launch passes for a parameter.

use std::fmt;

use binpool_allocators::AsMemory;
use bytemuck::Pod;
use smallvec::SmallVec;

use super::{LocalMemory, ParameterKind};
use crate::{backend::OpenClBackend, image::ClImage, pipe::ClPipe, sampler::ClSampler};

/// What a launch passes for one parameter.
///
/// Most launches pass them by the methods of [`Launch`](super::Launch); a list that is made beforehand is passed by
/// [`arguments`](super::Launch::arguments).
///
/// ```compile_fail,E0277
/// use binpool_opencl::Argument;
///
/// // A pointer of the host is no value for a kernel.
/// let argument = Argument::value(&"text");
/// ```
#[derive(Clone)]
pub struct Argument<'a> {
    pub(super) body: Body<'a>,
}

#[derive(Clone)]
pub(super) enum Body<'a> {
    Memory(&'a dyn AsMemory<OpenClBackend>),
    Value(SmallVec<[u8; 16]>),
    Local(LocalMemory),
    Image(&'a ClImage),
    Sampler(&'a ClSampler),
    Pipe(&'a ClPipe),
}

impl<'a> Argument<'a> {
    /// Memory: a buffer, shared virtual memory, a region of either, or a block of a pool.
    #[must_use]
    pub fn memory(memory: &'a dyn AsMemory<OpenClBackend>) -> Self {
        let body = Body::Memory(memory);
        Self { body }
    }

    /// A value, by its bytes.
    #[must_use]
    pub fn value<T: Pod>(value: &T) -> Self {
        let body = Body::Value(SmallVec::from_slice(bytemuck::bytes_of(value)));
        Self { body }
    }

    /// Local memory.
    #[must_use]
    pub fn local(local: LocalMemory) -> Self {
        let body = Body::Local(local);
        Self { body }
    }

    /// An image.
    #[must_use]
    pub fn image(image: &'a ClImage) -> Self {
        let body = Body::Image(image);
        Self { body }
    }

    /// A sampler.
    #[must_use]
    pub fn sampler(sampler: &'a ClSampler) -> Self {
        let body = Body::Sampler(sampler);
        Self { body }
    }

    /// A pipe.
    #[must_use]
    pub fn pipe(pipe: &'a ClPipe) -> Self {
        let body = Body::Pipe(pipe);
        Self { body }
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> ParameterKind {
        match &self.body {
            Body::Memory(_) => ParameterKind::Memory,
            Body::Value(_) => ParameterKind::Value,
            Body::Local(_) => ParameterKind::Local,
            Body::Image(_) => ParameterKind::Image,
            Body::Sampler(_) => ParameterKind::Sampler,
            Body::Pipe(_) => ParameterKind::Pipe,
        }
    }
}

impl fmt::Debug for Argument<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Argument");
        debug.field("kind", &self.kind());
        match &self.body {
            Body::Memory(memory) => debug.field("bytes", &memory.size()),
            Body::Value(bytes) => debug.field("bytes", &bytes.len()),
            Body::Local(local) => debug.field("local", local),
            Body::Image(image) => debug.field("image", image),
            Body::Sampler(sampler) => debug.field("sampler", sampler),
            Body::Pipe(pipe) => debug.field("pipe", pipe),
        };
        debug.finish()
    }
}
