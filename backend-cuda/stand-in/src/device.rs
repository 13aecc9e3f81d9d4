//! Devices: their memory, and what a test has arranged for them.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;

use crate::{
    Code, ILLEGAL_ADDRESS, INVALID_DEVICE, PEER_ACCESS_ALREADY_ENABLED, PEER_ACCESS_UNSUPPORTED,
    faults::Faults,
    memory::{Memory, Users},
};

const MOST_DEVICES: i32 = 1 << 16;

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
}

static DEVICES: LazyLock<Mutex<HashMap<i32, Arc<Device>>>> = LazyLock::new(Mutex::default);

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
        })
    });
    Ok(Arc::clone(device))
}

/// Pinned memory that only one device may use: size and device, by the address.
pub(crate) static NOT_PORTABLE: Mutex<BTreeMap<usize, (usize, i32)>> = Mutex::new(BTreeMap::new());

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
