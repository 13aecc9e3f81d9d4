//! CUDA's devices.

use binpool::Error;
use binpool_cuda::{CudaBackend, CudaDevice};

use crate::{Device, cuda_use::CudaUse, devices::PageDevice};

impl PageDevice for CudaDevice {
    type Backend = CudaBackend;

    const BACKEND: &'static str = "cuda";
    const OF: &'static str = "CUDA";

    fn all() -> Result<Vec<Self>, Error> {
        Self::all()
    }

    fn name(&self) -> &str {
        self.name()
    }

    fn is_gpu(&self) -> bool {
        true
    }

    fn total_bytes(&self) -> u64 {
        self.total_bytes() as u64
    }

    fn has_pages(&self) -> Option<bool> {
        None
    }

    fn open(&self) -> Result<CudaBackend, Error> {
        self.backend()
    }

    fn for_replays(backend: CudaBackend) -> Device {
        Device::with_pages(Self::BACKEND, backend, |backend| {
            Ok(Box::new(CudaUse::new(backend)?))
        })
    }
}
