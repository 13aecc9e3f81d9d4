//! What a pool has to do, as tables: what is in use, what is free, and what follows for each request.
//!
//! With bins alone, every free block is known, and so is what each request gets wherever the device does everything at
//! once. With segments, what is known is where the blocks lie that are in use, and so which gaps there are.

use std::collections::{BTreeMap, BTreeSet};

use binpool::{MemoryId, PoolStatistics, QueueId, ReusePolicy};

use crate::model::{
    ledger::{Extent, Ledger},
    operation::{LARGEST, Setting},
};

/// What everything is a multiple of.
const ALIGNMENT: usize = 256;

/// The queues that a block was used on, while it was in use by the program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tenure {
    /// The queue that it is for, and whether it is in order.
    pub(crate) own: Option<(QueueId, bool)>,
    pub(crate) others: Vec<(QueueId, bool)>,
}

impl Tenure {
    pub(crate) fn record(&mut self, queue: (QueueId, bool)) {
        if self.own != Some(queue) && !self.others.contains(&queue) {
            self.others.push(queue);
        }
    }

    pub(crate) fn queues(&self) -> impl Iterator<Item = (QueueId, bool)> {
        self.own.iter().chain(&self.others).copied()
    }
}

/// A block in use by the program, in the order in which they were allocated.
pub(crate) type Name = u32;

#[derive(Clone, Copy, Debug)]
struct Active {
    asked: usize,
    extent: Extent,
}

/// A free block of its own.
#[derive(Clone, Debug)]
struct Free {
    class: usize,
    bytes: usize,
    tenure: Tenure,
    /// Whether the pool has looked at what is free since, so that it may know that no command uses the block any more.
    was_looked_at: bool,
    /// How many sweeps there had been when it came back.
    since: u64,
}

/// What is to be known of the device and the limit before a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings {
    /// Everything that was enqueued has ended, and what is enqueued ends at once.
    pub(crate) is_calm: bool,
    /// Commands wait for user events.
    pub(crate) is_gated: bool,
    /// What the allocator would give; less than nothing where the limit has been lowered since.
    pub(crate) room: isize,
    /// The limit.
    pub(crate) limit: u64,
    /// What it leaves; less than nothing where it has been lowered since.
    pub(crate) left: isize,
    /// There are blocks that a hook drops, one or all.
    pub(crate) can_reclaim: bool,
    /// No hook that drops all that it can has anything to drop.
    pub(crate) has_reclaimed: bool,
}

impl Surroundings {
    /// Whether the limit rules a block out once `released` bytes are back, even if the `free` bytes that are left follow: then
    /// these stay. What is above a limit is not told.
    fn rules_out(&self, bytes: usize, released: usize, free: usize) -> bool {
        let left = (self.left + signed(released)).max(0);
        bytes as u64 > self.limit || signed(bytes) > left + signed(free)
    }
}

/// What a request is to come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// A block that was free.
    Hit,
    /// A block from the allocator, once blocks of these sizes have gone back to it.
    Miss {
        released: Vec<usize>,
    },
    OutOfMemory {
        released: Vec<usize>,
    },
    /// It depends on what the device has done.
    Unknown,
}

#[derive(Debug)]
pub(crate) struct Reference {
    setting: Setting,
    active: BTreeMap<Name, Active>,
    /// Those of them that the program has given back, and has views of.
    viewed: BTreeSet<Name>,
    detached: BTreeMap<Name, Extent>,
    /// With bins alone: all that the pool holds.
    free: BTreeMap<MemoryId, Free>,
    /// Blocks that go past the pool in this step, to the allocator.
    let_go: BTreeSet<MemoryId>,
    /// Roots of which nothing is in use, and the sweeps there had been by then.
    idle: BTreeMap<MemoryId, u64>,
    retired: BTreeSet<QueueId>,
    /// The queues that blocks which came back were used on, and whether they are in order.
    used: BTreeSet<(QueueId, bool)>,
    holding: bool,
    threads: BTreeSet<usize>,
    sweeps: u64,
    served: u64,
    empty: u64,
    refused: u64,
    released: u64,
    peak_active_bytes: usize,
    /// Blocks that a call has failed for that was made to, after a gate: they may be tried again later.
    stranded: BTreeSet<MemoryId>,
    /// Whether there were any.
    was_stranded: bool,
    /// Whether a call has failed that was made to: what was counted when is not known then.
    has_failed: bool,
}

impl Reference {
    pub(crate) fn new(setting: Setting) -> Self {
        Self {
            setting,
            active: BTreeMap::new(),
            viewed: BTreeSet::new(),
            detached: BTreeMap::new(),
            free: BTreeMap::new(),
            let_go: BTreeSet::new(),
            stranded: BTreeSet::new(),
            was_stranded: false,
            idle: BTreeMap::new(),
            retired: BTreeSet::new(),
            used: BTreeSet::new(),
            holding: true,
            threads: BTreeSet::new(),
            sweeps: 0,
            served: 0,
            empty: 0,
            refused: 0,
            released: 0,
            peak_active_bytes: 0,
            has_failed: false,
        }
    }

    /// The class that a size belongs to, whether the device has such blocks or not.
    fn class_size(&self, asked: usize) -> usize {
        let Some(rounded) = asked.checked_next_multiple_of(ALIGNMENT) else {
            return usize::MAX;
        };
        let steps = if self.setting.segments { 256 } else { 16 };
        let Some(above) = rounded.checked_next_power_of_two() else {
            return usize::MAX;
        };
        rounded
            .checked_next_multiple_of((above / 2 / steps).max(1))
            .unwrap_or(usize::MAX)
    }

    pub(crate) fn is_one_class(&self, one: usize, other: usize) -> bool {
        self.class_size(one) == self.class_size(other)
    }

    /// What a request takes; `None` if the device never gives it.
    pub(crate) fn block_bytes(&self, asked: usize) -> Option<usize> {
        let rounded = asked.checked_next_multiple_of(ALIGNMENT).unwrap_or(asked);
        let sizes = [self.class_size(asked), rounded, asked];
        sizes.into_iter().find(|bytes| *bytes <= LARGEST)
    }

    pub(crate) fn active_bytes(&self) -> usize {
        self.active.values().map(|active| active.asked).sum()
    }

    fn free_bytes(&self) -> usize {
        self.free.values().map(|free| free.bytes).sum()
    }

    fn in_use(&self) -> impl Iterator<Item = Extent> {
        let active = self.active.values().map(|active| active.extent);
        active.chain(self.detached.values().copied())
    }

    /// Returns the queue whose order alone keeps a block from its next user; `None` if something else does, too.
    fn only(&self, tenure: &Tenure) -> Option<QueueId> {
        let mut queues = tenure.queues();
        match (queues.next(), queues.next()) {
            (Some((queue, true)), None) if self.setting.failures.order.keeps_places() => {
                Some(queue)
            }
            _ => None,
        }
    }

    /// What a request of `asked` bytes for this queue is to come to.
    pub(crate) fn expect(&self, asked: usize, queue: QueueId, around: Surroundings) -> Expected {
        let Some(bytes) = self.block_bytes(asked) else {
            return Expected::OutOfMemory {
                released: Vec::new(),
            };
        };
        if self.setting.segments {
            return Expected::Unknown;
        }
        let class = self.class_size(asked);
        let certain = self.free.iter();
        let certain = certain.filter(|(root, _)| !self.stranded.contains(root));
        let of_class = |free: &&Free| free.class == class && free.bytes >= bytes;
        let fitting: Vec<_> = certain.map(|(_, free)| free).filter(of_class).collect();
        // The queue itself runs the old commands first, or there are none.
        let is_ready = |free: &&&Free| {
            self.only(&free.tenure) == Some(queue) || free.tenure.queues().next().is_none()
        };
        if fitting.iter().any(|free| is_ready(&free)) {
            return Expected::Hit;
        }
        // The ladder that a failure sent the pool up may have looked at what other queues left, and what is stranded may serve or not.
        if self.has_failed {
            return Expected::Unknown;
        }
        let policy = self.setting.reuse;
        let reaches = match policy {
            ReusePolicy::InsertWait => true,
            ReusePolicy::WaitOnHost => !around.is_gated,
            _ => around.is_calm,
        };
        if policy == ReusePolicy::SameQueue {
            let is_own = |free: &Free| free.tenure.queues().next().map(|it| it.0) == Some(queue);
            if around.is_calm && fitting.iter().any(|free| is_own(free)) {
                return Expected::Hit;
            }
            let may_cross = |free: &Free| {
                let mut queues = free.tenure.queues();
                free.was_looked_at
                    || queues.any(|(it, _)| it == queue || self.retired.contains(&it))
            };
            if fitting.iter().any(|free| may_cross(free)) {
                return Expected::Unknown;
            }
        } else if !fitting.is_empty() {
            return if reaches {
                Expected::Hit
            } else {
                Expected::Unknown
            };
        }
        if signed(bytes) <= around.room {
            let released = Vec::new();
            return Expected::Miss { released };
        }
        if !around.is_calm {
            return Expected::Unknown;
        }
        self.expect_of_a_full_device(class, bytes, around)
    }

    /// What becomes of a request that the allocator refuses.
    fn expect_of_a_full_device(
        &self,
        class: usize,
        bytes: usize,
        around: Surroundings,
    ) -> Expected {
        let is_ruled_out = around.rules_out(bytes, 0, self.free_bytes());
        let most = if is_ruled_out {
            usize::MAX
        } else {
            self.class_size(2 * bytes)
        };
        let serves = |free: &Free| (class..=most).contains(&free.class) && free.bytes >= bytes;
        if self.free.values().any(serves) {
            return Expected::Hit;
        }
        if is_ruled_out {
            let released = Vec::new();
            return if around.can_reclaim {
                Expected::Unknown
            } else {
                Expected::OutOfMemory { released }
            };
        }
        let mut free: Vec<_> = self.free.values().collect();
        free.sort_by_key(|free| free.class);
        // Which of a class goes first is told by age.
        let mut pairs = free.windows(2);
        if pairs.any(|pair| pair[0].class == pair[1].class && pair[0].bytes != pair[1].bytes) {
            return Expected::Unknown;
        }
        let mut released = Vec::new();
        // The largest that together have the bytes; then all.
        while let Some(largest) = free.pop() {
            released.push(largest.bytes);
            let sum: usize = released.iter().sum();
            let is_enough = sum >= bytes || free.is_empty();
            if is_enough && around.room + signed(sum) >= signed(bytes) {
                released.sort_unstable();
                return Expected::Miss { released };
            }
            let rest = free.iter().map(|free| free.bytes).sum();
            if sum >= bytes && around.rules_out(bytes, sum, rest) {
                break;
            }
            if sum >= bytes {
                released.extend(free.drain(..).map(|free| free.bytes));
                let sum: usize = released.iter().sum();
                if around.room + signed(sum) >= signed(bytes) {
                    released.sort_unstable();
                    return Expected::Miss { released };
                }
            }
        }
        if around.can_reclaim {
            return Expected::Unknown;
        }
        released.sort_unstable();
        Expected::OutOfMemory { released }
    }

    /// The program has got a block.
    pub(crate) fn allocated(
        &mut self,
        name: Name,
        asked: usize,
        thread: usize,
        extent: Option<Extent>,
    ) {
        self.threads.insert(thread);
        let Some(extent) = extent else {
            self.empty += 1;
            return;
        };
        self.served += 1;
        self.active.insert(name, Active { asked, extent });
        self.peak_active_bytes = self.peak_active_bytes.max(self.active_bytes());
        self.free.remove(&extent.root);
    }

    pub(crate) fn was_refused(&mut self) {
        self.refused += 1;
    }

    /// The program has given a block back, and has views of it.
    pub(crate) fn returned_viewed(&mut self, name: Name, thread: usize) {
        self.threads.insert(thread);
        self.viewed.insert(name);
    }

    /// The program has given a block back, which was used on these queues, and has no view of it.
    pub(crate) fn returned(&mut self, name: Name, thread: usize, tenure: Tenure) {
        self.threads.insert(thread);
        self.viewed.remove(&name);
        let Some(Active { extent, .. }) = self.active.remove(&name) else {
            return;
        };
        self.used.extend(tenure.queues());
        if self.setting.segments {
            return;
        }
        if !self.holding {
            self.let_go.insert(extent.root);
            return;
        }
        // A block that serves a smaller request goes back to its own class.
        let bytes = extent.region.bytes;
        let class = self.class_size(bytes);
        self.free.insert(
            extent.root,
            Free {
                class,
                bytes,
                tenure,
                was_looked_at: false,
                since: self.sweeps,
            },
        );
        if self.setting.threshold.is_some() {
            self.looked_at();
        }
    }

    /// The program has taken a block out of the pool. Whether the pool forgets it.
    pub(crate) fn detached(&mut self, name: Name, thread: usize) -> bool {
        self.threads.insert(thread);
        let Some(active) = self.active.remove(&name) else {
            return false;
        };
        self.detached.insert(name, active.extent);
        !self.setting.segments
    }

    /// Memory that was taken out is freed. Whether it is a part of a segment, which never gets it back.
    pub(crate) fn freed(&mut self, name: Name) -> bool {
        if !self.setting.segments {
            self.detached.remove(&name);
        }
        self.setting.segments
    }

    /// Nothing that is free is kept above the threshold, where all commands have ended.
    pub(crate) fn is_below_threshold(&self, ledger: &Ledger) -> Result<(), String> {
        match self.setting.threshold {
            Some(most) if self.holding && !self.has_failed && ledger.bytes() > most => {
                self.nothing_is_idle(ledger)
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn retire(&mut self, queue: QueueId) {
        self.retired.insert(queue);
        self.looked_at();
    }

    /// The pool has looked at all that is free.
    pub(crate) fn looked_at(&mut self) {
        for free in self.free.values_mut() {
            free.was_looked_at = true;
        }
    }

    pub(crate) fn hold(&mut self, holding: bool) {
        self.holding = holding;
    }

    pub(crate) fn is_holding(&self) -> bool {
        self.holding
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// A block has gone, and not to the allocator.
    pub(crate) fn lost(&mut self, root: MemoryId) {
        self.free.remove(&root);
        self.let_go.remove(&root);
    }

    pub(crate) fn a_call_failed(&mut self) {
        self.has_failed = true;
    }

    /// A call has failed after a gate: what is free now may be what can neither be marked nor waited for.
    pub(crate) fn may_be_stranded(&mut self, ledger: &Ledger) {
        let idle = ledger.roots.keys().filter(|root| !self.is_used(**root));
        let idle: Vec<_> = idle.copied().collect();
        self.was_stranded |= !idle.is_empty();
        self.stranded.extend(idle);
    }

    pub(crate) fn may_strand(&self, root: MemoryId) -> bool {
        self.stranded.contains(&root)
    }

    pub(crate) fn was_stranded(&self) -> bool {
        self.was_stranded
    }

    /// No call fails any more, and no gate is closed.
    pub(crate) fn nothing_is_stranded(&mut self) {
        self.stranded.clear();
    }

    /// Nothing of what the pool has is free as a whole, but for what may be stranded.
    pub(crate) fn nothing_is_idle(&self, ledger: &Ledger) -> Result<(), String> {
        let idle = ledger
            .roots
            .iter()
            .find(|(root, _)| !self.is_used(**root) && !self.stranded.contains(root));
        idle.map_or(Ok(()), |(root, bytes)| {
            Err(format!("{root} of {bytes} bytes is free, and was kept"))
        })
    }

    fn is_used(&self, root: MemoryId) -> bool {
        self.in_use().any(|extent| extent.root == root)
    }

    /// The largest gap between blocks that are in use.
    pub(crate) fn largest_gap(&self, ledger: &Ledger) -> usize {
        let gaps = ledger.roots.iter().map(|(root, bytes)| {
            let in_root = self.in_use().filter(|extent| extent.root == *root);
            let mut regions: Vec<_> = in_root.map(|extent| extent.region).collect();
            regions.sort_by_key(|region| region.offset);
            let mut end = 0;
            let mut largest = 0;
            for region in regions {
                largest = largest.max(region.offset - end);
                end = region.offset + region.bytes;
            }
            largest.max(bytes - end)
        });
        gaps.max().unwrap_or(0)
    }

    /// The bytes that could go back to the allocator.
    pub(crate) fn idle_bytes(&self, ledger: &Ledger) -> usize {
        let roots = ledger.roots.iter();
        let idle = roots.filter(|(root, _)| !self.is_used(**root));
        idle.map(|(_, bytes)| bytes).sum()
    }

    /// Nothing went back in this sweep but what was free at the one before; where all commands have ended, all of that.
    pub(crate) fn swept(&mut self, ledger: &Ledger, is_calm: bool) -> Result<(), String> {
        let sweeps = self.sweeps;
        self.sweeps += 1;
        let was_free = |root: &MemoryId| match self.free.get(root) {
            Some(free) => free.since < sweeps,
            None => self.idle.get(root).is_some_and(|since| *since < sweeps),
        };
        let may_go = |root: &MemoryId| was_free(root) || self.stranded.contains(root);
        if let Some((root, _)) = ledger.returned.iter().find(|(root, _)| !may_go(root)) {
            return Err(format!("{root} was swept away too early"));
        }
        let stays = |root: &&MemoryId| ledger.roots.contains_key(root) && was_free(root);
        if is_calm
            && !self.has_failed
            && let Some(root) = self.free.keys().find(stays)
        {
            return Err(format!("{root} was not swept away"));
        }
        Ok(())
    }

    /// Takes note of what went back to the allocator in this step.
    pub(crate) fn end_step(&mut self, ledger: &Ledger) -> Result<(), String> {
        for (root, _) in &ledger.returned {
            if self.is_used(*root) {
                return Err(format!("{root} went to the allocator while it is in use"));
            }
            self.stranded.remove(root);
            if self.setting.segments || self.free.remove(root).is_some() {
                self.released += 1;
            } else if !self.let_go.remove(root) && !self.has_failed {
                return Err(format!("{root} went to the allocator, and was not free"));
            }
        }
        let mut kept = std::mem::take(&mut self.let_go).into_iter();
        if let Some(root) = kept.find(|root| !self.stranded.contains(root)) {
            return Err(format!("{root} was kept by a pool that does not hold"));
        }
        let sweeps = self.sweeps;
        let idle = std::mem::take(&mut self.idle);
        let roots = ledger.roots.keys().filter(|root| !self.is_used(**root));
        self.idle = roots
            .map(|root| (*root, idle.get(root).copied().unwrap_or(sweeps)))
            .collect();
        self.nothing_overlaps(ledger)?;
        if self.holding {
            Ok(())
        } else {
            self.nothing_is_idle(ledger)
        }
    }

    fn nothing_overlaps(&self, ledger: &Ledger) -> Result<(), String> {
        let in_use: Vec<_> = self.in_use().collect();
        for (index, one) in in_use.iter().enumerate() {
            if let Some(other) = in_use[..index].iter().find(|other| other.overlaps(*one)) {
                return Err(format!("blocks lie upon each other: {one:?} and {other:?}"));
            }
        }
        let active = self.active.values();
        for Active { extent, .. } in active {
            let root = ledger.roots.get(&extent.root);
            let end = extent.region.end().unwrap_or(usize::MAX);
            if root.is_none_or(|bytes| *bytes < end) {
                return Err(format!("{extent:?} is in use, and not the pool's"));
            }
        }
        Ok(())
    }

    /// Every counter is what it has to be.
    pub(crate) fn check(&self, told: &PoolStatistics, ledger: &Ledger) -> Result<(), String> {
        let managed = ledger.bytes();
        let used: usize = self.active.values().map(|it| it.extent.region.bytes).sum();
        // What was taken out of a segment, the segment misses.
        let missing = self.detached.values();
        let missing = missing.filter(|extent| ledger.roots.contains_key(&extent.root));
        let missing: usize = missing.map(|extent| extent.region.bytes).sum();
        let count = |name, told: u64, known: u64| {
            (told == known)
                .then_some(())
                .ok_or_else(|| format!("{name}: the pool says {told}, and it is {known}"))
        };
        count(
            "active_blocks",
            told.active_blocks,
            self.active.len() as u64,
        )?;
        count(
            "active_bytes",
            told.active_bytes,
            self.active_bytes() as u64,
        )?;
        let viewed = self.viewed.iter().filter_map(|name| self.active.get(name));
        let viewed: usize = viewed.map(|it| it.extent.region.bytes).sum();
        count(
            "viewed_blocks",
            told.viewed_blocks,
            self.viewed.len() as u64,
        )?;
        count("viewed_bytes", told.viewed_bytes, viewed as u64)?;
        count("empty_allocations", told.empty_allocations, self.empty)?;
        count("out_of_memory", told.out_of_memory, self.refused)?;
        count("hits and misses", told.hits + told.misses, self.served)?;
        let peak = ledger.peak_bytes as u64;
        if !self.was_stranded {
            count("peak_managed_bytes", told.peak_managed_bytes, peak)?;
        } else if told.peak_managed_bytes > peak {
            return Err(format!(
                "peak_managed_bytes: the pool says {}, and it is {peak} at most",
                told.peak_managed_bytes
            ));
        }
        if !self.stranded.is_empty() {
            return self.check_stranded(told, ledger);
        }
        count("managed_bytes", told.managed_bytes, managed as u64)?;
        count(
            "held_bytes",
            told.held_bytes,
            (managed - used - missing) as u64,
        )?;
        if !self.has_failed {
            count("misses", told.misses, ledger.given)?;
            count("released_blocks", told.released_blocks, self.released)?;
        }
        self.check_peak(told.peak_active_bytes, ledger)?;
        self.check_held(told)?;
        self.check_origins(told)
    }

    /// What is stranded is not the pool's to hand out, but a caller cannot see what is.
    fn check_stranded(&self, told: &PoolStatistics, ledger: &Ledger) -> Result<(), String> {
        let range = self.own_bytes(ledger)..=ledger.bytes();
        let managed = usize::try_from(told.managed_bytes).unwrap();
        if range.contains(&managed) && told.held_bytes <= told.managed_bytes {
            return Ok(());
        }
        Err(format!(
            "managed_bytes: the pool says {managed}, and it is {range:?}"
        ))
    }

    /// What the pool has without what is stranded, which is not its to hand out.
    pub(crate) fn own_bytes(&self, ledger: &Ledger) -> usize {
        let stranded = self.stranded.iter();
        let stranded: usize = stranded.filter_map(|root| ledger.roots.get(root)).sum();
        ledger.bytes() - stranded
    }

    /// One thread had just that; several may be off by what they have cached.
    fn check_peak(&self, told: u64, ledger: &Ledger) -> Result<(), String> {
        let peak = self.peak_active_bytes;
        let range = if self.threads.len() > 1 {
            self.active_bytes()..=peak + ledger.peak_bytes
        } else {
            peak..=peak
        };
        let told = usize::try_from(told).unwrap();
        range
            .contains(&told)
            .then_some(())
            .ok_or_else(|| format!("peak_active_bytes: the pool says {told}, and it is {peak}"))
    }

    fn check_held(&self, told: &PoolStatistics) -> Result<(), String> {
        let is_less =
            told.pending_blocks <= told.held_blocks && told.pending_bytes <= told.held_bytes;
        if !is_less {
            return Err("more is pending than held".into());
        }
        if self.setting.segments {
            return Ok(());
        }
        if told.held_blocks != self.free.len() as u64 || told.held_bytes != self.free_bytes() as u64
        {
            let (blocks, bytes) = (told.held_blocks, told.held_bytes);
            return Err(format!(
                "held: the pool says {blocks} blocks of {bytes} bytes, and it is {:?}",
                self.free
            ));
        }
        // Only what more than the order of one queue keeps from its next user.
        let may_pend = |free: &&Free| {
            self.only(&free.tenure).is_none() && free.tenure.queues().next().is_some()
        };
        let most = self.free.values().filter(may_pend).count() as u64;
        if told.pending_blocks > most {
            return Err(format!(
                "pending: the pool says {}, and it is {most} at most",
                told.pending_blocks
            ));
        }
        Ok(())
    }

    fn check_origins(&self, told: &PoolStatistics) -> Result<(), String> {
        let policy = self.setting.reuse;
        let keeps_places = self.setting.failures.order.keeps_places();
        let kinds = [told.ended_hits, told.device_wait_hits, told.host_wait_hits];
        let is_right = kinds.iter().sum::<u64>() + told.carved_hits <= told.hits
            && (told.device_wait_hits == 0 || policy == ReusePolicy::InsertWait && keeps_places)
            && (told.host_wait_hits == 0
                || policy == ReusePolicy::WaitOnHost
                || policy == ReusePolicy::InsertWait && !keeps_places)
            && (told.carved_hits == 0 || self.setting.segments);
        is_right
            .then_some(())
            .ok_or_else(|| format!("hits of a kind that there cannot be: {told:?}"))
    }

    /// Whether a forecast is right: `None` if it may be either. `room` is less than nothing where the limit has been lowered since.
    pub(crate) fn would_fit(&self, asked: usize, room: isize, ledger: &Ledger) -> Option<bool> {
        if asked == 0 {
            return Some(true);
        }
        let Some(bytes) = self.block_bytes(asked) else {
            return Some(false);
        };
        if !self.setting.segments {
            // The question itself may send back what a failed gate released: that is in `room`, then.
            let free = self.free.iter();
            let free = free.filter(|(root, _)| ledger.roots.contains_key(root));
            let free: Vec<_> = free.map(|(_, free)| free.bytes).collect();
            let is_free = free.iter().any(|free| *free >= bytes);
            return Some(is_free || room + signed(free.iter().sum()) >= signed(bytes));
        }
        let bytes = signed(bytes);
        if room >= bytes {
            return Some(true);
        }
        let gap = signed(self.largest_gap(ledger));
        let best = gap.max(room + signed(self.idle_bytes(ledger)));
        // Free neighbours that different queues used are not one, as far as the pool knows.
        let are_joined = self.used.len() <= 1 && self.used.iter().all(|used| used.1);
        (best < bytes || (are_joined && !self.has_failed)).then_some(best >= bytes)
    }

    /// A refusal is right only where nothing would help.
    pub(crate) fn check_refusal(
        &self,
        asked: usize,
        around: Surroundings,
        ledger: &Ledger,
    ) -> Result<(), String> {
        let Some(bytes) = self.block_bytes(asked) else {
            return Ok(());
        };
        if around.room >= signed(bytes) {
            return Err(format!(
                "refused, and there is room for {} bytes",
                around.room
            ));
        }
        // It never had a chance, so no hook was called.
        if bytes as u64 > around.limit && bytes > self.own_bytes(ledger) {
            return Ok(());
        }
        if !around.has_reclaimed {
            return Err("refused, and there are blocks that a hook drops".into());
        }
        // Every command can end, and is waited for.
        if around.is_gated {
            return Ok(());
        }
        let gap = self.largest_gap(ledger);
        if gap >= bytes {
            return Err(format!("refused, and {gap} bytes are free in one piece"));
        }
        if around.rules_out(bytes, 0, self.idle_bytes(ledger)) {
            return Ok(());
        }
        self.nothing_is_idle(ledger)
    }
}

fn signed(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}
