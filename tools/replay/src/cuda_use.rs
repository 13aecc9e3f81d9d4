//! The last use of a block on a CUDA device that is behind: a kernel that takes a given time.

use std::time::Duration;

use binpool::Error;
use binpool_cuda::{Argument, CudaBackend, CudaKernel, CudaModule, Grid};

use crate::{behind::LastUse, touch::InUse};

/// Waits by the clock of the device, and then writes the first byte as it is.
const SOURCE: &str = "
.version 6.4
.target sm_52
.address_size 64

.visible .entry last_use(.param .u64 bytes, .param .u64 nanoseconds)
{
    .reg .pred %is_early;
    .reg .b32 %byte;
    .reg .b64 %bytes, %takes, %start, %now;

    ld.param.u64 %bytes, [bytes];
    ld.param.u64 %takes, [nanoseconds];
    mov.u64 %start, %globaltimer;
wait:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %start;
    setp.lt.u64 %is_early, %now, %takes;
    @%is_early bra wait;
    ld.global.u8 %byte, [%bytes];
    st.global.u8 [%bytes], %byte;
    ret;
}
";

/// Kernels that use a block for a given time.
pub(crate) struct CudaUse {
    kernel: CudaKernel,
}

impl CudaUse {
    /// Loads the kernel.
    pub(crate) fn new(backend: &CudaBackend) -> Result<Self, Error> {
        Ok(Self {
            kernel: CudaModule::load_ptx(backend, SOURCE)?.kernel("last_use")?,
        })
    }
}

impl LastUse<CudaBackend> for CudaUse {
    fn enqueue(&self, block: &InUse<'_, CudaBackend>, takes: Duration) -> Result<(), Error> {
        let nanoseconds = u64::try_from(takes.as_nanos()).unwrap_or(u64::MAX);
        let arguments = [Argument::Memory(block.memory), Argument::U64(nanoseconds)];
        let grid = Grid::of_threads(1, 1);
        // SAFETY: These are its parameters. It reads and writes the first byte of the block, which has at least one, and which commands of
        // other streams do not use until the replay frees it.
        let launched = unsafe { self.kernel.launch(block.queue, grid, &arguments, &[]) };
        launched.map(drop)
    }
}
