//! Devices, and the one that is current.

use std::{
    cell::Cell,
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicI32, AtomicUsize, Ordering},
    },
    thread::{self, ThreadId},
};

use parking_lot::Mutex;

use crate::{
    Code, INVALID_CONTEXT, INVALID_DEVICE, INVALID_HANDLE, INVALID_PTX,
    event::Event,
    faults::Faults,
    memory::Memory,
    stream::{Progress, Stream},
};

const MOST_DEVICES: i32 = 1 << 16;
/// The handle of the context of device 0.
const FIRST_CONTEXT: usize = 1 << 20;
const LEGACY: usize = 1;
const PER_THREAD: usize = 2;

pub(crate) struct Device {
    pub(crate) capacity: AtomicUsize,
    pub(crate) memory: Mutex<Memory>,
    pub(crate) faults: Mutex<Faults>,
    lost: AtomicI32,
    objects: Mutex<Objects>,
    /// Streams that may still run commands, destroyed or not.
    running: Mutex<Vec<Arc<Progress>>>,
}

#[derive(Default)]
struct Objects {
    retained: usize,
    streams: HashMap<usize, Arc<Stream>>,
    defaults: HashMap<(usize, Option<ThreadId>), Arc<Stream>>,
    events: HashMap<usize, Arc<Event>>,
    /// Pinned memory of the host, by its address.
    host: BTreeMap<usize, Box<[u64]>>,
    pools: HashSet<usize>,
    /// Modules, with their texts.
    modules: HashMap<usize, String>,
}

/// Returns a handle that no other object has.
fn fresh() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1 << 30);
    NEXT.fetch_add(1, Ordering::SeqCst)
}

static DEVICES: LazyLock<Mutex<HashMap<i32, Arc<Device>>>> = LazyLock::new(Mutex::default);

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// Returns the device of a number.
pub(crate) fn device(ordinal: i32) -> Result<Arc<Device>, Code> {
    if !(0..MOST_DEVICES).contains(&ordinal) {
        return Err(INVALID_DEVICE);
    }
    let mut devices = DEVICES.lock();
    let device = devices.entry(ordinal).or_insert_with(|| {
        Arc::new(Device {
            capacity: AtomicUsize::new(1 << 30),
            memory: Mutex::default(),
            faults: Mutex::default(),
            lost: AtomicI32::new(0),
            objects: Mutex::default(),
            running: Mutex::default(),
        })
    });
    Ok(Arc::clone(device))
}

pub(crate) fn context_of(ordinal: i32) -> usize {
    FIRST_CONTEXT + usize::try_from(ordinal).unwrap_or(0)
}

pub(crate) fn make_current(context: usize) {
    CURRENT.set(context);
}

pub(crate) fn current() -> usize {
    CURRENT.get()
}

/// Begins a call: returns the current device, unless it is lost or the call is to fail.
pub(crate) fn enter(call: &str) -> Result<Arc<Device>, Code> {
    let number = CURRENT
        .get()
        .checked_sub(FIRST_CONTEXT)
        .ok_or(INVALID_CONTEXT)?;
    let device = device(i32::try_from(number).map_err(|_| INVALID_CONTEXT)?)?;
    device.check()?;
    device.faults.lock().call(call)?;
    Ok(device)
}

impl Device {
    pub(crate) fn check(&self) -> Result<(), Code> {
        match self.lost.load(Ordering::SeqCst) {
            0 => Ok(()),
            code => Err(code),
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.check().is_err()
    }

    /// Makes every later call fail.
    pub(crate) fn lose(&self, code: Code) {
        self.lost.store(code, Ordering::SeqCst);
    }

    pub(crate) fn retain(&self) {
        self.objects.lock().retained += 1;
    }

    pub(crate) fn release(&self) {
        let mut objects = self.objects.lock();
        objects.retained = objects.retained.saturating_sub(1);
    }

    /// The number of objects that the program has.
    pub(crate) fn objects(&self) -> usize {
        let objects = self.objects.lock();
        let own = objects.streams.len() + objects.events.len() + objects.host.len();
        own + objects.pools.len()
            + objects.modules.len()
            + objects.retained
            + self.memory.lock().objects()
    }

    fn start(self: &Arc<Self>) -> Arc<Stream> {
        let stream = Arc::new(Stream::start(self));
        self.running.lock().push(Arc::clone(stream.progress()));
        stream
    }

    pub(crate) fn create_stream(self: &Arc<Self>) -> usize {
        let handle = fresh();
        let stream = self.start();
        self.objects.lock().streams.insert(handle, stream);
        handle
    }

    pub(crate) fn destroy_stream(&self, handle: usize) -> Result<(), Code> {
        let gone = self.objects.lock().streams.remove(&handle);
        gone.map(drop).ok_or(INVALID_HANDLE)
    }

    pub(crate) fn stream(self: &Arc<Self>, handle: usize) -> Result<Arc<Stream>, Code> {
        let mut objects = self.objects.lock();
        let stream = match handle {
            0 | LEGACY | PER_THREAD => {
                let thread = (handle == PER_THREAD).then(|| thread::current().id());
                let stream = objects.defaults.entry((handle.max(LEGACY), thread));
                stream.or_insert_with(|| self.start())
            }
            _ => objects.streams.get_mut(&handle).ok_or(INVALID_HANDLE)?,
        };
        Ok(Arc::clone(stream))
    }

    /// Waits for all commands.
    pub(crate) fn synchronize(&self) -> Result<(), Code> {
        let running = self.running.lock().clone();
        for progress in running {
            progress.wait(self);
        }
        self.check()
    }

    pub(crate) fn create_event(&self) -> usize {
        let handle = fresh();
        self.objects.lock().events.insert(handle, Arc::default());
        handle
    }

    pub(crate) fn destroy_event(&self, handle: usize) -> Result<(), Code> {
        let gone = self.objects.lock().events.remove(&handle);
        gone.map(drop).ok_or(INVALID_HANDLE)
    }

    pub(crate) fn event(&self, handle: usize) -> Result<Arc<Event>, Code> {
        let objects = self.objects.lock();
        objects
            .events
            .get(&handle)
            .map(Arc::clone)
            .ok_or(INVALID_HANDLE)
    }

    pub(crate) fn allocate_host(&self, bytes: usize) -> usize {
        let mut memory = vec![0_u64; bytes.div_ceil(8)].into_boxed_slice();
        let address = memory.as_mut_ptr().expose_provenance();
        self.objects.lock().host.insert(address, memory);
        address
    }

    pub(crate) fn free_host(&self, address: usize) -> Result<(), Code> {
        let gone = self.objects.lock().host.remove(&address);
        gone.map(drop).ok_or(crate::INVALID_VALUE)
    }

    pub(crate) fn create_pool(&self) -> usize {
        let handle = fresh();
        self.objects.lock().pools.insert(handle);
        handle
    }

    pub(crate) fn destroy_pool(&self, handle: usize) -> Result<(), Code> {
        let gone = self.objects.lock().pools.remove(&handle);
        gone.then_some(()).ok_or(INVALID_HANDLE)
    }

    pub(crate) fn create_module(&self, text: String) -> Result<usize, Code> {
        if !text.trim_start().starts_with(".version") {
            return Err(INVALID_PTX);
        }
        let handle = fresh();
        self.objects.lock().modules.insert(handle, text);
        Ok(handle)
    }

    pub(crate) fn destroy_module(&self, handle: usize) -> Result<(), Code> {
        let gone = self.objects.lock().modules.remove(&handle);
        gone.map(drop).ok_or(INVALID_HANDLE)
    }

    pub(crate) fn module(&self, handle: usize) -> Result<String, Code> {
        let objects = self.objects.lock();
        objects.modules.get(&handle).cloned().ok_or(INVALID_HANDLE)
    }

    pub(crate) fn allocate(&self, bytes: usize) -> Result<u64, Code> {
        let capacity = self.capacity.load(Ordering::SeqCst);
        self.memory.lock().allocate(bytes, capacity)
    }
}
