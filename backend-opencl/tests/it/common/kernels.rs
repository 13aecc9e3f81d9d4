//! Kernels that write a pattern and check it, launched through bare handles as a program launches its own.

use std::{
    ptr,
    sync::{Mutex, PoisonError},
};

use binpool_allocators::SvmBackend;
use binpool_opencl::{ClEvent, ClMemory, ClQueue, OpenClBackend};
use opencl3::{
    context::Context, device::Device, event::Event as ProgramEvent, kernel::Kernel,
    program::Program,
};

/// A word of a pattern depends on its place and on the pattern's seed, and takes a little while.
const SOURCE: &str = "
uint word_at(uint place, uint seed)
{
    uint word = place * 0x9e3779b9u ^ seed;
    for (int turn = 0; turn < 16; ++turn) {
        word = (word ^ word >> 16) * 0x7feb352du;
        word = (word ^ word >> 15) * 0x846ca68bu;
    }
    return word;
}

kernel void write_pattern(global uint *block, uint seed)
{
    size_t i = get_global_id(0);
    block[i] = word_at(i, seed);
}

kernel void check_pattern(global const uint *block, uint seed, volatile global uint *errors)
{
    size_t i = get_global_id(0);
    if (block[i] != word_at(i, seed))
        atomic_inc(errors);
}
";

/// The words of the pattern with this seed, as the kernels make them. Patterns of two seeds differ in every word.
pub(crate) fn pattern(seed: u32, words: usize) -> Vec<u8> {
    let places = (0..).take(words);
    let words = places.map(|place: u32| {
        let mut word = place.wrapping_mul(0x9e37_79b9) ^ seed;
        for _ in 0..16 {
            word = (word ^ word >> 16).wrapping_mul(0x7feb_352d);
            word = (word ^ word >> 15).wrapping_mul(0x846c_a68b);
        }
        word
    });
    words.flat_map(u32::to_ne_bytes).collect()
}

enum Argument<'a> {
    Memory(&'a ClMemory),
    Number(u32),
}

/// A device and the kernels that were built for it.
pub(crate) struct Kernels {
    pub(crate) backend: OpenClBackend,
    // Its arguments are part of a kernel: setting them and enqueueing it is one step.
    write: Mutex<Kernel>,
    check: Mutex<Kernel>,
}

impl Kernels {
    /// The kernels for the device under test, in a context of their own.
    pub(crate) fn open() -> Self {
        let device = Device::new(super::open().raw_device());
        let context = Context::from_device(&device).unwrap();
        let program = Program::create_and_build_from_source(&context, SOURCE, "").unwrap();
        let [write, check] = ["write_pattern", "check_pattern"]
            .map(|name| Mutex::new(Kernel::create(&program, name).unwrap()));
        Self {
            // SAFETY: `opencl3` has made the context by a call of OpenCL.
            backend: unsafe { OpenClBackend::from_context(&context) }.unwrap(),
            write,
            check,
        }
    }

    /// Fills `block` with the pattern.
    pub(crate) fn write_pattern(
        &self,
        queue: &ClQueue,
        (block, words): (&ClMemory, usize),
        seed: u32,
        wait_for: &[ClEvent],
    ) -> ClEvent {
        let arguments = [Argument::Memory(block), Argument::Number(seed)];
        self.launch(queue, &self.write, &arguments, words, wait_for)
    }

    /// Counts the words of `block` that are not the pattern's into the first word of `errors`.
    pub(crate) fn check_pattern(
        &self,
        queue: &ClQueue,
        (block, words): (&ClMemory, usize),
        seed: u32,
        errors: &ClMemory,
        wait_for: &[ClEvent],
    ) -> ClEvent {
        let arguments = [
            Argument::Memory(block),
            Argument::Number(seed),
            Argument::Memory(errors),
        ];
        self.launch(queue, &self.check, &arguments, words, wait_for)
    }

    /// Enqueues a kernel. The queues that `wait_for` comes from have been flushed, as OpenCL asks for.
    fn launch(
        &self,
        queue: &ClQueue,
        kernel: &Mutex<Kernel>,
        arguments: &[Argument<'_>],
        words: usize,
        wait_for: &[ClEvent],
    ) -> ClEvent {
        let kernel = kernel.lock().unwrap_or_else(PoisonError::into_inner);
        for (index, argument) in (0..).zip(arguments) {
            match argument {
                Argument::Memory(memory) => self.set_memory(&kernel, index, memory),
                Argument::Number(number) => set_value(&kernel, index, number),
            }
        }
        let wait_for: Vec<_> = wait_for.iter().map(ClEvent::raw).collect();
        let list = match &wait_for[..] {
            [] => ptr::null(),
            events => events.as_ptr(),
        };
        // SAFETY: (1) the kernel has its arguments, each a block of `words` words, or of one for `errors`; (2) it runs
        // once for each word; (3) the events of the wait list are alive, and as many as said; (4) the runtime keeps
        // the kernel and its buffers for the command, and the pool keeps blocks of SVM.
        let event = unsafe {
            opencl3::command_queue::enqueue_nd_range_kernel(
                queue.raw(),
                kernel.get(),
                1,
                ptr::null(),
                &raw const words,
                ptr::null(),
                u32::try_from(wait_for.len()).unwrap(),
                list,
            )
        };
        // Takes over the reference of the call above.
        let event = ProgramEvent::new(event.unwrap());
        // SAFETY: the event came from the call above.
        unsafe { self.backend.wrap_event(&event) }.unwrap()
    }

    fn set_memory(&self, kernel: &Kernel, index: u32, memory: &ClMemory) {
        let Some(address) = self.backend.svm_address(memory) else {
            return set_value(kernel, index, &memory.raw().unwrap());
        };
        let address = address.as_ptr().cast_const().cast();
        // SAFETY: the address is that of a live block of SVM, which the pool keeps from its next user until the commands
        // enqueued before its release have ended.
        unsafe { opencl3::kernel::set_kernel_arg_svm_pointer(kernel.get(), index, address) }
            .unwrap();
    }
}

/// Sets an argument that is passed by value: a number, or the handle of a buffer.
fn set_value<T: Copy>(kernel: &Kernel, index: u32, value: &T) {
    // SAFETY: the value has the size that is said, and the runtime copies it before the call returns.
    unsafe {
        opencl3::kernel::set_kernel_arg(
            kernel.get(),
            index,
            size_of::<T>(),
            ptr::from_ref(value).cast(),
        )
    }
    .unwrap();
}
