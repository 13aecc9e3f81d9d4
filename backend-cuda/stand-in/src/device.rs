//! Devices, and the one that is current.

use std::{
    cell::Cell,
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering},
    },
    thread,
};

use parking_lot::Mutex;

use crate::{
    Code, ILLEGAL_ADDRESS, INVALID_CONTEXT, INVALID_DEVICE, INVALID_HANDLE, INVALID_PTX,
    INVALID_VALUE, PEER_ACCESS_ALREADY_ENABLED, PEER_ACCESS_UNSUPPORTED,
    capture::{self, Graph},
    event::Event,
    faults::Faults,
    memory::{Memory, Users},
    stream::{Progress, Stream},
};

const MOST_DEVICES: i32 = 1 << 16;
/// The handle of the context of device 0.
const FIRST_CONTEXT: usize = 1 << 20;
const LEGACY: usize = 1;
pub(crate) const PER_THREAD: usize = 2;

pub(crate) struct Device {
    pub(crate) ordinal: i32,
    /// Set if it and other devices may use each other's memory.
    pub(crate) can_peer: AtomicBool,
    /// The devices whose memory it may use.
    peers: Mutex<HashSet<i32>>,
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
    /// By their handle and, for those of threads, the number of the thread.
    defaults: HashMap<(usize, usize), Arc<Stream>>,
    events: HashMap<usize, Arc<Event>>,
    /// Pinned memory of the host, by its address.
    host: BTreeMap<usize, Box<[u64]>>,
    /// The devices that may use the memory of each pool.
    pools: HashMap<usize, Vec<i32>>,
    /// Graphs, and those that can be launched.
    graphs: HashMap<usize, Graph>,
    /// Modules, with their texts.
    modules: HashMap<usize, String>,
}

/// The number of the device is in the bits of a handle from here on.
const ORDINAL: u32 = 40;

/// Returns the handle of a number on a device.
fn handle(ordinal: i32, number: usize) -> usize {
    (usize::try_from(ordinal).unwrap_or(0) << ORDINAL) + number
}

/// Returns a handle that no other object has.
fn fresh(ordinal: i32) -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1 << 30);
    handle(ordinal, NEXT.fetch_add(1, Ordering::SeqCst))
}

static DEVICES: LazyLock<Mutex<HashMap<i32, Arc<Device>>>> = LazyLock::new(Mutex::default);

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// Takes the default streams of a thread that ends with it.
struct OwnStreams;

impl Drop for OwnStreams {
    fn drop(&mut self) {
        let devices: Vec<_> = DEVICES.lock().values().map(Arc::clone).collect();
        for device in devices {
            let gone = device
                .objects
                .lock()
                .defaults
                .remove(&(PER_THREAD, own_number()));
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

/// Returns the device of a number.
pub(crate) fn device(ordinal: i32) -> Result<Arc<Device>, Code> {
    if !(0..MOST_DEVICES).contains(&ordinal) {
        return Err(INVALID_DEVICE);
    }
    let mut devices = DEVICES.lock();
    let device = devices.entry(ordinal).or_insert_with(|| {
        Arc::new(Device {
            ordinal,
            can_peer: AtomicBool::new(true),
            peers: Mutex::default(),
            capacity: AtomicUsize::new(1 << 30),
            memory: Mutex::new(Memory::of(ordinal)),
            faults: Mutex::default(),
            lost: AtomicI32::new(0),
            objects: Mutex::default(),
            running: Mutex::default(),
        })
    });
    Ok(Arc::clone(device))
}

/// Returns the device whose object a handle is.
pub(crate) fn device_of_handle(handle: usize) -> Result<Arc<Device>, Code> {
    device(i32::try_from(handle >> ORDINAL).map_err(|_| INVALID_HANDLE)?)
}

/// Pinned memory that only one device may use: size and device, by the address.
static NOT_PORTABLE: Mutex<BTreeMap<usize, (usize, i32)>> = Mutex::new(BTreeMap::new());

/// Checks that a device may use memory of the host.
pub(crate) fn check_host(address: usize, device: &Device) -> Result<(), Code> {
    let pinned = NOT_PORTABLE.lock();
    let found = pinned.range(..=address).next_back();
    let is_foreign = found.is_some_and(|(start, (bytes, ordinal))| {
        address < start + bytes && *ordinal != device.ordinal
    });
    if is_foreign {
        Err(ILLEGAL_ADDRESS)
    } else {
        Ok(())
    }
}

pub(crate) fn context_of(ordinal: i32) -> usize {
    FIRST_CONTEXT + usize::try_from(ordinal).unwrap_or(0)
}

/// The context of the calling thread, or 0.
pub(crate) fn current() -> usize {
    CURRENT.get()
}

/// Makes a context current, or none for 0.
pub(crate) fn make_current(context: usize) -> Result<(), Code> {
    if context != 0 {
        device_of(context)?.faults.lock().call("cuCtxSetCurrent")?;
    }
    CURRENT.set(context);
    Ok(())
}

/// Returns the device of a context.
pub(crate) fn device_of(context: usize) -> Result<Arc<Device>, Code> {
    let number = context.checked_sub(FIRST_CONTEXT).ok_or(INVALID_CONTEXT)?;
    device(i32::try_from(number).map_err(|_| INVALID_CONTEXT)?)
}

/// Begins a call: returns the current device, unless it is lost or the call is to fail.
pub(crate) fn enter(call: &str) -> Result<Arc<Device>, Code> {
    let device = device_of(current())?;
    device.check()?;
    device.faults.lock().call(call)?;
    Ok(device)
}

/// Begins a call that is not safe in a capture.
pub(crate) fn enter_unless_captured(call: &str) -> Result<Arc<Device>, Code> {
    let device = enter(call)?;
    capture::check_safe(&device)?;
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
            + objects.graphs.len()
            + objects.retained
            + self.memory.lock().objects()
    }

    fn start(self: &Arc<Self>, handle: usize) -> Arc<Stream> {
        let stream = Arc::new(Stream::start(self, handle));
        let mut running = self.running.lock();
        running.retain(|progress| Arc::strong_count(progress) > 1 || !progress.is_idle());
        running.push(Arc::clone(stream.progress()));
        drop(running);
        stream
    }

    pub(crate) fn create_stream(self: &Arc<Self>) -> usize {
        let handle = fresh(self.ordinal);
        let stream = self.start(handle);
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
                let thread = if handle == PER_THREAD {
                    // One that ends just now keeps its streams.
                    let _ended = STREAMS.try_with(|_| ());
                    own_number()
                } else {
                    0
                };
                let stream = objects.defaults.entry((handle.max(LEGACY), thread));
                stream.or_insert_with(|| self.start(handle))
            }
            _ => objects.streams.get_mut(&handle).ok_or(INVALID_HANDLE)?,
        };
        Ok(Arc::clone(stream))
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
    pub(crate) fn record_all(self: &Arc<Self>, event: &Arc<Event>) {
        let (record, running) = (event.record(), self.running.lock().clone());
        let busy = running.into_iter().filter(|progress| !progress.is_idle());
        let busy: Vec<_> = busy
            .map(|progress| (progress.enqueued(), progress))
            .collect();
        if busy.is_empty() {
            event.end(record);
            return;
        }
        let (device, event) = (Arc::clone(self), Arc::clone(event));
        thread::spawn(move || {
            for (last, progress) in busy {
                progress.wait_for(last, &device);
            }
            event.end(record);
        });
    }

    pub(crate) fn create_graph(&self, graph: Graph) -> usize {
        let handle = fresh(self.ordinal);
        self.objects.lock().graphs.insert(handle, graph);
        handle
    }

    pub(crate) fn graph(&self, handle: usize) -> Result<Graph, Code> {
        let objects = self.objects.lock();
        objects.graphs.get(&handle).cloned().ok_or(INVALID_HANDLE)
    }

    pub(crate) fn destroy_graph(&self, handle: usize) -> Result<(), Code> {
        let gone = self.objects.lock().graphs.remove(&handle);
        gone.map(drop).ok_or(INVALID_HANDLE)
    }

    pub(crate) fn create_event(&self) -> usize {
        let handle = fresh(self.ordinal);
        self.objects.lock().events.insert(handle, Arc::default());
        handle
    }

    pub(crate) fn destroy_event(&self, handle: usize) -> Result<(), Code> {
        let gone = self.objects.lock().events.remove(&handle);
        gone.map(drop).ok_or(INVALID_HANDLE)
    }

    /// Returns an event of this device.
    pub(crate) fn event(&self, handle: usize) -> Result<Arc<Event>, Code> {
        let objects = self.objects.lock();
        objects
            .events
            .get(&handle)
            .map(Arc::clone)
            .ok_or(INVALID_HANDLE)
    }

    pub(crate) fn allocate_host(&self, bytes: usize, is_portable: bool) -> usize {
        let mut memory = vec![0_u64; bytes.div_ceil(8)].into_boxed_slice();
        let address = memory.as_mut_ptr().expose_provenance();
        if !is_portable {
            NOT_PORTABLE.lock().insert(address, (bytes, self.ordinal));
        }
        self.objects.lock().host.insert(address, memory);
        address
    }

    pub(crate) fn free_host(&self, address: usize) -> Result<(), Code> {
        let gone = self.objects.lock().host.remove(&address);
        NOT_PORTABLE.lock().remove(&address);
        gone.map(drop).ok_or(INVALID_VALUE)
    }

    pub(crate) fn create_pool(&self) -> usize {
        let handle = fresh(self.ordinal);
        let users = vec![self.ordinal];
        self.objects.lock().pools.insert(handle, users);
        handle
    }

    pub(crate) fn destroy_pool(&self, handle: usize) -> Result<(), Code> {
        let gone = self.objects.lock().pools.remove(&handle);
        gone.map(drop).ok_or(INVALID_HANDLE)
    }

    pub(crate) fn create_module(&self, text: String) -> Result<usize, Code> {
        if !text.trim_start().starts_with(".version") {
            return Err(INVALID_PTX);
        }
        let handle = fresh(self.ordinal);
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

    /// Lets other devices use the memory of a pool.
    pub(crate) fn open_pool(&self, handle: usize, devices: &[i32]) -> Result<(), Code> {
        let mut objects = self.objects.lock();
        let users = objects.pools.get_mut(&handle).ok_or(INVALID_HANDLE)?;
        users.extend(devices);
        Ok(())
    }

    /// The devices that may use the memory of a pool.
    pub(crate) fn users_of_pool(&self, handle: usize) -> Result<Users, Code> {
        let objects = self.objects.lock();
        let users = objects.pools.get(&handle).ok_or(INVALID_HANDLE)?;
        Ok(Users::Some(users.clone()))
    }

    pub(crate) fn allocate(&self, bytes: usize, users: Users) -> Result<u64, Code> {
        let capacity = self.capacity.load(Ordering::SeqCst);
        self.memory.lock().allocate(bytes, capacity, users)
    }

    pub(crate) fn can_use_memory_of(&self, other: &Self) -> bool {
        let can = [self, other].map(|device| device.can_peer.load(Ordering::SeqCst));
        can == [true; 2] && self.ordinal != other.ordinal
    }

    /// Lets this device use the memory of another.
    pub(crate) fn enable_peer(&self, other: &Self) -> Result<(), Code> {
        if !self.can_use_memory_of(other) {
            return Err(PEER_ACCESS_UNSUPPORTED);
        }
        let is_new = self.peers.lock().insert(other.ordinal);
        is_new.then_some(()).ok_or(PEER_ACCESS_ALREADY_ENABLED)
    }

    /// Calls `each` with the memory at these addresses, of whatever device, as commands of this device see it.
    pub(crate) fn visit(
        &self,
        address: u64,
        length: usize,
        each: impl FnMut(&mut [u8]),
    ) -> Result<(), Code> {
        let owner = device(Memory::owner(address))?;
        let is_peer = self.peers.lock().contains(&owner.ordinal);
        let memory = owner.memory.lock();
        memory.visit(address, length, self.ordinal, is_peer, each)
    }
}
