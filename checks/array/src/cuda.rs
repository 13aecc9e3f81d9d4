//! Kernels of a CUDA device, as texts of PTX. Its maps are copies.

#![expect(
    unsafe_code,
    reason = "the caller of a launch promises what it touches"
)]

use binpool::{AsMemory, Error, InvalidRequest};
use binpool_cuda::{Argument, CudaBackend, CudaKernel, CudaModule, CudaQueue, Grid};

use crate::{BinaryOperation, CopiesMaps, Kernels, Reduction, kernels::length};

/// The version that CUDA 10.1 and devices of 2014 support.
const HEADER: &str = ".version 6.4\n.target sm_52\n.address_size 64\n";
const ELEMENT_WISE: &str = include_str!("element_wise.ptx");
const REDUCTION: &str = include_str!("reduction.ptx");

/// The threads of a block.
const GROUP: u32 = 128;

/// How many elements of a reduction have a block of their own, as long as there are no more blocks than one block reduces
/// in the next step.
const REDUCED: usize = 8 * GROUP as usize;

/// The text of all kernels.
fn source() -> String {
    let mut source = HEADER.to_owned();
    for operation in BinaryOperation::ALL {
        let combine = match operation {
            BinaryOperation::Add => "add.rn.f32",
            BinaryOperation::Subtract => "sub.rn.f32",
            BinaryOperation::Multiply => "mul.rn.f32",
        };
        let kernel = ELEMENT_WISE.replace("NAME", &entry(operation.name()));
        source += &kernel.replace("COMBINE", combine);
    }
    for reduction in Reduction::ALL {
        let (nothing, combine) = match reduction {
            Reduction::Sum => ("0f00000000", "add.rn.f32"),
            // Not a number, of which the other operand is the smaller and the larger.
            Reduction::Minimum => ("0f7FFFFFFF", "min.f32"),
            Reduction::Maximum => ("0f7FFFFFFF", "max.f32"),
        };
        let kernel = REDUCTION.replace("NAME", &entry(reduction.name()));
        let kernel = kernel.replace("GROUP", &GROUP.to_string());
        source += &kernel
            .replace("NOTHING", nothing)
            .replace("COMBINE", combine);
    }
    source
}

/// The name of a kernel. PTX has instructions of the shorter names.
fn entry(name: &str) -> String {
    format!("array_{name}")
}

/// The kernels for CUDA devices. Clones are the same kernels.
#[derive(Clone, Debug)]
pub struct CudaKernels {
    /// In the order of [`BinaryOperation::ALL`].
    binary: [CudaKernel; 3],
    /// In the order of [`Reduction::ALL`].
    reductions: [CudaKernel; 3],
}

impl CudaKernels {
    /// The kernels for a backend, which the driver compiles.
    ///
    /// # Errors
    ///
    /// A failure of the driver.
    pub fn new(backend: &CudaBackend) -> Result<Self, Error> {
        let module = CudaModule::load_ptx(backend, &source())?;
        let kernel = |name| module.kernel(&entry(name));
        let [add, subtract, multiply] = BinaryOperation::ALL.map(|of| kernel(of.name()));
        let [sum, minimum, maximum] = Reduction::ALL.map(|of| kernel(of.name()));
        Ok(Self {
            binary: [add?, subtract?, multiply?],
            reductions: [sum?, minimum?, maximum?],
        })
    }
}

/// A device by its number, and the kernels for it.
///
/// # Errors
///
/// No driver (the error says how to install one); no such device; a failure of the driver.
pub fn open_cuda(ordinal: u32) -> Result<(CudaBackend, CudaKernels), Error> {
    let backend = CudaBackend::open(ordinal)?;
    let kernels = CudaKernels::new(&backend)?;
    Ok((backend, kernels))
}

/// The pointer and the place of the first element, as two arguments.
fn slice<'m>(
    memory: &'m dyn AsMemory<CudaBackend>,
    queue: &CudaQueue,
) -> Result<[Argument<'m>; 2], Error> {
    let start = memory.start() / size_of::<f32>();
    let memory = memory.memory_on(queue).ok_or(InvalidRequest::ZeroSize)?;
    Ok([Argument::Memory(memory), Argument::U64(start as u64)])
}

/// A grid of this many blocks. The driver refuses more than 2^31, which have more elements than any device.
fn grid(blocks: usize) -> Grid {
    Grid {
        blocks: [u32::try_from(blocks).unwrap_or(u32::MAX), 1, 1],
        threads: [GROUP, 1, 1],
        shared_bytes: 0,
    }
}

impl Kernels<CudaBackend> for CudaKernels {
    fn enqueue(
        &self,
        _backend: &CudaBackend,
        queue: &CudaQueue,
        operation: BinaryOperation,
        [left, right]: [&dyn AsMemory<CudaBackend>; 2],
        result: &dyn AsMemory<CudaBackend>,
    ) -> Result<(), Error> {
        let count = length(result);
        let slices = [
            slice(left, queue)?,
            slice(right, queue)?,
            slice(result, queue)?,
        ];
        let mut arguments = slices.concat();
        arguments.push(Argument::U64(count as u64));
        let kernel = &self.binary[operation as usize];
        // SAFETY: These are its parameters. A thread reads the float of its number of each operand, which are as long as the
        // result, and writes that of the result. The caller has put the command in order.
        unsafe { kernel.launch(queue, grid(count.div_ceil(GROUP as usize)), &arguments, &[]) }?;
        Ok(())
    }

    fn partial_results(&self, elements: usize) -> usize {
        elements.div_ceil(REDUCED).min(REDUCED)
    }

    fn enqueue_reduction(
        &self,
        _backend: &CudaBackend,
        queue: &CudaQueue,
        reduction: Reduction,
        operand: &dyn AsMemory<CudaBackend>,
        results: &dyn AsMemory<CudaBackend>,
    ) -> Result<(), Error> {
        let [data, start] = slice(operand, queue)?;
        let count = Argument::U64(length(operand) as u64);
        let [partial, partial_start] = slice(results, queue)?;
        let arguments = [data, start, count, partial, partial_start];
        let kernel = &self.reductions[reduction as usize];
        let grid = grid(length(results));
        // SAFETY: These are its parameters. It reads floats within the length, and the first thread of each block
        // writes the result of its number; there is one block for each result, and a block has a thread for each of the
        // floats of its shared memory. The caller has put the command in order.
        unsafe { kernel.launch(queue, grid, &arguments, &[]) }?;
        Ok(())
    }
}

impl CopiesMaps for CudaBackend {}
