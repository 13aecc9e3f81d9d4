//! Where the blocks of PyTorch's allocator lay, and how many bytes each took.
//!
//! An entry of PyTorch's own recordings, and of those of its programs, has the address and the requested size of a block, but not the bytes that the block took. The
//! caching allocator takes a free block at that address, rounds the request up, and splits the rest off unless it is
//! too small; a block that is freed joins its free neighbours. So the free room after an address tells the bytes. The snapshot lists the blocks
//! of its end with their bytes.

use std::collections::{BTreeMap, HashMap};

use binpool_trace::{PoolEvent, ShortageReport, Verdict};

/// PyTorch rounds requests up to a multiple of this (`kMinBlockSize`).
const ROUNDED_TO: u64 = 512;

/// Blocks of at most this many bytes have segments of their own (`kSmallSize`). In the others, no block of so few bytes is split off.
const SMALL: u64 = 1 << 20;

/// Returns the number of the block at an address. The blocks of `PyTorch` begin at multiples of 512 bytes.
pub(crate) const fn number_of(address: u64) -> u64 {
    address >> 8
}

/// What a snapshot says of its device's memory.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// The segments at its end: address and bytes; `None` if it has no list of them.
    pub(crate) segments: Option<Vec<(u64, u64)>>,
    /// The bytes of each block at its end, by its address.
    pub(crate) blocks: HashMap<u64, u64>,
    /// Blocks of this many bytes or more are not split (`max_split_size`).
    pub(crate) never_split: Option<u64>,
    /// Whether segments grow (`expandable_segments`); any rest is split off there.
    pub(crate) expandable: bool,
}

/// Why it is not known where blocks lay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unplaced {
    #[error("a block lies outside all known segments (address {0:#x})")]
    NoMemory(u64),
    #[error(
        "a block goes on after the end of its memory, as in expandable segments (address {0:#x})"
    )]
    Across(u64),
    #[error("two blocks overlap (address {0:#x})")]
    Overlap(u64),
    #[error("two segments overlap (address {0:#x})")]
    Memories(u64),
    #[error(
        "memory is released while it has blocks, or with another size than was allocated (address {0:#x})"
    )]
    GivenBack(u64),
    #[error("the segments at the end do not match the entries (address {0:#x})")]
    End(u64),
}

#[derive(Clone, Copy, Debug)]
struct Memory {
    bytes: u64,
    /// How many memories were taken before it.
    number: u64,
    /// Set for pages: those that adjoin are one memory for blocks.
    are_pages: bool,
}

/// How the bytes are known that a block takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Takes {
    /// By how PyTorch splits the free block that it takes.
    Split,
    /// As little as it can be: what is free around the block is not known.
    Rounded,
    /// Its allocator says so.
    Known(u64),
}

#[derive(Clone, Copy, Debug)]
struct Live {
    bytes: u64,
    requested: u64,
}

/// Calls `change` while all is known so far. The first contradiction stays.
pub(crate) fn while_known<T, E: From<Unplaced>>(
    places: &mut Result<Places, E>,
    change: impl FnOnce(&mut Places) -> Result<T, Unplaced>,
) -> Option<T> {
    let changed = change(places.as_mut().ok()?);
    changed.map_err(|why| *places = Err(why.into())).ok()
}

impl Unplaced {
    /// The remark on a trace that does not say where its blocks were.
    pub(crate) fn remark(self) -> String {
        format!("where its blocks were is unknown: {self}")
    }
}

/// The memory of a device at a moment.
#[derive(Debug, Default)]
pub(crate) struct Places {
    told: Told,
    memories: BTreeMap<u64, Memory>,
    taken: u64,
    live: BTreeMap<u64, Live>,
    /// How many free ranges there are of each size.
    free: BTreeMap<u64, u64>,
    /// The last place of each number that the trace has for a block: memory, offset and bytes.
    said: HashMap<u64, (u64, u64, u64)>,
    reserved: u64,
    in_blocks: u64,
    requested: u64,
    /// The memory that was given back since the last event.
    released: u64,
    /// The most that the device is known to have had for the program.
    capacity: Option<u64>,
}

/// A change of the device's memory: address and bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Taken(u64, u64),
    GivenBack(u64, u64),
}

impl Places {
    pub(crate) fn new(told: Told) -> Self {
        Self {
            told,
            ..Self::default()
        }
    }

    /// Returns the memory that was there before the recording, by what was given back without having been taken, and by what is left at the end
    /// without having been taken.
    pub(crate) fn before(
        &self,
        changes: impl Iterator<Item = Change>,
    ) -> Result<Vec<(u64, u64)>, Unplaced> {
        let mut before = Vec::new();
        let mut now = BTreeMap::new();
        for change in changes {
            match change {
                Change::Taken(address, bytes) => {
                    if now.insert(address, bytes).is_some() {
                        return Err(Unplaced::Memories(address));
                    }
                }
                Change::GivenBack(address, bytes) => match now.remove(&address) {
                    None => before.push((address, bytes)),
                    Some(taken) if taken == bytes => {}
                    Some(_) => return Err(Unplaced::GivenBack(address)),
                },
            }
        }
        // Other tools leave the list empty.
        let listed = self.told.segments.as_ref().filter(|list| !list.is_empty());
        let Some(segments) = listed else {
            return Ok(before);
        };
        for &(address, bytes) in segments {
            let end = address.checked_add(bytes);
            let end = end.ok_or(Unplaced::End(address))?;
            // A segment that grows is one at the end, and was taken in parts.
            let mut next = address;
            let parts = now
                .range(address..end)
                .map(|(start, bytes)| (*start, *bytes));
            for (start, bytes) in parts.collect::<Vec<_>>() {
                if start < next || bytes > end - start {
                    return Err(Unplaced::End(address));
                }
                if start > next {
                    before.push((next, start - next));
                }
                next = start + bytes;
                now.remove(&start);
            }
            if next < end {
                before.push((next, end - next));
            }
        }
        match now.first_key_value() {
            Some((&address, _)) => Err(Unplaced::End(address)),
            None => Ok(before),
        }
    }

    /// Adds a segment.
    pub(crate) fn take(&mut self, address: u64, bytes: u64) -> Result<PoolEvent, Unplaced> {
        self.add(address, bytes, false)
    }

    /// Removes a segment.
    pub(crate) fn give_back_all(&mut self, address: u64) -> Result<PoolEvent, Unplaced> {
        let memory = self.memories.get(&address);
        let memory = memory.ok_or(Unplaced::GivenBack(address))?;
        self.give_back(address, memory.bytes)
    }

    /// Adds pages.
    pub(crate) fn map(&mut self, address: u64, bytes: u64) -> Result<PoolEvent, Unplaced> {
        self.add(address, bytes, true)
    }

    fn add(&mut self, address: u64, bytes: u64, are_pages: bool) -> Result<PoolEvent, Unplaced> {
        let wrong = Unplaced::Memories(address);
        let end = address.checked_add(bytes).ok_or(wrong)?;
        let is_free = |(start, memory): (&u64, &Memory)| start + memory.bytes <= address;
        if bytes == 0 || !self.memories.range(..end).next_back().is_none_or(is_free) {
            return Err(wrong);
        }
        self.reserved = self.reserved.checked_add(bytes).ok_or(wrong)?;
        let taken = self.insert(address, bytes, are_pages);
        let (from, to) = self.free_around(address)?;
        self.remove_free(address - from);
        self.remove_free(to - end);
        self.add_free(to - from);
        Ok(taken)
    }

    fn insert(&mut self, address: u64, bytes: u64, are_pages: bool) -> PoolEvent {
        let number = self.taken;
        self.taken += 1;
        let memory = Memory {
            bytes,
            number,
            are_pages,
        };
        self.memories.insert(address, memory);
        PoolEvent::Taken {
            memory: address,
            bytes,
        }
    }

    pub(crate) fn give_back(&mut self, address: u64, bytes: u64) -> Result<PoolEvent, Unplaced> {
        let wrong = Unplaced::GivenBack(address);
        let memory = self.memories.get(&address).ok_or(wrong)?;
        let has_blocks = self.live.range(address..address + memory.bytes).next();
        // Pages leave as pages: a block may lie across several.
        if memory.bytes != bytes || has_blocks.is_some() || memory.are_pages {
            return Err(wrong);
        }
        self.memories.remove(&address);
        self.remove_free(bytes);
        self.reserved -= bytes;
        self.released += bytes;
        Ok(PoolEvent::GivenBack { memory: address })
    }

    /// Removes pages, which may be parts of those that were mapped at a time. Returns what the trace has to say: what leaves, and of that what
    /// stays after all.
    pub(crate) fn unmap(&mut self, address: u64, bytes: u64) -> Result<Vec<PoolEvent>, Unplaced> {
        let wrong = Unplaced::GivenBack(address);
        let end = address.checked_add(bytes).ok_or(wrong)?;
        let (from, to) = self.free_around(address)?;
        let overlaps =
            |(start, memory): &(&u64, &Memory)| memory.are_pages && *start + memory.bytes > address;
        let pages = self.memories.range(..end).rev().take_while(overlaps);
        let pages: Vec<(u64, Memory)> = pages.map(|(start, memory)| (*start, *memory)).collect();
        let lowest = pages.last().is_some_and(|(start, _)| *start <= address);
        if from > address || to < end || !lowest {
            return Err(wrong);
        }
        self.remove_free(to - from);
        self.add_free(address - from);
        self.add_free(to - end);
        self.reserved -= bytes;
        self.released += bytes;
        let mut events = Vec::new();
        for (start, memory) in pages {
            self.memories.remove(&start);
            events.push(PoolEvent::GivenBack { memory: start });
            let parts = [(start, address), (end, start + memory.bytes)];
            for (start, end) in parts.into_iter().filter(|(start, end)| start < end) {
                events.push(self.insert(start, end - start, memory.are_pages));
            }
        }
        Ok(events)
    }

    /// Returns the bytes of the block that the snapshot lists at its end at an address.
    pub(crate) fn at_end(&self, address: u64) -> Option<u64> {
        self.told.blocks.get(&address).copied()
    }

    /// Places a block. Returns what the trace has to say, unless it is what it said last of that number.
    pub(crate) fn place(
        &mut self,
        address: u64,
        requested: u64,
        takes: Takes,
    ) -> Result<Option<PoolEvent>, Unplaced> {
        let (start, memory) = self.memory(address)?;
        let (from, to) = self.free_around(address)?;
        if from > address || to == address {
            return Err(Unplaced::Overlap(address));
        }
        let room = to - address;
        let rounded = requested.max(1).checked_next_multiple_of(ROUNDED_TO);
        let rounded = rounded.unwrap_or(u64::MAX).min(room);
        let bytes = match takes {
            Takes::Known(bytes) => bytes,
            Takes::Rounded => rounded,
            Takes::Split => self.split(rounded, room, memory.are_pages),
        };
        if bytes < requested || bytes > room {
            return Err(Unplaced::Across(address));
        }
        self.remove_free(address - from + room);
        self.add_free(address - from);
        self.add_free(room - bytes);
        self.in_blocks += bytes;
        self.requested += requested;
        self.released = 0;
        self.live.insert(address, Live { bytes, requested });
        let (block, offset) = (number_of(address), address - start);
        let place = (memory.number, offset, bytes);
        if self.said.insert(block, place) == Some(place) {
            return Ok(None);
        }
        Ok(Some(PoolEvent::Placed {
            block,
            memory: start,
            offset,
            bytes,
        }))
    }

    pub(crate) fn free(&mut self, address: u64) -> Result<(), Unplaced> {
        let wrong = Unplaced::NoMemory(address);
        let live = self.live.remove(&address).ok_or(wrong)?;
        let (from, to) = self.free_around(address)?;
        self.remove_free(address - from);
        self.remove_free(to - address - live.bytes);
        self.add_free(to - from);
        self.in_blocks -= live.bytes;
        self.requested -= live.requested;
        self.released = 0;
        Ok(())
    }

    /// Returns what is known of a request that failed. `device_free` is what the device had free, of all programs.
    pub(crate) fn report(&mut self, requested: u64, device_free: Option<u64>) -> ShortageReport {
        let rounded = requested.max(1).checked_next_multiple_of(ROUNDED_TO);
        let class_bytes = rounded.unwrap_or(u64::MAX);
        let held_bytes = self.reserved - self.in_blocks;
        let capacity_bytes = self.reserved.saturating_add(device_free.unwrap_or(0));
        if device_free.is_some() {
            self.capacity = self.capacity.max(Some(capacity_bytes));
        }
        let verdict = if device_free.is_some_and(|free| free >= class_bytes) {
            // Such as that of `set_per_process_memory_fraction`.
            Verdict::Limited
        } else if held_bytes >= class_bytes {
            Verdict::Fragmented
        } else {
            Verdict::DeviceFull
        };
        ShortageReport {
            class_bytes,
            active_bytes: self.requested,
            active_blocks: self.live.len() as u64,
            managed_bytes: self.reserved,
            held_bytes,
            largest_held_bytes: self.free.last_key_value().map_or(0, |(bytes, _)| *bytes),
            released_bytes: self.released,
            capacity_bytes,
            device_free_bytes: device_free,
            // The allocator has waited for all streams by then: nothing is pending.
            ..ShortageReport::new(verdict)
        }
    }

    /// The most bytes that the device is known to have had for the program.
    pub(crate) fn capacity(&self) -> Option<u64> {
        self.capacity
    }

    /// Returns the bytes of a block of `rounded` bytes from a free block of `room` bytes: `should_split` of `CUDACachingAllocator.cpp`.
    fn split(&self, rounded: u64, room: u64, are_pages: bool) -> u64 {
        let rest = room - rounded;
        let is_split = if self.told.expandable || are_pages || rounded <= SMALL {
            rest >= ROUNDED_TO
        } else {
            rest > SMALL && self.told.never_split.is_none_or(|most| rounded < most)
        };
        if is_split { rounded } else { room }
    }

    fn memory(&self, address: u64) -> Result<(u64, Memory), Unplaced> {
        let found = self.memories.range(..=address).next_back();
        let found = found.filter(|(start, memory)| address - **start < memory.bytes);
        let (start, memory) = found.ok_or(Unplaced::NoMemory(address))?;
        Ok((*start, *memory))
    }

    /// Returns where the free range around an address begins and ends, if no block were at that address.
    fn free_around(&self, address: u64) -> Result<(u64, u64), Unplaced> {
        let (mut start, memory) = self.memory(address)?;
        let mut end = start + memory.bytes;
        let before = self.live.range(..address).next_back();
        let before = before.map_or(0, |(place, live)| place + live.bytes);
        let next = self.live.range(address..).next();
        let next = next.map_or(u64::MAX, |(place, _)| *place);
        if memory.are_pages {
            // No further than to the next blocks: there may be many pages.
            for (other, memory) in self.memories.range(..start).rev() {
                let adjoins = memory.are_pages && other + memory.bytes == start;
                if !adjoins || start <= before {
                    break;
                }
                start = *other;
            }
            for (other, memory) in self.memories.range(end..) {
                if !memory.are_pages || *other != end || end >= next {
                    break;
                }
                end += memory.bytes;
            }
        }
        Ok((start.max(before), end.min(next)))
    }

    fn add_free(&mut self, bytes: u64) {
        if bytes > 0 {
            *self.free.entry(bytes).or_default() += 1;
        }
    }

    fn remove_free(&mut self, bytes: u64) {
        if let Some(count) = self.free.get_mut(&bytes) {
            *count -= 1;
            if *count == 0 {
                self.free.remove(&bytes);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failing test panics")]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// What was there before these changes, if the segments at the end are these.
    fn before(segments: &[(u64, u64)], changes: &[Change]) -> Result<Vec<(u64, u64)>, Unplaced> {
        let told = Told {
            segments: Some(segments.to_vec()),
            ..Told::default()
        };
        Places::new(told).before(changes.iter().copied())
    }

    #[test]
    fn what_a_segment_has_at_its_end_and_did_not_take_was_there_before() {
        use Change::{GivenBack, Taken};
        let segment = [(100, 100)];
        assert_eq!(before(&segment, &[]), Ok(vec![(100, 100)]));
        assert_eq!(
            before(&segment, &[Taken(120, 30)]),
            Ok(vec![(100, 20), (150, 50)])
        );
        assert_eq!(before(&segment, &[Taken(120, 80)]), Ok(vec![(100, 20)]));
        assert_eq!(
            before(&segment, &[Taken(100, 60), Taken(160, 40)]),
            Ok(vec![])
        );
        // Beyond its end, and into each other.
        assert_eq!(before(&segment, &[Taken(120, 81)]), Err(Unplaced::End(100)));
        assert_eq!(
            before(&segment, &[Taken(100, 60), Taken(120, 20)]),
            Err(Unplaced::End(100))
        );
        assert_eq!(before(&segment, &[Taken(300, 10)]), Err(Unplaced::End(300)));
        // Given back without having been taken, and with another size.
        assert_eq!(
            before(&segment, &[GivenBack(7, 9)]),
            Ok(vec![(7, 9), (100, 100)])
        );
        assert_eq!(
            before(&segment, &[Taken(7, 9), GivenBack(7, 8)]),
            Err(Unplaced::GivenBack(7))
        );
    }

    #[test]
    fn memory_that_is_taken_is_apart_from_all_other() {
        let mut places = Places::default();
        assert!(places.take(4096, 4096).is_ok());
        for (address, bytes) in [
            (4096, 4096),
            (4096, 1),
            (6000, 100),
            (8191, 1),
            (4000, 97),
            (0, 9000),
            (8192, 0),
        ] {
            let taken = places.take(address, bytes);
            assert_eq!(
                taken.unwrap_err(),
                Unplaced::Memories(address),
                "{address} {bytes}"
            );
        }
        assert!(places.take(8192, 100).is_ok() && places.take(4000, 96).is_ok());
    }

    #[test]
    fn memory_goes_back_as_it_was_taken_and_without_blocks() {
        let mut places = Places::default();
        places.take(4096, 4096).unwrap();
        places.place(4096, 512, Takes::Split).unwrap();
        for (address, bytes) in [(4096, 4096), (8192, 4096)] {
            let error = places.give_back(address, bytes).unwrap_err();
            assert_eq!(error, Unplaced::GivenBack(address));
        }
        places.free(4096).unwrap();
        assert_eq!(
            places.give_back(4096, 512).unwrap_err(),
            Unplaced::GivenBack(4096)
        );
        assert_eq!(
            places.give_back(4096, 4096).unwrap(),
            PoolEvent::GivenBack { memory: 4096 }
        );
        assert_eq!(places.report(1, None).released_bytes, 4096);
    }

    /// The bytes of the largest free range of a memory of 8 units after each of these steps: an allocation at a unit, or a free.
    fn largest(steps: &[(bool, u64)]) -> Vec<u64> {
        let mut places = Places::default();
        places.take(1 << 20, 8 * ROUNDED_TO).unwrap();
        let after = steps.iter().map(|(is_free, unit)| {
            let address = (1 << 20) + unit * ROUNDED_TO;
            if *is_free {
                places.free(address).unwrap();
            } else {
                places.place(address, 1, Takes::Split).unwrap();
            }
            places.report(1, None).largest_held_bytes / ROUNDED_TO
        });
        after.collect()
    }

    #[test]
    fn the_largest_free_range_is_between_the_blocks() {
        let blocks = |units: [u64; 8]| units.map(|unit| (false, unit)).to_vec();
        assert_eq!(
            largest(&blocks([3, 0, 2, 1, 7, 5, 4, 6])),
            [4, 4, 4, 4, 3, 1, 1, 0]
        );
        let mut steps = blocks([0, 1, 2, 3, 4, 5, 6, 7]);
        steps.extend([1, 3, 2, 7, 6, 0, 5, 4].map(|unit| (true, unit)));
        assert_eq!(largest(&steps)[8..], [1, 1, 3, 3, 3, 4, 4, 8]);
        steps.extend(blocks([2, 1, 0, 7, 6, 5, 4, 3]));
        assert_eq!(largest(&steps)[16..], [5, 5, 5, 4, 3, 2, 1, 0]);
    }

    /// The bytes of a block for this request, in memory with this room.
    fn taken(requested: u64, room: u64, told: Told) -> u64 {
        let mut places = Places::new(told);
        places.take(0, room).unwrap();
        match places.place(0, requested, Takes::Split) {
            Ok(Some(PoolEvent::Placed { bytes, .. })) => bytes,
            other => unreachable!("{other:?}"),
        }
    }

    #[test]
    fn the_rest_of_a_free_block_is_split_off_unless_it_is_small() {
        let plain = Told::default;
        assert_eq!(taken(0, 2 * MIB, plain()), 512);
        assert_eq!(taken(513, 2 * MIB, plain()), 1024);
        assert_eq!(taken(MIB, 2 * MIB, plain()), MIB);
        assert_eq!(taken(MIB + 1, 2 * MIB, plain()), 2 * MIB);
        assert_eq!(taken(2 * MIB, 3 * MIB, plain()), 3 * MIB);
        assert_eq!(taken(2 * MIB, 3 * MIB + 512, plain()), 2 * MIB);
        let never = || Told {
            never_split: Some(2 * MIB),
            ..Told::default()
        };
        assert_eq!(taken(2 * MIB - 512, 8 * MIB, never()), 2 * MIB - 512);
        assert_eq!(taken(2 * MIB, 8 * MIB, never()), 8 * MIB);
        let expandable = Told {
            expandable: true,
            ..never()
        };
        assert_eq!(taken(2 * MIB, 2 * MIB + 512, expandable), 2 * MIB);
    }

    #[test]
    fn pages_that_adjoin_are_one_memory_and_leave_in_other_parts_than_they_came() {
        let mut places = Places::default();
        places.map(4096, 4096).unwrap();
        places.map(12288, 4096).unwrap();
        places.map(8192, 4096).unwrap();
        let largest = |places: &mut Places| places.report(1, None).largest_held_bytes;
        assert_eq!(largest(&mut places), 12288);
        let across = places.place(6144, 4096, Takes::Split);
        let expected = PoolEvent::Placed {
            block: 24,
            memory: 4096,
            offset: 2048,
            bytes: 4096,
        };
        assert_eq!(across, Ok(Some(expected)));
        assert_eq!(largest(&mut places), 6144);
        assert_eq!(places.unmap(8192, 4096), Err(Unplaced::GivenBack(8192)));
        let taken = |memory, bytes| PoolEvent::Taken { memory, bytes };
        let given_back = |memory| PoolEvent::GivenBack { memory };
        // The middle of the free rest, which is of two maps.
        let left = places.unmap(11264, 2048).unwrap();
        let expected = [
            given_back(12288),
            taken(13312, 3072),
            given_back(8192),
            taken(8192, 3072),
        ];
        assert_eq!(left, expected);
        assert_eq!(largest(&mut places), 3072);
        places.free(6144).unwrap();
        assert_eq!(largest(&mut places), 7168);
        assert_eq!(places.unmap(4096, 7169), Err(Unplaced::GivenBack(4096)));
        assert_eq!(places.unmap(4096, 7168).unwrap().len(), 2);
        assert_eq!(largest(&mut places), 3072);
    }

    #[test]
    fn a_block_lies_in_a_memory_and_on_no_other_block() {
        let mut places = Places::default();
        places.take(4096, 4096).unwrap();
        let mut place = |address, bytes| places.place(address, bytes, Takes::Split).map(drop);
        assert_eq!(place(8192, 1), Err(Unplaced::NoMemory(8192)));
        assert_eq!(place(4095, 1), Err(Unplaced::NoMemory(4095)));
        assert_eq!(place(4096, 4097), Err(Unplaced::Across(4096)));
        assert_eq!(place(4608, 1024), Ok(()));
        assert_eq!(place(4608, 1), Err(Unplaced::Overlap(4608)));
        assert_eq!(place(5120, 1), Err(Unplaced::Overlap(5120)));
        assert_eq!(place(4096, 513), Err(Unplaced::Across(4096)));
        assert_eq!((place(4096, 512), place(5632, 1)), (Ok(()), Ok(())));
    }
}
