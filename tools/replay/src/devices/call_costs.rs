//! Measures the costs of a device's calls.

use std::time::{Duration, Instant};

use binpool::{
    Backend, Event, MemoryFlags, Outcome, Queue, QueueOrder, Region, Result, SvmBackend, SvmGrain,
};
use binpool_allocators::VirtualMemory;
use binpool_mock::{CostModel, CostTable, DeviceProfile};

/// The sizes of the measured blocks, in bytes, as far as the device has them.
const SIZES: [usize; 7] = [
    4 << 10,
    64 << 10,
    1 << 20,
    16 << 20,
    64 << 20,
    512 << 20,
    4 << 30,
];

/// The largest size of shared virtual memory that is measured: a block of 512 MiB takes a third of a second on an NVIDIA H200.
const LARGEST_SVM: usize = 512 << 20;

/// The most blocks that are live together when a commit and the release after it are measured, and their most bytes together.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 1 << 30;

/// The numbers of views that a block has when the cost of one is measured.
const VIEWS: [usize; 4] = [1, 30, 300, 1000];

/// The sizes of pages of virtual memory that are measured, in bytes, as far as the device has them.
const PAGES: [usize; 6] = [2 << 20, 16 << 20, 64 << 20, 128 << 20, 512 << 20, 4 << 30];

/// How much to measure for each figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostEffort {
    /// The number of samples. The figure is their median.
    pub samples: usize,
    /// The time after which no more samples are taken, apart from the first three.
    pub most: Duration,
}

impl Default for CostEffort {
    /// An effort that takes a few seconds in all.
    fn default() -> Self {
        Self {
            samples: 51,
            most: Duration::from_millis(200),
        }
    }
}

/// Measures the costs of the calls of `backend`, for a mock device with the same limits and costs.
///
/// A cost is the median of single calls, less the cost of reading `clock`. Only commits and the releases after them are the means of a
/// batch of up to 64 blocks, of up to 1 GiB together, which are live together as they are in a program: drivers take memory from the device
/// for several small blocks at a time, so that a single block would pay for all. A commit includes its enqueue and wait, as in the built-in
/// profiles. Creating a user event and resolving it are split in halves. A wait and a finish are measured for a marker or barrier that was
/// just enqueued on an idle queue. Bandwidth is not measured. Blocks are of 4 KiB to 4 GiB, those of shared virtual memory up to 512 MiB;
/// sizes are left out that are larger than an eighth of the memory or than the device's largest block, or for which the device has no room
/// at the moment.
///
/// `clock` is the time since any fixed moment: the host's, or that of a mock device. `progress` is called after each of the
/// [`COST_STEPS`] steps.
///
/// # Errors
///
/// A failure of the device, other than that it is out of memory.
pub fn device_costs<B: SvmBackend>(
    backend: &B,
    effort: CostEffort,
    clock: &dyn Fn() -> Duration,
    progress: &dyn Fn(),
) -> Result<DeviceProfile> {
    let bench = Bench::start(backend, effort, clock)?;
    let mut costs = bench.buffers_and_commands(progress)?;
    if SvmGrain::Coarse.is_in(backend.limits().svm) {
        let mut sizes = bench.sizes(&SIZES);
        sizes.retain(|size| *size <= LARGEST_SVM);
        [costs.allocate_svm, costs.free_svm] =
            bench.tables(&sizes, progress, |size| bench.svm(size))?;
    }
    Ok(DeviceProfile::new(backend.limits().clone(), costs))
}

/// Measures the costs as [`device_costs`] does, of a device with virtual memory: instead of shared virtual memory, creating, mapping,
/// unmapping and releasing pages, from 2 MiB to 4 GiB at a time.
///
/// # Errors
///
/// A failure of the device, other than that it is out of memory.
pub fn device_costs_with_pages<B: VirtualMemory>(
    backend: &B,
    effort: CostEffort,
    clock: &dyn Fn() -> Duration,
    progress: &dyn Fn(),
) -> Result<DeviceProfile> {
    let bench = Bench::start(backend, effort, clock)?;
    let mut costs = bench.buffers_and_commands(progress)?;
    let mut sizes = bench.sizes(&PAGES);
    sizes.retain(|size| size.is_multiple_of(backend.page_bytes()));
    [
        costs.create_pages,
        costs.map,
        costs.unmap,
        costs.release_pages,
    ] = bench.tables(&sizes, progress, |size| bench.pages(size))?;
    Ok(DeviceProfile::new(backend.limits().clone(), costs))
}

/// The most steps that [`device_costs`] and [`device_costs_with_pages`] take.
pub const COST_STEPS: usize = 2 + SIZES.len() + SIZES.len() - 1; // Shared virtual memory has a size less, and so have pages.

struct Bench<'a, B: Backend> {
    backend: &'a B,
    queue: B::Queue,
    effort: CostEffort,
    clock: &'a dyn Fn() -> Duration,
    /// The cost of reading the clock, in microseconds.
    own: f64,
}

impl<'a, B: Backend> Bench<'a, B> {
    /// Measures what reading the clock costs.
    fn start(backend: &'a B, effort: CostEffort, clock: &'a dyn Fn() -> Duration) -> Result<Self> {
        let bench = Self {
            backend,
            queue: backend.create_queue(QueueOrder::InOrder)?,
            effort,
            clock,
            own: 0.0,
        };
        let [own] = bench.medians(|| Ok([bench.time(|| Ok(()))?.0]))?;
        Ok(Self { own, ..bench })
    }

    /// Measures what every device has.
    fn buffers_and_commands(&self, progress: &dyn Fn()) -> Result<CostModel> {
        let mut costs = CostModel::default();
        self.commands(&mut costs)?;
        progress();
        [
            costs.create_buffer,
            costs.release_deferred,
            costs.commit,
            costs.release_committed,
        ] = self.tables(&self.sizes(&SIZES), progress, |size| self.buffers(size))?;
        [costs.create_sub_region, costs.release_sub_region] = self.views()?;
        progress();
        Ok(costs)
    }

    /// Those of `sizes` that the device has ample room for.
    fn sizes(&self, sizes: &[usize]) -> Vec<usize> {
        let limits = self.backend.limits();
        let has_room = |size: &usize| {
            *size <= limits.largest_block_bytes && *size as u64 <= limits.capacity_bytes / 8
        };
        sizes.iter().copied().filter(has_room).collect()
    }

    /// The results of `measure` by size, up to the first size for which memory is missing.
    fn tables<const N: usize>(
        &self,
        sizes: &[usize],
        progress: &dyn Fn(),
        measure: impl Fn(usize) -> Result<[f64; N]>,
    ) -> Result<[CostTable; N]> {
        let mut points = Vec::new();
        for size in sizes {
            match measure(*size) {
                Ok(figures) => points.push((*size as u64, figures)),
                Err(error) if error.is_out_of_memory() => {
                    self.queue.finish()?;
                    break;
                }
                Err(error) => return Err(error),
            }
            progress();
        }
        Ok(tables_of(&points))
    }

    fn commands(&self, costs: &mut CostModel) -> Result<()> {
        let (backend, queue) = (self.backend, &self.queue);
        let memory = backend.create_buffer(4096, MemoryFlags::empty())?;
        backend.commit(queue, &memory)?;
        let fill = || backend.enqueue_fill(queue, &memory, Region::first(4), &[0_u8; 4]);
        [costs.enqueue, costs.flush] = self.medians(|| {
            let (enqueue, _event) = self.time(fill)?;
            let (flush, ()) = self.time(|| queue.flush())?;
            queue.finish()?;
            Ok([enqueue, flush])
        })?;
        [costs.marker, costs.wait, costs.status] = self.medians(|| {
            let (marker, event) = self.time(|| backend.enqueue_marker(queue))?;
            let (wait, ()) = self.time(|| event.wait())?;
            let (status, _) = self.time(|| event.status())?;
            Ok([marker, wait, status])
        })?;
        [costs.barrier, costs.finish] = self.medians(|| {
            let (barrier, _event) = self.time(|| backend.enqueue_barrier(queue))?;
            let (finish, ()) = self.time(|| queue.finish())?;
            Ok([barrier, finish])
        })?;
        [costs.create_queue, costs.user_event] = self.medians(|| {
            let (create, _queue) = self.time(|| backend.create_queue(QueueOrder::InOrder))?;
            let (made, event) = self.time(|| backend.create_user_event())?;
            let (resolved, ()) =
                self.time(|| backend.resolve_user_event(&event, Outcome::Complete))?;
            Ok([create, f64::midpoint(made, resolved)])
        })?;
        backend.release(memory, &[])
    }

    /// Measures buffers of one size.
    fn buffers(&self, size: usize) -> Result<[f64; 4]> {
        let (backend, queue) = (self.backend, &self.queue);
        let create = || backend.create_buffer(size, MemoryFlags::empty());
        let [created, released] = self.medians(|| {
            let (created, memory) = self.time(create)?;
            let (released, ()) = self.time(|| backend.release(memory, &[]))?;
            Ok([created, released])
        })?;
        let batch = (BATCH_BYTES / size).clamp(1, BATCH);
        let [committed, released_committed] = self.medians(|| {
            let mut blocks = Vec::with_capacity(batch);
            let [mut committed, mut released] = [0.0; 2];
            while blocks.len() < batch {
                let memory = create()?;
                let (micros, done) = self.time(|| Ok(backend.commit(queue, &memory)))?;
                match done {
                    Ok(()) => committed += micros,
                    // There is room for a smaller batch.
                    Err(error) if error.is_out_of_memory() && !blocks.is_empty() => {
                        queue.finish()?;
                        break;
                    }
                    Err(error) => return Err(error),
                }
                blocks.push(memory);
            }
            #[expect(clippy::cast_precision_loss, reason = "at most 64")]
            let count = blocks.len() as f64;
            for memory in blocks {
                released += self.time(|| backend.release(memory, &[]))?.0;
            }
            Ok([committed, released].map(|micros| micros / count))
        })?;
        Ok([created, released, committed, released_committed])
    }

    /// Measures views of a block, by the number of its views.
    fn views(&self) -> Result<[CostTable; 2]> {
        let backend = self.backend;
        let alignment = backend.limits().alignment.bytes();
        let most = VIEWS[VIEWS.len() - 1];
        let parent = backend.create_buffer(most * alignment, MemoryFlags::empty())?;
        backend.commit(&self.queue, &parent)?;
        let view = |index: usize| {
            let region = Region::new(index * alignment, alignment);
            backend.create_sub_region(&parent, region)
        };
        let mut live = Vec::new();
        let mut points = Vec::new();
        for count in VIEWS {
            while live.len() + 1 < count {
                live.push(view(live.len())?);
            }
            let figures = self.medians(|| {
                let (created, memory) = self.time(|| view(live.len()))?;
                let (released, ()) = self.time(|| backend.release(memory, &[]))?;
                Ok([created, released])
            })?;
            points.push((count as u64, figures));
        }
        for view in live {
            backend.release(view, &[])?;
        }
        backend.release(parent, &[])?;
        Ok(tables_of(&points))
    }

    /// Performs `step`. Returns the microseconds that it took, and its result.
    fn time<T>(&self, step: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
        let before = (self.clock)();
        let done = step()?;
        let micros = (self.clock)().saturating_sub(before).as_secs_f64() * 1e6;
        Ok(((micros - self.own).max(0.0), done))
    }

    /// Returns the median of each figure of `sample`.
    fn medians<const N: usize>(
        &self,
        mut sample: impl FnMut() -> Result<[f64; N]>,
    ) -> Result<[f64; N]> {
        const FEWEST: usize = 3;
        // The first call of a kind is slower.
        sample()?;
        let start = Instant::now();
        let mut samples = Vec::new();
        while samples.len() < FEWEST
            || samples.len() < self.effort.samples && start.elapsed() < self.effort.most
        {
            samples.push(sample()?);
        }
        Ok(std::array::from_fn(|index| {
            let mut figures: Vec<f64> = samples.iter().map(|sample| sample[index]).collect();
            figures.sort_by(f64::total_cmp);
            figures[figures.len() / 2]
        }))
    }
}

impl<B: SvmBackend> Bench<'_, B> {
    /// Measures coarse-grained shared virtual memory of one size.
    fn svm(&self, size: usize) -> Result<[f64; 2]> {
        let allocate = || {
            self.backend
                .allocate_svm(size, None, SvmGrain::Coarse, None)
        };
        self.medians(|| {
            let (allocated, memory) = self.time(allocate)?;
            let (freed, ()) = self.time(|| self.backend.release(memory, &[]))?;
            Ok([allocated, freed])
        })
    }
}

impl<B: VirtualMemory> Bench<'_, B> {
    /// Measures pages of one size.
    fn pages(&self, size: usize) -> Result<[f64; 4]> {
        let backend = self.backend;
        let reservation = backend.reserve(size)?;
        let measured = self.medians(|| {
            let (created, pages) = self.time(|| backend.create_pages(size))?;
            let (mapped, ()) = self.time(|| backend.map(&reservation, 0, &pages))?;
            let all = Region::first(size);
            let (unmapped, ()) = self.time(|| backend.unmap(&reservation, all))?;
            let (released, ()) = self.time(|| backend.release(pages, &[]))?;
            Ok([created, mapped, unmapped, released])
        })?;
        backend.release(reservation, &[])?;
        Ok(measured)
    }
}

/// Turns figures by size into a table for each figure.
fn tables_of<const N: usize>(points: &[(u64, [f64; N])]) -> [CostTable; N] {
    std::array::from_fn(|index| {
        let figures = points.iter().map(|(size, figures)| (*size, figures[index]));
        CostTable::new(&figures.collect::<Vec<_>>())
    })
}
