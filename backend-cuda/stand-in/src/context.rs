//! The context of a device: the objects that a program makes there, and which context is current.

use std::{
    cell::Cell,
    collections::{BTreeMap, HashMap},
    ops::Deref,
    sync::{
        Arc, LazyLock, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use parking_lot::Mutex;

use crate::{
    Code, INVALID_CONTEXT, INVALID_HANDLE, INVALID_PTX, INVALID_VALUE,
    capture::{self, Graph},
    device::{self, Device, NOT_PORTABLE},
    event::Event,
    objects::{ORDINAL, Objects, handle},
    stream::{PER_THREAD, Progress, Stream},
};

/// The handle of the context of device 0.
const FIRST_CONTEXT: usize = 1 << 20;
const LEGACY: usize = 1;

pub(crate) struct Context {
    device: Arc<Device>,
    retained: Mutex<usize>,
    is_active: AtomicBool,
    pub(crate) streams: Objects<Arc<Stream>>,
    /// By their handle and, for those of threads, the number of the thread.
    defaults: Mutex<HashMap<(usize, usize), Arc<Stream>>>,
    /// Streams that may still run commands, destroyed or not.
    running: Mutex<Vec<Arc<Progress>>>,
    pub(crate) events: Objects<Arc<Event>>,
    /// Pinned memory of the host, by its address.
    host: Mutex<BTreeMap<usize, Box<[u64]>>>,
    /// The devices that may use the memory of each pool.
    pub(crate) pools: Objects<Vec<i32>>,
    /// The pool of `cuMemAllocAsync`, once it was asked for.
    default_pool: OnceLock<usize>,
    /// Graphs, and those that can be launched.
    pub(crate) graphs: Objects<Graph>,
    /// Modules, with their texts.
    pub(crate) modules: Objects<String>,
}

static CONTEXTS: LazyLock<Mutex<HashMap<i32, Arc<Context>>>> = LazyLock::new(Mutex::default);

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// Takes the default streams of a thread that ends with it.
struct OwnStreams;

impl Drop for OwnStreams {
    fn drop(&mut self) {
        let contexts: Vec<_> = CONTEXTS.lock().values().map(Arc::clone).collect();
        for context in contexts {
            let gone = context.defaults.lock().remove(&(PER_THREAD, own_number()));
            drop(gone);
        }
    }
}

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(0) };
    static STREAMS: OwnStreams = const { OwnStreams };
}

/// A number that no other thread has.
fn own_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    if NUMBER.get() == 0 {
        NUMBER.set(NEXT.fetch_add(1, Ordering::SeqCst));
    }
    NUMBER.get()
}

/// Returns the context of the device of a number.
pub(crate) fn context(ordinal: i32) -> Result<Arc<Context>, Code> {
    let device = device::device(ordinal)?;
    let mut contexts = CONTEXTS.lock();
    let context = contexts.entry(ordinal).or_insert_with(|| {
        Arc::new(Context {
            device,
            retained: Mutex::default(),
            is_active: AtomicBool::default(),
            streams: Objects::of(ordinal),
            defaults: Mutex::default(),
            running: Mutex::default(),
            events: Objects::of(ordinal),
            host: Mutex::default(),
            pools: Objects::of(ordinal),
            default_pool: OnceLock::new(),
            graphs: Objects::of(ordinal),
            modules: Objects::of(ordinal),
        })
    });
    Ok(Arc::clone(context))
}

/// Returns the context whose object a handle is.
pub(crate) fn context_of_handle(handle: usize) -> Result<Arc<Context>, Code> {
    context(i32::try_from(handle >> ORDINAL).map_err(|_| INVALID_HANDLE)?)
}

pub(crate) fn handle_of_context(ordinal: i32) -> usize {
    FIRST_CONTEXT + usize::try_from(ordinal).unwrap_or(0)
}

/// The context of the calling thread, or 0.
pub(crate) fn current() -> usize {
    CURRENT.get()
}

/// Makes a context current, or none for 0.
pub(crate) fn make_current(context: usize) -> Result<(), Code> {
    if context != 0 {
        context_of(context)?.faults.lock().call("cuCtxSetCurrent")?;
    }
    CURRENT.set(context);
    Ok(())
}

/// Returns the context of a handle.
pub(crate) fn context_of(handle: usize) -> Result<Arc<Context>, Code> {
    let number = handle.checked_sub(FIRST_CONTEXT).ok_or(INVALID_CONTEXT)?;
    context(i32::try_from(number).map_err(|_| INVALID_CONTEXT)?)
}

/// Begins a call: returns the current context, unless its device is lost or the call is to fail.
pub(crate) fn enter(call: &str) -> Result<Arc<Context>, Code> {
    let context = context_of(current())?;
    context.check()?;
    context.faults.lock().call(call)?;
    Ok(context)
}

/// Begins a call that is not safe in a capture.
pub(crate) fn enter_unless_captured(call: &str) -> Result<Arc<Context>, Code> {
    let context = enter(call)?;
    capture::check_safe(&context)?;
    Ok(context)
}

/// A context is used where its device is.
impl Deref for Context {
    type Target = Device;

    fn deref(&self) -> &Device {
        &self.device
    }
}

impl Context {
    pub(crate) fn retain(&self) {
        *self.retained.lock() += 1;
        self.is_active.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::SeqCst)
    }

    pub(crate) fn release(&self) {
        let mut retained = self.retained.lock();
        *retained = retained.saturating_sub(1);
        if *retained == 0 {
            self.is_active.store(false, Ordering::SeqCst);
        }
    }

    /// Ends it, until it is retained again. It stays retained as often as it was.
    pub(crate) fn reset(&self) {
        self.is_active.store(false, Ordering::SeqCst);
    }

    /// The number of objects that the program has: the default pool is the driver's.
    pub(crate) fn objects(&self) -> usize {
        self.streams.count() + self.events.count() + self.pools.count()
            - usize::from(self.default_pool.get().is_some())
            + self.modules.count()
            + self.graphs.count()
            + self.host.lock().len()
            + *self.retained.lock()
            + self.memory.lock().objects()
    }

    pub(crate) fn default_pool(&self) -> usize {
        let make = || self.pools.add(vec![self.ordinal]);
        *self.default_pool.get_or_init(make)
    }

    fn start(&self, handle: usize) -> Arc<Stream> {
        let stream = Arc::new(Stream::start(&self.device, handle));
        let mut running = self.running.lock();
        running.retain(|progress| Arc::strong_count(progress) > 1 || !progress.is_idle());
        running.push(Arc::clone(stream.progress()));
        drop(running);
        stream
    }

    pub(crate) fn create_stream(&self) -> usize {
        self.streams.make(|handle| self.start(handle))
    }

    pub(crate) fn stream(&self, handle: usize) -> Result<Arc<Stream>, Code> {
        let thread = match handle {
            0 | LEGACY => 0,
            PER_THREAD => {
                // One that ends just now keeps its streams.
                let _ended = STREAMS.try_with(|_| ());
                own_number()
            }
            _ => return self.streams.get(handle),
        };
        let mut defaults = self.defaults.lock();
        let stream = defaults.entry((handle.max(LEGACY), thread));
        Ok(Arc::clone(stream.or_insert_with(|| self.start(handle))))
    }

    /// Waits for all commands, but for those that are captured.
    pub(crate) fn synchronize(&self) -> Result<(), Code> {
        let running = self.running.lock().clone();
        for progress in running {
            progress.wait(self);
        }
        self.check()
    }

    /// Records in an event all commands so far, but for those that are captured.
    pub(crate) fn record_all(&self, event: &Arc<Event>) {
        let (record, running) = (event.record(), self.running.lock().clone());
        let busy = running.into_iter().filter(|progress| !progress.is_idle());
        let busy: Vec<_> = busy
            .map(|progress| (progress.enqueued(), progress))
            .collect();
        if busy.is_empty() {
            event.end(record);
            return;
        }
        let (device, event) = (Arc::clone(&self.device), Arc::clone(event));
        thread::spawn(move || {
            for (last, progress) in busy {
                progress.wait_for(last, &device);
            }
            event.end(record);
        });
    }

    pub(crate) fn allocate_host(&self, bytes: usize, is_portable: bool) -> usize {
        let mut memory = vec![0_u64; bytes.div_ceil(8)].into_boxed_slice();
        let address = memory.as_mut_ptr().expose_provenance();
        if !is_portable {
            NOT_PORTABLE.lock().insert(address, (bytes, self.ordinal));
        }
        self.host.lock().insert(address, memory);
        address
    }

    pub(crate) fn free_host(&self, address: usize) -> Result<(), Code> {
        let gone = self.host.lock().remove(&address);
        NOT_PORTABLE.lock().remove(&address);
        gone.map(drop).ok_or(INVALID_VALUE)
    }

    pub(crate) fn create_module(&self, text: String) -> Result<usize, Code> {
        if !text.trim_start().starts_with(".version") {
            return Err(INVALID_PTX);
        }
        Ok(self.modules.add(text))
    }

    /// Returns the handle of a kernel that was loaded on this device.
    pub(crate) fn function(&self, kernel: usize) -> usize {
        handle(self.ordinal, kernel)
    }

    /// Returns the kernel of a handle, which was loaded on this device.
    pub(crate) fn kernel(&self, function: usize) -> Result<usize, Code> {
        let kernel = function.checked_sub(handle(self.ordinal, 0));
        kernel
            .filter(|kernel| *kernel < 1 << ORDINAL)
            .ok_or(INVALID_HANDLE)
    }
}
