//! What a launch passes for a parameter.

use std::fmt;

use binpool_allocators::AsMemory;
use bytemuck::Pod;
use smallvec::SmallVec;

use super::{LocalMemory, ParameterKind};
use crate::{access::Use, backend::OpenClBackend, sys::kernel::ArgumentValue};

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
    Object(ObjectArgument<'a>),
}

/// An argument that is an object of its own: an image, a sampler or a pipe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObjectArgument<'a> {
    pub(crate) kind: ParameterKind,
    /// The context that it belongs to, to compare.
    pub(crate) context: usize,
    pub(crate) value: ArgumentValue<'a>,
    /// The memory that the kernel uses through it, if any. How it does is the parameter's to say.
    pub(crate) used: Option<Use<'a>>,
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

    /// An image, a sampler or a pipe.
    #[allow(dead_code, reason = "the door for images, samplers and pipes")]
    pub(crate) fn object(object: ObjectArgument<'a>) -> Self {
        let body = Body::Object(object);
        Self { body }
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> ParameterKind {
        match &self.body {
            Body::Memory(_) => ParameterKind::Memory,
            Body::Value(_) => ParameterKind::Value,
            Body::Local(_) => ParameterKind::Local,
            Body::Object(object) => object.kind,
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
            Body::Object(_) => &mut debug,
        };
        debug.finish()
    }
}
