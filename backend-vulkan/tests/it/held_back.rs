//! Commands that are held back while another thread submits what they wait for. The driver below the backend says how far the threads are.

use std::{
    cell::RefCell,
    fs,
    path::Path,
    slice::from_ref,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use ash::vk;
use binpool_allocators::{Backend, Event, Outcome, Queue, QueueOrder};
use binpool_vulkan::VulkanBackend;

use crate::common;

/// What lasts longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

thread_local! {
    /// What this thread does at the start of its next submit.
    static BEFORE_SUBMIT: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}
/// Whether a command was recorded since this was cleared.
static IS_RECORDED: AtomicBool = AtomicBool::new(false);
static REAL: OnceLock<ash::DeviceFnV1_0> = OnceLock::new();

fn real() -> &'static ash::DeviceFnV1_0 {
    REAL.get().unwrap()
}

unsafe extern "system" fn end_command_buffer(commands: vk::CommandBuffer) -> vk::Result {
    // SAFETY: The caller's promises are those of the function itself.
    let ended = unsafe { (real().end_command_buffer)(commands) };
    IS_RECORDED.store(true, Ordering::Release);
    ended
}

unsafe extern "system" fn queue_submit(
    queue: vk::Queue,
    count: u32,
    submits: *const vk::SubmitInfo<'_>,
    fence: vk::Fence,
) -> vk::Result {
    if let Some(work) = BEFORE_SUBMIT.take() {
        work();
    }
    // SAFETY: The caller's promises are those of the function itself.
    unsafe { (real().queue_submit)(queue, count, submits, fence) }
}

fn backend() -> VulkanBackend {
    let mut parts = common::parts();
    let device = &parts.device;
    let mut functions = REAL.get_or_init(|| device.fp_v1_0().clone()).clone();
    functions.end_command_buffer = end_command_buffer;
    functions.queue_submit = queue_submit;
    parts.device = common::with_functions(device, functions);
    parts.backend()
}

/// Waits until the thread that `stat` tells of sleeps once its command is recorded, and returns whether it came to that.
fn waits_once_recorded(stat: &Path) -> bool {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if IS_RECORDED.load(Ordering::Acquire) {
            let text = fs::read_to_string(stat).unwrap_or_default();
            // After the name, which is in parentheses.
            if text.rsplit(") ").next().unwrap().starts_with('S') {
                return true;
            }
        }
        thread::yield_now();
    }
    false
}

/// The second thread sees that its command has to wait, and then waits for the lock that the first one has during its submit.
#[test]
fn a_command_runs_if_what_it_waits_for_is_submitted_just_before_it_is_held_back() {
    let backend = backend();
    let [queue, other] = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    let event = backend.create_user_event().unwrap();
    let first = backend
        .enqueue_marker(queue.after(from_ref(&event)))
        .unwrap();
    let (tell, told) = mpsc::channel();
    let (tell_ended, ended) = mpsc::channel();
    let (same, before) = (backend.clone(), first.clone());
    let enqueue_second = move || {
        IS_RECORDED.store(false, Ordering::Release);
        let (tell_stat, stat) = mpsc::channel();
        thread::spawn(move || {
            let stat = fs::canonicalize("/proc/thread-self/stat").unwrap();
            tell_stat.send(stat).unwrap();
            let second = same.enqueue_marker(other.after(from_ref(&before)));
            let waited = second.and_then(|second| second.wait());
            tell_ended.send(waited).unwrap();
        });
        let is_waiting = stat.recv().is_ok_and(|stat| waits_once_recorded(&stat));
        tell.send(is_waiting).unwrap();
    };
    BEFORE_SUBMIT.set(Some(Box::new(enqueue_second)));
    backend
        .resolve_user_event(&event, Outcome::Complete)
        .unwrap();
    assert_eq!(told.try_recv(), Ok(true));
    let waited = ended.recv_timeout(PATIENCE);
    waited.expect("it is never submitted").unwrap();
    assert!(first.has_ended());
}
