//! What the layer knows and does, whichever function of OpenCL it is called by.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, Once, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use opencl_sys::{cl_int, cl_mem};
use smallvec::SmallVec;

use super::{
    about,
    driver::call,
    objects::{Block, FirstUses, Handle, Memory, Objects},
    pooled::{
        ContextPool, ContextPools, Kind, PooledBlock, ProgramQueue, forget_blocks_in_children,
        is_out_of_memory, is_pools, limit, status_of,
    },
};
use crate::{
    pool_figures,
    recording::{Group, Lock, Recording, hold_over_fork, lock, recording},
    settings::settings,
};

/// The layer of this process.
#[derive(Debug)]
pub(super) struct Layer {
    state: Mutex<State>,
    recording: Option<&'static Recording>,
    /// Set while memory comes from pools.
    is_pooled: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    objects: Objects<Arc<PooledBlock>>,
    /// What pools know of the program's queues.
    queues: HashMap<Handle, ProgramQueue>,
    /// The pools of the program's contexts.
    pools: HashMap<Handle, ContextPools>,
}

/// Who counts a reference of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CountedBy {
    Driver,
    /// The driver's reference is the pool's.
    Pool,
    /// The program has released the memory already, which the pool keeps.
    Released,
}

/// What is to be done for a reference that the program releases.
#[derive(Debug)]
#[must_use]
pub(super) struct Release {
    pub(super) counted_by: CountedBy,
    /// Memory of pools that the program no longer has. A pool gets it back, or the driver by its handle, if it ended by its last part.
    returned: Vec<(Arc<PooledBlock>, Option<Handle>)>,
}

impl Release {
    /// Goes on after the driver's call.
    pub(super) fn finish(self) {
        for (pooled, handle) in self.returned {
            drop(pooled);
            if let Some(handle) = handle {
                call!(clReleaseMemObject(handle as cl_mem));
            }
        }
    }
}

/// Where new memory comes from.
#[derive(Debug)]
pub(super) enum Source {
    Pool(Arc<PooledBlock>),
    Driver,
    /// The driver has refused it, with this status.
    Failed(cl_int),
    /// The limit is reached.
    Refused,
}

/// Returns the layer of this process.
pub(super) fn layer() -> &'static Layer {
    static LAYER: OnceLock<Layer> = OnceLock::new();
    static HELD: Once = Once::new();
    let layer = LAYER.get_or_init(|| Layer {
        state: Mutex::default(),
        recording: recording("OpenCL"),
        is_pooled: AtomicBool::new(settings().begin_pool()),
    });
    HELD.call_once(|| {
        hold_over_fork(Lock::OpenCl, &layer.state, State::begin_in_child);
        forget_blocks_in_children();
    });
    layer
}

impl Layer {
    /// Returns whether the layer has anything to do in this process.
    pub(super) fn is_needed(&self) -> bool {
        self.recording.is_some() || self.is_pooled()
    }

    pub(super) fn is_pooled(&self) -> bool {
        self.is_pooled.load(Ordering::Relaxed)
    }

    /// Stops taking memory from pools: what the program does can no longer be followed.
    pub(super) fn stop_pooling(&self, why: &str) {
        if self.is_pooled.swap(false, Ordering::Relaxed) {
            self.passed(0, why);
            self.release_kept();
        }
    }

    /// Notes memory that does not come from a pool.
    pub(super) fn passed(&self, bytes: usize, why: &str) {
        if let Some(recording) = self.recording
            && settings().is_pooled
        {
            recording.note("passed", bytes as u64, why);
        }
    }

    /// Changes what is known of the program's objects.
    pub(super) fn change(&self, change: impl FnOnce(&mut Objects<Arc<PooledBlock>>)) {
        change(&mut lock(&self.state).objects);
    }

    // Memory.

    /// Finds memory of this kind for the program.
    pub(super) fn allocate(&self, context: Handle, kind: Kind, bytes: usize) -> Source {
        let can_pool = self.is_pooled() && bytes > 0;
        let pool = can_pool.then(|| self.pool_for(context, kind, bytes));
        let Some((pool, queue)) = pool.flatten() else {
            return self.of_driver(bytes);
        };
        let allocated = pool.allocate(queue.as_ref(), bytes).or_else(|error| {
            // The other pools may have what this one lacks.
            if status_of(&error).is_none() && self.release_kept() > 0 {
                pool.allocate(queue.as_ref(), bytes)
            } else {
                Err(error)
            }
        });
        match allocated {
            Ok(block) => Source::Pool(Arc::new(block)),
            Err(error) => status_of(&error).map_or_else(
                || {
                    limit::say_refusal(error, &about::devices(context));
                    // The driver says in its own way what is wrong.
                    self.of_driver(bytes)
                },
                Source::Failed,
            ),
        }
    }

    /// Leaves a request to the driver, within the limit.
    fn of_driver(&self, bytes: usize) -> Source {
        if self.take(bytes) {
            Source::Driver
        } else {
            Source::Refused
        }
    }

    /// Counts memory of the driver against the limit. Returns false, and counts nothing, if that would be above it.
    pub(super) fn take(&self, bytes: usize) -> bool {
        limit::take(bytes) || (self.release_kept() > 0 && limit::take(bytes))
    }

    fn pool_for(
        &self,
        context: Handle,
        kind: Kind,
        bytes: usize,
    ) -> Option<(Arc<ContextPool>, Option<ProgramQueue>)> {
        let mut state = lock(&self.state);
        if let Some(why) = state.objects.unpooled(context) {
            drop(state);
            self.passed(bytes, why);
            return None;
        }
        let pool = state
            .pools
            .entry(context)
            .or_default()
            .of_kind(context, kind)?;
        // Shared virtual memory may be used by the host at once.
        let queue = match kind {
            Kind::Buffer { .. } => state.only_queue(context),
            Kind::Svm { .. } => None,
        };
        Some((pool, queue))
    }

    /// Notes memory that the program has now: a buffer, an image or a pipe, which may be a part of `whole`.
    pub(super) fn created(
        &self,
        handle: Handle,
        context: Handle,
        kind: &'static str,
        bytes: usize,
        whole: Option<Handle>,
        pooled: Option<Arc<PooledBlock>>,
    ) {
        let (id, bytes) = if whole.is_none() {
            let id = self.note_block(context, kind, bytes, pooled.is_some());
            (id, bytes)
        } else {
            // A part has no memory of its own.
            self.note("part", bytes, kind);
            (None, 0)
        };
        let block = Block::new(bytes, id, pooled);
        lock(&self.state).objects.add(handle, whole, block);
    }

    pub(super) fn created_svm(
        &self,
        address: usize,
        context: Handle,
        kind: &'static str,
        bytes: usize,
        pooled: Option<Arc<PooledBlock>>,
    ) {
        let id = self.note_block(context, kind, bytes, pooled.is_some());
        let block = Block::new(bytes, id, pooled);
        lock(&self.state).objects.add_svm(address, block);
    }

    /// Notes a request that failed for lack of memory.
    pub(super) fn refused(&self, context: Handle, kind: &'static str, bytes: usize) {
        pool_figures::count_request(false);
        limit::note_refusal(bytes);
        if let Some(recording) = self.recording {
            recording.refused(self.group(context, kind), bytes, 0, 0);
        }
    }

    fn note_block(
        &self,
        context: Handle,
        kind: &'static str,
        bytes: usize,
        is_pooled: bool,
    ) -> Option<u64> {
        pool_figures::count_request(is_pooled);
        let recording = self.recording?;
        Some(recording.allocated(self.group(context, kind), bytes, 0))
    }

    /// Notes that a block was freed.
    fn note_end(&self, block: &Block<Arc<PooledBlock>>) {
        if let (Some(recording), Some(id)) = (self.recording, block.id) {
            recording.freed(id);
        }
    }

    fn note(&self, what: &str, bytes: usize, text: &str) {
        if let Some(recording) = self.recording {
            recording.note(what, bytes as u64, text);
        }
    }

    /// The group of memory in a context, which the recording comes to know.
    fn group(&self, context: Handle, kind: &'static str) -> Group {
        let mut state = lock(&self.state);
        let known = state.objects.context(context);
        let number = known.number;
        let is_new = !std::mem::replace(&mut known.is_noted, true);
        drop(state);
        if is_new && let Some(recording) = self.recording {
            recording.context(number, &about::devices(context));
        }
        Group {
            kind,
            context: number,
        }
    }

    /// Notes that the program asks for a reference to memory.
    pub(super) fn retain(&self, handle: Handle) -> CountedBy {
        let mut state = lock(&self.state);
        let counted_by = state.counted_by(handle);
        state.objects.retain(handle);
        counted_by
    }

    /// How many references to memory the driver counts besides those of the program.
    pub(super) fn pools_references(&self, handle: Handle) -> u32 {
        let counted_by = lock(&self.state).counted_by(handle);
        u32::from(counted_by == CountedBy::Pool)
    }

    /// Notes that the program releases a reference.
    pub(super) fn release(&self, handle: Handle) -> Release {
        let mut state = lock(&self.state);
        let ended = state.objects.release(handle);
        let mut release = Release {
            counted_by: CountedBy::Driver,
            returned: Vec::new(),
        };
        if ended.is_empty() {
            release.counted_by = state.counted_by(handle);
            return release;
        }
        drop(state);
        for (ended_handle, Memory { block, maps, .. }) in ended {
            self.note_end(&block);
            let is_own = ended_handle == handle;
            let Some(pooled) = block.pooled else {
                limit::release(block.bytes);
                continue;
            };
            let is_reused = maps == 0 && !block.is_left && self.is_pooled();
            if is_reused {
                if is_own {
                    release.counted_by = CountedBy::Pool;
                }
            } else {
                pooled.give_away();
                limit::release(block.bytes);
            }
            let drivers = (!is_reused && !is_own).then_some(ended_handle);
            release.returned.push((pooled, drivers));
        }
        release
    }

    /// Leaves memory of a pool to the driver when it ends, since the program will be told then.
    pub(super) fn give_away(&self, handle: Handle, why: &str) {
        let mut state = lock(&self.state);
        let left = state.objects.memory_mut(handle).and_then(|memory| {
            let block = &mut memory.block;
            let is_new = block.pooled.is_some() && !std::mem::replace(&mut block.is_left, true);
            is_new.then_some(block.bytes)
        });
        drop(state);
        if let Some(bytes) = left {
            self.passed(bytes, why);
        }
    }

    /// Notes that memory was mapped, or that a map ended.
    pub(super) fn mapped(&self, handle: Handle, is_mapped: bool) {
        let mut state = lock(&self.state);
        let whole = state.objects.whole_of(handle);
        if let Some(memory) = state.objects.memory_mut(whole) {
            memory.maps = if is_mapped {
                memory.maps + 1
            } else {
                memory.maps.saturating_sub(1)
            };
        }
    }

    /// Notes that shared virtual memory is freed. Returns true if the pool has it again, or already.
    pub(super) fn free_svm(&self, address: usize, may_reuse: bool) -> bool {
        let block = lock(&self.state).objects.remove_svm(address);
        let Some(block) = block else {
            return is_pools(address);
        };
        self.note_end(&block);
        if block.pooled.is_some() && may_reuse && self.is_pooled() {
            return true;
        }
        if let Some(pooled) = block.pooled {
            pooled.give_away();
        }
        limit::release(block.bytes);
        false
    }

    /// Releases all free memory of the pools. Returns how much that was.
    pub(super) fn release_kept(&self) -> u64 {
        let state = lock(&self.state);
        let pools: Vec<_> = state.pools.values().flat_map(ContextPools::all).collect();
        drop(state);
        pools.iter().map(|pool| pool.release_kept()).sum()
    }

    // Commands.

    /// Notes that a command on `queue` uses memory, before it is enqueued.
    pub(super) fn uses(&self, queue: Handle, memory: &[Handle]) {
        self.note_uses(queue, |objects| objects.use_memory(queue, memory));
    }

    /// Notes that a kernel uses its arguments, before it is enqueued on `queue`.
    pub(super) fn runs(&self, queue: Handle, kernel: Handle) {
        self.note_uses(queue, |objects| objects.use_kernel(queue, kernel));
    }

    /// The state, which knows `queue`: a program may have a queue by a function of an extension, or by an event of it.
    fn state_with(&self, queue: Handle) -> MutexGuard<'_, State> {
        let state = lock(&self.state);
        if state.objects.queues.contains_key(&queue) {
            return state;
        }
        drop(state);
        self.find_queue(queue, 0);
        lock(&self.state)
    }

    /// Adds a queue that the program has from another object, and has `references` to.
    fn find_queue(&self, queue: Handle, references: u32) {
        if let Some(context) = about::context_of(queue) {
            self.add_queue(queue, context, references);
        }
    }

    fn note_uses(
        &self,
        queue: Handle,
        uses: impl FnOnce(&Objects<Arc<PooledBlock>>) -> FirstUses<Arc<PooledBlock>>,
    ) {
        let mut state = self.state_with(queue);
        let first = uses(&state.objects);
        let Some(known) = state.objects.queues.get_mut(&queue) else {
            return;
        };
        if first.is_empty() {
            return;
        }
        let (number, context) = (known.number, known.context);
        let is_new = !std::mem::replace(&mut known.is_noted, true);
        let context_number = state.objects.context(context).number;
        let own = state.queues.get(&queue).cloned();
        drop(state);
        let is_own = own.is_some();
        // One that other objects keep may end at any time, so no pool may enqueue anything there later.
        let program_queue = own.unwrap_or_else(|| ProgramQueue::new(queue, context));
        if is_new {
            let order = if program_queue.is_in_order {
                "in order"
            } else {
                "out of order"
            };
            let text = format!("{number}: {order}, context {context_number}");
            self.note("stream", 0, &text);
        }
        for used in &first {
            if !is_own {
                self.give_away(
                    used.handle,
                    "memory used on a queue that only other objects keep",
                );
            }
            if let Some(pooled) = &used.pooled {
                pooled.use_on(&program_queue, used.is_first_queue);
            }
        }
        if !is_own {
            self.close(&program_queue);
        }
        // Only now, so that another thread that uses the memory there, too, does not overtake what puts it in order.
        let mut state = lock(&self.state);
        let new: SmallVec<[u64; 4]> = first
            .iter()
            .filter(|used| state.objects.put_use(queue, used.handle))
            .filter_map(|used| used.id)
            .collect();
        drop(state);
        if let Some(recording) = self.recording {
            for id in new {
                recording.used(id, number);
            }
        }
    }

    /// Looks at a command's status. Returns true if the command is worth another try, now that free memory was released.
    pub(super) fn is_worth_a_retry(&self, status: cl_int) -> bool {
        is_out_of_memory(status) && self.is_pooled() && self.release_kept() > 0
    }

    // Kernels.

    /// Notes addresses that a kernel gets: at one of the host's own memory, it may wait for the host.
    pub(super) fn points_to(&self, addresses: &[usize]) {
        let state = lock(&self.state);
        let is_hosts = |address: &usize| *address != 0 && state.objects.svm_at(*address).is_none();
        let may_wait = !state.objects.may_wait_unseen && addresses.iter().any(is_hosts);
        drop(state);
        if may_wait {
            self.may_wait_unseen();
        }
    }

    // Contexts and queues.

    pub(super) fn release_context(&self, context: Handle) {
        lock(&self.state).objects.release_context(context);
        self.end_pools(context);
    }

    /// Ends the pools of a context that the program no longer has.
    fn end_pools(&self, context: Handle) {
        let mut state = lock(&self.state);
        if state.objects.has_context(context) {
            return;
        }
        let pools = state.pools.remove(&context);
        drop(state);
        for pool in pools.iter().flat_map(ContextPools::all) {
            pool.stop_keeping();
        }
    }

    /// Adds a queue that the program has `references` to.
    pub(super) fn add_queue(&self, queue: Handle, context: Handle, references: u32) {
        self.end_periods();
        let program_queue = ProgramQueue::new(queue, context);
        let mut state = lock(&self.state);
        state.objects.add_queue(queue, context, references);
        if references > 0 {
            state.queues.insert(queue, program_queue);
        }
    }

    pub(super) fn retain_queue(&self, queue: Handle) {
        let mut state = lock(&self.state);
        match state.objects.queues.get_mut(&queue) {
            Some(queue) if queue.references > 0 => queue.references += 1,
            _ => {
                drop(state);
                self.find_queue(queue, 1);
            }
        }
    }

    /// Notes that a reference to a queue is released, before the driver knows.
    pub(super) fn release_queue(&self, queue: Handle) {
        let mut state = lock(&self.state);
        let Some(ended) = state.objects.release_queue(queue) else {
            return;
        };
        let closed = state.queues.remove(&queue);
        drop(state);
        if let Some(closed) = closed {
            self.close(&closed);
        }
        self.end_pools(ended.context);
    }

    /// Has the pools forget a queue.
    fn close(&self, queue: &ProgramQueue) {
        // No pool knows this stream, so nothing has to wait for it.
        if Arc::strong_count(&queue.stream) == 1 {
            return;
        }
        // Whatever is enqueued later by the pools, in the name of this queue, is over once this is.
        queue.stream.close();
        let pools = lock(&self.state)
            .pools
            .get(&queue.context)
            .map(ContextPools::all);
        for pool in pools.into_iter().flatten() {
            pool.forget(&queue.stream);
        }
    }

    /// Counts user events that have no status yet.
    pub(super) fn add_user_event(&self) {
        lock(&self.state).objects.unresolved_events += 1;
        self.end_periods();
    }

    /// Notes that commands may wait from now on for what is not seen: a function of the program, memory that the host writes meanwhile, a pipe.
    pub(super) fn may_wait_unseen(&self) {
        lock(&self.state).objects.may_wait_unseen = true;
        self.end_periods();
    }

    /// Ends the time in which blocks were allocated for the only queue of a context: what is enqueued there from now on may wait for another queue.
    fn end_periods(&self) {
        if self.is_pooled() {
            let queues: Vec<ProgramQueue> = lock(&self.state).queues.values().cloned().collect();
            for queue in queues {
                queue.stream.end_period();
            }
        }
    }

    pub(super) fn resolve_user_event(&self) {
        let mut state = lock(&self.state);
        let unresolved = &mut state.objects.unresolved_events;
        *unresolved = unresolved.saturating_sub(1);
    }
}

impl State {
    /// Returns who counts the references to memory, as far as the layer knows.
    fn counted_by(&mut self, handle: Handle) -> CountedBy {
        match self.objects.memory_mut(handle) {
            Some(memory) if memory.is_pools() => CountedBy::Pool,
            None if is_pools(handle) => CountedBy::Released,
            _ => CountedBy::Driver,
        }
    }

    /// Forgets what the parent of this process had. Nothing of it is dropped: another thread may have had the locks of its pools.
    fn begin_in_child(&mut self) {
        let had_pools = !self.pools.is_empty();
        std::mem::forget(std::mem::take(self));
        if had_pools {
            layer().is_pooled.store(false, Ordering::Relaxed);
        }
    }

    /// The queue whose earlier commands may still use what a context allocates now: that which all commands of the context come on, in order,
    /// if it has one, and no command waits for the host.
    fn only_queue(&self, context: Handle) -> Option<ProgramQueue> {
        if self.objects.unresolved_events > 0 || self.objects.may_wait_unseen {
            return None;
        }
        let queues = self.queues.values();
        let mut of_context = queues.filter(|queue| queue.context == context);
        let only = of_context.next().filter(|queue| queue.is_in_order)?;
        of_context.next().is_none().then(|| only.clone())
    }
}
