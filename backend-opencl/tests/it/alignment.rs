//! Kernels get no address that their types cannot have: the compiler assumes that there is none.

use binpool::{ImmediateAllocator, MemoryPool, SvmAllocator};
use binpool_allocators::{AsMemory, Backend, Event, MemoryFlags, Slice, SvmBackend, SvmGrain};
use binpool_opencl::{
    ClKernel, ClMemory, ClProgram, Extent, OpenClBackend, OpenClError, Parameter, SvmOptions,
    SvmPointer,
};
use bytemuck::Pod;

use crate::common::{Bench, launches::parameter_refusal, numbered};

const SOURCE: &str = "
typedef struct { uint x, y, z; } triple;
typedef struct { uint4 four; uint4 more; } eight;
#define INCREASE(name, type, one) \\
kernel void name(global type *a) { a[get_global_id(0)] one; }
INCREASE(uint1, uint, += 1)
INCREASE(uint2_, uint2, += 1)
INCREASE(uint3_, uint3, += 1)
INCREASE(uint4_, uint4, += 1)
INCREASE(ulong8_, ulong8, += 0x100000001)
INCREASE(uint16_, uint16, += 1)
INCREASE(ulong16_, ulong16, += 0x100000001)
INCREASE(triple_, triple, .x += 1; a[get_global_id(0)].y += 1; a[get_global_id(0)].z += 1)
INCREASE(eight_, eight, .four += 1; a[get_global_id(0)].more += 1)
";

/// A kernel, the bytes of its element, and what the address of one is a multiple of.
struct Type {
    kernel: ClKernel,
    bytes: usize,
    alignment: usize,
    /// The words of an element that the kernel increases.
    words: usize,
}

fn of<T: Pod>(program: &ClProgram, name: &str, alignment: usize, words: usize) -> Type {
    let parameters = [Parameter::in_out::<T>(Extent::PerItem(1))];
    Type {
        // SAFETY: (1) Each work item reads and writes the element of its id, which (4) is as large as declared.
        kernel: unsafe { program.kernel(name, &parameters) }.unwrap(),
        bytes: size_of::<T>(),
        alignment,
        words,
    }
}

fn types(backend: &OpenClBackend) -> Vec<Type> {
    let program = ClProgram::build(backend, SOURCE, "").unwrap();
    vec![
        of::<u32>(&program, "uint1", 4, 1),
        of::<[u32; 2]>(&program, "uint2_", 8, 2),
        of::<[u32; 4]>(&program, "uint3_", 16, 3),
        of::<[u32; 4]>(&program, "uint4_", 16, 4),
        of::<[u64; 8]>(&program, "ulong8_", 64, 16),
        of::<[u32; 16]>(&program, "uint16_", 64, 16),
        of::<[u64; 16]>(&program, "ulong16_", 128, 32),
        of::<[u32; 3]>(&program, "triple_", 4, 3),
        of::<[u32; 8]>(&program, "eight_", 32, 8),
    ]
}

impl Type {
    /// Launches the kernel over as many elements as there are.
    fn launch(
        &self,
        bench: &Bench,
        memory: &dyn AsMemory<OpenClBackend>,
    ) -> Result<(), OpenClError> {
        let items = memory.size() / self.bytes;
        let launch = self.kernel.launch(&bench.queue, &[items]).memory(memory);
        launch.enqueue().map(|event| event.wait().unwrap())
    }

    /// The words that launches make `word` of. What a kernel does with the fourth word of a vector of three is its own affair.
    fn all_are(&self, words: &[u32], word: u32) -> bool {
        let mut elements = words.chunks_exact(self.bytes / 4);
        elements.all(|element| element[..self.words].iter().all(|own| *own == word))
    }

    /// Launches over `part`, which starts at `address`: it is refused there, or does what it does everywhere.
    fn launched_or_refused(
        &self,
        bench: &Bench,
        part: &dyn AsMemory<OpenClBackend>,
        address: usize,
    ) {
        let ones = vec![1_u32; part.size() / 4];
        bench.backend.write(&bench.queue, part, 0, &ones).unwrap();
        let launched = self.launch(bench, part);
        let mut words = vec![0_u32; part.size() / 4];
        bench
            .backend
            .read(&bench.queue, part, 0, &mut words)
            .unwrap();
        if address.is_multiple_of(self.alignment) {
            launched.unwrap();
            assert!(self.all_are(&words, 2), "{address:#x}");
            return;
        }
        let (_, problem) = parameter_refusal(launched);
        let Self {
            bytes, alignment, ..
        } = self;
        let expected = format!(
            "was given memory at address {address:#x}, which is not a multiple of {alignment}, as its elements of {bytes} bytes need"
        );
        assert!(problem.starts_with(&expected), "{problem}");
        assert!(words == ones, "it has not run");
    }
}

/// Where parts start, in bytes: at places for some types and not for others.
const STARTS: [usize; 10] = [0, 4, 8, 12, 16, 32, 48, 64, 100, 128];

#[test]
fn lent_memory_is_passed_to_kernels_of_types_that_fit_its_address() {
    let bench = Bench::new();
    for each in types(&bench.backend) {
        for start in STARTS {
            let mut words = vec![1_u32; 4096];
            let part = &mut words[start / 4..][..2048];
            let address = part.as_ptr().addr();
            let flags = MemoryFlags::empty();
            let run = |memory: &ClMemory| each.launched_or_refused(&bench, memory, address);
            bench.backend.with_host_buffer(part, flags, run).unwrap();
        }
    }
}

#[test]
fn parts_of_shared_virtual_memory_are_passed_to_kernels_of_types_that_fit_their_addresses() {
    let bench = Bench::new();
    if !bench.backend.limits().svm.coarse {
        return;
    }
    let allocator = SvmAllocator::new(&bench.backend, SvmGrain::Coarse).unwrap();
    let pool = MemoryPool::new(allocator, &bench.queue).unwrap();
    let pooled = pool.allocate_of::<u32>(4096).unwrap();
    let pooled_address = bench
        .backend
        .svm_address(pooled.memory_on(&bench.queue).unwrap());
    let typed = bench
        .backend
        .svm_empty::<u32>(4096, &SvmOptions::coarse())
        .unwrap();
    let typed_address = typed.address().unwrap().addr().get();
    let buffer = typed.as_buffer(MemoryFlags::empty(), None).unwrap();
    let buffer = Slice::<u32, _>::new((&bench.backend, buffer)).unwrap();
    for each in types(&bench.backend) {
        for start in STARTS {
            let range = start / 4..start / 4 + 2048;
            let part = pooled.slice(range.clone()).unwrap();
            let address = pooled_address.unwrap().addr().get() + pooled.start() + start;
            each.launched_or_refused(&bench, &part, address);
            let part = typed.slice(range.clone()).unwrap();
            each.launched_or_refused(&bench, &part, typed_address + start);
        }
        let whole = buffer.slice(..2048).unwrap();
        each.launched_or_refused(&bench, &whole, typed_address);
    }
    // Bytes that are passed as floats.
    let bytes = bench
        .backend
        .allocate_svm(64, None, SvmGrain::Coarse, None)
        .unwrap();
    let bytes = Slice::<u8, _>::new((&bench.backend, bytes)).unwrap();
    let odd = bytes.slice(3..35).unwrap();
    types(&bench.backend)[0].launch(&bench, &odd).unwrap_err();
}

#[test]
fn memory_of_the_host_that_is_handed_over_fits_every_type() {
    let bench = Bench::new();
    for each in types(&bench.backend) {
        for words in [256, 1 << 14, 1 << 18] {
            let flags = MemoryFlags::empty();
            let buffer = bench
                .backend
                .create_host_buffer(vec![1_u32; words], flags)
                .unwrap();
            each.launch(&bench, &buffer).unwrap();
            let alignment = bench.backend.limits().alignment.bytes();
            let half = buffer.memory().slice(words * 2..).unwrap();
            assert!(half.offset().is_multiple_of(alignment));
            each.launch(&bench, &half).unwrap();
            drop(half);
            let given_back = buffer.into_host().unwrap();
            assert_eq!(given_back.len(), words);
            assert!(each.all_are(&given_back[..words / 2], 2));
            assert!(each.all_are(&given_back[words / 2..], 3));
        }
    }
}

#[test]
fn what_is_handed_over_comes_back_as_it_was_after_a_refusal() {
    let bench = Bench::new();
    let contradictory = MemoryFlags::READ_ONLY | MemoryFlags::WRITE_ONLY;
    for elements in [1, 2, 50, 1000, 1 << 16] {
        let bytes = numbered(elements);
        let given: Vec<[u8; 3]> = bytes.into_iter().map(|byte| [byte, 1, 2]).collect();
        let refused = bench
            .backend
            .create_host_buffer(given.clone(), contradictory);
        assert_eq!(refused.err().unwrap().value, given);
        let buffer = bench
            .backend
            .create_host_buffer(given.clone(), MemoryFlags::empty());
        assert_eq!(buffer.unwrap().into_host().unwrap(), given);
    }
}

#[test]
fn a_wrapped_buffer_over_memory_of_the_host_has_its_address() {
    let bench = Bench::new();
    let mut words = vec![0_u32; 4096 + 64];
    let skipped = words.as_ptr().addr().wrapping_neg() % 128 / 4;
    for start in STARTS {
        let part = &mut words[skipped + start / 4..][..1024];
        let address = part.as_ptr().addr();
        // SAFETY: the words outlive the buffer, and nothing else uses them meanwhile.
        let raw = unsafe {
            cl3::memory::create_buffer(
                bench.backend.raw_context(),
                cl3::memory::CL_MEM_USE_HOST_PTR,
                size_of_val(part),
                part.as_mut_ptr().cast(),
            )
        };
        // SAFETY: the buffer was just made, and its reference is given away.
        let memory = unsafe { bench.backend.wrap_raw_memory(raw.unwrap(), false) }.unwrap();
        for each in types(&bench.backend) {
            each.launched_or_refused(&bench, &memory, address);
        }
    }
}

#[test]
fn buffers_of_the_runtime_fit_every_type() {
    let bench = Bench::new();
    let pool = MemoryPool::new(
        ImmediateAllocator::new(&bench.backend).unwrap(),
        &bench.queue,
    );
    let block = pool.unwrap().allocate(8192).unwrap();
    for each in types(&bench.backend) {
        each.launched_or_refused(&bench, &block, 0);
        each.launched_or_refused(&bench, &bench.buffer(8192), 0);
    }
}
