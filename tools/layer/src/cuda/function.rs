//! The driver's functions that have to do with memory.

use std::ffi::c_int;

use crate::recording::Call;

/// What a call that succeeds answers.
pub(super) const SUCCESS: c_int = 0;
/// `CUDA_ERROR_INVALID_VALUE`.
pub(super) const INVALID_VALUE: c_int = 1;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(super) const OUT_OF_MEMORY: c_int = 2;
/// `CUDA_ERROR_NOT_FOUND`: what is answered where the driver lacks a function.
pub(super) const NOT_FOUND: c_int = 500;

/// A set of numbers by which the driver knows memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Space {
    /// Addresses.
    Memory,
    Array,
    MipmappedArray,
    /// Pages of virtual memory.
    Pages,
}

/// What a function does. Numbers are those of arguments, from 0 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Makes a block.
    Allocates(Allocates),
    /// Frees the block of an address or a handle.
    Frees {
        space: Space,
        block: usize,
        stream: Option<usize>,
    },
    /// Makes a further handle of the pages at an address.
    RetainsPages,
    /// Maps at an address, bytes of pages.
    MapsPages,
    /// Unmaps at an address, bytes.
    UnmapsPages,
    /// Ends a stream.
    DestroysStream,
    /// Ends a context.
    DestroysContext,
    /// Initializes the driver.
    Initializes,
    /// Retains, releases or resets the primary context of a device.
    RetainsPrimary,
    ReleasesPrimary,
    ResetsPrimary,
    /// Captures what follows on a stream, or ends that.
    BeginsCapture,
    EndsCapture,
    /// Lets other devices use memory.
    EnablesPeers,
    /// Gives a device another pool of its own.
    ChangesPools,
    /// Lets other devices use a pool.
    SharesPool,
    /// Makes a pool, or ends one.
    MakesPool,
    DestroysPool,
    /// Has a pool give back what it keeps.
    TrimsPool,
    /// Asks how much memory is free.
    AsksForMemory,
    /// Asks where the block of an address begins, and its bytes.
    AsksForRange,
    /// Asks for an attribute of an address, or for several.
    AsksForAttribute,
    AsksForAttributes,
    /// Asks for the address of a function.
    AsksForFunction,
}

impl Effect {
    /// Returns whether blocks may end with a call.
    pub(super) fn may_end_blocks(self) -> bool {
        matches!(
            self,
            Self::Frees { .. } | Self::UnmapsPages | Self::DestroysContext | Self::ResetsPrimary
        )
    }
}

/// How a function makes a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Allocates {
    pub(super) kind: &'static str,
    pub(super) space: Space,
    /// Where the address or the handle is written.
    pub(super) result: Place,
    pub(super) bytes: Bytes,
    pub(super) stream: Option<usize>,
    pub(super) way: Way,
}

/// Which streams may use a block, for the pool that it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Any stream may use it at once.
    Plain,
    /// Streams use it in the order of one of them.
    Ordered,
    /// As above, from a pool of the driver, which the third argument names.
    FromPool,
    /// It comes from no pool of the layer.
    Passed,
}

/// Where a result is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Where the first argument points.
    First,
    /// In the parameters of a graph's node.
    Node,
}

/// How many bytes a block has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bytes {
    /// The second argument.
    Second,
    /// Where the second argument points, times the fourth.
    Pitched,
    /// By the description of an array that the second argument points to, with a depth or without, and with levels or without.
    Array { has_depth: bool, has_levels: bool },
    /// In the parameters of a graph's node.
    Node,
}

/// The argument that has the parameters of a graph's node, or what the node frees.
pub(super) const NODE: usize = 4;

const fn memory(kind: &'static str, way: Way, stream: Option<usize>) -> Allocates {
    Allocates {
        kind,
        space: Space::Memory,
        result: Place::First,
        bytes: Bytes::Second,
        stream,
        way,
    }
}

const fn passed(kind: &'static str) -> Allocates {
    memory(kind, Way::Passed, None)
}

const fn array(space: Space, has_depth: bool) -> Effect {
    let has_levels = matches!(space, Space::MipmappedArray);
    Effect::Allocates(Allocates {
        space,
        bytes: Bytes::Array {
            has_depth,
            has_levels,
        },
        ..passed("array")
    })
}

const fn frees(space: Space, block: usize, stream: Option<usize>) -> Effect {
    Effect::Frees {
        space,
        block,
        stream,
    }
}

/// The functions with an effect. Variants for the per-thread default stream (`_ptsz`) have that of the others.
const EFFECTS: &[(&str, Effect)] = {
    use Effect as E;
    const DEVICE: Allocates = memory("device", Way::Plain, None);
    const PITCHED: Allocates = Allocates {
        bytes: Bytes::Pitched,
        ..passed("device")
    };
    const ASYNC: Allocates = memory("async pool", Way::Ordered, Some(2));
    const FROM_POOL: Allocates = memory("async pool", Way::FromPool, Some(3));
    const GRAPH: Allocates = Allocates {
        result: Place::Node,
        bytes: Bytes::Node,
        ..passed("graph")
    };
    const MAPPED: Allocates = Allocates {
        space: Space::Pages,
        ..passed("mapped")
    };
    &[
        ("cuMemAlloc_v2", E::Allocates(DEVICE)),
        ("cuMemAllocPitch_v2", E::Allocates(PITCHED)),
        ("cuMemFree_v2", frees(Space::Memory, 0, None)),
        ("cuMemAllocManaged", E::Allocates(passed("managed"))),
        ("cuMemAllocHost_v2", E::Allocates(passed("pinned"))),
        ("cuMemHostAlloc", E::Allocates(passed("pinned"))),
        ("cuMemFreeHost", frees(Space::Memory, 0, None)),
        ("cuMemAllocAsync", E::Allocates(ASYNC)),
        ("cuMemAllocFromPoolAsync", E::Allocates(FROM_POOL)),
        ("cuMemFreeAsync", frees(Space::Memory, 0, Some(1))),
        ("cuGraphAddMemAllocNode", E::Allocates(GRAPH)),
        ("cuGraphAddMemFreeNode", frees(Space::Memory, NODE, None)),
        ("cuArrayCreate_v2", array(Space::Array, false)),
        ("cuArray3DCreate_v2", array(Space::Array, true)),
        ("cuArrayDestroy", frees(Space::Array, 0, None)),
        ("cuMipmappedArrayCreate", array(Space::MipmappedArray, true)),
        (
            "cuMipmappedArrayDestroy",
            frees(Space::MipmappedArray, 0, None),
        ),
        ("cuMemCreate", E::Allocates(MAPPED)),
        ("cuMemRelease", frees(Space::Pages, 0, None)),
        ("cuMemRetainAllocationHandle", E::RetainsPages),
        ("cuMemMap", E::MapsPages),
        ("cuMemUnmap", E::UnmapsPages),
        ("cuStreamDestroy", E::DestroysStream),
        ("cuStreamDestroy_v2", E::DestroysStream),
        ("cuInit", E::Initializes),
        ("cuCtxDestroy", E::DestroysContext),
        ("cuCtxDestroy_v2", E::DestroysContext),
        ("cuDevicePrimaryCtxRetain", E::RetainsPrimary),
        ("cuDevicePrimaryCtxRelease", E::ReleasesPrimary),
        ("cuDevicePrimaryCtxRelease_v2", E::ReleasesPrimary),
        ("cuDevicePrimaryCtxReset", E::ResetsPrimary),
        ("cuDevicePrimaryCtxReset_v2", E::ResetsPrimary),
        ("cuStreamBeginCapture", E::BeginsCapture),
        ("cuStreamBeginCapture_v2", E::BeginsCapture),
        ("cuStreamBeginCaptureToGraph", E::BeginsCapture),
        ("cuStreamEndCapture", E::EndsCapture),
        ("cuCtxEnablePeerAccess", E::EnablesPeers),
        ("cuMemPoolSetAccess", E::SharesPool),
        ("cuDeviceSetMemPool", E::ChangesPools),
        ("cuMemSetMemPool", E::ChangesPools),
        ("cuMemPoolCreate", E::MakesPool),
        ("cuMemPoolDestroy", E::DestroysPool),
        ("cuMemPoolTrimTo", E::TrimsPool),
        ("cuMemGetInfo_v2", E::AsksForMemory),
        ("cuMemGetAddressRange_v2", E::AsksForRange),
        ("cuPointerGetAttribute", E::AsksForAttribute),
        ("cuPointerGetAttributes", E::AsksForAttributes),
        ("cuGetProcAddress", E::AsksForFunction),
        ("cuGetProcAddress_v2", E::AsksForFunction),
    ]
};

/// How many functions have an effect, but for variants.
pub(super) const COUNT: usize = EFFECTS.len();

/// The suffix of functions for which stream 0 is the default stream of the thread.
const PER_THREAD_SUFFIX: &str = "_ptsz";

/// Handles of the default streams.
pub(super) const LEGACY: usize = 1;
pub(super) const PER_THREAD: usize = 2;

/// A function of the driver.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: &'static str,
    pub(super) effect: Effect,
    /// Counts its calls.
    pub(super) call: Call,
    is_per_thread: bool,
}

impl Function {
    /// Returns the function of a name, if it has an effect.
    pub(super) fn named(name: &'static str) -> Option<Self> {
        let base = name.strip_suffix(PER_THREAD_SUFFIX);
        let known = EFFECTS
            .iter()
            .find(|(known, _)| *known == base.unwrap_or(name));
        known.map(|(_, effect)| Self {
            name,
            effect: *effect,
            call: Call::new(name),
            is_per_thread: base.is_some(),
        })
    }

    /// Returns the names of a function with an effect and of its variant for the per-thread default stream.
    pub(super) fn names(number: usize) -> [String; 2] {
        let (name, _) = EFFECTS[number];
        [name.to_owned(), format!("{name}{PER_THREAD_SUFFIX}")]
    }

    /// Returns whether calls are noted in the recording.
    pub(super) fn is_recorded(&self) -> bool {
        use Effect as E;
        matches!(
            self.effect,
            E::Allocates(..)
                | E::Frees { .. }
                | E::RetainsPages
                | E::MapsPages
                | E::UnmapsPages
                | E::DestroysStream
                | E::DestroysContext
                | E::RetainsPrimary
                | E::ReleasesPrimary
                | E::ResetsPrimary
        )
    }

    /// The stream that a handle means to this function: 0 is the legacy default stream, or that of the thread.
    pub(super) fn stream_of(&self, handle: usize) -> usize {
        match handle {
            0 if self.is_per_thread => PER_THREAD,
            0 => LEGACY,
            stream => stream,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_known_by_name_with_their_variants() {
        let ordered = Function::named("cuMemAllocAsync_ptsz").unwrap();
        let expected = memory("async pool", Way::Ordered, Some(2));
        assert_eq!(ordered.effect, Effect::Allocates(expected));
        assert_eq!(ordered.stream_of(0), PER_THREAD);
        let plain = Function::named("cuMemFreeAsync").unwrap();
        assert_eq!(plain.effect, frees(Space::Memory, 0, Some(1)));
        assert_eq!((plain.stream_of(0), plain.stream_of(77)), (LEGACY, 77));
        assert!(Function::named("cuLaunchKernel").is_none());
    }
}
