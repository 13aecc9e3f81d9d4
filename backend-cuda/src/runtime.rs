//! What the driver does for the core.

#![expect(unsafe_code, reason = "methods that only the core may call")]

use std::sync::Arc;

use binpool_allocators::{
    Error, EventStatus, InvalidRequest, MemoryFlags, ObjectKind, Outcome, QueueOrder, Region,
    Result, Scope, Work,
    runtime::{Core, Objects, Part, Runtime, RuntimePages},
};

use crate::{
    backend::{CudaBackend, CudaQueue, Held},
    block::{Body, CudaBlock},
    mark::{CudaMark, Kind},
    queue::QueueStream,
    sys::{Allocation, Context, CudaResult, Gate, Mark, Pages, Reservation, Staging, Stream},
    thread_number::ThreadNumber,
};

/// The most bytes that can be reserved: the addresses of the driver have 47 bits.
const MOST_ADDRESSES: usize = (usize::MAX >> 17) + 1;

impl Objects for CudaBackend {
    type Block = CudaBlock;
    type Stream = QueueStream;
    type Mark = CudaMark;

    fn status(mark: &CudaMark) -> Result<EventStatus> {
        mark.status()
    }

    fn wait(mark: &CudaMark) -> Result<()> {
        mark.wait()
    }

    // SAFETY: a contract of the trait, which this does not need: other marks are refused, and a gate may be opened twice.
    unsafe fn resolve(mark: &CudaMark, outcome: Outcome) -> Result<()> {
        let Kind::User(gate) = &mark.0 else {
            return Err(InvalidRequest::NotAUserEvent.into());
        };
        if outcome == Outcome::Failed {
            return Err(Error::unsupported(
                "user events of CUDA that fail: resolve it as complete, and let the program skip what depends on it",
            ));
        }
        gate.open();
        Ok(())
    }

    fn address(block: &CudaBlock) -> Option<u64> {
        block.address()
    }

    fn is_captured(mark: &CudaMark) -> bool {
        matches!(mark.0, Kind::Captured(..))
    }

    fn is_freed_in_order(block: &CudaBlock) -> bool {
        matches!(block.0, Body::Ordered(..))
    }

    fn may_free(block: &CudaBlock) -> Result<(), &'static str> {
        block.may_free()
    }

    fn wait_at_end(mark: &CudaMark) -> bool {
        mark.wait_at_end()
    }
}

/// While the stream of a queue is captured into a graph, reads and writes that wait are [`Unsupported`](Error::Unsupported);
/// the bytes of an enqueued write are kept as long as the backend, since each launch of the graph copies them.
impl Runtime for CudaBackend {
    fn core(&self) -> &Arc<Core<Self>> {
        &self.shared.core
    }

    fn allocate(&self, bytes: usize, flags: MemoryFlags) -> Result<CudaBlock> {
        let context = &self.shared.context;
        context.free_again();
        let (allocation, scope) = if flags.contains(MemoryFlags::HOST_RESIDENT) {
            (Allocation::host(context, bytes), Scope::Host)
        } else {
            (Allocation::device(context, bytes), Scope::Device)
        };
        let allocation = allocation.map_err(|error| error.shortage(bytes, scope))?;
        Ok(CudaBlock(Body::Allocation(allocation)))
    }

    fn create_stream(&self, _order: QueueOrder) -> Result<QueueStream> {
        Ok(QueueStream::create(&self.shared.context)?)
    }

    // SAFETY: a contract of the trait: the memory is of this driver, the parts lie inside their blocks, and the core keeps them until the
    // command has ended.
    unsafe fn submit(
        &self,
        on: &QueueStream,
        after: &[CudaMark],
        work: Work<'_, &Part<'_, Self>>,
    ) -> Result<CudaMark> {
        match work {
            Work::Marker | Work::Barrier if after.is_empty() && on.is_out_of_reach() => {
                on.mark_out_of_reach()
            }
            Work::Marker | Work::Barrier => self.enqueue(on, after, &[], &[], |_, _| Ok(())),
            Work::Fill(part, pattern) => {
                let (to, bytes) = (address(part)?, part.region().bytes);
                self.enqueue(on, after, &[part], &[part], |stream, held| {
                    if stream.fill(to, bytes, pattern)? {
                        return Ok(());
                    }
                    let staging = Staging::of(&self.shared.context, pattern)?;
                    let staging = held.staging.insert(Arc::new(staging));
                    stream.copy_in(to, staging, pattern.len())?;
                    stream.repeat(to, pattern.len(), bytes)
                })
            }
            Work::Write(part, data) => {
                let to = address(part)?;
                if is_far(on, part) {
                    on.check_not_captured("a write to memory of another device")?;
                }
                let staging = self.staging(data.len(), |context| Staging::of(context, &data))?;
                self.enqueue(on, after, &[part], &[part], |stream, held| {
                    stream.copy_in(to, held.staging.insert(staging), data.len())
                })
            }
            Work::Read(part, sink) => {
                let (from, bytes) = (address(part)?, part.region().bytes);
                on.check_not_captured("a read")?;
                let staging = self.staging(bytes, |context| Staging::new(context, bytes))?;
                let result = Arc::clone(&staging);
                let mark = self.enqueue(on, after, &[part], &[part], |stream, held| {
                    stream.copy_out(held.staging.insert(staging), from, bytes)
                })?;
                let own = mark.clone();
                sink.put(move || match own.status() {
                    Ok(status) if status.has_ended() => result.to_vec(bytes),
                    _ => Vec::new(),
                });
                Ok(mark)
            }
            Work::Copy(read, written) => {
                let (from, to, bytes) = (address(read)?, address(written)?, read.region().bytes);
                let [here, there] = [read, written].map(|part| part.block().device_context());
                let parts = [read, written];
                self.enqueue(on, after, &parts, &parts, |stream, _| match (here, there) {
                    (Some(here), Some(there)) if !here.is_same(there) => {
                        stream.copy_across((there, to), (here, from), bytes)
                    }
                    _ => stream.copy(to, from, bytes),
                })
            }
            _ => Err(Error::unsupported("this command on CUDA")),
        }
    }

    // SAFETY: a contract of the trait, which this does not need: a stream is one of the driver.
    unsafe fn finish(&self, stream: &QueueStream) -> Result<()> {
        stream.finish()
    }

    // SAFETY: a contract of the trait: the memory is of this driver, the parts lie inside their blocks, and the core keeps them until the
    // command has ended.
    unsafe fn write(
        &self,
        on: &QueueStream,
        after: &[CudaMark],
        to: &Part<'_, Self>,
        data: &[u8],
    ) -> Result<bool> {
        let what = "a write that blocks";
        self.run(on, after, (to, what), |stream, to, mark| {
            stream.write(to, data, mark)
        })
    }

    // SAFETY: a contract of the trait: the memory is of this driver, the parts lie inside their blocks, and the core keeps them until the
    // command has ended.
    unsafe fn read(
        &self,
        on: &QueueStream,
        after: &[CudaMark],
        from: &Part<'_, Self>,
        data: &mut [u8],
    ) -> Result<bool> {
        self.run(on, after, (from, "a read"), |stream, from, mark| {
            stream.read(data, from, mark)
        })
    }

    fn create_user_mark(&self) -> Result<CudaMark> {
        let gate = Gate::new(&self.shared.context)?;
        Ok(CudaMark(Kind::User(Arc::new(gate))))
    }

    fn free_bytes(&self) -> Option<u64> {
        let (free, _) = self.shared.context.memory_info().ok()?;
        Some(free as u64)
    }

    // SAFETY: a contract of the trait, which this does not need: it keeps what this thread has noted.
    unsafe fn after_failure(
        &self,
        on: &QueueStream,
        parts: &[&Part<'_, Self>],
    ) -> Option<CudaMark> {
        let own = ThreadNumber::own();
        let mut all = self.shared.abandoned.lock();
        let abandoned: Vec<_> = all.extract_if(.., |(thread, _)| *thread == own).collect();
        drop(all);
        let mut contexts = vec![Arc::clone(on.context())];
        contexts.extend(device_elsewhere(on, parts).map(Arc::clone));
        if abandoned.is_empty() || contexts.iter().all(|context| context.has_all_ended()) {
            return None;
        }
        let rest = CudaMark(Kind::Everything(contexts));
        self.shared.core.keep_until(abandoned, vec![rest.clone()]);
        Some(rest)
    }
}

impl RuntimePages for CudaBackend {
    fn page_bytes(&self) -> usize {
        self.shared.page_bytes
    }

    fn largest_reservation(&self) -> usize {
        MOST_ADDRESSES
    }

    fn reserve(&self, bytes: usize) -> Result<CudaBlock> {
        let reservation = Reservation::new(&self.shared.context, bytes)?;
        Ok(CudaBlock(Body::Reservation(reservation)))
    }

    fn create_pages(&self, bytes: usize) -> Result<CudaBlock> {
        let pages = Pages::create(&self.shared.context, bytes);
        let pages = pages.map_err(|error| error.shortage(bytes, Scope::Device))?;
        Ok(CudaBlock(Body::Pages(pages)))
    }

    // SAFETY: a contract of the trait: the region consists of whole pages of the reservation where nothing is mapped.
    unsafe fn map(&self, reservation: &CudaBlock, region: Region, pages: &CudaBlock) -> Result<()> {
        match (&reservation.0, &pages.0) {
            (Body::Reservation(reservation), Body::Pages(pages)) => reservation.map(region, pages),
            _ => Err(Error::unsupported("a map of this memory")),
        }
    }

    // SAFETY: a contract of the trait: the region lies inside the reservation, and no command uses it.
    unsafe fn unmap(&self, reservation: &CudaBlock, region: Region) -> Result<()> {
        match &reservation.0 {
            Body::Reservation(reservation) => Ok(reservation.unmap(region)?),
            _ => Err(Error::unsupported("an unmap of this memory")),
        }
    }
}

impl CudaBackend {
    /// Checks that a queue is one of this device.
    pub(crate) fn check_own_queue(&self, queue: &CudaQueue) -> Result<()> {
        if queue.context().is_same(&self.shared.context) {
            return Ok(());
        }
        let kind = ObjectKind::Queue;
        Err(InvalidRequest::ForeignObject { kind }.into())
    }

    fn staging(
        &self,
        bytes: usize,
        make: impl Fn(&Arc<Context>) -> CudaResult<Staging>,
    ) -> Result<Arc<Staging>> {
        let make =
            || make(&self.shared.context).map_err(|error| error.shortage(bytes, Scope::Host));
        self.shared.core.allocate(make).map(Arc::new)
    }

    /// Enqueues a launch, which runs where its kernel is loaded.
    pub(crate) fn submit_kernel(
        &self,
        on: &QueueStream,
        after: &[CudaMark],
        parts: &[&Part<'_, Self>],
        launch: impl FnOnce(&Stream) -> CudaResult<()>,
    ) -> Result<CudaMark> {
        for part in parts {
            self.check_reach(part)?;
        }
        self.enqueue(on, after, parts, &[], |stream, _| launch(stream))
    }

    /// Enqueues a command, on a side stream where the memory of `beside` is of other devices only.
    fn enqueue(
        &self,
        on: &QueueStream,
        after: &[CudaMark],
        parts: &[&Part<'_, Self>],
        beside: &[&Part<'_, Self>],
        work: impl FnOnce(&Stream, &mut Held) -> CudaResult<()>,
    ) -> Result<CudaMark> {
        check_queue(on, parts)?;
        let stream = on.stream();
        let elsewhere = device_elsewhere(on, beside);
        if stream.is_capturing()? {
            return self.capture(on, after, elsewhere.is_some(), work);
        }
        check_waits(stream, after)?;
        self.shared.context.free_again();
        let mark = Arc::new(Mark::new(stream.context())?);
        let side = elsewhere
            .map(|context| on.side_stream(context))
            .transpose()?;
        let mut held = held_by(stream, after);
        let enqueued = hold_back(stream, after).and_then(|()| {
            let result = match &side {
                None => work(stream, &mut held),
                Some(side) => follow(side, stream)
                    .and_then(|()| work(side, &mut held))
                    .and_then(|()| follow(stream, side)),
            };
            Ok(result.and_then(|()| stream.record(&mark))?)
        });
        let mark = CudaMark(Kind::Command(mark));
        let is_held = held.staging.is_some() || !held.contexts.is_empty();
        match enqueued {
            Ok(()) if is_held => self.shared.core.keep_until(held, vec![mark.clone()]),
            Ok(()) => {}
            Err(error) => {
                self.abandon(held);
                return Err(error);
            }
        }
        Ok(mark)
    }

    /// Adds a command to the graph that the stream is captured into.
    fn capture(
        &self,
        on: &QueueStream,
        after: &[CudaMark],
        is_elsewhere: bool,
        work: impl FnOnce(&Stream, &mut Held) -> CudaResult<()>,
    ) -> Result<CudaMark> {
        if is_elsewhere {
            return Err(Error::unsupported(
                "a captured command on memory of another device only: capture it on a queue of that device",
            ));
        }
        let stream = on.stream();
        after
            .iter()
            .try_for_each(|mark| mark.check_captured_wait(stream))?;
        let mut held = held_by(stream, &[]);
        let captured = work(stream, &mut held);
        // Even if a call has failed: the graph may have a copy.
        self.shared.captured.lock().extend(held.staging);
        captured?;
        let context = Arc::clone(stream.context());
        Ok(CudaMark(Kind::Captured(stream.raw(), context)))
    }

    /// Runs a command on memory that waits for its end. Returns whether it has: not on memory of another device.
    fn run(
        &self,
        on: &QueueStream,
        after: &[CudaMark],
        (part, what): (&Part<'_, Self>, &str),
        work: impl FnOnce(&Stream, u64, &Mark) -> CudaResult<()>,
    ) -> Result<bool> {
        on.check_not_captured(what)?;
        if is_far(on, part) {
            return Ok(false);
        }
        check_queue(on, &[part])?;
        let (stream, address) = (on.stream(), address(part)?);
        check_waits(stream, after)?;
        self.shared.context.free_again();
        let mark = Mark::new(stream.context())?;
        let ended = hold_back(stream, after).and_then(|()| Ok(work(stream, address, &mark)?));
        if let Err(error) = ended {
            self.abandon(held_by(stream, after));
            return Err(error);
        }
        Ok(true)
    }

    /// Notes that a call has failed after others were enqueued, for [`after_failure`](Runtime::after_failure).
    fn abandon(&self, held: Held) {
        let mut abandoned = self.shared.abandoned.lock();
        abandoned.push((ThreadNumber::own(), held));
    }
}

fn address(part: &Part<'_, CudaBackend>) -> Result<u64> {
    part.address()
        .ok_or_else(|| Error::unsupported("commands on memory without an address"))
}

/// Checks that memory may be used on this queue, and the queue on this thread.
fn check_queue(on: &QueueStream, parts: &[&Part<'_, CudaBackend>]) -> Result<()> {
    on.check_thread()?;
    for part in parts {
        match &part.block().0 {
            Body::Ordered(_, own) if own.raw() != on.stream().raw() => {
                return Err(Error::unsupported(
                    "memory of `allocate_on` on another queue than its own: use `allocate`, whose memory is for all queues",
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns whether memory is of another device than the queue.
fn is_far(on: &QueueStream, part: &Part<'_, CudaBackend>) -> bool {
    let context = part.block().device_context();
    context.is_some_and(|context| !context.is_same(on.context()))
}

/// The device of the memory, where none of it is of the queue's.
fn device_elsewhere<'a>(
    on: &QueueStream,
    parts: &[&Part<'a, CudaBackend>],
) -> Option<&'a Arc<Context>> {
    let mut other = None;
    for part in parts {
        match part.block().device_context() {
            Some(context) if context.is_same(on.context()) => return None,
            context => other = other.or(context),
        }
    }
    other
}

fn held_by(stream: &Stream, after: &[CudaMark]) -> Held {
    let contexts = after.iter().filter_map(CudaMark::context);
    let others = contexts.filter(|context| !context.is_same(stream.context()));
    Held {
        staging: None,
        contexts: others.map(Arc::clone).collect(),
    }
}

fn check_waits(stream: &Stream, after: &[CudaMark]) -> Result<()> {
    after.iter().try_for_each(|mark| mark.check_wait(stream))
}

fn hold_back(stream: &Stream, after: &[CudaMark]) -> Result<()> {
    after.iter().try_for_each(|mark| mark.hold_back(stream))
}

/// Makes later commands of one stream wait for the earlier ones of another.
fn follow(later: &Stream, earlier: &Stream) -> CudaResult<()> {
    let mark = Mark::new(earlier.context())?;
    earlier.record(&mark)?;
    later.wait_for_mark(&mark)
}
