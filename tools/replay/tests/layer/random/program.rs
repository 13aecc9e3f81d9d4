//! A random program: its steps.

use std::{ffi::c_void, ptr};

use fastrand::Rng;
use opencl_sys::*;

use super::model::{Memory, UNKNOWN, difference};
use crate::{
    cl::cl,
    rig::{Rig, say},
};

const STEPS: usize = 80;
const MOST_OBJECTS: usize = 12;
const SIZES: [usize; 5] = [64, 256, 1000, 1024, 4096];

/// A queue of the program; a number is never that of two.
#[derive(Clone, Copy)]
struct Queue {
    handle: cl_command_queue,
    is_in_order: bool,
    number: usize,
}

#[derive(Clone, Copy)]
struct Command {
    event: cl_event,
    queue: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Buffer(cl_mem),
    Shared(*mut u8),
}

/// What the program has: a buffer, a part of one, or shared memory.
struct Object {
    place: Place,
    /// The memory, by its number, and the part of it.
    memory: usize,
    at: usize,
    bytes: usize,
    references: u32,
    is_part: bool,
}

/// Bytes that a command reads into, and what they must be once it has ended.
struct Read {
    bytes: Vec<u8>,
    expected: Vec<u16>,
    step: usize,
}

struct Program<'a> {
    rig: &'a mut Rig,
    rng: Rng,
    step: usize,
    queues: Vec<Queue>,
    next_queue: usize,
    commands: Vec<Command>,
    memories: Vec<Memory>,
    objects: Vec<Object>,
    reads: Vec<Read>,
    /// What commands write, until they have ended.
    written: Vec<Vec<u8>>,
    user_events: Vec<cl_event>,
    /// Of what size buffers are, and whether commands wait for the program.
    sizes: Vec<usize>,
    has_user_events: bool,
    kernels: [cl_kernel; 3],
}

/// Runs the program of a seed, and says what it has come to.
pub(super) fn run(rig: &mut Rig, seed: u64) {
    let kernels = ["set", "add", "slow"].map(|name| rig.kernel(name));
    let mut rng = Rng::with_seed(seed);
    let count = rng.usize(1..=3);
    let mut program = Program {
        rig,
        sizes: rng.choose_multiple(SIZES, count),
        has_user_events: rng.bool(),
        rng,
        step: 0,
        queues: Vec::new(),
        next_queue: 0,
        commands: Vec::new(),
        memories: Vec::new(),
        objects: Vec::new(),
        reads: Vec::new(),
        written: Vec::new(),
        user_events: Vec::new(),
        kernels,
    };
    // Most programs have one queue to begin with.
    for _ in 0..*program.rng.choice(&[1, 1, 2, 3]).unwrap_or(&1) {
        program.new_queue();
    }
    for step in 0..STEPS {
        program.step = step;
        program.take_step();
    }
    program.end();
    let wrong: Vec<String> = program
        .reads
        .iter()
        .filter_map(|read| {
            difference(&read.bytes, &read.expected)
                .map(|at| format!("wrong at step {}, byte {at}", read.step))
        })
        .collect();
    let reads = program.reads.len();
    say!(rig, "seed {seed}: {reads} reads {}", wrong.join(", "));
}

impl Program<'_> {
    fn take_step(&mut self) {
        match self.rng.u32(0..100) {
            0..18 => self.create(),
            18..34 => self.release(),
            34..36 => self.retain(),
            36..41 => self.part(),
            41..52 => self.fill(),
            52..59 => self.write(),
            59..68 => self.read(),
            68..75 => self.copy(),
            75..80 => self.launch(),
            80..84 => self.temporary(),
            84..88 => self.map(),
            88..91 => self.resolve_one(),
            91..92 => self.finish(),
            92..97 => self.replace_queue(),
            97..98 => self.report_end(),
            _ => {
                let queue = self.queue();
                cl!(clFlush(queue.handle));
            }
        }
    }

    // Queues and events.

    fn new_queue(&mut self) {
        let is_in_order = self.rng.u8(0..3) != 0;
        let properties = if is_in_order {
            0
        } else {
            CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE
        };
        let handle = self.rig.new_queue(properties);
        self.queues.push(Queue {
            handle,
            is_in_order,
            number: self.next_queue,
        });
        self.next_queue += 1;
    }

    fn queue(&mut self) -> Queue {
        self.queues[self.rng.usize(0..self.queues.len())]
    }

    /// Adds a queue, releases one, or all but one: memory of the only queue of a context is reused in another way.
    fn replace_queue(&mut self) {
        let left = match self.rng.u8(0..6) {
            0..3 if self.queues.len() < 4 => return self.new_queue(),
            3 => self.queues.len() - 1,
            _ => 1,
        };
        while self.queues.len() > left {
            let index = self.rng.usize(0..self.queues.len());
            let queue = self.queues.swap_remove(index);
            assert_eq!(cl!(clReleaseCommandQueue(queue.handle)), CL_SUCCESS);
        }
        if self.queues.is_empty() {
            self.new_queue();
        }
    }

    fn resolve_one(&mut self) {
        if !self.user_events.is_empty() {
            let index = self.rng.usize(0..self.user_events.len());
            let event = self.user_events.swap_remove(index);
            self.rig.resolve(event, CL_COMPLETE);
            cl!(clReleaseEvent(event));
        }
    }

    /// Nothing waits for the program any more.
    fn resolve(&mut self) {
        while !self.user_events.is_empty() {
            self.resolve_one();
        }
    }

    fn finish(&mut self) {
        self.resolve();
        let queue = self.queue();
        self.rig.finish(queue.handle);
    }

    /// Enqueues a command on memory after those that it must come after: `enqueue` gets the queue, and what it waits for.
    fn command(
        &mut self,
        uses: &[(usize, bool)],
        is_blocking: bool,
        enqueue: impl FnOnce(&Self, cl_command_queue, &[cl_event], *mut cl_event) -> cl_int,
    ) {
        if is_blocking {
            self.resolve();
        }
        let queue = self.queue();
        let mut before: Vec<usize> = uses
            .iter()
            .flat_map(|(memory, is_write)| self.memories[*memory].before(*is_write))
            .collect();
        before.sort_unstable();
        before.dedup();
        // An in-order queue has an order of its own.
        let says_all = self.rng.u8(0..4) == 0;
        let is_ordered =
            |command: &usize| queue.is_in_order && self.commands[*command].queue == queue.number;
        before.retain(|command| says_all || !is_ordered(command));
        let mut waits: Vec<cl_event> = before
            .into_iter()
            .map(|command| self.commands[command].event)
            .collect();
        if self.has_user_events && !is_blocking && self.rng.u8(0..10) == 0 {
            let event = self.rig.user_event();
            self.user_events.push(event);
            waits.push(event);
        }
        let mut event = ptr::null_mut();
        let status = enqueue(self, queue.handle, &waits, &raw mut event);
        assert_eq!(status, CL_SUCCESS, "step {}", self.step);
        let command = self.commands.len();
        self.commands.push(Command {
            event,
            queue: queue.number,
        });
        for (memory, is_write) in uses {
            self.memories[*memory].used(command, *is_write);
        }
        // What another queue waits for must have been sent to the device.
        cl!(clFlush(queue.handle));
    }

    fn end(&mut self) {
        self.has_user_events = false;
        self.resolve();
        for index in 0..self.objects.len() {
            self.read_range(index, 0, self.objects[index].bytes);
        }
        for queue in std::mem::take(&mut self.queues) {
            self.rig.finish(queue.handle);
            cl!(clReleaseCommandQueue(queue.handle));
        }
        for command in &self.commands {
            // A queue that was released may have had the last ones.
            cl!(clWaitForEvents(1, &raw const command.event));
            cl!(clReleaseEvent(command.event));
        }
        while !self.objects.is_empty() {
            self.release_at(0);
        }
        for kernel in self.kernels {
            cl!(clReleaseKernel(kernel));
        }
    }

    // Memory.

    fn object(&mut self) -> Option<usize> {
        (!self.objects.is_empty()).then(|| self.rng.usize(0..self.objects.len()))
    }

    fn buffer(&mut self) -> Option<usize> {
        self.object()
            .filter(|index| matches!(self.objects[*index].place, Place::Buffer(_)))
    }

    fn create(&mut self) {
        if self.objects.len() >= MOST_OBJECTS {
            return;
        }
        let bytes = *self.rng.choice(&self.sizes).unwrap_or(&64);
        let mut memory = Memory::new(bytes);
        let context = self.rig.context;
        let place = match self.rng.u8(0..8) {
            0 => {
                let mut host: Vec<u8> = (0..bytes).map(|_| self.rng.u8(..)).collect();
                memory.set(0, host.iter().map(|byte| u16::from(*byte)));
                let (buffer, status) =
                    self.rig
                        .try_buffer(CL_MEM_COPY_HOST_PTR, bytes, host.as_mut_ptr().cast());
                assert_eq!(status, CL_SUCCESS);
                Place::Buffer(buffer)
            }
            1 => Place::Buffer(self.rig.buffer_with(CL_MEM_ALLOC_HOST_PTR, bytes)),
            2 => {
                let flags = *self
                    .rng
                    .choice(&[
                        CL_MEM_READ_WRITE,
                        CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER,
                    ])
                    .unwrap_or(&0);
                let address = cl!(clSVMAlloc(context, flags, bytes, 0));
                assert!(!address.is_null());
                Place::Shared(address.cast())
            }
            _ => Place::Buffer(self.rig.buffer(bytes)),
        };
        self.memories.push(memory);
        self.objects.push(Object {
            place,
            memory: self.memories.len() - 1,
            at: 0,
            bytes,
            references: 1,
            is_part: false,
        });
    }

    fn part(&mut self) {
        let Some(index) = self.buffer() else {
            return;
        };
        let Object {
            place: Place::Buffer(whole),
            memory,
            bytes,
            is_part: false,
            ..
        } = self.objects[index]
        else {
            return;
        };
        if bytes < 256 || self.objects.len() >= MOST_OBJECTS {
            return;
        }
        let at = 128 * self.rng.usize(0..bytes / 128);
        let bytes = self.rng.usize(1..=bytes - at);
        let (part, status) = self.rig.sub_buffer(whole, at, bytes);
        assert_eq!(status, CL_SUCCESS);
        self.objects.push(Object {
            place: Place::Buffer(part),
            memory,
            at,
            bytes,
            references: 1,
            is_part: true,
        });
    }

    fn retain(&mut self) {
        if let Some(index) = self.buffer()
            && let Place::Buffer(buffer) = self.objects[index].place
        {
            self.rig.retain(buffer);
            self.objects[index].references += 1;
        }
    }

    fn release(&mut self) {
        if let Some(index) = self.object() {
            self.release_at(index);
        }
    }

    fn release_at(&mut self, index: usize) {
        let object = &mut self.objects[index];
        object.references -= 1;
        let (place, memory) = (object.place, object.memory);
        if object.references == 0 {
            self.objects.swap_remove(index);
        }
        match place {
            Place::Buffer(buffer) => self.rig.release(buffer),
            Place::Shared(address) if !self.queues.is_empty() && self.rng.bool() => {
                self.command(&[(memory, true)], false, |_, queue, waits, event| {
                    let mut address: *mut c_void = address.cast();
                    cl!(clEnqueueSVMFree(
                        queue,
                        1,
                        &raw mut address,
                        None,
                        ptr::null_mut(),
                        cl_uint::try_from(waits.len()).unwrap_or(0),
                        list(waits),
                        event
                    ))
                });
            }
            Place::Shared(address) => {
                if !self.queues.is_empty() {
                    self.resolve();
                    for command in self.memories[memory].before(true) {
                        cl!(clWaitForEvents(1, &raw const self.commands[command].event));
                    }
                }
                cl!(clSVMFree(self.rig.context, address.cast()));
            }
        }
    }

    fn report_end(&mut self) {
        unsafe extern "C" fn ended(_memory: cl_mem, _data: *mut c_void) {}
        if let Some(index) = self.buffer()
            && let Place::Buffer(buffer) = self.objects[index].place
        {
            let set = cl!(clSetMemObjectDestructorCallback(
                buffer,
                Some(ended),
                ptr::null_mut()
            ));
            assert_eq!(set, CL_SUCCESS);
        }
    }

    // Commands.

    /// A part of an object: which, from where, how many bytes.
    fn range(&mut self, index: usize) -> (usize, usize) {
        let bytes = self.objects[index].bytes;
        if self.rng.bool() {
            return (0, bytes);
        }
        let at = self.rng.usize(0..bytes);
        (at, self.rng.usize(1..=bytes - at))
    }

    fn fill(&mut self) {
        let Some(index) = self.object() else {
            return;
        };
        let (at, bytes) = self.range(index);
        let Object {
            place,
            memory,
            at: begin,
            ..
        } = self.objects[index];
        let value = self.rng.u8(..);
        self.memories[memory].set(begin + at, std::iter::repeat_n(u16::from(value), bytes));
        self.command(&[(memory, true)], false, |_, queue, waits, event| {
            let count = cl_uint::try_from(waits.len()).unwrap_or(0);
            let pattern = (&raw const value).cast();
            match place {
                Place::Buffer(buffer) => {
                    cl!(clEnqueueFillBuffer(
                        queue,
                        buffer,
                        pattern,
                        1,
                        at,
                        bytes,
                        count,
                        list(waits),
                        event
                    ))
                }
                Place::Shared(address) => {
                    let to = address.wrapping_add(at).cast();
                    cl!(clEnqueueSVMMemFill(
                        queue,
                        to,
                        pattern,
                        1,
                        bytes,
                        count,
                        list(waits),
                        event
                    ))
                }
            }
        });
    }

    fn write(&mut self) {
        let Some(index) = self.object() else {
            return;
        };
        let (at, bytes) = self.range(index);
        let Object {
            place,
            memory,
            at: begin,
            ..
        } = self.objects[index];
        let from: Vec<u8> = (0..bytes).map(|_| self.rng.u8(..)).collect();
        self.memories[memory].set(begin + at, from.iter().map(|byte| u16::from(*byte)));
        let is_blocking = self.rng.u8(0..3) == 0;
        let pointer = from.as_ptr();
        self.written.push(from);
        self.command(&[(memory, true)], is_blocking, |_, queue, waits, event| {
            let (count, blocking) = (
                cl_uint::try_from(waits.len()).unwrap_or(0),
                cl_bool::from(is_blocking),
            );
            match place {
                Place::Buffer(buffer) => cl!(clEnqueueWriteBuffer(
                    queue,
                    buffer,
                    blocking,
                    at,
                    bytes,
                    pointer.cast(),
                    count,
                    list(waits),
                    event
                )),
                Place::Shared(address) => cl!(clEnqueueSVMMemcpy(
                    queue,
                    blocking,
                    address.wrapping_add(at).cast(),
                    pointer.cast(),
                    bytes,
                    count,
                    list(waits),
                    event
                )),
            }
        });
    }

    fn read(&mut self) {
        if let Some(index) = self.object() {
            let (at, bytes) = self.range(index);
            self.read_range(index, at, bytes);
        }
    }

    fn read_range(&mut self, index: usize, at: usize, bytes: usize) {
        let Object {
            place,
            memory,
            at: begin,
            ..
        } = self.objects[index];
        let expected = self.memories[memory].bytes[begin + at..][..bytes].to_vec();
        let is_blocking = self.rng.u8(0..3) == 0;
        let mut to = vec![0_u8; bytes];
        let pointer = to.as_mut_ptr();
        self.reads.push(Read {
            bytes: to,
            expected,
            step: self.step,
        });
        self.command(&[(memory, false)], is_blocking, |_, queue, waits, event| {
            let (count, blocking) = (
                cl_uint::try_from(waits.len()).unwrap_or(0),
                cl_bool::from(is_blocking),
            );
            match place {
                Place::Buffer(buffer) => cl!(clEnqueueReadBuffer(
                    queue,
                    buffer,
                    blocking,
                    at,
                    bytes,
                    pointer.cast(),
                    count,
                    list(waits),
                    event
                )),
                Place::Shared(address) => cl!(clEnqueueSVMMemcpy(
                    queue,
                    blocking,
                    pointer.cast(),
                    address.wrapping_add(at).cast(),
                    bytes,
                    count,
                    list(waits),
                    event
                )),
            }
        });
    }

    fn copy(&mut self) {
        let (Some(from), Some(to)) = (self.buffer(), self.buffer()) else {
            return;
        };
        let (Place::Buffer(source), Place::Buffer(target)) =
            (self.objects[from].place, self.objects[to].place)
        else {
            return;
        };
        let (from_memory, to_memory) = (self.objects[from].memory, self.objects[to].memory);
        // Of one memory, the parts could overlap.
        if from_memory == to_memory {
            return;
        }
        let (from_at, bytes) = self.range(from);
        let bytes = bytes.min(self.objects[to].bytes);
        let to_at = self.rng.usize(0..=self.objects[to].bytes - bytes);
        let copied =
            self.memories[from_memory].bytes[self.objects[from].at + from_at..][..bytes].to_vec();
        let begin = self.objects[to].at + to_at;
        self.memories[to_memory].set(begin, copied);
        self.command(
            &[(from_memory, false), (to_memory, true)],
            false,
            |_, queue, waits, event| {
                let count = cl_uint::try_from(waits.len()).unwrap_or(0);
                cl!(clEnqueueCopyBuffer(
                    queue,
                    source,
                    target,
                    from_at,
                    to_at,
                    bytes,
                    count,
                    list(waits),
                    event
                ))
            },
        );
    }

    fn launch(&mut self) {
        let Some(to) = self.object() else {
            return;
        };
        let adds = self.rng.bool();
        let from = if adds { self.object() } else { None };
        let from = from.filter(|from| self.objects[*from].memory != self.objects[to].memory);
        let kernel = self.kernels[usize::from(from.is_some())];
        let Object {
            memory, at, bytes, ..
        } = self.objects[to];
        self.set_memory(kernel, 0, to);
        let Some(from) = from else {
            let value = self.rng.u8(..);
            assert_eq!(self.rig.argument(kernel, 1, &value), CL_SUCCESS);
            self.memories[memory].set(at, std::iter::repeat_n(u16::from(value), bytes));
            return self.enqueue_kernel(kernel, &[(memory, true)], bytes);
        };
        self.set_memory(kernel, 1, from);
        let Object {
            memory: from_memory,
            at: from_at,
            bytes: from_bytes,
            ..
        } = self.objects[from];
        let items = bytes.min(from_bytes);
        let sums: Vec<u16> = (0..items)
            .map(|item| {
                match (
                    self.memories[memory].bytes[at + item],
                    self.memories[from_memory].bytes[from_at + item],
                ) {
                    (UNKNOWN, _) | (_, UNKNOWN) => UNKNOWN,
                    (one, other) => (one + other) % 256,
                }
            })
            .collect();
        self.memories[memory].set(at, sums);
        self.enqueue_kernel(kernel, &[(memory, true), (from_memory, false)], items);
    }

    /// A buffer for one command, which takes milliseconds: its memory is created again while that runs.
    fn temporary(&mut self) {
        let before = self.objects.len();
        self.create();
        if self.objects.len() > before {
            self.launch_slow(before);
            self.release_at(before);
            self.create();
        }
    }

    fn launch_slow(&mut self, index: usize) {
        let kernel = self.kernels[2];
        let Object {
            memory, at, bytes, ..
        } = self.objects[index];
        let rounds = 4_000_000 / u32::try_from(bytes).unwrap_or(1);
        self.set_memory(kernel, 0, index);
        assert_eq!(self.rig.argument(kernel, 1, &rounds), CL_SUCCESS);
        self.memories[memory].set(at, std::iter::repeat_n(0xEE, bytes));
        self.enqueue_kernel(kernel, &[(memory, true)], bytes);
    }

    fn set_memory(&self, kernel: cl_kernel, argument: cl_uint, index: usize) {
        let set = match self.objects[index].place {
            Place::Buffer(buffer) => self.rig.argument(kernel, argument, &buffer),
            Place::Shared(address) => {
                cl!(clSetKernelArgSVMPointer(kernel, argument, address.cast()))
            }
        };
        assert_eq!(set, CL_SUCCESS);
    }

    fn enqueue_kernel(&mut self, kernel: cl_kernel, uses: &[(usize, bool)], items: usize) {
        self.command(uses, false, |_, queue, waits, event| {
            cl!(clEnqueueNDRangeKernel(
                queue,
                kernel,
                1,
                ptr::null(),
                &raw const items,
                ptr::null(),
                cl_uint::try_from(waits.len()).unwrap_or(0),
                list(waits),
                event
            ))
        });
    }

    fn map(&mut self) {
        let Some(index) = self.buffer() else {
            return;
        };
        let (at, bytes) = self.range(index);
        let Object {
            place: Place::Buffer(buffer),
            memory,
            at: begin,
            ..
        } = self.objects[index]
        else {
            return;
        };
        let mut mapped: *mut u8 = ptr::null_mut();
        let is_write = self.rng.bool();
        let flags = if is_write {
            CL_MAP_READ | CL_MAP_WRITE
        } else {
            CL_MAP_READ
        };
        self.command(&[(memory, is_write)], true, |_, queue, waits, event| {
            let mut status = 0;
            mapped = cl!(clEnqueueMapBuffer(
                queue,
                buffer,
                CL_BLOCKING,
                flags,
                at,
                bytes,
                cl_uint::try_from(waits.len()).unwrap_or(0),
                list(waits),
                event,
                &raw mut status
            ))
            .cast();
            status
        });
        // SAFETY: these bytes are mapped until the unmap below.
        let host = unsafe { std::slice::from_raw_parts_mut(mapped, bytes) };
        let expected = self.memories[memory].bytes[begin + at..][..bytes].to_vec();
        self.reads.push(Read {
            bytes: host.to_vec(),
            expected,
            step: self.step,
        });
        if is_write {
            let value = self.rng.u8(..);
            host.fill(value);
            self.memories[memory].set(begin + at, std::iter::repeat_n(u16::from(value), bytes));
        }
        // As a command that writes: what comes later comes after it.
        self.command(&[(memory, true)], false, |_, queue, waits, event| {
            cl!(clEnqueueUnmapMemObject(
                queue,
                buffer,
                mapped.cast(),
                cl_uint::try_from(waits.len()).unwrap_or(0),
                list(waits),
                event
            ))
        });
    }
}

fn list(waits: &[cl_event]) -> *const cl_event {
    if waits.is_empty() {
        ptr::null()
    } else {
        waits.as_ptr()
    }
}
