//! What each command uses.

use std::{
    collections::{HashMap, HashSet},
    ffi::c_void,
    ptr,
};

use opencl_sys::{
    CL_MEM_READ_WRITE, CL_MEM_SVM_FINE_GRAIN_BUFFER, CL_SUCCESS, cl_context,
    cl_icd::cl_icd_dispatch, cl_svm_mem_flags, cl_uint, cl_ulong,
};

use crate::{
    child::{pooled, recorded},
    driver::Device,
    queue_driver::load_with,
};

/// A command.
struct Command {
    name: &'static str,
    /// The names of its arguments, up to the last that is memory; `_` for others than that and the queue.
    arguments: &'static [&'static str],
    /// Gives the driver a function for it, which does nothing.
    add: fn(&mut cl_icd_dispatch),
    /// Calls it with these arguments, and zeros for the others.
    call: fn(&cl_icd_dispatch, &[usize]),
}

macro_rules! commands {
    ($($name:ident($($argument:tt),*);)*) => {
        /// All commands, in the order of the layer's source.
        const COMMANDS: &[Command] = &[$(Command {
            name: stringify!($name),
            arguments: &[$(stringify!($argument)),*],
            add: |functions| functions.$name = Some(Function::NOTHING),
            call: |functions, words| unsafe { functions.$name.unwrap().call(words) },
        }),*];
    };
}

commands! {
    clEnqueueReadBuffer(queue, buffer);
    clEnqueueWriteBuffer(queue, buffer);
    clEnqueueCopyBuffer(queue, from, to);
    clEnqueueReadBufferRect(queue, buffer);
    clEnqueueWriteBufferRect(queue, buffer);
    clEnqueueCopyBufferRect(queue, from, to);
    clEnqueueFillBuffer(queue, buffer);
    clEnqueueReadImage(queue, image);
    clEnqueueWriteImage(queue, image);
    clEnqueueFillImage(queue, image);
    clEnqueueCopyImage(queue, from, to);
    clEnqueueCopyImageToBuffer(queue, from, to);
    clEnqueueCopyBufferToImage(queue, from, to);
    clEnqueueSVMMemcpy(queue, _, to, from);
    clEnqueueSVMMemFill(queue, to);
    clEnqueueSVMMap(queue, _, _, address);
    clEnqueueSVMUnmap(queue, address);
    clEnqueueNDRangeKernel(queue, kernel);
    clEnqueueTask(queue, kernel);
    clEnqueueMigrateMemObjects(queue, _, list);
    clEnqueueSVMMigrateMem(queue, _, addresses);
    clEnqueueNativeKernel(queue, _, _, _, _, list);
    clEnqueueMapBuffer(queue, buffer);
    clEnqueueMapImage(queue, image);
    clEnqueueUnmapMemObject(queue, memory);
}

impl Command {
    fn is_svm(&self) -> bool {
        self.name.contains("SVM")
    }

    /// The names of the memory that it uses. A list and a kernel have two blocks.
    fn memory(&self) -> Vec<String> {
        let arguments = self.arguments.iter();
        let memory = arguments.flat_map(|argument| match *argument {
            "queue" | "_" => vec![],
            "list" | "addresses" | "kernel" => {
                vec![format!("{argument}[0]"), format!("{argument}[1]")]
            }
            _ => vec![(*argument).to_owned()],
        });
        memory.collect()
    }

    /// Enqueues it on a queue, with this memory.
    fn enqueue(&self, device: Device, queue: usize, memory: &[usize]) {
        let mut words = Vec::new();
        let mut next = memory.iter();
        for argument in self.arguments {
            let word = match *argument {
                "queue" => queue,
                "_" => 0,
                "list" | "addresses" => {
                    // Its length comes before it.
                    *words.last_mut().unwrap() = memory.len();
                    memory.as_ptr().expose_provenance()
                }
                "kernel" => kernel_with(device, memory),
                _ => *next.next().unwrap(),
            };
            words.push(word);
        }
        (self.call)(device.functions, &words);
    }
}

/// The kernel, with these arguments.
fn kernel_with(device: Device, memory: &[usize]) -> usize {
    const KERNEL: usize = 500;
    let set = device.functions.clSetKernelArg.unwrap();
    for (index, memory) in (0..).zip(memory) {
        let (kernel, value) = (
            ptr::without_provenance_mut(KERNEL),
            ptr::from_ref(memory).cast(),
        );
        let status = unsafe { set(kernel, index, size_of_val(memory), value) };
        assert_eq!(status, CL_SUCCESS);
    }
    KERNEL
}

/// A type of arguments and answers.
trait Word {
    fn of(word: usize) -> Self;
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Word for $number {
            fn of(word: usize) -> Self {
                word.try_into().unwrap()
            }
        }
    )*};
}

numbers! { usize u32 i32 cl_ulong }

impl<T> Word for *const T {
    fn of(word: usize) -> Self {
        ptr::with_exposed_provenance(word)
    }
}

impl<T> Word for *mut T {
    fn of(word: usize) -> Self {
        ptr::with_exposed_provenance_mut(word)
    }
}

/// A function of the program, which is null.
impl<T> Word for Option<T> {
    fn of(_: usize) -> Self {
        None
    }
}

/// A function of OpenCL.
trait Function {
    /// One that does nothing.
    const NOTHING: Self;

    /// Calls it with these arguments, and zeros for the others.
    unsafe fn call(self, words: &[usize]);
}

macro_rules! functions {
    ($first:ident $($argument:ident)*) => {
        impl<$first: Word, $($argument: Word,)* R: Word> Function
            for unsafe extern "C" fn($first, $($argument),*) -> R
        {
            const NOTHING: Self = {
                unsafe extern "C" fn nothing<$first, $($argument,)* R: Word>(
                    _: $first,
                    $(_: $argument),*
                ) -> R {
                    R::of(0)
                }
                nothing
            };

            unsafe fn call(self, words: &[usize]) {
                let mut words = words.iter().copied().chain(std::iter::repeat(0));
                let mut next = || words.next().unwrap();
                unsafe { self($first::of(next()), $($argument::of(next())),*) };
            }
        }

        functions! { $($argument)* }
    };
    () => {};
}

functions! { A B C D E F G H I J K L M N }

/// Gives an address of its own for each number of bytes.
unsafe extern "C" fn allocate_svm(
    _: cl_context,
    _: cl_svm_mem_flags,
    bytes: usize,
    _: cl_uint,
) -> *mut c_void {
    ptr::without_provenance_mut((1 << 30) + (bytes << 12))
}

fn load() -> Device {
    load_with(|functions| {
        functions.clSVMAlloc = Some(allocate_svm);
        functions.clSetKernelArg = Some(Function::NOTHING);
        for command in COMMANDS {
            (command.add)(functions);
        }
    })
}

fn create_svm(device: Device, bytes: usize) -> usize {
    let allocate = device.functions.clSVMAlloc.unwrap();
    unsafe { allocate(ptr::null_mut(), 0, bytes, 0) }.addr()
}

#[test]
fn memory_that_the_host_writes_meanwhile_ends_the_use_of_memory_before_its_commands_have_ended() {
    const FINE: cl_svm_mem_flags = CL_MEM_SVM_FINE_GRAIN_BUFFER;
    pooled(|| {
        let device = load();
        let queue = device.create_queue(0);
        let allocate = device.functions.clSVMAlloc.unwrap();
        let is_used_again_at_once = || {
            let block = device.create(100);
            device.fill_on(queue, block);
            device.release(block);
            let next = device.create(100);
            device.release(next);
            next == block
        };
        unsafe { allocate(ptr::null_mut(), CL_MEM_READ_WRITE, 4096, 0) };
        assert!(is_used_again_at_once());
        unsafe { allocate(ptr::null_mut(), CL_MEM_READ_WRITE | FINE, 8192, 0) };
        assert!(!is_used_again_at_once());
    });
}

#[test]
fn each_command_uses_all_of_its_memory_on_its_queue() {
    let ran = recorded(|| {
        let device = load();
        // Each block has a size of its own: 1 byte, 2 bytes and so on; and each command a queue.
        let mut sizes = 1..;
        for command in COMMANDS {
            let queue = device.create_queue(0);
            let create = |(_, bytes)| {
                if command.is_svm() {
                    create_svm(device, bytes)
                } else {
                    device.create(bytes)
                }
            };
            let names = command.memory();
            let memory: Vec<usize> = names.iter().zip(&mut sizes).map(create).collect();
            command.enqueue(device, queue, &memory);
        }
    });
    if let Some(ran) = ran {
        let recording = ran.recording();
        let two = |line: &str| {
            let mut words = line.split(' ').map(|word| word.parse::<usize>().unwrap());
            (words.next().unwrap(), words.next().unwrap())
        };
        let blocks = recording.of("a ").map(two);
        let ids: HashMap<usize, usize> = blocks.map(|(id, bytes)| (bytes, id)).collect();
        let noted: HashSet<(usize, usize)> = recording.of("u ").map(two).collect();
        let mut expected = Vec::new();
        for (command, queue) in COMMANDS.iter().zip(1..) {
            for name in command.memory() {
                let id = ids[&(expected.len() + 1)];
                expected.push(((id, queue), format!("{}: {name}", command.name)));
            }
        }
        let missing: Vec<&String> = expected
            .iter()
            .filter(|(used, _)| !noted.contains(used))
            .map(|(_, name)| name)
            .collect();
        assert!(missing.is_empty(), "not noted: {missing:?}");
        assert_eq!(noted.len(), expected.len());
    }
}

/// The name of a command, and its arguments as a [`Command`] has them, from where it is defined.
fn read(definition: &'static str) -> (String, Vec<&'static str>) {
    let (head, rest) = definition.split_once('(').unwrap();
    let name = format!("clEnqueue{}", head.split('[').next().unwrap());
    let arguments = rest.split_once(')').unwrap().0.split(',');
    let mut names: Vec<&str> = arguments
        .filter_map(|argument| argument.trim().split_once(": "))
        .map(|(argument, of)| match of {
            "cl_command_queue" | "cl_mem" | "*const cl_mem" | "cl_kernel" => argument,
            _ if name.contains("SVM") && of.ends_with("c_void") && argument != "pattern" => {
                argument
            }
            _ => "_",
        })
        .collect();
    while names.pop_if(|name| *name == "_").is_some() {}
    (name, names)
}

#[test]
fn the_table_of_commands_has_each_that_the_layer_has_with_all_of_its_memory() {
    let source = include_str!("../../src/opencl/commands.rs");
    let defined: Vec<_> = source.split("    clEnqueue").skip(1).map(read).collect();
    let table: Vec<_> = COMMANDS
        .iter()
        .map(|command| (command.name.to_owned(), command.arguments.to_vec()))
        .collect();
    assert_eq!(table, defined);
}
