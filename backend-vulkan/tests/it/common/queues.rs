//! Several queues where the device has one. Below the backend, what is submitted on them stays here until something is asked or waited for. Then it goes
//! to the one queue, in an order by chance that only semaphores limit: as slow and as much out of order as a device with such queues may be.

#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "structs of C come in chains"
)]

use std::{collections::VecDeque, sync::OnceLock, thread};

use ash::vk::{self, Handle as _};
use binpool_conformance::Random;
use parking_lot::Mutex;

use super::Parts;

/// Semaphores with numbers.
type Numbers = Vec<(vk::Semaphore, u64)>;

struct Submitted {
    waits: Numbers,
    commands: Vec<vk::CommandBuffer>,
    signals: Numbers,
    fence: vk::Fence,
}

/// The queues of a device.
struct Queues {
    device: vk::Device,
    real: vk::Queue,
    /// What is submitted on each, in its order.
    lines: Vec<VecDeque<Submitted>>,
    random: Random,
}

static ALL: Mutex<Vec<Queues>> = Mutex::new(Vec::new());
static REAL: OnceLock<(ash::DeviceFnV1_0, ash::DeviceFnV1_2)> = OnceLock::new();

fn real() -> &'static (ash::DeviceFnV1_0, ash::DeviceFnV1_2) {
    REAL.get().unwrap()
}

/// The handles of a device with a queue for each of these families. Memory and command buffers are those of its one family.
pub(crate) fn parts(families: &[u32], seed: u64) -> Parts {
    let mut parts = super::parts();
    let (mut basic, mut more) = REAL
        .get_or_init(|| {
            let device = &parts.device;
            (device.fp_v1_0().clone(), device.fp_v1_2().clone())
        })
        .clone();
    basic.create_buffer = create_buffer;
    basic.create_command_pool = create_command_pool;
    basic.queue_submit = queue_submit;
    basic.queue_wait_idle = queue_wait_idle;
    more.get_semaphore_counter_value = get_semaphore_counter_value;
    more.wait_semaphores = wait_semaphores;
    parts.device = ash::Device::from_parts_1_3(
        parts.device.handle(),
        basic,
        parts.device.fp_v1_1().clone(),
        more,
        parts.device.fp_v1_3().clone(),
    );
    let mut all = ALL.lock();
    let number = all.len() as u64 + 1;
    all.push(Queues {
        device: parts.device.handle(),
        real: parts.queues[0].1,
        lines: families.iter().map(|_| VecDeque::new()).collect(),
        random: Random::new(seed),
    });
    let queue = |line: u64| vk::Queue::from_raw(number << 8 | line);
    let queues = families.iter().zip(0..);
    parts.queues = queues
        .map(|(family, line)| (*family, queue(line)))
        .collect();
    parts
}

impl Queues {
    fn reached(&self, numbers: &Numbers) -> bool {
        numbers.iter().all(|&(semaphore, number)| {
            let mut now = 0;
            // SAFETY: The submitter keeps the semaphores.
            let asked = unsafe {
                (real().1.get_semaphore_counter_value)(self.device, semaphore, &raw mut now)
            };
            asked == vk::Result::SUCCESS && now >= number
        })
    }

    /// Runs the next of any queue that waits for nothing more. Returns whether there was one.
    fn run_any(&mut self) -> bool {
        let lines = (0..self.lines.len()).filter(|line| {
            let next = self.lines[*line].front();
            next.is_some_and(|next| self.reached(&next.waits))
        });
        let lines: Vec<_> = lines.collect();
        if lines.is_empty() {
            return false;
        }
        let line = lines[self.random.below(lines.len())];
        let next = self.lines[line].pop_front().unwrap();
        let (signals, values): (Vec<_>, Vec<_>) = next.signals.into_iter().unzip();
        let mut numbers =
            vk::TimelineSemaphoreSubmitInfo::default().signal_semaphore_values(&values);
        let info = vk::SubmitInfo::default()
            .command_buffers(&next.commands)
            .signal_semaphores(&signals)
            .push_next(&mut numbers);
        // SAFETY: The queue is used under the lock alone; what it waits for has ended.
        let submitted =
            unsafe { (real().0.queue_submit)(self.real, 1, &raw const info, next.fence) };
        assert_eq!(submitted, vk::Result::SUCCESS);
        // SAFETY: As above.
        let ended = unsafe { (real().0.queue_wait_idle)(self.real) };
        assert_eq!(ended, vk::Result::SUCCESS);
        true
    }
}

fn on<T>(device: vk::Device, work: impl FnOnce(&mut Queues) -> T) -> T {
    let mut all = ALL.lock();
    work(
        all.iter_mut()
            .find(|queues| queues.device == device)
            .unwrap(),
    )
}

/// Splits the handle of a queue.
fn place(queue: vk::Queue) -> (usize, usize) {
    let raw = usize::try_from(queue.as_raw()).unwrap();
    ((raw >> 8) - 1, raw & 0xff)
}

unsafe extern "system" fn queue_submit(
    queue: vk::Queue,
    count: u32,
    submits: *const vk::SubmitInfo<'_>,
    fence: vk::Fence,
) -> vk::Result {
    let (number, line) = place(queue);
    for index in 0..count as usize {
        // SAFETY: The caller gives as many structs, with as many entries as they say, and a chain with the numbers.
        let submitted = unsafe {
            let info = &*submits.add(index);
            let mut next = info.p_next.cast::<vk::BaseInStructure<'_>>();
            while (*next).s_type != vk::StructureType::TIMELINE_SEMAPHORE_SUBMIT_INFO {
                next = (*next).p_next;
            }
            let numbers = &*next.cast::<vk::TimelineSemaphoreSubmitInfo<'_>>();
            Submitted {
                waits: list(info.p_wait_semaphores, info.wait_semaphore_count)
                    .zip(list(
                        numbers.p_wait_semaphore_values,
                        numbers.wait_semaphore_value_count,
                    ))
                    .collect(),
                commands: list(info.p_command_buffers, info.command_buffer_count).collect(),
                signals: list(info.p_signal_semaphores, info.signal_semaphore_count)
                    .zip(list(
                        numbers.p_signal_semaphore_values,
                        numbers.signal_semaphore_value_count,
                    ))
                    .collect(),
                fence,
            }
        };
        ALL.lock()[number].lines[line].push_back(submitted);
    }
    vk::Result::SUCCESS
}

/// The entries of an array of C.
unsafe fn list<T: Copy>(start: *const T, count: u32) -> impl Iterator<Item = T> {
    // SAFETY: The caller's array has as many.
    (0..count as usize).map(move |index| unsafe { *start.add(index) })
}

unsafe extern "system" fn queue_wait_idle(queue: vk::Queue) -> vk::Result {
    let (number, line) = place(queue);
    loop {
        let mut all = ALL.lock();
        let queues = &mut all[number];
        if queues.lines[line].is_empty() {
            return vk::Result::SUCCESS;
        }
        if !queues.run_any() {
            // Until the host signals what it waits for.
            drop(all);
            thread::yield_now();
        }
    }
}

unsafe extern "system" fn get_semaphore_counter_value(
    device: vk::Device,
    semaphore: vk::Semaphore,
    value: *mut u64,
) -> vk::Result {
    on(device, |queues| {
        if queues.random.below(4) == 0 {
            queues.run_any();
        }
    });
    // SAFETY: The caller's promises are those of the function itself.
    unsafe { (real().1.get_semaphore_counter_value)(device, semaphore, value) }
}

unsafe extern "system" fn wait_semaphores(
    device: vk::Device,
    info: *const vk::SemaphoreWaitInfo<'_>,
    timeout: u64,
) -> vk::Result {
    loop {
        // SAFETY: The caller's promises are those of the function itself.
        let waited = unsafe { (real().1.wait_semaphores)(device, info, 0) };
        if waited != vk::Result::TIMEOUT {
            return waited;
        }
        if !on(device, Queues::run_any) {
            // SAFETY: As above.
            return unsafe { (real().1.wait_semaphores)(device, info, timeout.min(1_000_000)) };
        }
    }
}

unsafe extern "system" fn create_buffer(
    device: vk::Device,
    info: *const vk::BufferCreateInfo<'_>,
    callbacks: *const vk::AllocationCallbacks<'_>,
    buffer: *mut vk::Buffer,
) -> vk::Result {
    // SAFETY: The caller gives a struct that lives.
    let mut info = unsafe { *info };
    (info.sharing_mode, info.queue_family_index_count) = (vk::SharingMode::EXCLUSIVE, 0);
    // SAFETY: The caller's promises are those of the function itself.
    unsafe { (real().0.create_buffer)(device, &raw const info, callbacks, buffer) }
}

unsafe extern "system" fn create_command_pool(
    device: vk::Device,
    info: *const vk::CommandPoolCreateInfo<'_>,
    callbacks: *const vk::AllocationCallbacks<'_>,
    pool: *mut vk::CommandPool,
) -> vk::Result {
    // SAFETY: The caller gives a struct that lives.
    let mut info = unsafe { *info };
    info.queue_family_index = 0;
    // SAFETY: The caller's promises are those of the function itself.
    unsafe { (real().0.create_command_pool)(device, &raw const info, callbacks, pool) }
}
