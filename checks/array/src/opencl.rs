//! Kernels of an OpenCL device. Its maps are the runtime's.

#![expect(
    unsafe_code,
    reason = "the caller that makes a kernel promises what it touches"
)]

use std::sync::Arc;

use binpool::{AsMemory, Error, Region};
use binpool_opencl::{
    ClKernel, ClProgram, ClQueue, DeviceSelector, Extent, LocalMemory, Map, MapMut, OpenClBackend,
    OpenClError, Parameter,
};

use crate::{BinaryOperation, HostMaps, Kernels, Reduction};

const SOURCE: &str = include_str!("kernels.cl");

// Blocks are passed as whole buffers with offsets: on NVIDIA's driver a view of a block costs 4 to 1000 microseconds at its first
// launch, the more the more of them a buffer has.
const BINARY: [Parameter; 6] = [
    Parameter::input::<f32>(Extent::PerItem(1)),
    Parameter::offset_u64(0),
    Parameter::input::<f32>(Extent::PerItem(1)),
    Parameter::offset_u64(2),
    Parameter::output::<f32>(Extent::PerItem(1)),
    Parameter::offset_u64(4),
];

const REDUCTION: [Parameter; 6] = [
    Parameter::input::<f32>(Extent::Whole),
    Parameter::offset_u64(0),
    Parameter::length_u64(0),
    Parameter::output::<f32>(Extent::PerGroup(1)),
    Parameter::offset_u64(3),
    Parameter::local::<f32>(Extent::PerItem(1)),
];

/// The work items of a group of a reduction. Devices with smaller groups refuse it.
const GROUP: usize = 128;

/// How many elements of a reduction have a group of their own, as long as there are no more groups than one group
/// reduces in the next step.
const REDUCED: usize = 8 * GROUP;

/// The kernels for OpenCL devices. Clones are the same kernels.
#[derive(Clone, Debug)]
pub struct OpenClKernels {
    built: Arc<Built>,
}

#[derive(Debug)]
struct Built {
    /// In the order of [`BinaryOperation::ALL`].
    binary: [ClKernel; 3],
    /// In the order of [`Reduction::ALL`].
    reductions: [ClKernel; 3],
}

impl OpenClKernels {
    /// The kernels for a backend, which are built once for its context.
    ///
    /// # Errors
    ///
    /// The compiler's, with its log.
    pub fn new(backend: &OpenClBackend) -> Result<Self, OpenClError> {
        let built = backend.cached((), || {
            let program = ClProgram::build(backend, SOURCE, "")?;
            let [add, subtract, multiply] = BinaryOperation::ALL.map(|operation| {
                // SAFETY: (1) a work item reads the float of its id of each operand and writes that of the result; (2) it
                // writes the result only; (3) launches have one dimension, so that ids differ.
                unsafe { program.kernel(operation.name(), &BINARY) }
            });
            let [sum, minimum, maximum] = Reduction::ALL.map(|reduction| {
                // SAFETY: (1) a work item reads floats within the length; those of a group share as many floats of
                // local memory as they are, and its first one writes the result of its number; (2) it writes nothing
                // else; (3) launches have one dimension, so that numbers differ. All items of a group pass the same
                // barriers, which stand between a write to local memory and what another item does there.
                unsafe { program.kernel(reduction.name(), &REDUCTION) }
            });
            Ok::<_, OpenClError>(Built {
                binary: [add?, subtract?, multiply?],
                reductions: [sum?, minimum?, maximum?],
            })
        })?;
        Ok(Self { built })
    }
}

/// A device, and the kernels for it.
///
/// # Errors
///
/// No such device, no OpenCL at all, or a failure of the runtime or its compiler.
pub fn open_opencl(selector: &DeviceSelector) -> Result<(OpenClBackend, OpenClKernels), Error> {
    let backend = OpenClBackend::open(selector)
        .map_err(|error| Error::backend("opening an OpenCL device", None, error))?;
    let kernels = OpenClKernels::new(&backend)?;
    Ok((backend, kernels))
}

impl Kernels<OpenClBackend> for OpenClKernels {
    fn enqueue(
        &self,
        _backend: &OpenClBackend,
        queue: &ClQueue,
        operation: BinaryOperation,
        [left, right]: [&dyn AsMemory<OpenClBackend>; 2],
        result: &dyn AsMemory<OpenClBackend>,
    ) -> Result<(), Error> {
        self.built.binary[operation as usize]
            .launch(queue, &[result.size() / size_of::<f32>()])
            .memory(left)
            .memory(right)
            .memory(result)
            .enqueue()?;
        Ok(())
    }

    fn partial_results(&self, elements: usize) -> usize {
        elements.div_ceil(REDUCED).min(REDUCED)
    }

    fn enqueue_reduction(
        &self,
        _backend: &OpenClBackend,
        queue: &ClQueue,
        reduction: Reduction,
        operand: &dyn AsMemory<OpenClBackend>,
        results: &dyn AsMemory<OpenClBackend>,
    ) -> Result<(), Error> {
        self.built.reductions[reduction as usize]
            .launch(queue, &[results.size() / size_of::<f32>() * GROUP])
            .local_size(&[GROUP])
            .memory(operand)
            .memory(results)
            .local(LocalMemory::per_item::<f32>(1))
            .enqueue()?;
        Ok(())
    }
}

impl HostMaps for OpenClBackend {
    type Map<'m> = Map<'m, f32>;
    type MapMut<'m> = MapMut<'m, f32>;

    fn map_elements<'m>(
        &self,
        queue: &ClQueue,
        memory: &'m impl AsMemory<Self>,
        region: Region,
    ) -> Result<Map<'m, f32>, Error> {
        self.map(queue, memory, region)
    }

    fn map_elements_mut<'m>(
        &self,
        queue: &ClQueue,
        memory: &'m impl AsMemory<Self>,
        region: Region,
    ) -> Result<MapMut<'m, f32>, Error> {
        self.map_mut(queue, memory, region)
    }

    fn unmap(map: MapMut<'_, f32>) -> Result<(), Error> {
        map.unmap().map(drop)
    }
}
