//! The memory of a device, and the addresses it is at.

use std::{
    collections::BTreeMap,
    fs::File,
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;

use crate::{Code, ILLEGAL_ADDRESS, INVALID_VALUE, OPERATING_SYSTEM, OUT_OF_MEMORY};

/// Addresses of devices begin here, where the host has no memory.
const FIRST: u64 = 1 << 60;
/// The bits of an address of a device.
const ADDRESSES: u32 = 44;
pub(crate) const PAGE: usize = 2 << 20;

/// Bytes of the device, which count until the last reference is dropped.
pub(crate) struct Bytes {
    content: Mutex<Content>,
    length: usize,
    /// Set for pages that were created to be shared.
    is_shareable: bool,
    used: Arc<AtomicUsize>,
}

enum Content {
    Own(Vec<u8>),
    /// A file without a name, which other processes have, too.
    Shared(File),
}

impl Content {
    /// Calls `each` with a part of the bytes.
    fn visit(&mut self, offset: usize, length: usize, each: impl FnOnce(&mut [u8])) {
        match self {
            Self::Own(bytes) => each(&mut bytes[offset..offset + length]),
            Self::Shared(file) => {
                let mut bytes = vec![0; length];
                let is_read = file.read_exact_at(&mut bytes, offset as u64).is_ok();
                each(&mut bytes);
                assert!(is_read && file.write_all_at(&bytes, offset as u64).is_ok());
            }
        }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        self.used.fetch_sub(self.length, Ordering::SeqCst);
    }
}

/// The devices that may use memory.
#[derive(Clone)]
pub(crate) enum Users {
    All,
    /// Its own device, and those that have enabled peer access to that.
    Peers,
    Some(Vec<i32>),
}

struct Mapped {
    bytes: Arc<Bytes>,
    users: Users,
}

/// The memory of one device.
#[derive(Default)]
pub(crate) struct Memory {
    ordinal: i32,
    /// The next addresses that nothing has had.
    next: u64,
    /// The address of the last block that was freed, and its bytes, once a test wants it to be that of the next one.
    last_freed: Option<(u64, usize)>,
    used: Arc<AtomicUsize>,
    most_used: usize,
    /// What is at which address.
    mapped: BTreeMap<u64, Mapped>,
    /// Addresses that were reserved, with their lengths.
    reserved: BTreeMap<u64, usize>,
    /// Handles of pages that were not released.
    pages: BTreeMap<u64, Arc<Bytes>>,
}

pub(crate) fn is_of_device(address: u64) -> bool {
    address >= FIRST
}

/// The first address of a device.
fn first_of(ordinal: i32) -> u64 {
    FIRST + (u64::try_from(ordinal).unwrap_or(0) << ADDRESSES)
}

impl Memory {
    /// The memory of a device.
    pub(crate) fn of(ordinal: i32) -> Self {
        Self {
            ordinal,
            next: first_of(ordinal),
            ..Self::default()
        }
    }

    /// The number of the device that an address belongs to.
    pub(crate) fn owner(address: u64) -> i32 {
        i32::try_from((address - FIRST) >> ADDRESSES).unwrap_or(i32::MAX)
    }

    /// Returns addresses that nothing else ever has.
    fn fresh(&mut self, bytes: usize) -> u64 {
        // Something unmapped lies between any two.
        let step = bytes.next_multiple_of(PAGE) + PAGE;
        let address = self.next;
        self.next += step as u64;
        address
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::SeqCst)
    }

    /// The most bytes that were allocated at once.
    pub(crate) fn most_used(&self) -> usize {
        self.most_used
    }

    /// The number of blocks, handles of pages, and reservations.
    pub(crate) fn objects(&self) -> usize {
        self.mapped.len() + self.reserved.len() + self.pages.len()
    }

    fn take(&mut self, length: usize, capacity: usize) -> Result<Bytes, Code> {
        if length == 0 {
            return Err(INVALID_VALUE);
        }
        if length > capacity.saturating_sub(self.used()) {
            return Err(OUT_OF_MEMORY);
        }
        let before = self.used.fetch_add(length, Ordering::SeqCst);
        self.most_used = self.most_used.max(before + length);
        Ok(Bytes {
            content: Mutex::new(Content::Own(vec![0; length])),
            length,
            is_shareable: false,
            used: Arc::clone(&self.used),
        })
    }

    pub(crate) fn allocate(
        &mut self,
        length: usize,
        capacity: usize,
        users: Users,
    ) -> Result<u64, Code> {
        let bytes = Arc::new(self.take(length, capacity)?);
        let address = match &mut self.last_freed {
            Some((address, freed)) if *freed == length => {
                *freed = 0;
                *address
            }
            _ => self.fresh(length),
        };
        self.mapped.insert(address, Mapped { bytes, users });
        Ok(address)
    }

    pub(crate) fn free(&mut self, address: u64) -> Result<(), Code> {
        let freed = self.mapped.remove(&address).ok_or(INVALID_VALUE)?;
        if let Some(last) = &mut self.last_freed {
            *last = (address, freed.bytes.length);
        }
        Ok(())
    }

    /// Gives the address of a block that is freed to the next one of its size from now on, as the driver does.
    pub(crate) fn reuse_addresses(&mut self) {
        self.last_freed = Some((0, 0));
    }

    /// Frees what is not of virtual memory.
    pub(crate) fn reset(&mut self) {
        let reserved = &self.reserved;
        self.mapped.retain(|address, _| {
            let before = reserved.range(..=*address).next_back();
            before.is_some_and(|(start, length)| *address < *start + *length as u64)
        });
    }

    /// Where what is mapped at an address begins, and its length.
    pub(crate) fn range(&self, address: u64) -> Result<(u64, usize), Code> {
        let (start, mapped) = self.mapped_in(address, 1).next().ok_or(INVALID_VALUE)?;
        Ok((start, mapped.bytes.length))
    }

    pub(crate) fn reserve(&mut self, length: usize) -> Result<u64, Code> {
        if length == 0 || !length.is_multiple_of(PAGE) {
            return Err(INVALID_VALUE);
        }
        let end = first_of(self.ordinal) + (1 << ADDRESSES);
        if length as u64 >= end.saturating_sub(self.next) {
            return Err(OUT_OF_MEMORY);
        }
        let address = self.fresh(length);
        self.reserved.insert(address, length);
        Ok(address)
    }

    pub(crate) fn free_addresses(&mut self, address: u64, length: usize) -> Result<(), Code> {
        let is_empty = self.mapped_in(address, length).next().is_none();
        if self.reserved.get(&address) != Some(&length) || !is_empty {
            return Err(INVALID_VALUE);
        }
        self.reserved.remove(&address);
        Ok(())
    }

    pub(crate) fn create_pages(
        &mut self,
        length: usize,
        capacity: usize,
        is_shareable: bool,
    ) -> Result<u64, Code> {
        if !length.is_multiple_of(PAGE) {
            return Err(INVALID_VALUE);
        }
        let mut bytes = self.take(length, capacity)?;
        bytes.is_shareable = is_shareable;
        Ok(self.handle_of(Arc::new(bytes)))
    }

    fn handle_of(&mut self, bytes: Arc<Bytes>) -> u64 {
        let handle = self.fresh(0);
        self.pages.insert(handle, bytes);
        handle
    }

    /// Returns another handle of the pages that are mapped at an address.
    pub(crate) fn retain_pages(&mut self, address: u64) -> Result<u64, Code> {
        let (_, mapped) = self.mapped_in(address, 1).next().ok_or(INVALID_VALUE)?;
        let bytes = Arc::clone(&mapped.bytes);
        Ok(self.handle_of(bytes))
    }

    /// Returns a file of the bytes of pages, which have it from now on.
    pub(crate) fn export(&self, pages: u64) -> Result<File, Code> {
        let bytes = self.pages.get(&pages).ok_or(INVALID_VALUE)?;
        if !bytes.is_shareable {
            return Err(INVALID_VALUE);
        }
        let mut content = bytes.content.lock();
        if let Content::Own(own) = &*content {
            let file = rustix::fs::memfd_create("pages", rustix::fs::MemfdFlags::CLOEXEC);
            let file = File::from(file.map_err(|_| OPERATING_SYSTEM)?);
            file.write_all_at(own, 0).map_err(|_| OPERATING_SYSTEM)?;
            *content = Content::Shared(file);
        }
        match &*content {
            Content::Shared(file) => file.try_clone().map_err(|_| OPERATING_SYSTEM),
            Content::Own(_) => Err(OPERATING_SYSTEM),
        }
    }

    /// Returns a handle of pages that another process has.
    pub(crate) fn import(&mut self, file: File) -> Result<u64, Code> {
        let length = file.metadata().map_err(|_| INVALID_VALUE)?.len();
        let length = usize::try_from(length).map_err(|_| INVALID_VALUE)?;
        if length == 0 || !length.is_multiple_of(PAGE) {
            return Err(INVALID_VALUE);
        }
        self.used.fetch_add(length, Ordering::SeqCst);
        let bytes = Bytes {
            content: Mutex::new(Content::Shared(file)),
            length,
            is_shareable: true,
            used: Arc::clone(&self.used),
        };
        Ok(self.handle_of(Arc::new(bytes)))
    }

    pub(crate) fn release_pages(&mut self, handle: u64) -> Result<(), Code> {
        self.pages.remove(&handle).map(drop).ok_or(INVALID_VALUE)
    }

    /// What is mapped at some of these addresses.
    fn mapped_in(&self, address: u64, length: usize) -> impl Iterator<Item = (u64, &Mapped)> {
        let all = self.mapped.range(..address + length as u64).rev();
        let all = all.map(|(start, mapped)| (*start, mapped));
        all.take_while(move |(start, mapped)| start + mapped.bytes.length as u64 > address)
    }

    pub(crate) fn map(&mut self, address: u64, length: usize, pages: u64) -> Result<(), Code> {
        let bytes = Arc::clone(self.pages.get(&pages).ok_or(INVALID_VALUE)?);
        let (start, reserved) = self
            .reserved
            .range(..=address)
            .next_back()
            .ok_or(INVALID_VALUE)?;
        let is_inside = address + length as u64 <= start + *reserved as u64;
        let is_free = self.mapped_in(address, length).next().is_none();
        let is_whole = bytes.length == length && address.is_multiple_of(PAGE as u64);
        if !(is_inside && is_free && is_whole) {
            return Err(INVALID_VALUE);
        }
        let users = Users::Some(Vec::new());
        self.mapped.insert(address, Mapped { bytes, users });
        Ok(())
    }

    /// Returns the places of what is mapped at all of these addresses, as whole pages.
    fn whole(&self, address: u64, length: usize) -> Result<Vec<u64>, Code> {
        let mut places: Vec<_> = self
            .mapped_in(address, length)
            .map(|(start, _)| start)
            .collect();
        places.reverse();
        let total: usize = places
            .iter()
            .filter_map(|at| Some(self.mapped.get(at)?.bytes.length))
            .sum();
        if places.first() != Some(&address) || total != length {
            return Err(INVALID_VALUE);
        }
        Ok(places)
    }

    pub(crate) fn unmap(&mut self, address: u64, length: usize) -> Result<(), Code> {
        for place in self.whole(address, length)? {
            self.mapped.remove(&place);
        }
        Ok(())
    }

    pub(crate) fn allow(
        &mut self,
        address: u64,
        length: usize,
        devices: &[i32],
    ) -> Result<(), Code> {
        for place in self.whole(address, length)? {
            if let Some(mapped) = self.mapped.get_mut(&place) {
                let mut users = devices.to_vec();
                if let Users::Some(before) = &mapped.users {
                    users.extend(before);
                }
                mapped.users = Users::Some(users);
            }
        }
        Ok(())
    }

    /// Calls `each` with the memory at these addresses, one part after another, as commands of the device `user` see it. `is_peer` is set
    /// if that has enabled peer access.
    pub(crate) fn visit(
        &self,
        address: u64,
        length: usize,
        user: i32,
        is_peer: bool,
        mut each: impl FnMut(&mut [u8]),
    ) -> Result<(), Code> {
        let (mut at, end) = (address, address + length as u64);
        while at < end {
            let (start, mapped) = self
                .mapped
                .range(..=at)
                .next_back()
                .ok_or(ILLEGAL_ADDRESS)?;
            let offset = usize::try_from(at - start).map_err(|_| ILLEGAL_ADDRESS)?;
            let may_use = match &mapped.users {
                Users::All => true,
                Users::Peers => is_peer || user == self.ordinal,
                Users::Some(users) => users.contains(&user),
            };
            if offset >= mapped.bytes.length || !may_use {
                return Err(ILLEGAL_ADDRESS);
            }
            let left = usize::try_from(end - at).map_err(|_| ILLEGAL_ADDRESS)?;
            let part = left.min(mapped.bytes.length - offset);
            mapped.bytes.content.lock().visit(offset, part, &mut each);
            at += part as u64;
        }
        Ok(())
    }
}
