//! Kernels of a CUDA device, as texts of PTX. Its maps are copies.

#![expect(
    unsafe_code,
    reason = "the caller of a launch promises what it touches"
)]

use binpool::Error;
use binpool_cuda::{Argument, CudaBackend, CudaKernel, CudaModule, CudaQueue, Grid};

use crate::{
    BinaryOperation, CopiesMaps, Reduction,
    by_address::{GROUP, KernelsByAddress, Launch},
};

/// The version that CUDA 10.1 and devices of 2014 support.
const HEADER: &str = ".version 6.4\n.target sm_52\n.address_size 64\n";
const ELEMENT_WISE: &str = include_str!("element_wise.ptx");
const REDUCTION: &str = include_str!("reduction.ptx");

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
            // Not a number: the minimum and the maximum with it are the other operand.
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

/// The kernels for CUDA devices.
pub type CudaKernels = KernelsByAddress<CudaKernel>;

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

impl Launch for CudaKernel {
    type Backend = CudaBackend;

    // SAFETY: a contract of the trait: the arguments are the kernel's parameters, and it is in order with others.
    unsafe fn launch(
        &self,
        queue: &CudaQueue,
        groups: usize,
        arguments: &[Argument<'_, CudaBackend>],
    ) -> Result<(), Error> {
        // The driver refuses more than 2^31, which have more elements than any device.
        let grid = Grid {
            blocks: [u32::try_from(groups).unwrap_or(u32::MAX), 1, 1],
            threads: [GROUP, 1, 1],
            shared_bytes: 0,
        };
        // SAFETY: As the caller promises.
        unsafe { self.launch(queue, grid, arguments, &[]) }?;
        Ok(())
    }
}

impl CopiesMaps for CudaBackend {}
