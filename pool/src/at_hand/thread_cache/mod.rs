//! Free blocks that one thread keeps at hand.

use std::sync::Arc;

use binpool_allocators::{Allocator, QueueId};

use crate::{
    seeing::tape::Tape,
    shared::Shared,
    state::{bins::Block, lane::Stamp},
};

/// How many blocks a thread keeps in a place. Few under `shuttle`, whose programs are short.
const MOST_IN_A_PLACE: usize = if cfg!(shuttle) { 4 } else { 64 };

/// How many of the youngest blocks in a place are looked at for one that fits.
const LOOK_AT: usize = 4;

/// How many queues a thread keeps blocks of.
const MOST_QUEUES: usize = 8;

/// A block that only the in-order queue of its lane used, ready for the next user on that queue.
///
/// It comes with what its next user needs anyway: a share in the pool, and its place among the blocks that keep the lane
/// ([`Lane::active`](crate::state::lane::Lane::active)). Threads would get in each other's way at both counts.
#[derive(Debug)]
pub(crate) struct Grant<A: Allocator> {
    pub(crate) shared: Arc<Shared<A>>,
    /// With the [tenure](Block::tenure) that its next user has.
    pub(crate) block: Box<Block<A>>,
}

/// A block that lies at hand.
#[derive(Debug)]
pub(crate) struct Cached<A: Allocator> {
    pub(crate) grant: Grant<A>,
    /// When it came back. Not in the block, so that a thread which drops what another one allocates need not write there.
    pub(crate) since: Stamp,
}

impl<A: Allocator> Cached<A> {
    pub(crate) fn bytes(&self) -> usize {
        self.grant.block.bytes
    }
}

/// What a thread has done since the pool was told last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Activity {
    /// Blocks that were handed out.
    pub(crate) hits: u64,
    /// Blocks that were taken back.
    pub(crate) returns: u64,
    /// Bytes that came into users' hands, less those that left them, in whole blocks.
    pub(crate) block_bytes: isize,
    /// The same, as they were asked for.
    pub(crate) bytes: isize,
    /// The most that `bytes` has been.
    pub(crate) peak_bytes: isize,
}

/// How much a thread keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    /// The most bytes that all blocks but the youngest may have.
    pub(crate) bytes: usize,
    /// A block of up to so many bytes serves a smaller request of a bin in the same place, too.
    pub(crate) loose_bytes: usize,
}

/// What a thread has too much of.
#[derive(Debug)]
pub(crate) enum Surplus<A: Allocator> {
    /// Blocks of one queue and place, oldest first.
    Magazine(QueueId, usize, Vec<Cached<A>>),
    /// One that is too large to be kept.
    Block(Cached<A>),
}

/// The free blocks of one queue.
#[derive(Debug)]
struct QueueCache<A: Allocator> {
    queue: QueueId,
    /// In each place, oldest first.
    places: Vec<Vec<Cached<A>>>,
}

/// Free blocks that one thread keeps at hand, youngest first out.
///
/// Each is as free as those in the pool's own bins: whoever looks for memory further than there gathers these first.
#[derive(Debug)]
pub(crate) struct ThreadCache<A: Allocator> {
    /// What came back last. It is most likely what is asked for next, so that there is room for it whatever its size.
    youngest: Option<Grant<A>>,
    /// When that came back.
    youngest_since: Stamp,
    /// All others.
    queues: Vec<QueueCache<A>>,
    /// The bytes of all blocks but the youngest.
    kept_bytes: usize,
    /// The bytes of all blocks.
    bytes: usize,
    /// The same, as far as the pool knows: the difference came from users' hands, or went there.
    told_bytes: usize,
    /// Blocks that came back. Not beside `active_bytes`: the compiler would make a vector of the two, which takes longer.
    returns: u64,
    pub(crate) allowance: Allowance,
    hits: u64,
    /// Bytes that came into users' hands, less those that left them, as they were asked for.
    active_bytes: isize,
    peak_bytes: isize,
    /// Where it is written who has which block; `None` where nobody wants to know.
    pub(crate) tape: Option<Box<Tape>>,
}

impl<A: Allocator> ThreadCache<A> {
    pub(crate) fn new(allowance: Allowance, tape: Option<Box<Tape>>) -> Self {
        Self {
            tape,
            youngest: None,
            youngest_since: Stamp::default(),
            queues: Vec::new(),
            kept_bytes: 0,
            bytes: 0,
            told_bytes: 0,
            allowance,
            hits: 0,
            returns: 0,
            active_bytes: 0,
            peak_bytes: 0,
        }
    }

    pub(crate) fn blocks(&self) -> usize {
        let places = self.queues.iter().flat_map(|it| &it.places);
        places.map(Vec::len).sum::<usize>() + usize::from(self.youngest.is_some())
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The block that came back last, if it is of the class that somebody who asks for `asked` bytes gets.
    #[inline]
    pub(crate) fn pop_youngest(&mut self, queue: QueueId, asked: usize) -> Option<Grant<A>> {
        let block = &self.youngest.as_ref()?.block;
        let fits = block.above < asked && asked <= block.bytes;
        if !fits || block.tenure.queue != Some(queue) {
            return None;
        }
        let grant = self.youngest.take()?;
        self.count_hit(grant.block.bytes, asked);
        Some(grant)
    }

    /// A block of this bin with at least `bytes` bytes, or a hardly larger one, for somebody who asks for `asked` bytes.
    #[inline]
    pub(crate) fn pop(
        &mut self,
        queue: QueueId,
        place: usize,
        bin: usize,
        bytes: usize,
        asked: usize,
    ) -> Option<Grant<A>> {
        let loose_bytes = self.allowance.loose_bytes;
        let fits = |cached: &Cached<A>| {
            let block = &cached.grant.block;
            block.bytes >= bytes && (block.bin == bin || block.bytes <= loose_bytes)
        };
        let place = find(&mut self.queues, queue, place)?;
        let cached = match place.last() {
            None => return None,
            Some(last) if fits(last) => place.pop()?,
            Some(_) => {
                let first = place.len().saturating_sub(LOOK_AT);
                let index = place[first..].iter().rposition(fits)?;
                place.remove(first + index)
            }
        };
        self.kept_bytes -= cached.bytes();
        self.count_hit(cached.bytes(), asked);
        Some(cached.grant)
    }

    #[inline]
    fn count_hit(&mut self, bytes: usize, asked: usize) {
        self.bytes -= bytes;
        self.hits += 1;
        self.active_bytes += asked.cast_signed();
        if self.active_bytes > self.peak_bytes {
            self.peak_bytes = self.active_bytes;
        }
    }

    /// Keeps a block that its user, who had asked for `asked` bytes, is done with since that moment; gives it back where
    /// there is no room.
    #[inline]
    pub(crate) fn push(
        &mut self,
        grant: Grant<A>,
        since: Stamp,
        asked: usize,
    ) -> Result<(), Grant<A>> {
        let bytes = grant.block.bytes;
        if self.youngest.is_none() {
            self.youngest = Some(grant);
        } else {
            self.replace_youngest(grant)?;
        }
        self.youngest_since = since;
        self.bytes += bytes;
        self.returns += 1;
        self.active_bytes -= asked.cast_signed();
        Ok(())
    }

    /// Has the youngest block join the others, and this one be the youngest; gives it back where there is no room.
    #[inline(never)]
    fn replace_youngest(&mut self, grant: Grant<A>) -> Result<(), Grant<A>> {
        let Some(former) = self.youngest.replace(grant) else {
            return Ok(());
        };
        let former = Cached {
            grant: former,
            since: self.youngest_since,
        };
        match self.keep(former) {
            Ok(()) => Ok(()),
            Err(former) => self.youngest.replace(former.grant).map_or(Ok(()), Err),
        }
    }

    /// Keeps a block of the pool's bins; gives it back where there is no room.
    pub(crate) fn insert(&mut self, cached: Cached<A>) -> Result<(), Cached<A>> {
        let bytes = cached.bytes();
        self.keep(cached)?;
        self.bytes += bytes;
        self.told_bytes = self.told_bytes.wrapping_add(bytes);
        Ok(())
    }

    /// Keeps a block among those that are not the youngest; gives it back where there is no room.
    #[inline]
    fn keep(&mut self, cached: Cached<A>) -> Result<(), Cached<A>> {
        let Grant { shared, block } = &cached.grant;
        let Some(queue) = block.tenure.queue else {
            return Err(cached);
        };
        let kept_bytes = self.kept_bytes.saturating_add(block.bytes);
        if kept_bytes > self.allowance.bytes {
            return Err(cached);
        }
        let place = shared.classes.place(block.bin);
        let place = match find(&mut self.queues, queue, place) {
            Some(place) => place,
            None => match self.add(queue, place) {
                Some(place) => place,
                None => return Err(cached),
            },
        };
        if place.len() >= MOST_IN_A_PLACE {
            return Err(cached);
        }
        place.push(cached);
        self.kept_bytes = kept_bytes;
        Ok(())
    }

    /// A place that there has not been so far.
    #[cold]
    fn add(&mut self, queue: QueueId, place: usize) -> Option<&mut Vec<Cached<A>>> {
        if !self.queues.iter().any(|it| it.queue == queue) {
            if self.queues.len() >= MOST_QUEUES {
                // Programs make queues and drop them; those of which nothing is kept may be gone.
                self.queues
                    .retain(|it| it.places.iter().any(|place| !place.is_empty()));
            }
            if self.queues.len() >= MOST_QUEUES {
                return None;
            }
            self.queues.push(QueueCache {
                queue,
                places: Vec::new(),
            });
        }
        let cache = self.queues.iter_mut().find(|it| it.queue == queue)?;
        if cache.places.len() <= place {
            cache.places.resize_with(place + 1, Vec::new);
        }
        cache.places.get_mut(place)
    }

    /// Makes room for one more block.
    pub(crate) fn make_room(&mut self) -> Option<Surplus<A>> {
        let Grant { shared, block } = self.youngest.as_ref()?;
        let queue = block.tenure.queue?;
        let number = shared.classes.place(block.bin);
        match find(&mut self.queues, queue, number) {
            Some(place) if place.len() >= MOST_IN_A_PLACE => {
                let magazine: Vec<_> = place.drain(..MOST_IN_A_PLACE / 2).collect();
                let bytes = bytes_of(&magazine);
                self.kept_bytes -= bytes;
                self.count_out(bytes);
                Some(Surplus::Magazine(queue, number, magazine))
            }
            _ => self.take_youngest().map(Surplus::Block),
        }
    }

    fn take_youngest(&mut self) -> Option<Cached<A>> {
        let grant = self.youngest.take()?;
        self.count_out(grant.block.bytes);
        Some(Cached {
            grant,
            since: self.youngest_since,
        })
    }

    /// Takes over what another thread had too much of. What is returned is more than there is room for.
    pub(crate) fn take_over(&mut self, magazine: Vec<Cached<A>>) -> Vec<Cached<A>> {
        let mut left = Vec::new();
        for cached in magazine {
            left.extend(self.insert(cached).err());
        }
        left
    }

    /// Takes the blocks of one place out, or all, of every queue, oldest first in each place.
    pub(crate) fn take(&mut self, place: Option<usize>, mut take: impl FnMut(Cached<A>)) {
        let mut bytes = 0;
        for cache in &mut self.queues {
            let places = match place {
                Some(place) => cache.places.get_mut(place..=place).unwrap_or_default(),
                None => &mut cache.places,
            };
            for cached in places.iter_mut().flat_map(|place| place.drain(..)) {
                bytes += cached.bytes();
                take(cached);
            }
        }
        self.kept_bytes -= bytes;
        self.count_out(bytes);
        let is_here = |it: &Grant<A>| {
            place.is_none_or(|place| it.shared.classes.place(it.block.bin) == place)
        };
        if self.youngest.as_ref().is_some_and(is_here) {
            self.take_youngest().into_iter().for_each(take);
        }
    }

    fn count_out(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.told_bytes = self.told_bytes.wrapping_sub(bytes);
    }

    /// What was done since this was asked last.
    pub(crate) fn take_activity(&mut self) -> Activity {
        let activity = Activity {
            hits: self.hits,
            returns: self.returns,
            block_bytes: self.told_bytes.wrapping_sub(self.bytes).cast_signed(),
            bytes: self.active_bytes,
            peak_bytes: self.peak_bytes,
        };
        (self.hits, self.returns) = (0, 0);
        (self.active_bytes, self.peak_bytes) = (0, 0);
        self.told_bytes = self.bytes;
        activity
    }
}

/// The bytes of some blocks.
pub(crate) fn bytes_of<A: Allocator>(cached: &[Cached<A>]) -> usize {
    cached.iter().map(Cached::bytes).sum()
}

#[inline]
fn find<A: Allocator>(
    queues: &mut [QueueCache<A>],
    queue: QueueId,
    place: usize,
) -> Option<&mut Vec<Cached<A>>> {
    let cache = queues.iter_mut().find(|it| it.queue == queue)?;
    cache.places.get_mut(place)
}

#[cfg(test)]
mod tests;
