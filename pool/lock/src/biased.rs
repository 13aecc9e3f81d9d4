//! A biased lock: its owner enters for nearly nothing, and the other threads pay for both sides.
//!
//! Each lock guards one value of one thread, its *owner*. The owner uses the value all the time; other threads
//! *visit* it rarely. A mutex would cost the owner an atomic exchange each time. Here the owner only stores and loads.
//!
//! Two flags keep the owner and a visitor apart. Each side sets its own flag, then looks at the other side's:
//!
//! ```text
//! owner (`Own::enter`)                  visitor (`BiasedLocks::close`, `each`, `open`)
//!
//! 1. busy = true                        1. gate = CLOSED
//! 2. light barrier                      2. heavy barrier
//! 3. is the gate closed?                3. wait until busy is false
//!      no:  use the value               4. use the value
//!      yes: do without it               5. gate = OPEN
//! 4. busy = false
//! ```
//!
//! A processor may run the load of step 3 before the store of step 1. Then the owner could miss the closed gate while the visitor
//! misses the busy owner. The barriers of step 2 rule this out: at least one side sees the flag of the other. The pair is a
//! [`Barrier`]: the heavy one is a system call that runs a barrier on every thread of the process, so the light one costs nothing.
//! Where the kernel has no such call, both are full fences.
//!
//! The locks of all owners are in one [`BiasedLocks`], which is itself guarded by the pool's lock. A visitor is a thread that has
//! `&mut BiasedLocks`, so there is one visitor at a time. An owner that finds its gate closed takes the pool's lock instead.
//!
//! A gate has a third state, *tracked*: the owner may enter, but only by the slower way that records events.
//!
//! **If the kernel refuses the barrier** that it promised (the program has entered a sandbox), a visitor cannot know whether an
//! owner is inside. The gate of that owner stays closed, and its value is not visited, until the owner itself takes the pool's lock
//! and calls [`BiasedLocks::admit`]. From then on this owner runs a full fence in step 2.
//!
//! The idea is from "Quickly Reacquirable Locks" (Dice, Moir and Scherer, 2003).

#![expect(unsafe_code, reason = "this is a lock")]

use std::{
    fmt,
    marker::PhantomData,
    ptr::{self, NonNull},
};

use crate::{
    barrier::{Barrier, light},
    sync::{Arc, AtomicU8, Ordering, UnsafeCell, spin_loop, yield_now},
};

/// How many times a visitor checks whether the owner has left before it yields the processor between two looks.
const SPINS_BEFORE_YIELD: u32 = 64;

/// The owner is outside.
const IDLE: u8 = 0;
/// The owner is inside, or is about to look at the gate.
const BUSY: u8 = 1;

/// A gate, as a part of [`BiasedLock::state`]: the owner may enter.
const OPEN: u8 = 0;
/// A gate: the owner may enter, but by neither [`Own::go_in_untracked`] nor [`Own::go_in_at_once`].
const TRACKED: u8 = 1;
/// A gate: the owner may not enter.
const CLOSED: u8 = 2;

/// Set in [`BiasedLock::state`] beside the gate if the owner runs a full fence in step 2.
const FENCED: u8 = 4;

/// A value that its owner uses all the time and other threads rarely. The [module](self) explains the algorithm.
///
/// Aligned to cache lines of its own, because the next lock in memory may be another thread's.
///
/// # Invariants
///
/// - B1: there is one [`Owner`] of a lock. It stays on its thread, since it is neither `Clone` nor `Send` nor `Sync`, and it alone
///   writes `busy`.
/// - B2: only a thread with `&mut BiasedLocks` writes `state` (by `Entry::set`). Before it opens a gate, it is done with the value. Only
///   the owner's thread sets `FENCED`, and nothing resets it.
/// - B3: the owner uses the value only while `busy` is set, and only if it found the gate not closed after it had set `busy` and
///   run the light barrier.
/// - B4: a visitor uses the value only while [`Entry::owner_is_out`] is set, that is, while the gate is closed and the owner was
///   seen with `busy` unset after the gate was closed and the heavy barrier had run. (The owner's own thread sees `busy` without
///   a barrier.)
#[derive(Debug)]
#[repr(align(128))]
struct BiasedLock<T> {
    /// [`BUSY`] while the owner is inside, or else [`IDLE`].
    busy: AtomicU8,
    /// The gate and `FENCED`, in one byte, so that a hit sees with one look that neither stops it.
    state: AtomicU8,
    value: UnsafeCell<T>,
}

// SAFETY: The value is used by one thread at a time: by the owner (invariant B3 of `BiasedLock`) or by a visitor (B4), and the
// barriers keep these two apart (see `Inside::with` and `BiasedLocks::each`). Each of them sees what the other did: `busy` and
// the gate are reset with `Release` and read with `Acquire`. So the value only moves from thread to thread, for which `T: Send` is
// enough.
unsafe impl<T: Send> Sync for BiasedLock<T> {}

/// The owner's handle of its lock, and the only one. It stays on the thread that it was made for.
pub struct Owner<T> {
    lock: Arc<BiasedLock<T>>,
    /// Makes the handle neither `Send` nor `Sync`.
    stays: PhantomData<*const T>,
}

/// The owner at its lock, on its own thread, where it stays: it is neither `Send` nor `Sync`.
///
/// The lock is behind a pointer, here and in [`Inside`], because a reference that is an argument counts as in use until the function returns:
/// what frees a block may run the program's code last, which may end the thread's membership of the pool, and the lock with it.
#[derive(Debug)]
pub struct Own<'a, T> {
    lock: NonNull<BiasedLock<T>>,
    lives: PhantomData<&'a Owner<T>>,
}

impl<T> Clone for Own<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Own<'_, T> {}

impl<T> Owner<T> {
    #[cfg(test)]
    fn own(&self) -> Own<'_, T> {
        Own {
            lock: NonNull::from(&*self.lock),
            lives: PhantomData,
        }
    }

    /// The address of the lock, for [`Own::at`].
    pub fn address(&self) -> *const () {
        ptr::from_ref(&*self.lock).cast()
    }
}

impl<'a, T> Own<'a, T> {
    /// Returns the owner at the lock of this address.
    ///
    /// # Safety
    ///
    /// The [address](Owner::address) is that of an `Owner<T>` of this thread, which is not dropped while the result or an [`Inside`] of it is
    /// used.
    #[inline]
    pub unsafe fn at(address: *const ()) -> Self {
        Self {
            // SAFETY: the address is that of a lock.
            lock: unsafe { NonNull::new_unchecked(address.cast_mut().cast()) },
            lives: PhantomData,
        }
    }

    fn lock(&self) -> &BiasedLock<T> {
        // SAFETY: the owner, which keeps the lock, is not dropped while `self` is used.
        unsafe { self.lock.as_ref() }
    }

    /// Calls `action` with the value, without waiting for any thread. Returns `None`, without a call, while the gate is closed, and
    /// inside of another `action`.
    #[inline]
    pub fn enter<R>(self, action: impl FnOnce(&mut T) -> R) -> Option<R> {
        Some(self.go_in()?.with(action))
    }

    /// Enters, until the result is dropped. Returns `None` if [`enter`](Self::enter) does.
    #[inline]
    pub fn go_in(self) -> Option<Inside<'a, T>> {
        self.go_in_if(TRACKED)
    }

    /// Enters as [`go_in`](Self::go_in) does, but returns `None` also while the locks are
    /// [tracked](BiasedLocks::set_tracked): what is done here is not recorded.
    #[inline]
    pub fn go_in_untracked(self) -> Option<Inside<'a, T>> {
        self.go_in_if(OPEN)
    }

    /// Enters as [`go_in_untracked`](Self::go_in_untracked) does, but returns `None` also if the owner has to run a fence first. It calls
    /// nothing, so that a hit has no registers to save.
    #[expect(
        clippy::inline_always,
        reason = "a call would cost more than what it does"
    )]
    #[inline(always)]
    pub fn go_in_at_once(self) -> Option<Inside<'a, T>> {
        let lock = self.lock();
        // Relaxed is enough, since only this thread writes it (B1).
        let was_busy = lock.busy.load(Ordering::Relaxed);
        lock.busy.store(BUSY, Ordering::Relaxed);
        light(false);
        // Acquires what the last visitor did to the value before it opened the gate.
        let state = lock.state.load(Ordering::Acquire);
        // One comparison, since `IDLE` and `OPEN` are 0.
        if was_busy | state != 0 {
            lock.busy.store(was_busy, Ordering::Release);
            return None;
        }
        Some(Inside(self))
    }

    /// Enters if the gate is in the state `most_closed` or a more open one.
    #[inline]
    fn go_in_if(self, most_closed: u8) -> Option<Inside<'a, T>> {
        let lock = self.lock();
        // As in `go_in_at_once`.
        let was_busy = lock.busy.load(Ordering::Relaxed);
        lock.busy.store(BUSY, Ordering::Relaxed);
        light(false);
        let mut state = lock.state.load(Ordering::Acquire);
        if state & FENCED != 0 {
            state = lock.state_after_a_fence();
        }
        if was_busy != IDLE || state > most_closed {
            lock.busy.store(was_busy, Ordering::Release);
            return None;
        }
        Some(Inside(self))
    }
}

impl<T> BiasedLock<T> {
    /// Runs the owner's fence. Returns the gate, without `FENCED`.
    #[cold]
    #[inline(never)]
    fn state_after_a_fence(&self) -> u8 {
        light(true);
        self.state.load(Ordering::Acquire) & !FENCED
    }
}

/// The owner inside its lock, until this is dropped, also by a panic.
#[derive(Debug)]
pub struct Inside<'a, T>(Own<'a, T>);

impl<T> Inside<'_, T> {
    /// Calls `action` with the value.
    #[inline]
    pub fn with<R>(&mut self, action: impl FnOnce(&mut T) -> R) -> R {
        let value = &self.0.lock().value;
        value.with_mut(|value| {
            // SAFETY: No other reference to the value exists. Another `Inside` does not: `busy` was unset before this one was made, only
            // this thread, which has the one `Owner`, sets it (B1), and neither `go_in_if` nor `go_in_at_once` makes one while it is set.
            // A visitor that closed the gate earlier holds no reference: the gate was not closed, and it was opened after that visitor's last use of
            // the value (B2). A visitor that closes the gate later takes none: this thread set `busy`, ran the light barrier (the fence,
            // if `state` said so: only this thread makes it say so, and that stays), and found the gate not closed, so after the
            // heavy barrier that visitor finds `busy` set, and waits until this is dropped (`BiasedLocks::close`). If the kernel refuses
            // the heavy barrier, that visitor does not use the value (B4).
            action(unsafe { &mut *value })
        })
    }
}

impl<T> Drop for Inside<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // `Release`: a waiting visitor then sees what the owner did to the value.
        self.0.lock().busy.store(IDLE, Ordering::Release);
    }
}

impl<T> fmt::Debug for Owner<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").finish_non_exhaustive()
    }
}

/// The locks of all owners. A thread with `&mut BiasedLocks` can close all gates and then visit each value.
#[derive(Debug)]
pub struct BiasedLocks<T> {
    all: Vec<Entry<T>>,
    /// The calls of [`close`](Self::close) that no [`open`](Self::open) has undone yet.
    closings: usize,
    /// The state of the gates that are not closed: [`OPEN`] or [`TRACKED`].
    open_state: u8,
    barrier: Barrier,
}

#[derive(Debug)]
struct Entry<T> {
    lock: Arc<BiasedLock<T>>,
    /// The owner runs a full fence in step 2.
    runs_fence: bool,
    /// The gate is closed, and the owner has been seen outside since (invariant B4 of [`BiasedLock`]).
    owner_is_out: bool,
}

impl<T> Entry<T> {
    fn set(&self, gate: u8, ordering: Ordering) {
        let fenced = if self.runs_fence { FENCED } else { 0 };
        self.lock.state.store(gate | fenced, ordering);
    }
}

impl<T> Default for BiasedLocks<T> {
    fn default() -> Self {
        Self::with(Barrier::of_this_process())
    }
}

impl<T> BiasedLocks<T> {
    fn with(barrier: Barrier) -> Self {
        Self {
            all: Vec::new(),
            closings: 0,
            open_state: OPEN,
            barrier,
        }
    }

    /// Returns the number of owners.
    pub fn owners(&self) -> usize {
        self.all.len()
    }

    /// Returns whether the gates are closed.
    pub fn is_closed(&self) -> bool {
        self.closings > 0
    }

    /// Adds a lock that this thread owns. Its gate is closed if the others are.
    pub fn add(&mut self, value: T) -> Owner<T> {
        let is_closed = self.is_closed();
        let gate = if is_closed { CLOSED } else { self.open_state };
        let lock = Arc::new(BiasedLock {
            busy: AtomicU8::new(IDLE),
            state: AtomicU8::new(gate),
            value: UnsafeCell::new(value),
        });
        let entry = Entry {
            lock: Arc::clone(&lock),
            runs_fence: self.barrier.needs_fences(),
            owner_is_out: is_closed,
        };
        entry.set(gate, Ordering::Relaxed);
        self.all.push(entry);
        Owner {
            lock,
            stays: PhantomData,
        }
    }

    /// Removes a lock, and returns its value.
    pub fn remove(&mut self, owner: Owner<T>) -> Option<T> {
        let index = self
            .all
            .iter()
            .position(|it| Arc::ptr_eq(&it.lock, &owner.lock))?;
        let Entry { lock, .. } = self.all.swap_remove(index);
        drop(owner);
        Some(Arc::try_unwrap(lock).ok()?.value.into_inner())
    }

    /// Closes all gates, and waits for the owners that are inside. If this thread is an owner, it passes `own`, for which it does
    /// not wait: it would wait for itself.
    pub fn close(&mut self, own: Option<Own<'_, T>>) {
        self.closings += 1;
        if self.closings > 1 {
            return;
        }
        for entry in &self.all {
            entry.set(CLOSED, Ordering::Relaxed);
        }
        let is_own = |lock: &Arc<BiasedLock<T>>| {
            own.is_some_and(|own| ptr::eq(own.lock.as_ptr(), &raw const **lock))
        };
        let is_alone = self.all.iter().all(|it| is_own(&it.lock));
        let sees_all = is_alone || self.barrier.heavy();
        let is_refused = !sees_all && !self.barrier.needs_fences();
        if is_refused {
            self.barrier = Barrier::Fences;
        }
        for entry in &mut self.all {
            entry.owner_is_out = if is_own(&entry.lock) {
                if is_refused {
                    entry.runs_fence = true;
                    entry.set(CLOSED, Ordering::Relaxed);
                }
                entry.lock.busy.load(Ordering::Relaxed) == IDLE
            } else {
                // Without the kernel's barrier, an owner that runs no fence may be inside although `busy` reads as unset.
                (sees_all || entry.runs_fence) && wait_until_out(&entry.lock)
            };
        }
    }

    /// Lets the owner, on its own thread, have its lock again after the kernel refused the barrier; from now on it runs a fence.
    /// Returns `false` if the owner was not locked out for that reason.
    ///
    /// If the gates are closed just now, this one opens with them.
    pub fn admit(&mut self, owner: Own<'_, T>) -> bool {
        let needs_fences = self.barrier.needs_fences();
        let (is_closed, open_state) = (self.is_closed(), self.open_state);
        let mut all = self.all.iter_mut();
        let own = all.find(|it| ptr::eq(&raw const *it.lock, owner.lock.as_ptr()));
        let Some(own) = own.filter(|it| needs_fences && !it.runs_fence) else {
            return false;
        };
        own.runs_fence = true;
        if is_closed {
            own.set(CLOSED, Ordering::Relaxed);
            // This is the owner's thread, so no barrier is needed to read `busy`.
            own.owner_is_out = own.lock.busy.load(Ordering::Relaxed) == IDLE;
        } else {
            own.set(open_state, Ordering::Release);
        }
        true
    }

    /// Calls `visit` with each value whose gate is closed and whose owner is outside.
    pub fn each(&mut self, mut visit: impl FnMut(&mut T)) {
        for Entry { lock, .. } in self.all.iter().filter(|it| it.owner_is_out) {
            // SAFETY: No other reference to the value exists. The owner holds no reference: it was outside after the gate had been closed
            // (B4, kept by `close`, `add` and `admit`), and it can enter again only once the gate is opened. `open` and
            // `admit`, which open gates, take `&mut self`, which this function has. Another visitor holds no reference, because it would
            // have `&mut self`, too.
            lock.value.with_mut(|value| visit(unsafe { &mut *value }));
        }
    }

    /// Sets whether the gates keep out [`Own::go_in_untracked`] from the next [`open`](Self::open) on. Must be called while the
    /// gates are closed.
    pub fn set_tracked(&mut self, is_tracked: bool) {
        self.open_state = if is_tracked { TRACKED } else { OPEN };
    }

    /// Undoes one [`close`](Self::close). The last one opens the gates.
    pub fn open(&mut self) {
        self.closings = self.closings.saturating_sub(1);
        if self.closings > 0 {
            return;
        }
        for entry in &mut self.all {
            entry.owner_is_out = false;
            // After the kernel refused the barrier, the other gates stay closed until `admit`.
            if entry.runs_fence || !self.barrier.needs_fences() {
                // Releases what visitors did to the value to its owner.
                entry.set(self.open_state, Ordering::Release);
            }
        }
    }
}

/// Waits until the owner of a lock whose gate is closed is outside, and returns `true`.
fn wait_until_out<T>(lock: &BiasedLock<T>) -> bool {
    let mut looks = 0;
    // Acquires what the owner did to the value.
    while lock.busy.load(Ordering::Acquire) == BUSY {
        looks += 1;
        if looks < SPINS_BEFORE_YIELD {
            spin_loop();
        } else {
            yield_now();
        }
    }
    true
}

/// All schedules of small programs. Run by `scripts/schedules`.
#[cfg(all(test, loom))]
mod schedules {
    use loom::{
        model,
        sync::{Arc, Mutex},
        thread,
    };

    use super::*;

    /// Adds one to the value of the lock, unless the gate is closed. Enters as a hit does, at once if it can.
    fn add_inside(owner: &Owner<u32>) -> Option<()> {
        let at_once = owner.own().go_in_at_once();
        match at_once {
            Some(mut inside) => Some(inside.with(|value| *value += 1)),
            None => owner.own().enter(|value| *value += 1),
        }
    }

    /// Adds one to the value of the lock, or to the sum of the pool if the gate is closed.
    fn add_one(owner: &Owner<u32>, pool: &Mutex<Pool>) {
        if add_inside(owner).is_none() {
            pool.lock().unwrap().sum += 1;
        }
    }

    type Shared = Arc<Mutex<Pool>>;

    /// A pool, and a thread that owns a lock in it and runs `run`.
    fn with_owner(run: fn(Owner<u32>, &Shared)) -> (Shared, thread::JoinHandle<()>) {
        with_owner_in(Shared::default(), run)
    }

    fn with_owner_in(
        pool: Shared,
        run: fn(Owner<u32>, &Shared),
    ) -> (Shared, thread::JoinHandle<()>) {
        let owner = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || {
                let owner = pool.lock().unwrap().locks.add(0);
                run(owner, &pool);
            })
        };
        (pool, owner)
    }

    #[derive(Default)]
    struct Pool {
        locks: BiasedLocks<u32>,
        sum: u32,
    }

    impl Pool {
        /// A pool whose kernel has promised the barrier and refuses it.
        fn refused() -> Shared {
            Arc::new(Mutex::new(Self {
                locks: BiasedLocks::with(Barrier::Refused),
                sum: 0,
            }))
        }
    }

    impl Pool {
        /// Moves all values into the sum.
        fn drain_caches(&mut self, own: Option<Own<'_, u32>>) {
            self.locks.close(own);
            let sum = &mut self.sum;
            self.locks.each(|value| *sum += std::mem::take(value));
            self.locks.open();
        }
    }

    #[test]
    fn no_value_is_lost_or_taken_twice_while_another_thread_drains() {
        model(|| {
            let (pool, owner) = with_owner(|owner, pool| {
                add_one(&owner, pool);
                add_one(&owner, pool);
            });
            pool.lock().unwrap().drain_caches(None);
            owner.join().unwrap();
            let mut pool = pool.lock().unwrap();
            pool.drain_caches(None);
            assert_eq!(pool.sum, 2);
        });
    }

    #[test]
    fn two_owners_may_drain_each_other() {
        let mut builder = model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let run = |owner: Owner<u32>, pool: &Shared| {
                add_one(&owner, pool);
                pool.lock().unwrap().drain_caches(Some(owner.own()));
                add_one(&owner, pool);
            };
            let (pool, other) = with_owner(run);
            let owner = pool.lock().unwrap().locks.add(0);
            run(owner, &pool);
            other.join().unwrap();
            let mut pool = pool.lock().unwrap();
            pool.drain_caches(None);
            assert_eq!(pool.sum, 4);
        });
    }

    #[test]
    fn no_value_is_lost_or_taken_twice_when_the_kernel_refuses_the_barrier() {
        let mut builder = model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let (pool, owner) = with_owner_in(Pool::refused(), |owner, pool| {
                for _ in 0..3 {
                    if add_inside(&owner).is_none() {
                        let mut pool = pool.lock().unwrap();
                        pool.locks.admit(owner.own());
                        pool.sum += 1;
                    }
                }
                let mut pool = pool.lock().unwrap();
                let left = pool.locks.remove(owner).unwrap();
                pool.sum += left;
            });
            for _ in 0..2 {
                pool.lock().unwrap().drain_caches(None);
            }
            owner.join().unwrap();
            assert_eq!(pool.lock().unwrap().sum, 3);
        });
    }

    #[test]
    fn an_owner_that_is_removed_gets_its_value() {
        model(|| {
            let (pool, owner) = with_owner(|owner, pool| {
                add_one(&owner, pool);
                let mut pool = pool.lock().unwrap();
                let left = pool.locks.remove(owner).unwrap();
                pool.sum += left;
            });
            pool.lock().unwrap().drain_caches(None);
            owner.join().unwrap();
            let pool = pool.lock().unwrap();
            assert_eq!((pool.sum, pool.locks.owners()), (1, 0));
        });
    }

    #[test]
    fn no_owner_enters_untracked_once_the_locks_are_tracked() {
        model(|| {
            let (pool, owner) = with_owner(|owner, pool| {
                for _ in 0..2 {
                    let untracked = owner.own().go_in_untracked();
                    let untracked = untracked.map(|mut inside| inside.with(|value| *value += 1));
                    // Tracked entries add tens, so that they can be told from untracked ones.
                    if untracked.is_none() && owner.own().enter(|value| *value += 10).is_none() {
                        pool.lock().unwrap().sum += 10;
                    }
                }
            });
            let untracked = {
                let mut pool = pool.lock().unwrap();
                pool.locks.close(None);
                let mut untracked = 0;
                pool.locks.each(|value| untracked += *value % 10);
                pool.locks.set_tracked(true);
                pool.locks.open();
                untracked
            };
            owner.join().unwrap();
            let mut pool = pool.lock().unwrap();
            pool.drain_caches(None);
            assert_eq!(
                pool.sum % 10,
                untracked,
                "no untracked entry after tracking began"
            );
        });
    }

    #[test]
    fn no_owner_enters_while_the_gates_are_closed() {
        model(|| {
            let (pool, owner) = with_owner(|owner, pool| add_one(&owner, pool));
            pool.lock().unwrap().locks.close(None);
            let before = {
                let mut pool = pool.lock().unwrap();
                let mut before = 0;
                pool.locks.each(|value| before += *value);
                before
            };
            // The lock is free here, and the owner runs.
            yield_now();
            let mut locked = pool.lock().unwrap();
            let mut after = 0;
            locked.locks.each(|value| after += *value);
            assert_eq!(before, after);
            locked.locks.open();
            drop(locked);
            owner.join().unwrap();
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn values(locks: &mut BiasedLocks<u32>) -> Vec<u32> {
        let mut values = Vec::new();
        locks.each(|value| values.push(*value));
        values
    }

    #[test]
    fn an_owner_enters_only_while_its_gate_is_open() {
        let mut locks = BiasedLocks::default();
        let owner = locks.add(1);
        assert_eq!(owner.own().enter(|value| *value), Some(1));
        locks.close(Some(owner.own()));
        assert_eq!(owner.own().enter(|value| *value), None);
        locks.close(Some(owner.own()));
        locks.open();
        assert_eq!(
            owner.own().enter(|value| *value),
            None,
            "it was closed twice"
        );
        locks.open();
        assert_eq!(owner.own().enter(|value| *value), Some(1));
    }

    #[test]
    fn a_tracked_gate_lets_only_tracked_entries_in() {
        let mut locks = BiasedLocks::default();
        let owner = locks.add(1);
        for (is_tracked, untracked) in [(true, None), (false, Some(1))] {
            locks.close(Some(owner.own()));
            locks.set_tracked(is_tracked);
            assert_eq!(owner.own().enter(|value| *value), None, "it is closed");
            locks.open();
            assert_eq!(owner.own().enter(|value| *value), Some(1));
            let inside = owner.own().go_in_untracked();
            assert_eq!(
                inside.map(|mut inside| inside.with(|value| *value)),
                untracked
            );
            let other = locks.add(2);
            assert_eq!(other.own().go_in_untracked().is_none(), is_tracked);
        }
    }

    #[test]
    fn an_owner_goes_in_at_once_only_through_an_open_gate() {
        // The owner of such a lock runs no fence, whatever the kernel has.
        let mut locks = BiasedLocks::with(Barrier::Refused);
        let owner = locks.add(1);
        let goes_in = || owner.own().go_in_at_once().is_some();
        assert!(goes_in());
        for is_tracked in [true, false] {
            locks.close(Some(owner.own()));
            assert!(!goes_in(), "it is closed");
            locks.set_tracked(is_tracked);
            locks.open();
            assert_eq!(goes_in(), !is_tracked);
        }
        let inner = owner.own().enter(|_| goes_in());
        assert_eq!(inner, Some(false), "it is inside");
        assert!(goes_in(), "it has left");
    }

    #[test]
    fn after_a_refused_barrier_a_value_is_not_visited_until_its_owner_is_admitted() {
        let mut locks = BiasedLocks::with(Barrier::Refused);
        let owner = locks.add(1);
        assert!(!locks.admit(owner.own()), "nothing has been refused yet");
        for _ in 0..2 {
            // As another thread would: without `own`.
            locks.close(None);
            assert!(values(&mut locks).is_empty());
            locks.open();
            assert_eq!(
                owner.own().enter(|value| *value),
                None,
                "the gate stays closed"
            );
        }
        assert!(locks.admit(owner.own()));
        assert_eq!(owner.own().enter(|value| *value), Some(1));
        assert!(!locks.admit(owner.own()), "it was admitted already");
        assert!(owner.own().go_in_at_once().is_none(), "it runs a fence");
        locks.close(None);
        assert_eq!(values(&mut locks), [1]);
        assert_eq!(owner.own().enter(|value| *value), None);
        locks.open();
        assert_eq!(owner.own().enter(|value| *value), Some(1));
    }

    #[test]
    fn an_owner_that_is_admitted_while_gates_are_closed_is_visited() {
        let mut locks = BiasedLocks::with(Barrier::Refused);
        let owner = locks.add(1);
        locks.close(None);
        assert!(locks.admit(owner.own()));
        assert_eq!(
            owner.own().enter(|value| *value),
            None,
            "the gates are closed"
        );
        assert_eq!(values(&mut locks), [1]);
        locks.open();
        assert_eq!(owner.own().enter(|value| *value), Some(1));
    }

    #[test]
    fn an_owner_whose_own_barrier_is_refused_keeps_its_lock() {
        let mut locks = BiasedLocks::with(Barrier::Refused);
        let [own, other] = [1, 2].map(|value| locks.add(value));
        locks.close(Some(own.own()));
        assert_eq!(values(&mut locks), [1]);
        locks.open();
        assert_eq!(own.own().enter(|value| *value), Some(1));
        assert_eq!(other.own().enter(|value| *value), None);
        // The owner of a new lock runs a fence from the beginning.
        let new = locks.add(3);
        assert_eq!(new.own().enter(|value| *value), Some(3));
        locks.close(None);
        assert_eq!(values(&mut locks), [1, 3]);
    }

    #[test]
    fn a_lock_that_is_added_while_gates_are_closed_is_closed() {
        let mut locks = BiasedLocks::default();
        locks.close(None);
        let owner = locks.add(1);
        assert_eq!(owner.own().enter(|value| *value), None);
        assert_eq!(values(&mut locks), [1]);
        locks.open();
        assert_eq!(owner.own().enter(|value| *value), Some(1));
    }

    #[test]
    fn values_are_visited_only_while_the_gates_are_closed() {
        let mut locks = BiasedLocks::default();
        let owner = locks.add(1);
        assert!(values(&mut locks).is_empty());
        locks.close(Some(owner.own()));
        assert_eq!(values(&mut locks), [1]);
        locks.open();
        assert!(values(&mut locks).is_empty());
    }

    #[test]
    fn an_owner_cannot_enter_while_it_is_inside() {
        let mut locks = BiasedLocks::default();
        let owner = locks.add(1);
        owner.own().enter(|_| {
            assert_eq!(owner.own().enter(|value| *value), None);
            assert!(
                owner.own().go_in_untracked().is_none(),
                "it is still inside"
            );
        });
        assert_eq!(
            owner.own().enter(|value| *value),
            Some(1),
            "the owner has left"
        );
    }

    #[test]
    fn an_owner_that_is_inside_does_not_visit_its_own_value() {
        let mut locks = BiasedLocks::default();
        let owner = locks.add(1);
        owner.own().enter(|_| {
            locks.close(Some(owner.own()));
            assert!(values(&mut locks).is_empty());
            locks.open();
        });
    }

    #[test]
    fn an_owner_that_panics_inside_is_outside_afterwards() {
        let mut locks = BiasedLocks::default();
        let owner = locks.add(1);
        let visit = std::panic::AssertUnwindSafe(|| owner.own().enter(|_| panic!("out")));
        assert!(std::panic::catch_unwind(visit).is_err());
        assert_eq!(owner.own().enter(|value| *value), Some(1));
    }

    #[test]
    fn removed_locks_are_not_counted() {
        let mut locks = BiasedLocks::default();
        let mut owners: Vec<_> = (0..3).map(|value| locks.add(value)).collect();
        assert_eq!(locks.owners(), 3);
        assert_eq!(locks.remove(owners.remove(1)), Some(1));
        assert_eq!(locks.owners(), 2);
    }

    #[test]
    fn closing_waits_for_an_owner_that_is_inside() {
        let (tell, told) = std::sync::mpsc::channel();
        let inside = std::thread::spawn(move || {
            let mut locks = BiasedLocks::default();
            let owner = locks.add(1);
            tell.send(locks).unwrap();
            owner.own().enter(|value| {
                while owner.lock.state.load(Ordering::Relaxed) & CLOSED == 0 {
                    yield_now();
                }
                (0..1000).for_each(|_| yield_now());
                *value = 2;
            })
        });
        let mut locks = told.recv().unwrap();
        while locks.all[0].lock.busy.load(Ordering::Relaxed) == IDLE {
            yield_now();
        }
        locks.close(None);
        assert_eq!(values(&mut locks), [2]);
        assert_eq!(inside.join().unwrap(), Some(()));
    }
}
