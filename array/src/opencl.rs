//! Kernels of an OpenCL device.

use std::sync::Arc;

use binpool::Error;
use binpool_opencl::{
    ClKernel, ClProgram, ClQueue, DeviceSelector, Extent, KernelError, OpenClBackend, Parameter,
};

use crate::{BinaryOperation, Kernels, Operands};

const SOURCE: &str = "
#define OPERATION(name, operator)                                                                  \
    kernel void name(global const float *left, global const float *right, global float *result)     \
    {                                                                                              \
        size_t i = get_global_id(0);                                                               \
        result[i] = left[i] operator right[i];                                                     \
    }

OPERATION(add, +)
OPERATION(subtract, -)
OPERATION(multiply, *)
";

const PER_ITEM: Extent = Extent::PerItem(1);
const PARAMETERS: [Parameter; 3] = [
    Parameter::input::<f32>(PER_ITEM),
    Parameter::input::<f32>(PER_ITEM),
    Parameter::output::<f32>(PER_ITEM),
];

/// Element-wise kernels for OpenCL devices. Clones are the same kernels.
#[derive(Clone, Debug)]
pub struct OpenClKernels {
    built: Arc<Built>,
}

/// In the order of [`BinaryOperation::ALL`].
#[derive(Debug)]
struct Built([ClKernel; 3]);

impl OpenClKernels {
    /// The kernels for a backend, which are built once for its context.
    ///
    /// # Errors
    ///
    /// The compiler's, with its log.
    pub fn new(backend: &OpenClBackend) -> Result<Self, KernelError> {
        let built = backend.cached((), || {
            let program = ClProgram::build(backend, SOURCE, "")?;
            let [add, subtract, multiply] = BinaryOperation::ALL.map(|operation| {
                // SAFETY: (1) a work item touches the float of its id in each argument, and nothing else; (2) it
                // writes the result only.
                unsafe { program.kernel(operation.name(), &PARAMETERS) }
            });
            Ok::<_, KernelError>(Built([add?, subtract?, multiply?]))
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
        operands: &Operands<'_, OpenClBackend>,
    ) -> Result<(), Error> {
        self.built.0[operation as usize]
            .launch(queue, &[operands.elements])
            .memory(operands.left)
            .memory(operands.right)
            .memory(operands.result)
            .enqueue()?;
        Ok(())
    }
}
