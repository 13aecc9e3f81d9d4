//! What the program has: its memory, which kernels and queues use it, and when it ends.

use std::collections::{BTreeMap, HashMap};

use smallvec::SmallVec;

/// An object of the driver, by its address.
pub(super) type Handle = usize;

/// All objects of the program that matter here.
#[derive(Debug)]
pub(super) struct Objects<B> {
    memory: HashMap<Handle, Memory<B>>,
    /// Shared virtual memory, by its address.
    svm: BTreeMap<usize, Block<B>>,
    kernels: HashMap<Handle, Arguments>,
    pub(super) queues: HashMap<Handle, QueueState>,
    pub(super) contexts: HashMap<Handle, ContextState>,
    next_queue: u32,
    next_context: u32,
    /// The user events that have no status yet.
    pub(super) unresolved_events: u64,
    /// Set once a command was a function of the program.
    pub(super) has_native_commands: bool,
}

/// Memory that the program has, or whose parts it has.
#[derive(Debug)]
pub(super) struct Memory<B> {
    /// The program's references.
    references: u32,
    /// The objects that are parts of this one.
    parts: u32,
    /// The memory that this one is a part of.
    whole: Option<Handle>,
    /// How often it or a part of it is mapped.
    pub(super) maps: u32,
    pub(super) block: Block<B>,
}

/// Memory of the device, as the recording and the pool know it.
#[derive(Clone, Debug)]
pub(super) struct Block<B> {
    /// Its ID in the recording.
    pub(super) id: Option<u64>,
    pub(super) bytes: usize,
    /// The queues that have used it, and are not released.
    queues: SmallVec<[Handle; 2]>,
    /// Set once a queue has used it.
    is_used: bool,
    /// What it is of the pool; `None` for memory of the driver.
    pub(super) pooled: Option<B>,
    /// Set if the pool does not get it back.
    pub(super) is_left: bool,
}

impl<B> Memory<B> {
    /// Returns whether the driver's only reference is the pool's: the program has parts of it alone.
    pub(super) fn is_pools(&self) -> bool {
        self.references == 0 && self.block.pooled.is_some()
    }
}

impl<B> Block<B> {
    pub(super) fn new(bytes: usize, id: Option<u64>, pooled: Option<B>) -> Self {
        Self {
            id,
            bytes,
            queues: SmallVec::new(),
            is_used: false,
            pooled,
            is_left: false,
        }
    }
}

/// The arguments of a kernel that are memory.
#[derive(Debug, Default, Clone)]
struct Arguments {
    /// Memory, or the address of shared virtual memory, by the argument's number.
    passed: SmallVec<[(u32, Handle); 8]>,
    /// Shared virtual memory that the kernel finds by itself.
    indirect: Vec<usize>,
}

/// A queue of the program.
#[derive(Debug)]
pub(super) struct QueueState {
    pub(super) number: u32,
    pub(super) context: Handle,
    pub(super) references: u32,
    /// Set once the recording knows it.
    pub(super) is_noted: bool,
}

/// A context of the program.
#[derive(Debug)]
pub(super) struct ContextState {
    pub(super) number: u32,
    pub(super) references: u32,
    /// Its queues that the program has not released.
    pub(super) queues: u32,
    pub(super) is_noted: bool,
}

/// Memory whose last reference has ended.
#[derive(Debug)]
pub(super) struct Ended<B> {
    pub(super) block: Block<B>,
    pub(super) maps: u32,
}

/// A block that a command uses for the first time on its queue.
#[derive(Debug)]
pub(super) struct FirstUse<B> {
    /// The memory, or the address of shared virtual memory.
    pub(super) handle: Handle,
    pub(super) id: Option<u64>,
    pub(super) pooled: Option<B>,
    /// Set if it is the first queue of all that uses the block.
    pub(super) is_first_queue: bool,
}

impl<B> Default for Objects<B> {
    fn default() -> Self {
        Self {
            memory: HashMap::new(),
            svm: BTreeMap::new(),
            kernels: HashMap::new(),
            queues: HashMap::new(),
            contexts: HashMap::new(),
            next_queue: 1,
            next_context: 1,
            unresolved_events: 0,
            has_native_commands: false,
        }
    }
}

impl<B: Clone> Objects<B> {
    /// Adds memory that was created; `whole` is what it is a part of.
    pub(super) fn add(&mut self, handle: Handle, whole: Option<Handle>, block: Block<B>) {
        let whole = whole.filter(|whole| self.memory.contains_key(whole));
        if let Some(whole) = whole.and_then(|whole| self.memory.get_mut(&whole)) {
            whole.parts += 1;
        }
        let memory = Memory {
            references: 1,
            parts: 0,
            whole,
            maps: 0,
            block,
        };
        self.memory.insert(handle, memory);
    }

    /// Counts a reference of the program more.
    pub(super) fn retain(&mut self, handle: Handle) {
        if let Some(memory) = self.memory.get_mut(&handle) {
            memory.references += 1;
        }
    }

    /// Counts a reference of the program less. Returns the memory that has ended by it: this, and what it was the last part of, in this order.
    pub(super) fn release(&mut self, handle: Handle) -> SmallVec<[(Handle, Ended<B>); 1]> {
        if let Some(memory) = self.memory.get_mut(&handle) {
            memory.references = memory.references.saturating_sub(1);
        }
        let mut ended = SmallVec::new();
        let mut next = Some(handle);
        while let Some(handle) = next.take() {
            let is_over = |memory: &Memory<B>| memory.references == 0 && memory.parts == 0;
            if !self.memory.get(&handle).is_some_and(is_over) {
                break;
            }
            let Some(memory) = self.memory.remove(&handle) else {
                break;
            };
            next = memory.whole;
            if let Some(whole) = next.and_then(|whole| self.memory.get_mut(&whole)) {
                whole.parts = whole.parts.saturating_sub(1);
            }
            let (block, maps) = (memory.block, memory.maps);
            ended.push((handle, Ended { block, maps }));
        }
        ended
    }

    /// Changes what is known of memory.
    pub(super) fn memory_mut(&mut self, handle: Handle) -> Option<&mut Memory<B>> {
        self.memory.get_mut(&handle)
    }

    pub(super) fn add_svm(&mut self, address: usize, block: Block<B>) {
        self.svm.insert(address, block);
    }

    pub(super) fn remove_svm(&mut self, address: usize) -> Option<Block<B>> {
        self.svm.remove(&address)
    }

    /// Notes the argument of a kernel. Anything that is not memory makes the argument one that is not memory.
    pub(super) fn set_argument(&mut self, kernel: Handle, index: u32, value: Option<Handle>) {
        let value =
            value.filter(|value| self.memory.contains_key(value) || self.svm_at(*value).is_some());
        if value.is_none() && !self.kernels.contains_key(&kernel) {
            return;
        }
        let passed = &mut self.kernels.entry(kernel).or_default().passed;
        let known = passed.iter().position(|(known, _)| *known == index);
        match (known, value) {
            (Some(at), Some(value)) => passed[at].1 = value,
            (Some(at), None) => drop(passed.swap_remove(at)),
            (None, Some(value)) => passed.push((index, value)),
            (None, None) => {}
        }
    }

    pub(super) fn set_indirect(&mut self, kernel: Handle, addresses: Vec<usize>) {
        self.kernels.entry(kernel).or_default().indirect = addresses;
    }

    /// Forgets the arguments of an older kernel at the same address.
    pub(super) fn begin_kernel(&mut self, kernel: Handle) {
        self.kernels.remove(&kernel);
    }

    /// A copy of a kernel has the arguments of the original.
    pub(super) fn copy_kernel(&mut self, from: Handle, to: Handle) {
        let arguments = self.kernels.get(&from).cloned();
        self.kernels.insert(to, arguments.unwrap_or_default());
    }

    /// Notes that a command on `queue` uses memory, and returns what is used there for the first time.
    pub(super) fn use_memory(
        &mut self,
        queue: Handle,
        handles: &[Handle],
    ) -> SmallVec<[FirstUse<B>; 4]> {
        let mut first = SmallVec::new();
        for handle in handles {
            self.use_one(queue, *handle, &mut first);
        }
        first
    }

    /// Notes that a kernel runs on `queue`, as [`use_memory`](Self::use_memory).
    pub(super) fn use_kernel(
        &mut self,
        queue: Handle,
        kernel: Handle,
    ) -> SmallVec<[FirstUse<B>; 4]> {
        let mut first = SmallVec::new();
        let Some(arguments) = self.kernels.get_mut(&kernel) else {
            return first;
        };
        let arguments = std::mem::take(arguments);
        for (_, handle) in &arguments.passed {
            self.use_one(queue, *handle, &mut first);
        }
        for address in &arguments.indirect {
            self.use_one(queue, *address, &mut first);
        }
        self.kernels.insert(kernel, arguments);
        first
    }

    /// The memory that this is a part of, or this itself.
    pub(super) fn whole_of(&self, handle: Handle) -> Handle {
        let mut handle = handle;
        while let Some(whole) = self.memory.get(&handle).and_then(|memory| memory.whole) {
            handle = whole;
        }
        handle
    }

    fn use_one(&mut self, queue: Handle, handle: Handle, first: &mut SmallVec<[FirstUse<B>; 4]>) {
        let handle = self.whole_of(handle);
        let block = match self.memory.get_mut(&handle) {
            Some(memory) => &mut memory.block,
            None => match self.svm_at_mut(handle) {
                Some(block) => block,
                None => return,
            },
        };
        if block.queues.contains(&queue) {
            return;
        }
        first.push(FirstUse {
            handle,
            id: block.id,
            pooled: block.pooled.clone(),
            is_first_queue: !block.is_used,
        });
    }

    /// Notes a [first use](FirstUse). Returns false if it is known already.
    pub(super) fn put_use(&mut self, queue: Handle, handle: Handle) -> bool {
        let block = match self.memory.get_mut(&handle) {
            Some(memory) => Some(&mut memory.block),
            None => self.svm_at_mut(handle),
        };
        let Some(block) = block.filter(|block| !block.queues.contains(&queue)) else {
            return false;
        };
        block.is_used = true;
        block.queues.push(queue);
        true
    }

    /// The shared virtual memory that has an address.
    fn svm_at(&self, address: usize) -> Option<&Block<B>> {
        let (begin, block) = self.svm.range(..=address).next_back()?;
        (address - begin < block.bytes.max(1)).then_some(block)
    }

    fn svm_at_mut(&mut self, address: usize) -> Option<&mut Block<B>> {
        let (begin, block) = self.svm.range_mut(..=address).next_back()?;
        (address - begin < block.bytes.max(1)).then_some(block)
    }

    /// Forgets that a queue used memory: another may come to have its address.
    fn forget_queue(&mut self, queue: Handle) {
        for memory in self.memory.values_mut() {
            memory.block.queues.retain(|used| *used != queue);
        }
        for block in self.svm.values_mut() {
            block.queues.retain(|used| *used != queue);
        }
    }

    /// Adds a context, or counts a reference more.
    pub(super) fn add_context(&mut self, context: Handle) {
        let number = self.next_context;
        self.next_context += 1;
        let state = ContextState {
            number,
            references: 1,
            queues: 0,
            is_noted: false,
        };
        self.contexts.insert(context, state);
    }

    /// Adds a queue.
    pub(super) fn add_queue(&mut self, queue: Handle, context: Handle) {
        let number = self.next_queue;
        self.next_queue += 1;
        let state = QueueState {
            number,
            context,
            references: 1,
            is_noted: false,
        };
        self.queues.insert(queue, state);
        if let Some(context) = self.contexts.get_mut(&context) {
            context.queues += 1;
        }
    }

    /// Counts a reference to a queue less. Returns whether that was the last.
    pub(super) fn release_queue(&mut self, queue: Handle) -> bool {
        let Some(state) = self.queues.get_mut(&queue) else {
            return false;
        };
        state.references = state.references.saturating_sub(1);
        if state.references > 0 {
            return false;
        }
        let context = state.context;
        self.queues.remove(&queue);
        if let Some(context) = self.contexts.get_mut(&context) {
            context.queues = context.queues.saturating_sub(1);
        }
        self.forget_queue(queue);
        true
    }

    /// Counts a reference to a context less. Returns whether that was the last.
    pub(super) fn release_context(&mut self, context: Handle) -> bool {
        let Some(state) = self.contexts.get_mut(&context) else {
            return false;
        };
        state.references = state.references.saturating_sub(1);
        let is_over = state.references == 0;
        if is_over {
            self.contexts.remove(&context);
        }
        is_over
    }
}

#[cfg(test)]
mod tests;
