//! Kernels that take a whole buffer and an offset: they touch their part and nothing beside it, wherever it starts.

use binpool::{ImmediateAllocator, PoolOptions, PooledBuffer, Slice};
use binpool_allocators::{AsMemory, Backend, Event, EventStatus, Memory, Queue};
use binpool_opencl::{
    ClKernel, ClMemory, ClProgram, ClQueue, Extent, OpenClBackend, OpenClError, Parameter,
};

use crate::common::{
    Bench,
    launches::{elements, parameter_refusal},
};

const SOURCE: &str = "
kernel void add(global const uint *from, ulong first_from, global uint *to, ulong first_to, uint more)
{
    size_t i = get_global_id(0);
    to[first_to + i] = from[first_from + i] + more;
}

kernel void count(global uint4 *vectors, ulong first)
{
    vectors[first + get_global_id(0)] += (uint4)(1, 2, 3, 4);
}
";

const EACH: Extent = Extent::PerItem(1);

/// The words of each part that a test works on.
const WORDS: usize = 100;

struct Kernels {
    bench: Bench,
    add: ClKernel,
    count: ClKernel,
}

impl Kernels {
    fn new() -> Self {
        let bench = Bench::new();
        let program = ClProgram::build(&bench.backend, SOURCE, "").unwrap();
        let add = [
            Parameter::input::<u32>(EACH),
            Parameter::offset_u64(0),
            Parameter::output::<u32>(EACH),
            Parameter::offset_u64(2),
            Parameter::value::<u32>(),
        ];
        let count = [
            Parameter::in_out::<[u32; 4]>(EACH),
            Parameter::offset_u64(0),
        ];
        Self {
            // SAFETY: Each work item reads the word of its id and writes the other, counted from the offsets.
            add: unsafe { program.kernel("add", &add) }.unwrap(),
            // SAFETY: Each work item reads and writes the vector of its id, counted from the offset.
            count: unsafe { program.kernel("count", &count) }.unwrap(),
            bench,
        }
    }

    fn add(
        &self,
        from: &dyn AsMemory<OpenClBackend>,
        to: &dyn AsMemory<OpenClBackend>,
    ) -> Result<(), OpenClError> {
        let launch = self.add.launch(&self.bench.queue, &[WORDS]);
        let launch = launch.memory(from).memory(to).value(&1000_u32);
        launch.enqueue().map(drop)
    }

    fn words(&self, memory: &ClMemory) -> Vec<u32> {
        elements(&self.bench.read(memory))
    }

    /// A buffer of the words from 0 on.
    fn counted(&self, words: usize) -> ClMemory {
        let memory = self.bench.buffer(4 * words);
        self.bench.write(&memory, &bytes_from(0, words));
        memory
    }
}

/// A part of memory that has no memory object of its own.
struct Part<'a> {
    of: &'a dyn AsMemory<OpenClBackend>,
    start: usize,
    size: usize,
}

impl AsMemory<OpenClBackend> for Part<'_> {
    fn size(&self) -> usize {
        self.size
    }

    fn start(&self) -> usize {
        self.of.start() + self.start
    }

    fn memory_on(&self, queue: &ClQueue) -> Option<&ClMemory> {
        self.of.memory_on(queue)
    }
}

fn bytes_from(first: u32, words: usize) -> Vec<u8> {
    (first..).take(words).flat_map(u32::to_ne_bytes).collect()
}

/// `words` words that count from 0, but for `WORDS` of them from `to` on: those count from `from + 1000`.
fn with_sums(words: usize, from: u32, to: usize) -> Vec<u32> {
    let mut expected: Vec<u32> = (0..).take(words).collect();
    expected[to..to + WORDS].copy_from_slice(&(from + 1000..).take(WORDS).collect::<Vec<_>>());
    expected
}

#[test]
fn a_view_is_passed_as_its_buffer_and_nothing_beside_it_is_touched() {
    let kernels = Kernels::new();
    let step = kernels.bench.backend.limits().alignment.bytes();
    let words = (6 * step / 4).max(3 * WORDS);
    let (from, to) = (kernels.counted(words), kernels.counted(words));
    let input = from.slice(2 * step..).unwrap();
    let output = to.slice(step..).unwrap();
    // Of a view, too.
    let input = input.slice(..input.bytes()).unwrap();
    kernels.add(&input, &output).unwrap();
    let first = u32::try_from(2 * step / 4).unwrap();
    assert_eq!(kernels.words(&to), with_sums(words, first, step / 4));
    assert_eq!(kernels.words(&from), (0..).take(words).collect::<Vec<_>>());
    kernels.add(&from, &to).unwrap();
    assert_eq!(kernels.words(&to)[..WORDS], with_sums(WORDS, 0, 0)[..]);
}

#[test]
fn a_part_of_a_pooled_block_may_start_at_any_element() {
    let kernels = Kernels::new();
    let allocator = ImmediateAllocator::new(&kernels.bench.backend).unwrap();
    for segments in [true, false] {
        let options = PoolOptions::new().segments(segments);
        let queue = &kernels.bench.queue;
        let pool = options.build(allocator.clone(), queue).unwrap();
        let [before, block, after] = [(); 3].map(|()| pool.allocate(4 * 3 * WORDS).unwrap());
        for each in [&before, &block, &after] {
            each.write(queue, 0, &bytes_from(0, 3 * WORDS)).unwrap();
        }
        let words = Slice::<u32, _>::new(&block).unwrap();
        let part = words.slice(7..7 + WORDS).unwrap();
        kernels.add(&after, &part).unwrap();
        let read = |block: &PooledBuffer<_>| {
            let mut words = vec![0_u32; 3 * WORDS];
            block.read(queue, 0, &mut words).unwrap();
            words
        };
        assert_eq!(read(&block), with_sums(3 * WORDS, 0, 7));
        for untouched in [&before, &after] {
            assert_eq!(read(untouched), (0..300).collect::<Vec<_>>());
        }
    }
}

#[test]
fn shared_virtual_memory_is_passed_by_its_address() {
    let kernels = Kernels::new();
    let bench = &kernels.bench;
    let step = bench.backend.limits().alignment.bytes();
    let words = (3 * step / 4).max(3 * WORDS);
    let block = bench.svm(4 * words);
    bench.write(&block, &bytes_from(0, words));
    let part = block.slice(step..).unwrap();
    let from = kernels.counted(words);
    kernels.add(&from.slice(step..).unwrap(), &part).unwrap();
    let first = u32::try_from(step / 4).unwrap();
    assert_eq!(kernels.words(&block), with_sums(words, first, step / 4));
}

#[test]
fn a_part_that_starts_within_an_element_is_refused() {
    let kernels = Kernels::new();
    let queue = &kernels.bench.queue;
    let allocator = ImmediateAllocator::new(&kernels.bench.backend).unwrap();
    let pool = PoolOptions::new().build(allocator, queue).unwrap();
    let block = pool.allocate(1600).unwrap();
    block.write(queue, 0, &bytes_from(0, 400)).unwrap();
    let launch = |start: usize| {
        let part = Part {
            of: &block,
            start,
            size: 160,
        };
        kernels.count.launch(queue, &[10]).memory(&part).enqueue()
    };
    let (parameter, problem) = parameter_refusal(launch(24));
    assert_eq!(parameter, 0);
    let uneven = "is not a whole number of elements of 16 bytes";
    assert!(problem.ends_with(uneven), "{problem}");
    launch(32).unwrap();
    let mut words = vec![0_u32; 400];
    block.read(queue, 0, &mut words).unwrap();
    let expected = |place: u32| match place {
        8..48 => place + place % 4 + 1,
        _ => place,
    };
    assert_eq!(words, (0..400).map(expected).collect::<Vec<_>>());
}

#[test]
fn parts_of_one_buffer_are_told_apart() {
    let kernels = Kernels::new();
    let bench = &kernels.bench;
    let step = bench.backend.limits().alignment.bytes();
    let words = (4 * step / 4).max(4 * WORDS).next_multiple_of(4 * step / 4);
    let half = 2 * words;
    let memory = kernels.counted(words);
    let (left, right) = (memory.slice(..half).unwrap(), memory.slice(half..).unwrap());
    // Both parts are passed as one buffer, and one of them is written.
    kernels.add(&left, &right).unwrap();
    assert_eq!(kernels.words(&memory), with_sums(words, 0, words / 2));
    let overlap = kernels.add(&left, &memory).unwrap_err();
    assert!(
        overlap.to_string().contains("shares bytes with"),
        "{overlap}"
    );
    // A launch comes after commands on its own part alone.
    let gate = bench.gate();
    let gated = bench.fill(
        &bench.another_queue(),
        &left,
        7,
        std::slice::from_ref(&gate),
    );
    let other = bench.another_queue();
    let vectors = half / 16;
    let launch = |part: &ClMemory| {
        kernels
            .count
            .launch(&other, &[vectors])
            .memory(part)
            .enqueue()
    };
    launch(&right).unwrap().wait().unwrap();
    let after = launch(&left).unwrap();
    other.flush().unwrap();
    assert_eq!(gated.status().unwrap(), EventStatus::Pending);
    assert_eq!(after.status().unwrap(), EventStatus::Pending);
    bench.open_gate(&gate);
    after.wait().unwrap();
    assert_eq!(kernels.words(&left)[..2], [0x0707_0708, 0x0707_0709]);
}

#[test]
fn offsets_are_declared_of_memory() {
    let kernels = Kernels::new();
    let program = ClProgram::build(&kernels.bench.backend, SOURCE, "").unwrap();
    for of in [1, 2] {
        let declared = [
            Parameter::in_out::<[u32; 4]>(EACH),
            Parameter::offset_u64(of),
        ];
        // SAFETY: It is not launched.
        let refused = unsafe { program.kernel("count", &declared) };
        let problem = format!("is the length or the offset of parameter {of}, which is not memory");
        assert_eq!(parameter_refusal(refused), (1, problem));
    }
}
