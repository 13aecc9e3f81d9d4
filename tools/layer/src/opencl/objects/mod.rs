//! What the program has: its memory, which kernels and queues use it, and when it ends.

use std::collections::{BTreeMap, HashMap, hash_map::Entry};

use smallvec::SmallVec;

/// An object of the driver, by its address.
pub(super) type Handle = usize;

/// A queue with its number, which stays its own: another queue may come to have its address.
type NumberedQueue = (Handle, u32);

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
    /// Set once commands may wait for the host, or for each other, in ways that are not seen.
    pub(super) may_wait_unseen: bool,
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
    /// The queues that have used it, and maybe have ended since.
    queues: SmallVec<[NumberedQueue; 2]>,
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
    /// The program's references; 0 for a queue that another object, such as an event, keeps for the program.
    pub(super) references: u32,
    /// Set once the recording knows it.
    pub(super) is_noted: bool,
}

/// A context that the program has or had.
#[derive(Debug)]
pub(super) struct ContextState {
    pub(super) number: u32,
    /// The program's references to it.
    references: u32,
    /// Its queues that the program has references to.
    pub(super) queues: u32,
    /// Set if the driver does not keep its devices while commands run.
    may_lose_devices: bool,
    pub(super) is_noted: bool,
}

/// What a command uses for the first time on its queue.
pub(super) type FirstUses<B> = SmallVec<[FirstUse<B>; 4]>;

/// A block that a command uses for the first time on its queue.
#[derive(Debug)]
pub(super) struct FirstUse<B> {
    /// The memory, or where shared virtual memory begins.
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
            may_wait_unseen: false,
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

    /// Counts one more reference of the program.
    pub(super) fn retain(&mut self, handle: Handle) {
        if let Some(memory) = self.memory.get_mut(&handle) {
            memory.references += 1;
        }
    }

    /// Counts one reference of the program less. Returns the memory that ends with it: this, and what it was the last part of, in this order.
    pub(super) fn release(&mut self, handle: Handle) -> SmallVec<[(Handle, Memory<B>); 1]> {
        if let Some(memory) = self.memory.get_mut(&handle) {
            memory.references = memory.references.saturating_sub(1);
        }
        let mut ended = SmallVec::new();
        let mut next = Some(handle);
        while let Some(handle) = next
            && let Entry::Occupied(memory) = self.memory.entry(handle)
            && (memory.get().references, memory.get().parts) == (0, 0)
        {
            let memory = memory.remove();
            next = memory.whole;
            if let Some(whole) = next.and_then(|whole| self.memory.get_mut(&whole)) {
                whole.parts = whole.parts.saturating_sub(1);
            }
            ended.push((handle, memory));
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

    /// Returns what a command on `queue` uses there for the first time.
    pub(super) fn use_memory(&self, queue: Handle, handles: &[Handle]) -> FirstUses<B> {
        self.first_uses(queue, handles.iter())
    }

    /// Returns what a kernel that runs on `queue` uses there for the first time.
    pub(super) fn use_kernel(&self, queue: Handle, kernel: Handle) -> FirstUses<B> {
        let Some(arguments) = self.kernels.get(&kernel) else {
            return SmallVec::new();
        };
        let passed = arguments.passed.iter().map(|(_, handle)| handle);
        self.first_uses(queue, passed.chain(&arguments.indirect))
    }

    /// The memory that this is a part of, or this itself.
    pub(super) fn whole_of(&self, handle: Handle) -> Handle {
        let mut handle = handle;
        while let Some(whole) = self.memory.get(&handle).and_then(|memory| memory.whole) {
            handle = whole;
        }
        handle
    }

    /// A queue that is known, with its number.
    fn numbered(&self, queue: Handle) -> Option<NumberedQueue> {
        Some((queue, self.queues.get(&queue)?.number))
    }

    fn first_uses<'h>(
        &self,
        queue: Handle,
        handles: impl Iterator<Item = &'h Handle>,
    ) -> FirstUses<B> {
        let Some(queue) = self.numbered(queue) else {
            return SmallVec::new();
        };
        let used = handles.filter_map(|handle| {
            let handle = self.whole_of(*handle);
            let memory = self.memory.get(&handle);
            let memory = memory.map(|memory| (handle, &memory.block));
            let (handle, block) = memory.or_else(|| self.svm_at(handle))?;
            (!block.queues.contains(&queue)).then(|| FirstUse {
                handle,
                id: block.id,
                pooled: block.pooled.clone(),
                is_first_queue: !block.is_used,
            })
        });
        used.collect()
    }

    /// Notes a [first use](FirstUse). Returns false if it is known already.
    pub(super) fn put_use(&mut self, queue: Handle, handle: Handle) -> bool {
        let Some(queue) = self.numbered(queue) else {
            return false;
        };
        let memory = self.memory.get_mut(&handle);
        let block = memory.map(|memory| &mut memory.block);
        let block = block.or_else(|| self.svm.get_mut(&handle));
        let Some(block) = block.filter(|block| !block.queues.contains(&queue)) else {
            return false;
        };
        block.is_used = true;
        if block.queues.len() == block.queues.capacity() {
            let queues = &self.queues;
            let is_alive = |(handle, number): &mut NumberedQueue| {
                let known = queues.get(handle);
                known.is_some_and(|known| known.number == *number)
            };
            block.queues.retain(is_alive);
        }
        block.queues.push(queue);
        true
    }

    /// The shared virtual memory that has an address, and where it begins.
    pub(super) fn svm_at(&self, address: usize) -> Option<(usize, &Block<B>)> {
        let (begin, block) = self.svm.range(..=address).next_back()?;
        (address - begin < block.bytes.max(1)).then_some((*begin, block))
    }

    /// Adds a context that the program has created.
    pub(super) fn add_context(&mut self, context: Handle, may_lose_devices: bool) {
        // An older one may have had its address.
        self.contexts.remove(&context);
        self.context(context).may_lose_devices = may_lose_devices;
        self.retain_context(context);
    }

    /// Returns a context, which is known from now on: the driver tells the program which context its objects have.
    pub(super) fn context(&mut self, context: Handle) -> &mut ContextState {
        self.contexts.entry(context).or_insert_with(|| {
            let number = self.next_context;
            self.next_context += 1;
            ContextState {
                number,
                references: 0,
                queues: 0,
                may_lose_devices: false,
                is_noted: false,
            }
        })
    }

    /// Counts one more reference to a context.
    pub(super) fn retain_context(&mut self, context: Handle) {
        self.context(context).references += 1;
    }

    /// Counts one reference to a context less.
    pub(super) fn release_context(&mut self, context: Handle) {
        let state = self.context(context);
        state.references = state.references.saturating_sub(1);
    }

    /// Returns whether the program has references to a context or to a queue of it.
    pub(super) fn has_context(&self, context: Handle) -> bool {
        let known = self.contexts.get(&context);
        known.is_some_and(|known| known.references > 0 || known.queues > 0)
    }

    /// Why no pool serves a context; `None` if pools do.
    pub(super) fn unpooled(&self, context: Handle) -> Option<&'static str> {
        if !self.has_context(context) {
            return Some("a context that only other objects keep");
        }
        // The markers of a pool may run when the program has released everything.
        let may_lose_devices = self.contexts[&context].may_lose_devices;
        may_lose_devices.then_some("a context whose sub-devices the driver does not keep")
    }

    /// Adds a queue to which the program has `references`: one, or none.
    pub(super) fn add_queue(&mut self, queue: Handle, context: Handle, references: u32) {
        let number = self.next_queue;
        self.next_queue += 1;
        let state = QueueState {
            number,
            context,
            references,
            is_noted: false,
        };
        self.queues.insert(queue, state);
        self.context(context).queues += references;
    }

    /// Counts one reference to a queue less. Returns what was known of the queue if that was the last.
    pub(super) fn release_queue(&mut self, queue: Handle) -> Option<QueueState> {
        let state = self.queues.get_mut(&queue)?;
        if state.references > 1 {
            state.references -= 1;
            return None;
        }
        let ended = self.queues.remove(&queue)?;
        let context = self.context(ended.context);
        context.queues = context.queues.saturating_sub(ended.references);
        Some(ended)
    }
}

#[cfg(test)]
mod tests;
