//! Kernels that write a pattern and check it. A program launches them itself where it has bare handles of whole buffers or
//! addresses; where its blocks are parts of buffers, it launches every other one by this crate, and else with the handles that
//! `lend` lends.

use std::{
    ffi::c_void,
    ptr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use binpool_allocators::{AsMemory, Queue, SvmBackend};
use binpool_opencl::{
    Argument, ClEvent, ClKernel, ClMemory, ClProgram, ClQueue, Extent, OpenClBackend, Parameter,
};
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

enum Passed<'a> {
    Memory(&'a ClMemory),
    Number(u32),
}

/// A kernel for launches of the program's own, and the same one for launches of this crate.
struct Pattern {
    // Its arguments are part of a kernel: setting them and enqueueing it is one step.
    own: Mutex<Kernel>,
    tracked: ClKernel,
}

/// A device and the kernels that were built for it.
pub(crate) struct Kernels {
    pub(crate) backend: OpenClBackend,
    write: Pattern,
    check: Pattern,
    /// The launches on parts of buffers so far.
    on_parts: AtomicUsize,
}

impl Kernels {
    /// The kernels for the device under test, in a context of their own.
    pub(crate) fn open() -> Self {
        let device = Device::new(super::open().raw_device());
        let context = Context::from_device(&device).unwrap();
        let program = Program::create_and_build_from_source(&context, SOURCE, "").unwrap();
        // SAFETY: `opencl3` has made the context by a call of OpenCL.
        let backend =
            unsafe { OpenClBackend::from_raw(context.get(), context.default_device()) }.unwrap();
        let tracked = ClProgram::build(&backend, SOURCE, "").unwrap();
        let pattern = |name, parameters: &[Parameter]| Pattern {
            own: Mutex::new(Kernel::create(&program, name).unwrap()),
            // SAFETY: each work item touches the word of its id in the block, and the first word of `errors`.
            tracked: unsafe { tracked.kernel(name, parameters) }.unwrap(),
        };
        let (words, seed) = (Extent::PerItem(1), Parameter::value::<u32>());
        let errors = Parameter::in_out::<u32>(Extent::Fixed(1));
        Self {
            write: pattern("write_pattern", &[Parameter::output::<u32>(words), seed]),
            check: pattern(
                "check_pattern",
                &[Parameter::input::<u32>(words), seed, errors],
            ),
            backend,
            on_parts: AtomicUsize::new(0),
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
        let arguments = [Passed::Memory(block), Passed::Number(seed)];
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
            Passed::Memory(block),
            Passed::Number(seed),
            Passed::Memory(errors),
        ];
        self.launch(queue, &self.check, &arguments, words, wait_for)
    }

    /// Enqueues a kernel. The queues that `wait_for` comes from have been flushed, as OpenCL asks for.
    fn launch(
        &self,
        queue: &ClQueue,
        kernel: &Pattern,
        arguments: &[Passed<'_>],
        words: usize,
        wait_for: &[ClEvent],
    ) -> ClEvent {
        let memory = arguments.iter().filter_map(|argument| match argument {
            Passed::Memory(memory) => Some(*memory),
            Passed::Number(_) => None,
        });
        let memory: Vec<&ClMemory> = memory.collect();
        let is_part = |memory: &&ClMemory| {
            memory.raw().is_none() && self.backend.svm_address(memory).is_none()
        };
        if !memory.iter().any(is_part) {
            let handles: Vec<_> = memory
                .iter()
                .map(|it| it.raw().unwrap_or_default())
                .collect();
            return self.launch_raw(queue, kernel, arguments, &handles, words, wait_for);
        }
        if self
            .on_parts
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(2)
        {
            let arguments = arguments.iter().map(|argument| match argument {
                Passed::Memory(memory) => Argument::Memory(*memory),
                Passed::Number(number) => Argument::value(number),
            });
            let launch = kernel.tracked.launch(queue.after(wait_for), &[words]);
            return launch.arguments(arguments).enqueue().unwrap();
        }
        let memory: Vec<&dyn AsMemory<OpenClBackend>> =
            memory.into_iter().map(|it| it as _).collect();
        let lent = self.backend.lend(queue, &memory).unwrap();
        let handles = lent.iter().map(|it| it.kernel_argument().unwrap());
        let handles: Vec<_> = handles.collect();
        let launched = self.launch_raw(queue, kernel, arguments, &handles, words, wait_for);
        lent.end().unwrap();
        launched
    }

    /// Enqueues a kernel as a program does that knows nothing of this crate. `handles` are those of the memory among the
    /// arguments.
    fn launch_raw(
        &self,
        queue: &ClQueue,
        kernel: &Pattern,
        arguments: &[Passed<'_>],
        handles: &[*mut c_void],
        words: usize,
        wait_for: &[ClEvent],
    ) -> ClEvent {
        let kernel = kernel.own.lock().unwrap_or_else(PoisonError::into_inner);
        let mut handles = handles.iter();
        for (index, argument) in (0..).zip(arguments) {
            match argument {
                Passed::Memory(memory) => {
                    self.set_memory(&kernel, index, memory, handles.next().unwrap());
                }
                Passed::Number(number) => set_value(&kernel, index, number),
            }
        }
        let wait_for: Vec<_> = wait_for.iter().map(ClEvent::raw).collect();
        let list = match &wait_for[..] {
            [] => ptr::null(),
            events => events.as_ptr(),
        };
        // SAFETY: (1) the kernel has its arguments, each a block of `words` words, or of one for `errors`; (2) it runs
        // once for each word; (3) the events of the wait list are alive, and their number is right; (4) the runtime keeps
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
        unsafe { self.backend.wrap_raw_event(event.get()) }.unwrap()
    }

    fn set_memory(&self, kernel: &Kernel, index: u32, memory: &ClMemory, handle: &*mut c_void) {
        let Some(address) = self.backend.svm_address(memory) else {
            return set_value(kernel, index, handle);
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
