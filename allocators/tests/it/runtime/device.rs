//! A runtime whose commands end when the test says so, and that does in its calls what the test says.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use binpool_allocators::{
    Align, DeviceLimits, Error, EventStatus, FailureOrder, MemoryFlags, Outcome, QueueOrder,
    Region, Result, Work,
    runtime::{Core, Objects, Part, Runtime, RuntimePages},
};
use parking_lot::Mutex;

pub(crate) const PAGE: usize = 64;
pub(crate) const LARGEST_BLOCK: usize = 1 << 18;
pub(crate) const LARGEST_RESERVATION: usize = 1 << 19;

/// Clones are the same device.
#[derive(Clone)]
pub(crate) struct Scripted(Arc<Device>);

struct Device {
    core: Arc<Core<Scripted>>,
    commands: Mutex<Vec<Command>>,
    blocks: Arc<AtomicUsize>,
    streams: AtomicUsize,
    script: Arc<Script>,
    options: Mutex<Options>,
}

/// How the device is from now on.
pub(crate) struct Options {
    /// How far a new command is.
    pub(crate) status: EventStatus,
    pub(crate) captures: bool,
    /// Whether it transfers bytes of the program without a copy.
    pub(crate) transfers_directly: bool,
    pub(crate) page_bytes: usize,
}

/// A call of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Allocate,
    Free,
    EndStream,
    /// It has enqueued the command by the time that it does what it is told.
    Submit,
    /// A transfer without a copy.
    Transfer,
    /// The command is enqueued, and not yet noted.
    AskIfCaptured,
    /// A failure says that nothing was enqueued.
    AfterFailure,
    Map,
    Unmap,
    Resolve,
}

type Act = Box<dyn FnOnce() -> Result<()> + Send>;

#[derive(Default)]
struct Script(Mutex<Vec<(Call, Act)>>);

impl Script {
    fn act(&self, call: Call) -> Result<()> {
        let mut acts = self.0.lock();
        let next = acts.iter().position(|(other, _)| *other == call);
        let act = next.map(|at| acts.remove(at).1);
        drop(acts);
        act.map_or(Ok(()), |act| act())
    }
}

/// What the runtime was told.
#[derive(Clone)]
pub(crate) struct Command {
    pub(crate) mark: Mark,
    pub(crate) after: Vec<Mark>,
    /// The number of its stream.
    pub(crate) stream: usize,
    pub(crate) told: Told,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Marker,
    Barrier,
    Fill(Region, Vec<u8>),
    Write(Region, Vec<u8>),
    Read(Region),
    Copy(Region, Region),
    Commit(Region),
    Flush,
    WriteDirectly(Region),
    ReadDirectly(Region),
    Map(Region),
    Unmap(Region),
}

#[derive(Clone)]
pub(crate) struct Mark(Arc<MarkState>);

struct MarkState {
    /// None where the runtime cannot tell.
    status: Mutex<Option<EventStatus>>,
    ends_if_waited_for: AtomicBool,
    is_captured: bool,
    script: Arc<Script>,
}

impl Mark {
    pub(crate) fn set(&self, status: EventStatus) {
        *self.0.status.lock() = Some(status);
    }

    /// From now on, the runtime fails to tell how far it is.
    pub(crate) fn lose(&self) {
        *self.0.status.lock() = None;
    }

    /// From now on, a wait as the backend ends does not last forever.
    pub(crate) fn end_if_waited_for(&self) {
        self.0.ends_if_waited_for.store(true, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> EventStatus {
        self.0.status.lock().unwrap()
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Memory, which counts as long as it is allocated.
pub(crate) struct Block {
    blocks: Arc<AtomicUsize>,
    script: Arc<Script>,
    pub(crate) bytes: usize,
    pub(crate) flags: MemoryFlags,
    address: Option<u64>,
    pub(crate) is_freed_in_order: AtomicBool,
    /// Why it may not be freed.
    pub(crate) held: Arc<Mutex<Option<&'static str>>>,
}

impl Drop for Block {
    fn drop(&mut self) {
        self.blocks.fetch_sub(1, Ordering::Relaxed);
        let _whatever = self.script.act(Call::Free);
    }
}

pub(crate) struct Stream {
    pub(crate) number: usize,
    script: Arc<Script>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _whatever = self.script.act(Call::EndStream);
    }
}

pub(crate) fn failure() -> Error {
    Error::backend("a call", Some(-1), "on purpose")
}

impl Scripted {
    pub(crate) fn new() -> Self {
        Self::of(FailureOrder::Kept, None)
    }

    pub(crate) fn of(failure_order: FailureOrder, family: Option<usize>) -> Self {
        let alignment = Align::new(16).unwrap();
        let mut limits = DeviceLimits::new("scripted", 1 << 20, LARGEST_BLOCK, alignment);
        limits.failure_order = failure_order;
        limits.out_of_order_queues = failure_order == FailureOrder::Kept;
        let core = Core::new(limits);
        let core = match family {
            Some(family) => core.of_family(family),
            None => core,
        };
        Self(Arc::new(Device {
            core: Arc::new(core),
            commands: Mutex::default(),
            blocks: Arc::default(),
            streams: AtomicUsize::new(0),
            script: Arc::default(),
            options: Mutex::new(Options {
                status: EventStatus::Pending,
                captures: false,
                transfers_directly: false,
                page_bytes: PAGE,
            }),
        }))
    }

    pub(crate) fn core(&self) -> &Core<Self> {
        &self.0.core
    }

    /// The next call of this kind for which nothing else was said does this, and fails if this does.
    pub(crate) fn at(&self, call: Call, act: impl FnOnce() -> Result<()> + Send + 'static) {
        self.0.script.0.lock().push((call, Box::new(act)));
    }

    pub(crate) fn fail(&self, call: Call) {
        self.at(call, || Err(failure()));
    }

    /// Whether all that was said was done.
    pub(crate) fn has_acted(&self) -> bool {
        self.0.script.0.lock().is_empty()
    }

    pub(crate) fn set(&self, set: impl FnOnce(&mut Options)) {
        set(&mut self.0.options.lock());
    }

    pub(crate) fn last(&self) -> Command {
        self.0.commands.lock().last().unwrap().clone()
    }

    pub(crate) fn commands(&self) -> Vec<Command> {
        self.0.commands.lock().clone()
    }

    /// The marks of commands that something else keeps.
    pub(crate) fn kept_marks(&self) -> usize {
        let commands = self.0.commands.lock();
        let is_kept = |command: &&Command| Arc::strong_count(&command.mark.0) > 1;
        commands.iter().filter(is_kept).count()
    }

    /// The blocks that are not freed though the core was told to free what it can.
    pub(crate) fn blocks(&self) -> usize {
        self.0.core.drop_what_has_ended();
        self.count().load(Ordering::Relaxed)
    }

    /// Counts the blocks, and outlives the device.
    pub(crate) fn count(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.0.blocks)
    }

    pub(crate) fn block(&self, bytes: usize, flags: MemoryFlags, address: Option<u64>) -> Block {
        self.0.blocks.fetch_add(1, Ordering::Relaxed);
        Block {
            blocks: self.count(),
            script: Arc::clone(&self.0.script),
            bytes,
            flags,
            address,
            is_freed_in_order: AtomicBool::new(false),
            held: Arc::default(),
        }
    }

    fn mark(&self) -> Mark {
        let options = self.0.options.lock();
        Mark(Arc::new(MarkState {
            status: Mutex::new(Some(options.status)),
            ends_if_waited_for: AtomicBool::new(false),
            is_captured: options.captures,
            script: Arc::clone(&self.0.script),
        }))
    }

    fn told(&self, stream: usize, after: &[Mark], told: Told) -> Mark {
        let mark = self.mark();
        self.0.commands.lock().push(Command {
            mark: mark.clone(),
            after: after.to_vec(),
            stream,
            told,
        });
        mark
    }

    fn transfer(&self, stream: &Stream, after: &[Mark], told: Told) -> Result<bool> {
        if !self.0.options.lock().transfers_directly {
            return Ok(false);
        }
        self.told(stream.number, after, told);
        self.0.script.act(Call::Transfer)?;
        Ok(true)
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scripted")
    }
}

impl Objects for Scripted {
    type Block = Block;
    type Stream = Stream;
    type Mark = Mark;

    fn status(mark: &Mark) -> Result<EventStatus> {
        mark.0.status.lock().ok_or_else(failure)
    }

    fn wait(mark: &Mark) -> Result<()> {
        match Self::status(mark)? {
            EventStatus::Pending => panic!("a wait that never ends"),
            EventStatus::Complete => Ok(()),
            EventStatus::Failed => Err(failure()),
        }
    }

    fn wait_at_end(mark: &Mark) -> bool {
        mark.0.ends_if_waited_for.load(Ordering::Relaxed) || Self::has_ended(mark)
    }

    unsafe fn resolve(mark: &Mark, outcome: Outcome) -> Result<()> {
        mark.0.script.act(Call::Resolve)?;
        mark.set(match outcome {
            Outcome::Complete => EventStatus::Complete,
            Outcome::Failed => EventStatus::Failed,
        });
        Ok(())
    }

    fn address(block: &Block) -> Option<u64> {
        block.address
    }

    fn is_captured(mark: &Mark) -> bool {
        let _whatever = mark.0.script.act(Call::AskIfCaptured);
        mark.0.is_captured
    }

    fn is_freed_in_order(block: &Block) -> bool {
        block.is_freed_in_order.load(Ordering::Relaxed)
    }

    fn may_free(block: &Block) -> Result<(), &'static str> {
        block.held.lock().map_or(Ok(()), Err)
    }
}

impl Runtime for Scripted {
    fn core(&self) -> &Arc<Core<Self>> {
        &self.0.core
    }

    fn allocate(&self, bytes: usize, flags: MemoryFlags) -> Result<Block> {
        self.0.script.act(Call::Allocate)?;
        Ok(self.block(bytes, flags, Some(0x1000)))
    }

    fn create_stream(&self, _order: QueueOrder) -> Result<Stream> {
        Ok(Stream {
            number: self.0.streams.fetch_add(1, Ordering::Relaxed),
            script: Arc::clone(&self.0.script),
        })
    }

    unsafe fn submit(
        &self,
        stream: &Stream,
        after: &[Mark],
        work: Work<'_, &Part<'_, Self>>,
    ) -> Result<Mark> {
        let told = match work {
            Work::Marker => Told::Marker,
            Work::Barrier => Told::Barrier,
            Work::Fill(to, pattern) => Told::Fill(to.region(), pattern.to_vec()),
            Work::Write(to, data) => Told::Write(to.region(), data.to_vec()),
            Work::Read(from, sink) => {
                sink.put(|| vec![7]);
                Told::Read(from.region())
            }
            Work::Copy(from, to) => Told::Copy(from.region(), to.region()),
            other => panic!("{other:?}"),
        };
        let mark = self.told(stream.number, after, told);
        self.0.script.act(Call::Submit)?;
        Ok(mark)
    }

    unsafe fn flush(&self, stream: &Stream) -> Result<()> {
        self.told(stream.number, &[], Told::Flush);
        Ok(())
    }

    unsafe fn commit(&self, stream: &Stream, all: &Part<'_, Self>) -> Result<()> {
        self.told(stream.number, &[], Told::Commit(all.region()));
        Ok(())
    }

    unsafe fn write(
        &self,
        stream: &Stream,
        after: &[Mark],
        to: &Part<'_, Self>,
        _data: &[u8],
    ) -> Result<bool> {
        self.transfer(stream, after, Told::WriteDirectly(to.region()))
    }

    unsafe fn read(
        &self,
        stream: &Stream,
        after: &[Mark],
        from: &Part<'_, Self>,
        _data: &mut [u8],
    ) -> Result<bool> {
        self.transfer(stream, after, Told::ReadDirectly(from.region()))
    }

    fn create_user_mark(&self) -> Result<Mark> {
        Ok(self.mark())
    }

    fn free_bytes(&self) -> Option<u64> {
        Some(77)
    }

    unsafe fn after_failure(&self, _stream: &Stream, _parts: &[&Part<'_, Self>]) -> Option<Mark> {
        self.0.script.act(Call::AfterFailure).ok()?;
        Some(self.last().mark)
    }
}

impl RuntimePages for Scripted {
    fn page_bytes(&self) -> usize {
        self.0.options.lock().page_bytes
    }

    fn reserve(&self, bytes: usize) -> Result<Block> {
        Ok(self.block(bytes, MemoryFlags::empty(), Some(0x10_0000)))
    }

    fn largest_reservation(&self) -> usize {
        LARGEST_RESERVATION
    }

    fn create_pages(&self, bytes: usize) -> Result<Block> {
        self.0.script.act(Call::Allocate)?;
        Ok(self.block(bytes, MemoryFlags::empty(), None))
    }

    unsafe fn map(&self, _reservation: &Block, region: Region, _pages: &Block) -> Result<()> {
        self.told(0, &[], Told::Map(region));
        self.0.script.act(Call::Map)
    }

    unsafe fn unmap(&self, _reservation: &Block, region: Region) -> Result<()> {
        self.told(0, &[], Told::Unmap(region));
        self.0.script.act(Call::Unmap)
    }
}
