//! The device that a trace is replayed on, and the kind of its memory.

use std::{cell::Cell, fmt, sync::Arc, time::Duration};

use binpool::{
    Allocator, Backend, DeferredAllocator, Error, ImmediateAllocator, SvmAllocator, SvmBackend,
    SvmGrain, VirtualMemoryAllocator,
};
use binpool_allocators::{DeviceLimits, VirtualMemory};
use binpool_opencl::{DeviceSelector, OpenClBackend, OpenClError};

use crate::{
    AllocatorChoice, Failure, Outcome, Profile, ReplaySettings, Touch,
    behind::{Behind, LastUse},
    capacity_search::smallest_capacity,
    mock_kernels::{MockKernels, MockUse, time_of},
    opencl_kernels::OpenClKernels,
    opencl_use::OpenClUse,
    replay::{NewCommands, replay_with},
    rounds::DeviceGauges,
    touch::Fill,
    transfer_commands::TransferCommands,
    watermark::Watermark,
};
use binpool_allocators::words::bytes;
use binpool_recordings::Trace;

/// The device that a trace is replayed on.
#[derive(Clone, Debug)]
pub enum Device {
    /// A mock device with this profile, made anew for each replay.
    Mock(Profile),
    /// An OpenCL device.
    OpenCl(OpenClBackend),
    /// A device of a backend with pages.
    #[doc(hidden)]
    Pages(Arc<dyn OnPages>),
}

/// A device of a backend with pages.
pub trait OnPages: fmt::Debug + Send + Sync {
    /// The name of its backend.
    fn backend_name(&self) -> &'static str;
    /// Its limits.
    fn limits(&self) -> &DeviceLimits;
    /// Replays a trace.
    ///
    /// # Errors
    ///
    /// Those of [`Device::replay`].
    fn replay(
        &self,
        trace: &Trace,
        settings: &ReplaySettings,
        progress: &dyn Fn(usize),
    ) -> Result<Measured, Failure>;
}

/// Makes what uses a block last, where the device is behind.
type LastUseOn<B> = fn(&B) -> Result<Box<dyn LastUse<B>>, Error>;

/// A backend with pages, and what makes the last uses of its blocks.
struct Pages<B> {
    name: &'static str,
    backend: B,
    last_use: LastUseOn<B>,
}

impl<B: VirtualMemory> OnPages for Pages<B> {
    fn backend_name(&self) -> &'static str {
        self.name
    }

    fn limits(&self) -> &DeviceLimits {
        self.backend.limits()
    }

    fn replay(
        &self,
        trace: &Trace,
        settings: &ReplaySettings,
        progress: &dyn Fn(usize),
    ) -> Result<Measured, Failure> {
        let on = On {
            backend: &self.backend,
            trace,
            settings,
            progress,
            kernels: &|queues| Ok(Box::new(TransferCommands::new(queues))),
            last_use: &|| (self.last_use)(&self.backend),
            device: DeviceGauges::default(),
        };
        on.replay_with_pages().map(Measured::of_calls)
    }
}

impl<B: fmt::Debug> fmt::Debug for Pages<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.backend.fmt(f)
    }
}

/// A replay, and the time that the device's calls took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The result of the replay.
    pub outcome: Outcome,
    /// The time, predicted by the mock's cost model, or measured around the calls of the allocator.
    pub device_time: Duration,
}

impl Measured {
    /// A replay whose time is that of the allocator's calls.
    fn of_calls(outcome: Outcome) -> Self {
        Self {
            device_time: outcome.allocator_time,
            outcome,
        }
    }
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

    /// A device of a backend with pages, with what makes the last uses of its blocks.
    pub(crate) fn with_pages<B: VirtualMemory>(
        name: &'static str,
        backend: B,
        last_use: LastUseOn<B>,
    ) -> Self {
        Self::Pages(Arc::new(Pages {
            name,
            backend,
            last_use,
        }))
    }

    /// `mock`, `opencl`, `cuda` or `vulkan`.
    #[must_use]
    pub fn backend_name(&self) -> &'static str {
        match self {
            Self::Mock(_) => "mock",
            Self::OpenCl(_) => "opencl",
            Self::Pages(device) => device.backend_name(),
        }
    }

    /// The device's name, for display.
    #[must_use]
    pub fn name(&self) -> String {
        self.limits().device_name
    }

    fn limits(&self) -> DeviceLimits {
        match self {
            Self::Mock(profile) => profile.device().limits,
            Self::OpenCl(backend) => backend.limits().clone(),
            Self::Pages(device) => device.limits().clone(),
        }
    }

    /// Describes the requests of a trace that this device can never serve, or could serve only with other limits; `None` if the trace may
    /// fit.
    #[must_use]
    pub fn too_small_for(&self, trace: &Trace, capacity_bytes: Option<u64>) -> Option<String> {
        let limits = self.limits();
        let largest = limits.largest_block_bytes;
        let capacity = capacity_bytes.unwrap_or(limits.capacity_bytes);
        let (peak, block) = (trace.peak_live_bytes(), trace.largest_block_bytes());
        let name = trace.name();
        if peak > capacity {
            return Some(format!(
                "{name} has up to {} live at once, but the capacity is {}: \
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
                "{name} has a block of {}, but OpenCL on this device allocates at most {} in one piece: \
                 replayed with the limits of CUDA, which gives all of the memory",
                sizes.0, sizes.1
            )),
            _ => Some(format!(
                "{name} has a block of {}, but the device allocates at most {} in one piece: \
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
        let limited = |capacity_bytes| ReplaySettings {
            capacity_bytes,
            ..settings.clone()
        };
        match self {
            Self::Mock(profile) => {
                let has_pages = settings.allocator == AllocatorChoice::VirtualMemory;
                let device =
                    profile.mock(trace, has_pages, settings.capacity_bytes, settings.behind);
                let backend = device.backend();
                let before = device.device_time();
                let clock = || device.device_time();
                let waited = || device.statistics().waited;
                let passed = Cell::new(Duration::ZERO);
                let progress = |events| {
                    // A device that is behind has a clock that each operation moves.
                    if settings.behind.is_none() {
                        let now = time_of(trace, events);
                        device.pass(now.saturating_sub(passed.replace(now)));
                    }
                    progress(events);
                };
                let on = On {
                    backend: &backend,
                    trace,
                    // The device itself has the capacity.
                    settings: &limited(None),
                    progress: &progress,
                    kernels: &|queues| Ok(Box::new(MockKernels::new(queues))),
                    last_use: &|| Ok(Box::new(MockUse(device.clone()))),
                    device: DeviceGauges {
                        device_time: Some(&clock),
                        waited: Some(&waited),
                        pending: None,
                    },
                };
                let outcome = if has_pages {
                    let mut outcome = on.with(VirtualMemoryAllocator::new(&backend))?;
                    // The mock's own time is not the device's.
                    outcome.remap_time = profile.remap_time(outcome.maps, outcome.unmaps);
                    outcome
                } else {
                    on.replay()?
                };
                let device_time = clock().saturating_sub(before);
                Ok(Measured {
                    outcome,
                    device_time,
                })
            }
            Self::OpenCl(backend) => {
                // Neither PoCL nor NVIDIA's OpenCL enforces its own capacity.
                let capacity = settings.capacity_bytes;
                let capacity = capacity.or(Some(backend.limits().capacity_bytes));
                let on = On {
                    backend,
                    trace,
                    settings: &limited(capacity),
                    progress,
                    kernels: &|queues| Ok(Box::new(OpenClKernels::new(backend, queues)?)),
                    last_use: &|| Ok(Box::new(OpenClUse::new(backend)?)),
                    device: DeviceGauges::default(),
                };
                on.replay().map(Measured::of_calls)
            }
            Self::Pages(device) => device.replay(trace, settings, progress),
        }
    }

    /// Returns the smallest capacity in bytes at which the whole trace succeeds, to within a thousandth of its live
    /// peak.
    ///
    /// # Errors
    ///
    /// [`Failure`] if the trace fails even with all memory of the device, or fails for a reason other than memory.
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

/// Makes the last uses of blocks on a device that is behind.
type NewLastUse<'a, B> = &'a dyn Fn() -> Result<Box<dyn LastUse<B>>, Error>;

/// A replay on a backend, and the kernels for it.
struct On<'a, B: Backend> {
    backend: &'a B,
    trace: &'a Trace,
    /// The settings, with the capacity that the pool has to keep to.
    settings: &'a ReplaySettings,
    progress: &'a dyn Fn(usize),
    kernels: NewCommands<'a, B>,
    /// Makes the last uses of blocks.
    last_use: NewLastUse<'a, B>,
    device: DeviceGauges<'a>,
}

impl<B: SvmBackend> On<'_, B> {
    /// Replays with the chosen allocator.
    fn replay(&self) -> Result<Outcome, Failure> {
        let svm = |grain| SvmAllocator::new(self.backend, grain).map_err(Failure::setup);
        match self.settings.allocator {
            AllocatorChoice::Immediate => self.with(self.immediate()?),
            AllocatorChoice::Deferred => self.with(DeferredAllocator::new(self.backend)),
            AllocatorChoice::Svm => self.with(svm(SvmGrain::Coarse)?),
            AllocatorChoice::SvmFine => self.with(svm(SvmGrain::Fine)?),
            AllocatorChoice::VirtualMemory => {
                Err(self.lacks("virtual memory", "replay on the mock or on CUDA"))
            }
        }
    }
}

impl<B: VirtualMemory> On<'_, B> {
    /// Replays with the chosen allocator, on a backend without shared virtual memory.
    fn replay_with_pages(&self) -> Result<Outcome, Failure> {
        match self.settings.allocator {
            AllocatorChoice::Immediate => self.with(self.immediate()?),
            AllocatorChoice::VirtualMemory if self.backend.page_bytes() > 0 => {
                self.with(VirtualMemoryAllocator::new(self.backend))
            }
            other => Err(self.lacks(
                &format!("the allocator {other}"),
                "use `--allocator immediate`, or `--backend opencl`",
            )),
        }
    }
}

impl<B: Backend> On<'_, B> {
    fn immediate(&self) -> Result<ImmediateAllocator<B>, Failure> {
        ImmediateAllocator::new(self.backend).map_err(Failure::setup)
    }

    fn with<A: Allocator<Backend = B> + Clone>(&self, allocator: A) -> Result<Outcome, Failure> {
        let (trace, settings, progress) = (self.trace, self.settings, self.progress);
        let commands: Option<NewCommands<'_, B>> = match settings.touch {
            Touch::Nothing => None,
            Touch::Fill => Some(&|_| Ok(Box::new(Fill))),
            Touch::Kernels => Some(self.kernels),
        };
        let Some(time) = settings.behind else {
            return replay_with(trace, allocator, settings, commands, self.device, progress);
        };
        // The bytes that were freed and that commands use.
        let pending: Arc<Watermark> = Arc::default();
        let behind: NewCommands<'_, B> = &|queues| {
            let inner = commands.map(|new| new(queues)).transpose()?;
            let (last_use, pending) = ((self.last_use)()?, Arc::clone(&pending));
            Ok(Box::new(Behind::new(
                inner, last_use, time, queues, pending,
            )))
        };
        let device = DeviceGauges {
            pending: Some(&pending),
            ..self.device
        };
        replay_with(trace, allocator, settings, Some(behind), device, progress)
    }

    /// The failure where the device lacks something.
    fn lacks(&self, what: &str, instead: &str) -> Failure {
        let device = &self.backend.limits().device_name;
        Failure::setup(Error::unsupported(format!("{what} on {device}: {instead}")))
    }
}
