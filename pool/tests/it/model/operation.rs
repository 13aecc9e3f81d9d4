//! What programs are made of. How a value is written with `{:?}` is how it is written in Rust, so that programs can be
//! printed and pasted.

use binpool::ReusePolicy;
use binpool_mock::{CallKind, Completion, Failures, Fault};
use proptest::{prelude::*, sample::select};

/// All memory of the device.
pub(crate) const CAPACITY: usize = 235 * 256;

/// The largest block that the device gives. Not a size of a class, so that blocks of that class have exact sizes.
pub(crate) const LARGEST: usize = 78 * 256;

/// Where a pool's memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Buffers that are committed at once, on a device that is soon full.
    Immediate,
    /// Buffers that are committed when they are used, on a device that never is: only the limit bounds the pool.
    Deferred,
    /// Shared virtual memory, on a device that is soon full.
    Svm,
}

/// What a program runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) source: Source,
    /// Blocks are carved from segments, or else are each the allocator's.
    pub(crate) segments: bool,
    pub(crate) reuse: ReusePolicy,
    /// Above this many bytes, free memory goes back by itself. Threads cache nothing then.
    pub(crate) threshold: Option<usize>,
    pub(crate) completion: Completion,
    pub(crate) failures: Failures,
    /// The pool takes note of who has which block.
    pub(crate) watched: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) usize);

/// The block at this place of those that the program has, counted round and round, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block(pub(crate) usize);

/// The view at this place of those that the program has, counted round and round, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View(pub(crate) usize);

/// 0 is the pool's home queue, 3 is out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queue(pub(crate) usize);

/// 0 is the test's own thread. The others take turns with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thread(pub(crate) usize);

/// How a block is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Filled, after `order_before`.
    Ordered,
    /// Filled, after the events of the commands that used the block before.
    Behind,
    /// Filled through memory that was asked for another queue, after `record_use`.
    Recorded,
    /// Filled from its middle on, through a view.
    Viewed,
    /// Written, by bytes of the host.
    Written,
}

/// What a reclaim hook does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// It drops all blocks that the program can do without.
    DropsCache,
    /// It asks the pool for what it holds, and drops the oldest block that the program can do without.
    UsesPool,
    Panics,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Allocate(Bytes, Queue, Thread),
    Drop(Block, Thread),
    /// Gives a block back by `release`.
    GiveBack(Block, Thread),
    EnqueueRelease(Block, Queue),
    /// Takes a block out of the pool for good.
    Detach(Block, Thread),
    /// Frees what was detached first.
    DropDetached,
    /// Makes the block one that the program can do without, for hooks to drop.
    Cache(Block),
    Write(Block, Queue, Way),
    Copy(Block, Block, Queue),
    Read(Block, Queue),
    /// Makes a view of all of a block's memory, which may outlive the block: of a view of it, where there is one.
    MakeView(Block),
    /// Fills a block through a view, whether it has been given back or not.
    WriteView(View, Queue),
    DropView(View, Thread),
    Bind(Block, Queue),
    Unbind(Block),
    /// The next write waits for a new user event.
    Gate,
    /// What waits for user events goes on.
    OpenGates,
    /// The user event at this place of those that are not resolved fails, and what waits for it.
    FailGate(usize),
    /// The device runs this many commands, if it can.
    Step(usize),
    /// The device runs everything that it can.
    Run,
    FreeHeld,
    TrimTo(Bytes),
    Sweep,
    WouldFit(Bytes),
    /// Compares all counters. Asking for them makes threads tell what they did, so that it is not done after each step.
    Count,
    StopHolding,
    ResumeHolding,
    /// Lets no more than this many bytes be taken from the allocator from now on.
    Limit(Bytes),
    AddHook(Hook),
    /// Takes the oldest hook away.
    RemoveHook,
    Retire(Queue),
    /// Drops the program's handle of a queue, and makes another in its place.
    Renew(Queue),
    /// The thread ends, and another takes its place.
    EndThread(Thread),
    /// Has the nth call of this kind from now on fail.
    Fail(CallKind, u64, Fault),
    /// Drops the last handle of the pool.
    DropPool,
}

pub(crate) fn any_setting(failures: &'static [Failures]) -> impl Strategy<Value = Setting> {
    let source = select(&[Source::Immediate, Source::Deferred, Source::Svm][..]);
    let completion = prop_oneof![
        3 => Just(Completion::AtOnce),
        2 => Just(Completion::Manual),
        2 => any::<u16>().prop_map(|seed| Completion::Seeded(seed.into())),
    ];
    let reuse = select(&ReusePolicy::ALL[..]);
    let threshold = prop_oneof![3 => Just(None), 1 => (0..CAPACITY).prop_map(Some)];
    let flags = any::<(bool, bool)>();
    let failures = select(failures);
    (source, flags, reuse, threshold, completion, failures).prop_map(
        |(source, (segments, watched), reuse, threshold, completion, failures)| Setting {
            source,
            segments,
            reuse,
            threshold,
            completion,
            failures,
            watched,
        },
    )
}

fn any_bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        1 => Just(0_usize),
        4 => 1..1024_usize,
        // Few classes, so that blocks are handed out again.
        8 => select(&[256_usize, 1000, 4096, 5000, 16_000][..]),
        6 => 1024..LARGEST,
        4 => select(&[19_500, LARGEST - 1, LARGEST][..]),
        1 => select(&[LARGEST + 1, CAPACITY + 1, usize::MAX][..]),
    ]
    .prop_map(Bytes)
}

fn any_view() -> impl Strategy<Value = View> {
    (0..4_usize).prop_map(View)
}

fn any_block() -> impl Strategy<Value = Block> {
    (0..8_usize).prop_map(Block)
}

/// Mostly the home queue, so that there are long stretches on one queue.
fn any_queue() -> impl Strategy<Value = Queue> {
    prop_oneof![3 => Just(0_usize), 2 => Just(1), 1 => Just(2), 1 => Just(3)].prop_map(Queue)
}

fn any_thread() -> impl Strategy<Value = Thread> {
    prop_oneof![4 => Just(0_usize), 1 => Just(1), 1 => Just(2)].prop_map(Thread)
}

fn any_way() -> impl Strategy<Value = Way> {
    select(
        &[
            Way::Ordered,
            Way::Behind,
            Way::Recorded,
            Way::Viewed,
            Way::Written,
        ][..],
    )
}

/// Calls that the pool makes, and that leave the program's own bytes alone.
fn any_failure() -> impl Strategy<Value = Operation> {
    let kinds = &[
        CallKind::CreateBuffer,
        CallKind::AllocateSvm,
        CallKind::Commit,
        CallKind::CreateSubRegion,
        CallKind::Release,
        CallKind::Marker,
        CallKind::Barrier,
        CallKind::Flush,
        CallKind::Finish,
    ][..];
    let faults = &[Fault::OutOfMemory, Fault::Backend(-5), Fault::DeviceLost][..];
    (select(kinds), 1..4_u64, select(faults))
        .prop_map(|(kind, nth, fault)| Operation::Fail(kind, nth, fault))
}

pub(crate) fn any_operation() -> impl Strategy<Value = Operation> {
    use Operation as O;
    let hooks = &[Hook::DropsCache, Hook::UsesPool, Hook::Panics][..];
    let limits = prop_oneof![Just(usize::MAX), 0..CAPACITY, Just(CAPACITY)].prop_map(Bytes);
    prop_oneof![
        40 => (any_bytes(), any_queue(), any_thread()).prop_map(|(bytes, queue, thread)| O::Allocate(bytes, queue, thread)),
        30 => (any_block(), any_thread()).prop_map(|(block, thread)| O::Drop(block, thread)),
        2 => (any_block(), any_thread()).prop_map(|(block, thread)| O::GiveBack(block, thread)),
        4 => (any_block(), any_queue()).prop_map(|(block, queue)| O::EnqueueRelease(block, queue)),
        2 => (any_block(), any_thread()).prop_map(|(block, thread)| O::Detach(block, thread)),
        2 => Just(O::DropDetached),
        3 => any_block().prop_map(O::Cache),
        14 => (any_block(), any_queue(), any_way()).prop_map(|(block, queue, way)| O::Write(block, queue, way)),
        5 => (any_block(), any_block(), any_queue()).prop_map(|(from, to, queue)| O::Copy(from, to, queue)),
        4 => (any_block(), any_queue()).prop_map(|(block, queue)| O::Read(block, queue)),
        4 => any_block().prop_map(O::MakeView),
        4 => (any_view(), any_queue()).prop_map(|(view, queue)| O::WriteView(view, queue)),
        5 => (any_view(), any_thread()).prop_map(|(view, thread)| O::DropView(view, thread)),
        4 => (any_block(), any_queue()).prop_map(|(block, queue)| O::Bind(block, queue)),
        2 => any_block().prop_map(O::Unbind),
        4 => Just(O::Gate),
        4 => Just(O::OpenGates),
        3 => (1..4_usize).prop_map(O::Step),
        3 => Just(O::Run),
        2 => Just(O::FreeHeld),
        3 => (0..CAPACITY).prop_map(|bytes| O::TrimTo(Bytes(bytes))),
        4 => Just(O::Sweep),
        2 => any_bytes().prop_map(O::WouldFit),
        20 => Just(O::Count),
        1 => Just(O::StopHolding),
        2 => Just(O::ResumeHolding),
        3 => limits.prop_map(O::Limit),
        2 => select(hooks).prop_map(O::AddHook),
        1 => Just(O::RemoveHook),
        2 => any_queue().prop_map(O::Retire),
        2 => any_queue().prop_map(O::Renew),
        1 => any_thread().prop_map(O::EndThread),
        2 => any_failure(),
        1 => Just(O::DropPool),
    ]
}

/// Gates fail, and blocks are of few sizes, so that they are handed out again after them.
pub(crate) fn any_failing_operation() -> impl Strategy<Value = Operation> {
    use Operation as O;
    let few = select(&[256_usize, 4096][..]).prop_map(Bytes);
    prop_oneof![
        60 => any_operation(),
        20 => (few, any_queue(), any_thread()).prop_map(|(bytes, queue, thread)| O::Allocate(bytes, queue, thread)),
        15 => (any_block(), any_thread()).prop_map(|(block, thread)| O::Drop(block, thread)),
        15 => (any_block(), any_queue(), any_way()).prop_map(|(block, queue, way)| O::Write(block, queue, way)),
        10 => Just(O::Gate),
        8 => (0..4_usize).prop_map(O::FailGate),
    ]
}
