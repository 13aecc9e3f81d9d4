//! The device that a trace is replayed on, and the kind of its memory.

use std::{fmt, sync::Arc, time::Duration};

use binpool::{
    Allocator, Backend, DeferredAllocator, DeviceLimits, Error, ImmediateAllocator, PoolOptions,
    SvmAllocator, SvmBackend, SvmGrain, VirtualMemoryAllocator,
};
use binpool_cuda::{CudaBackend, DriverPoolAllocator};
use binpool_mock::MockBackend;
use binpool_opencl::{DeviceSelector, OpenClBackend, OpenClError};

use crate::{
    Failure, Outcome, Profile, ReplayOptions, Touch,
    behind::{Behind, LastUse},
    capacity_search::smallest_capacity,
    cuda_commands::CudaCommands,
    cuda_use::CudaUse,
    devices::open_cuda,
    mock_kernels::{MockKernels, MockUse},
    opencl_kernels::OpenClKernels,
    opencl_use::OpenClUse,
    replay::{NewCommands, replay_with},
    rounds::DeviceGauges,
    stream_ordered::replay_in_stream_order,
    touch::Fill,
    watermark::Watermark,
};
use binpool::words::bytes;
use binpool_trace::Trace;

/// The device that a trace is replayed on.
#[derive(Clone, Debug)]
pub enum Device {
    /// A mock device with this profile, a fresh one for each replay.
    Mock(Profile),
    /// An OpenCL device.
    OpenCl(OpenClBackend),
    /// A CUDA device.
    Cuda(CudaBackend),
}

/// The allocator that a replay uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum AllocatorChoice {
    /// Buffers that are committed before the call returns.
    #[default]
    Immediate,
    /// Buffers that the device may turn out not to have room for when they are used.
    Deferred,
    /// Coarse-grained shared virtual memory.
    Svm,
    /// Fine-grained shared virtual memory.
    SvmFine,
    /// A memory pool of CUDA's driver. Each allocation waits until the memory is there for every queue.
    DriverPool,
    /// A memory pool of CUDA's driver as programs use it by themselves, to compare with: every block is allocated and freed on its own
    /// stream (cuMemAllocFromPoolAsync, cuMemFreeAsync), and the driver keeps what is free (with `--no-pool` alone).
    StreamOrdered,
    /// Pages that are mapped where they are wanted (`--virtual-memory`). The mock and CUDA have them; OpenCL has not.
    #[value(skip)]
    Pages,
}

impl fmt::Display for AllocatorChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Immediate => "immediate",
            Self::Deferred => "deferred",
            Self::Svm => "svm",
            Self::SvmFine => "svm-fine",
            Self::DriverPool => "driver-pool",
            Self::StreamOrdered => "stream-ordered",
            Self::Pages => "virtual-memory",
        })
    }
}

/// The settings of a replay.
#[derive(Clone, Debug)]
pub struct ReplaySettings {
    /// The allocator.
    pub allocator: AllocatorChoice,
    /// The pool's settings; `None` for no pool.
    pub pool: Option<PoolOptions>,
    /// The capacity in bytes; `None` for all that the device has.
    pub capacity_bytes: Option<u64>,
    /// What is enqueued on each block.
    pub touch: Touch,
    /// The number of threads that replay the trace over one pool: see [`ReplayOptions::threads`].
    pub threads: usize,
    /// How many times in a row the trace is replayed: see [`ReplayOptions::rounds`].
    pub rounds: usize,
    /// How far the device is behind the host: before a block is freed, a command is enqueued on it that ends so much later, and not before
    /// those before it on its queue. On the mock, by its own clock, in which an operation of the program takes 10 us and the calls of the
    /// device what the profile says, so that each replay is the same. `None` for commands that end at once on the mock, and when they do on
    /// a real device.
    pub behind: Option<Duration>,
}

/// A replay, and the time that the device's calls took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The result of the replay.
    pub outcome: Outcome,
    /// The time, predicted by the mock's cost model, or measured around the calls of the allocator.
    pub device_time: Duration,
}

impl Device {
    /// Opens an OpenCL device.
    ///
    /// # Errors
    ///
    /// The device does not exist, or there is no OpenCL.
    pub fn opencl(selector: &DeviceSelector) -> Result<Self, OpenClError> {
        OpenClBackend::open(selector).map(Self::OpenCl)
    }

    /// Opens a CUDA device.
    ///
    /// # Errors
    ///
    /// The device does not exist, or there is no driver.
    pub fn cuda(selector: &DeviceSelector) -> Result<Self, Error> {
        open_cuda(selector).map(Self::Cuda)
    }

    /// `mock`, `opencl` or `cuda`.
    #[must_use]
    pub fn backend_name(&self) -> &'static str {
        match self {
            Self::Mock(_) => "mock",
            Self::OpenCl(_) => "opencl",
            Self::Cuda(_) => "cuda",
        }
    }

    /// The device's name, for display.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Mock(profile) => profile.device().limits.device_name,
            Self::OpenCl(backend) => backend.limits().device_name.clone(),
            Self::Cuda(backend) => backend.limits().device_name.clone(),
        }
    }

    /// Describes the requests of a trace that this device can never serve, or can only by other limits than its own; `None` where it may fit.
    #[must_use]
    pub fn too_small_for(&self, trace: &Trace, capacity_bytes: Option<u64>) -> Option<String> {
        let (all, largest) = match self {
            Self::Mock(profile) => most_of(&profile.device().limits),
            Self::OpenCl(backend) => most_of(backend.limits()),
            Self::Cuda(backend) => most_of(backend.limits()),
        };
        let capacity = capacity_bytes.unwrap_or(all);
        let (peak, block) = (trace.peak_live_bytes(), trace.largest_block_bytes());
        let name = trace.name();
        if peak > capacity {
            return Some(format!(
                "{name} has up to {} live at once, and the capacity is {}: \
                 use a larger one, or --scale",
                bytes(peak),
                bytes(capacity)
            ));
        }
        let sizes = (bytes(block as u64), bytes(largest as u64));
        match self {
            _ if block <= largest => None,
            Self::Mock(profile) if trace.is_of_cuda() && profile.gives_as_cuda(trace) => None,
            Self::Mock(profile) if profile.gives_as_cuda(trace) => Some(format!(
                "{name} has a block of {}, and OpenCL on this device gives at most {} in one piece: \
                 replayed with the limits of CUDA, which gives all of the memory",
                sizes.0, sizes.1
            )),
            _ => Some(format!(
                "{name} has a block of {}, and the device gives at most {} in one piece: \
                 use another device, or --scale",
                sizes.0, sizes.1
            )),
        }
    }

    /// Replays a trace.
    ///
    /// # Errors
    ///
    /// [`Failure`], which names the event.
    pub fn replay(
        &self,
        trace: &Trace,
        settings: &ReplaySettings,
        progress: &dyn Fn(usize),
    ) -> Result<Measured, Failure> {
        let mut manner = ReplayOptions {
            pool: settings.pool.clone(),
            limit_bytes: u64::MAX,
            touch: settings.touch == Touch::Fill,
            threads: settings.threads,
            rounds: settings.rounds,
        };
        match self {
            Self::Mock(profile) => {
                let has_pages = settings.allocator == AllocatorChoice::Pages;
                let device =
                    profile.mock(trace, has_pages, settings.capacity_bytes, settings.behind);
                let backend = device.backend();
                let before = device.device_time();
                let kernels: NewCommands<'_, MockBackend> =
                    &|queues| Ok(Box::new(MockKernels::new(queues)));
                let clock = || device.device_time();
                let waited = || device.statistics().waited;
                let on = On {
                    backend: &backend,
                    kernels,
                    last_use: &|| Ok(Box::new(MockUse(device.clone()))),
                    pending: Arc::default(),
                    device: DeviceGauges {
                        device_time: Some(&clock),
                        waited: Some(&waited),
                        pending: None,
                    },
                };
                let outcome = if settings.allocator == AllocatorChoice::Pages {
                    let pages = VirtualMemoryAllocator::new(&backend);
                    let mut outcome = on.with(trace, pages, settings, &manner, progress)?;
                    // The mock's own time is not the device's.
                    outcome.remap_time = profile.remap_time(outcome.maps, outcome.unmaps);
                    outcome
                } else {
                    on.replay(trace, settings, &manner, progress)?
                };
                Ok(Measured {
                    outcome,
                    device_time: clock().saturating_sub(before),
                })
            }
            Self::OpenCl(backend) => {
                // Neither PoCL nor NVIDIA's OpenCL enforces its own capacity.
                let all = backend.limits().capacity_bytes;
                manner.limit_bytes = settings.capacity_bytes.unwrap_or(all);
                let kernels: NewCommands<'_, OpenClBackend> =
                    &|queues| Ok(Box::new(OpenClKernels::new(backend, queues)?));
                let on = On {
                    backend,
                    kernels,
                    last_use: &|| Ok(Box::new(OpenClUse::new(backend)?)),
                    pending: Arc::default(),
                    device: DeviceGauges::default(),
                };
                let outcome = on.replay(trace, settings, &manner, progress)?;
                Ok(Measured {
                    device_time: outcome.allocator_time,
                    outcome,
                })
            }
            Self::Cuda(backend) => {
                // The driver enforces its own capacity.
                manner.limit_bytes = settings.capacity_bytes.unwrap_or(u64::MAX);
                let kernels: NewCommands<'_, CudaBackend> =
                    &|queues| Ok(Box::new(CudaCommands::new(queues)));
                let on = On {
                    backend,
                    kernels,
                    last_use: &|| Ok(Box::new(CudaUse::new(backend)?)),
                    pending: Arc::default(),
                    device: DeviceGauges::default(),
                };
                let outcome = on.replay_on_cuda(trace, settings, &manner, progress)?;
                Ok(Measured {
                    device_time: outcome.allocator_time,
                    outcome,
                })
            }
        }
    }

    /// Returns the smallest capacity in bytes at which the whole trace succeeds, to within a thousandth of its live
    /// peak.
    ///
    /// # Errors
    ///
    /// [`Failure`] where the trace does not even succeed with all memory of the device, or fails for another
    /// reason than memory.
    pub fn need(
        &self,
        trace: &Trace,
        settings: &ReplaySettings,
        progress: &dyn Fn(usize),
    ) -> Result<u64, Failure> {
        let at = |capacity| ReplaySettings {
            capacity_bytes: capacity,
            ..settings.clone()
        };
        let unlimited = self.replay(trace, &at(None), progress)?;
        let peak = trace.peak_live_bytes();
        smallest_capacity(
            peak,
            unlimited.outcome.peak_reserved_bytes,
            peak / 1000,
            |capacity| match self.replay(trace, &at(Some(capacity)), progress) {
                Ok(_) => Ok(true),
                Err(failure) if failure.out_of_memory => Ok(false),
                Err(failure) => Err(failure),
            },
        )
    }
}

/// The capacity and the largest block of a device, in bytes.
fn most_of(limits: &DeviceLimits) -> (u64, usize) {
    (limits.capacity_bytes, limits.largest_block_bytes)
}

/// Makes the last uses of blocks on a device that is behind.
type NewLastUse<'a, B> = &'a dyn Fn() -> Result<Box<dyn LastUse<B>>, Error>;

/// A backend to replay on, and the kernels for it.
struct On<'a, B: Backend> {
    backend: &'a B,
    kernels: NewCommands<'a, B>,
    /// Makes the last uses of blocks.
    last_use: NewLastUse<'a, B>,
    /// The bytes that were freed and that commands use.
    pending: Arc<Watermark>,
    device: DeviceGauges<'a>,
}

impl<B: SvmBackend> On<'_, B> {
    /// Replays with the chosen allocator.
    fn replay(
        &self,
        trace: &Trace,
        settings: &ReplaySettings,
        manner: &ReplayOptions,
        progress: &dyn Fn(usize),
    ) -> Result<Outcome, Failure> {
        let backend = self.backend;
        let svm = |grain| SvmAllocator::new(backend, grain).map_err(Failure::setup);
        match settings.allocator {
            AllocatorChoice::Immediate => {
                let allocator = ImmediateAllocator::new(backend).map_err(Failure::setup)?;
                self.with(trace, allocator, settings, manner, progress)
            }
            AllocatorChoice::Deferred => {
                let allocator = DeferredAllocator::new(backend);
                self.with(trace, allocator, settings, manner, progress)
            }
            AllocatorChoice::Svm => {
                self.with(trace, svm(SvmGrain::Coarse)?, settings, manner, progress)
            }
            AllocatorChoice::SvmFine => {
                self.with(trace, svm(SvmGrain::Fine)?, settings, manner, progress)
            }
            AllocatorChoice::Pages => Err(self.lacks(
                "virtual memory",
                "OpenCL has none, replay on the mock or on CUDA",
            )),
            AllocatorChoice::DriverPool | AllocatorChoice::StreamOrdered => {
                Err(self.lacks("the pool of CUDA's driver", "replay with `--backend cuda`"))
            }
        }
    }
}

impl On<'_, CudaBackend> {
    /// Replays with the chosen allocator.
    fn replay_on_cuda(
        &self,
        trace: &Trace,
        settings: &ReplaySettings,
        manner: &ReplayOptions,
        progress: &dyn Fn(usize),
    ) -> Result<Outcome, Failure> {
        let backend = self.backend;
        match settings.allocator {
            AllocatorChoice::Immediate => {
                let allocator = ImmediateAllocator::new(backend).map_err(Failure::setup)?;
                self.with(trace, allocator, settings, manner, progress)
            }
            AllocatorChoice::Pages => {
                let allocator = VirtualMemoryAllocator::new(backend);
                self.with(trace, allocator, settings, manner, progress)
            }
            AllocatorChoice::DriverPool => {
                let allocator = DriverPoolAllocator::new(backend).map_err(Failure::setup)?;
                self.with(trace, allocator, settings, manner, progress)
            }
            AllocatorChoice::StreamOrdered => self.with_commands(settings, |commands, device| {
                replay_in_stream_order(
                    trace,
                    backend,
                    settings.threads,
                    settings.rounds,
                    commands,
                    device,
                    progress,
                )
            }),
            AllocatorChoice::Deferred => Err(self.lacks(
                "deferred memory",
                "CUDA commits memory when it allocates it, use `--allocator immediate`",
            )),
            AllocatorChoice::Svm | AllocatorChoice::SvmFine => Err(self.lacks(
                "OpenCL's shared virtual memory",
                "use `--backend opencl`, or `--allocator immediate`",
            )),
        }
    }
}

impl<B: Backend> On<'_, B> {
    fn with<A: Allocator<Backend = B> + Clone>(
        &self,
        trace: &Trace,
        allocator: A,
        settings: &ReplaySettings,
        manner: &ReplayOptions,
        progress: &dyn Fn(usize),
    ) -> Result<Outcome, Failure> {
        self.with_commands(settings, |commands, device| {
            replay_with(trace, allocator, manner, commands, device, progress)
        })
    }

    /// Calls `body` with the commands on each block, and what the device shows.
    fn with_commands<R>(
        &self,
        settings: &ReplaySettings,
        body: impl FnOnce(Option<NewCommands<'_, B>>, DeviceGauges<'_>) -> R,
    ) -> R {
        let commands = self.commands(settings.touch);
        let Some(time) = settings.behind else {
            return body(commands, self.device);
        };
        let behind: NewCommands<'_, B> = &|queues| {
            let inner = commands.map(|new| new(queues)).transpose()?;
            let last_use = (self.last_use)()?;
            let pending = Arc::clone(&self.pending);
            Ok(Box::new(Behind::new(
                inner, last_use, time, queues, pending,
            )))
        };
        let device = DeviceGauges {
            pending: Some(&self.pending),
            ..self.device
        };
        body(Some(behind), device)
    }

    fn commands(&self, touch: Touch) -> Option<NewCommands<'_, B>> {
        match touch {
            Touch::Nothing => None,
            Touch::Fill => Some(&|_| Ok(Box::new(Fill))),
            Touch::Kernels => Some(self.kernels),
        }
    }

    /// The failure where the device lacks something.
    fn lacks(&self, what: &str, instead: &str) -> Failure {
        let device = &self.backend.limits().device_name;
        Failure::setup(Error::unsupported(format!("{what} on {device}: {instead}")))
    }
}
