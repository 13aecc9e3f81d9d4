//! Words that one command after another reads and writes, each at another address of the same pages.

use std::slice::from_ref;

use binpool_allocators::{
    Backend, Event, EventStatus, MemoryFlags, Queue, QueueOrder, Region, VirtualMemory,
};
use binpool_cuda::{
    Argument, CudaBackend, CudaEvent, CudaKernel, CudaMemory, CudaModule, CudaQueue, Grid,
};

/// The pages have this many addresses.
const ADDRESSES: usize = 64;

/// Where pages get new addresses, hand-overs use this many of the latest.
const LATEST: usize = 8;

/// They get a new one before each of this many hand-overs: to map costs a hundred times what a command costs.
const PER_MAP: usize = 50;

/// Pages with several addresses. Each word in them is the number of hand-overs so far.
pub(crate) struct HandOvers {
    backend: CudaBackend,
    kernel: CudaKernel,
    reservation: CudaMemory,
    pages: CudaMemory,
    /// The words at each of the addresses.
    pub(crate) views: Vec<CudaMemory>,
    /// As many words that are no pages.
    aside: CudaMemory,
    /// The number of wrong words.
    wrong: CudaMemory,
    words: usize,
    done: usize,
}

impl HandOvers {
    /// Words at one address, all of them 0.
    pub(crate) fn new(backend: &CudaBackend, words: usize) -> Self {
        let page = backend.page_bytes();
        let reservation = backend.reserve(ADDRESSES * page).unwrap();
        let views = (0..ADDRESSES).map(|address| {
            let part = Region::new(address * page, 4 * words);
            backend.create_sub_region(&reservation, part).unwrap()
        });
        let buffer = |bytes| backend.create_buffer(bytes, MemoryFlags::empty()).unwrap();
        let module = CudaModule::load_ptx(backend, include_str!("hand_over.ptx")).unwrap();
        let new = Self {
            kernel: module.kernel("hand_over").unwrap(),
            views: views.collect(),
            reservation,
            pages: backend.create_pages(page).unwrap(),
            aside: buffer(4 * words),
            wrong: buffer(8),
            backend: backend.clone(),
            words,
            done: 0,
        };
        new.map(0);
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        for (memory, bytes) in [(&new.views[0], 4 * words), (&new.wrong, 8)] {
            let fill = backend.enqueue_fill(&queue, memory, Region::first(bytes), &[0_u8]);
            fill.unwrap().wait().unwrap();
        }
        new
    }

    pub(crate) fn map(&self, address: usize) {
        let offset = address * self.backend.page_bytes();
        self.backend
            .map(&self.reservation, offset, &self.pages)
            .unwrap();
    }

    fn unmap(&self, address: usize) {
        let page = self.backend.page_bytes();
        let region = Region::new(address * page, page);
        self.backend.unmap(&self.reservation, region).unwrap();
    }

    /// Enqueues one hand-over, which reads at one address and writes at another: by a kernel or by a copy, in turn.
    pub(crate) fn hand_over(
        &mut self,
        queue: &CudaQueue,
        [from, to]: [usize; 2],
        wait_for: &[CudaEvent],
    ) -> CudaEvent {
        let [from, to] = [from, to].map(|address| &self.views[address]);
        let event = match self.done % 4 {
            0 => {
                self.copy(queue, from, &self.aside, wait_for);
                self.launch(queue, [&self.aside, to], &[])
            }
            1 => {
                self.launch(queue, [from, &self.aside], wait_for);
                self.copy(queue, &self.aside, to, &[])
            }
            _ => self.launch(queue, [to, to], wait_for),
        };
        self.done += 1;
        event
    }

    fn copy(
        &self,
        queue: &CudaQueue,
        from: &CudaMemory,
        to: &CudaMemory,
        wait_for: &[CudaEvent],
    ) -> CudaEvent {
        let all = Region::first(4 * self.words);
        let copy = self
            .backend
            .enqueue_copy(queue.after(wait_for), from, all, to, 0);
        copy.unwrap()
    }

    #[allow(unsafe_code, reason = "a launch")]
    fn launch(
        &self,
        queue: &CudaQueue,
        [from, to]: [&CudaMemory; 2],
        wait_for: &[CudaEvent],
    ) -> CudaEvent {
        const BLOCK: u32 = 256;

        let (words, done) = (self.words as u64, self.done as u64);
        let arguments = [
            Argument::Memory(from),
            Argument::Memory(to),
            Argument::U64(words),
            Argument::U64(done * 7 * u64::from(BLOCK) % words),
            Argument::U64(done),
            Argument::Memory(&self.wrong),
        ];
        let grid = Grid::of_threads(u32::try_from(self.words).unwrap(), BLOCK);
        // SAFETY: These are its parameters. It touches as many words as both have, and counts in one more; all commands wait for those before.
        unsafe { self.kernel.launch(queue, grid, &arguments, wait_for) }.unwrap()
    }

    /// Returns how many words were wrong when a hand-over read them, or are now, at an address. The last command has ended.
    pub(crate) fn wrong(&self, queue: &CudaQueue, address: usize) -> u64 {
        let (mut count, mut words) = ([0; 8], vec![0; 4 * self.words]);
        let read = |memory, bytes: &mut [u8]| {
            self.backend.read(queue, memory, 0, bytes).unwrap();
        };
        read(&self.wrong, &mut count);
        read(&self.views[address], &mut words);
        let expected = u32::try_from(self.done).unwrap().to_ne_bytes();
        let words = words.as_chunks().0.iter();
        let now = words.filter(|word| **word != expected).count() as u64;
        u64::from_ne_bytes(count) + now
    }
}

/// Hands words over `count` times between addresses, on this many streams in turn. Returns how many words were wrong.
pub(crate) fn between_addresses(
    backend: &CudaBackend,
    words: usize,
    count: usize,
    streams: usize,
) -> u64 {
    let mut pages = HandOvers::new(backend, words);
    (1..ADDRESSES).for_each(|address| pages.map(address));
    let queues: Vec<_> = (0..streams)
        .map(|_| backend.create_queue(QueueOrder::InOrder).unwrap())
        .collect();
    let mut last: Option<CudaEvent> = None;
    for number in 0..count {
        let addresses = [0, 1].map(|step| (3 * number + step) % ADDRESSES);
        // On one stream, the order of the stream is all there is.
        let before = last.as_ref().filter(|_| streams > 1);
        let before = before.map_or(&[][..], from_ref);
        last = Some(pages.hand_over(&queues[number % streams], addresses, before));
    }
    last.map_or(Ok(()), |last| last.wait()).unwrap();
    let wrong = pages.wrong(&queues[0], 3 * count % ADDRESSES);
    println!("  {count} hand-overs of {words} words on {streams} streams: {wrong} words wrong");
    wrong
}

/// Hands words over `count` times on one stream. Each time, the oldest address is unmapped, and the pages are mapped there
/// anew. Returns how many words were wrong.
pub(crate) fn at_new_addresses(backend: &CudaBackend, words: usize, count: usize) -> u64 {
    let mut pages = HandOvers::new(backend, words);
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    (1..LATEST).for_each(|address| pages.map(address));
    // The last command at each address.
    let mut last: Vec<Option<CudaEvent>> = vec![None; ADDRESSES];
    let (mut next, mut pending) = (LATEST, 0_usize);
    let mut newest: Option<CudaEvent> = None;
    for number in 0..count {
        if number % PER_MAP == 0 {
            let address = next % ADDRESSES;
            if next >= ADDRESSES {
                let used = last[address].take();
                used.map_or(Ok(()), |used| used.wait()).unwrap();
                pages.unmap(address);
            }
            let status = newest.as_ref().map(|newest| newest.status().unwrap());
            pending += usize::from(status == Some(EventStatus::Pending));
            pages.map(address);
            next += 1;
        }
        let addresses = [0, 1].map(|step| (next - 1 - (3 * number + step) % LATEST) % ADDRESSES);
        let event = pages.hand_over(&queue, addresses, &[]);
        for address in addresses {
            last[address] = Some(event.clone());
        }
        newest = Some(event);
    }
    newest.map_or(Ok(()), |newest| newest.wait()).unwrap();
    let (wrong, maps) = (
        pages.wrong(&queue, (next - LATEST) % ADDRESSES),
        next - LATEST,
    );
    println!(
        "  {count} hand-overs of {words} words, {maps} new addresses, {pending} of them while commands were pending: {wrong} words wrong"
    );
    wrong
}
