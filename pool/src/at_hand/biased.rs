//! A lock that costs one thread nothing, and others the more.

#![expect(unsafe_code, reason = "this is a lock")]

use std::{fmt, marker::PhantomData};

use crate::{
    at_hand::barrier::Barrier,
    sync::{Arc, AtomicBool, AtomicU8, Ordering, UnsafeCell, spin_loop, yield_now},
};

/// How often a thread looks whether an owner has come out, before it lets others run.
const LOOKS: u32 = 64;

/// Anybody who has the key may come in.
const OPEN: u8 = 0;
/// The same, but not by the way of those who take note of nothing.
const WATCHED: u8 = 1;
/// Nobody may come in.
const CLOSED: u8 = 2;

/// A value that its owner visits all the time, and others rarely.
///
/// The owner says that it is [`busy`](Self::busy), then looks at the [`door`](Self::door). Whoever closes it says so, then
/// looks whether the owner is busy. The [`Barrier`] between the two steps keeps both from missing the other.
///
/// After "Quickly reacquirable locks" (Dice, Moir and Scherer, 2003).
///
/// On cache lines of its own: the next one in memory may be another thread's.
#[derive(Debug)]
#[repr(align(128))]
struct Room<T> {
    /// The owner is inside. Written by the owner alone.
    busy: AtomicBool,
    /// Whether the owner may come in, and how. Written by the one [`Rooms`] alone.
    door: AtomicU8,
    barrier: Barrier,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time reaches the value: the owner's during a visit to an open room, the one that has `&mut Rooms`
// while the room is closed and the owner has left. So the value goes from thread to thread, which `Send` is for.
unsafe impl<T: Send> Sync for Room<T> {}

/// The key to one's own room. It stays on its thread.
pub(crate) struct Owner<T> {
    room: Arc<Room<T>>,
    /// Neither `Send` nor `Sync`.
    stays: PhantomData<*const T>,
}

impl<T> Owner<T> {
    /// Has `visit` have the value, without waiting for anybody; `None` while the room is closed, and inside of a visit.
    #[inline]
    pub(crate) fn enter<R>(&self, visit: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.enter_with((), |value, ()| visit(value)).ok()
    }

    /// The same with something for `visit`; gives it back where there is no visit.
    #[inline]
    pub(crate) fn enter_with<R, C>(
        &self,
        luggage: C,
        visit: impl FnOnce(&mut T, C) -> R,
    ) -> Result<R, C> {
        self.enter_by(WATCHED, luggage, visit)
    }

    /// The same for those who take note of nothing: there is no visit while the room is [watched](Rooms::watch), either.
    #[expect(
        clippy::inline_always,
        reason = "a call would cost more than what it does"
    )]
    #[inline(always)]
    pub(crate) fn enter_unseen<R, C>(
        &self,
        luggage: C,
        visit: impl FnOnce(&mut T, C) -> R,
    ) -> Result<R, C> {
        self.enter_by(OPEN, luggage, visit)
    }

    #[expect(
        clippy::inline_always,
        reason = "a call would cost more than what it does"
    )]
    #[inline(always)]
    fn enter_by<R, C>(
        &self,
        most: u8,
        luggage: C,
        visit: impl FnOnce(&mut T, C) -> R,
    ) -> Result<R, C> {
        let room = &*self.room;
        // Only this thread writes it.
        if room.busy.load(Ordering::Relaxed) {
            return Err(luggage);
        }
        room.busy.store(true, Ordering::Relaxed);
        let _stay = Stay(&room.busy);
        room.barrier.light();
        // Sees what was done to the value while the room was closed.
        if room.door.load(Ordering::Acquire) > most {
            return Err(luggage);
        }
        // SAFETY: `busy` was not set, so this thread, the only one with the key, makes no other visit. The room was not closed
        // after `busy` was set and the barrier passed, so whoever closes it sees `busy`, and waits until that is unset.
        Ok(room
            .value
            .with_mut(|value| visit(unsafe { &mut *value }, luggage)))
    }
}

impl<T> fmt::Debug for Owner<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").finish_non_exhaustive()
    }
}

/// Ends a visit, also where it panics.
struct Stay<'a>(&'a AtomicBool);

impl Drop for Stay<'_> {
    #[inline]
    fn drop(&mut self) {
        // Shows what was done to the value to whoever waits for it.
        self.0.store(false, Ordering::Release);
    }
}

/// The rooms of all owners. Whoever has it to change may close them all, and then visit each.
#[derive(Debug)]
pub(crate) struct Rooms<T> {
    all: Vec<Closable<T>>,
    /// How often [`close`](Self::close) was called without [`open`](Self::open) after it.
    closings: usize,
    /// What the doors are while the rooms are not closed: [`OPEN`] or [`WATCHED`].
    open_door: u8,
    barrier: Barrier,
}

#[derive(Debug)]
struct Closable<T> {
    room: Arc<Room<T>>,
    /// It is closed, and the owner has been seen to be outside since.
    is_quiet: bool,
}

impl<T> Default for Rooms<T> {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            closings: 0,
            open_door: OPEN,
            barrier: Barrier::new(),
        }
    }
}

impl<T> Rooms<T> {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether owners are kept out.
    pub(crate) fn is_closed(&self) -> bool {
        self.closings > 0
    }

    /// A room for this thread, closed if the others are.
    pub(crate) fn add(&mut self, value: T) -> Owner<T> {
        let is_closed = self.is_closed();
        let room = Arc::new(Room {
            busy: AtomicBool::new(false),
            door: AtomicU8::new(if is_closed { CLOSED } else { self.open_door }),
            barrier: self.barrier,
            value: UnsafeCell::new(value),
        });
        self.all.push(Closable {
            room: Arc::clone(&room),
            is_quiet: is_closed,
        });
        Owner {
            room,
            stays: PhantomData,
        }
    }

    /// Takes a room away, and the value out of it.
    pub(crate) fn remove(&mut self, owner: Owner<T>) -> Option<T> {
        let index = self
            .all
            .iter()
            .position(|it| Arc::ptr_eq(&it.room, &owner.room))?;
        let Closable { room, .. } = self.all.swap_remove(index);
        drop(owner);
        Some(Arc::try_unwrap(room).ok()?.value.into_inner())
    }

    /// Keeps owners out, and waits for those that are inside, `own` excepted, which this thread would wait for in vain.
    pub(crate) fn close(&mut self, own: Option<&Owner<T>>) {
        self.closings += 1;
        if self.closings > 1 {
            return;
        }
        for Closable { room, .. } in &self.all {
            room.door.store(CLOSED, Ordering::Relaxed);
        }
        let is_own = |room: &Arc<Room<T>>| own.is_some_and(|own| Arc::ptr_eq(&own.room, room));
        let is_alone = self.all.iter().all(|it| is_own(&it.room));
        // Where the kernel refuses the barrier, what others have stays where it is: they cannot be seen to be outside.
        let sees_all = is_alone || self.barrier.heavy();
        for Closable { room, is_quiet } in &mut self.all {
            *is_quiet = if is_own(room) {
                !room.busy.load(Ordering::Relaxed)
            } else {
                sees_all && wait_until_left(room)
            };
        }
    }

    /// Visits each room, while they are closed.
    pub(crate) fn each(&mut self, mut visit: impl FnMut(&mut T)) {
        for Closable { room, .. } in self.all.iter().filter(|it| it.is_quiet) {
            // SAFETY: the room is closed, and has been since its owner was outside; opening it takes `&mut self`.
            room.value.with_mut(|value| visit(unsafe { &mut *value }));
        }
    }

    /// From the next [`open`](Self::open) on, owners come in only by [`enter`](Owner::enter), or also
    /// [unseen](Owner::enter_unseen). To be called while the rooms are closed.
    pub(crate) fn watch(&mut self, is_watched: bool) {
        self.open_door = if is_watched { WATCHED } else { OPEN };
    }

    /// Undoes one [`close`](Self::close).
    pub(crate) fn open(&mut self) {
        self.closings = self.closings.saturating_sub(1);
        if self.closings > 0 {
            return;
        }
        for Closable { room, is_quiet } in &mut self.all {
            *is_quiet = false;
            // Shows what was done to the value to its owner.
            room.door.store(self.open_door, Ordering::Release);
        }
    }
}

/// Waits for the owner of a closed room.
fn wait_until_left<T>(room: &Room<T>) -> bool {
    let mut looks = 0;
    // Sees what the owner did to the value.
    while room.busy.load(Ordering::Acquire) {
        looks += 1;
        if looks < LOOKS {
            spin_loop();
        } else {
            yield_now();
        }
    }
    true
}

/// Every schedule of small programs, by `scripts/schedules`.
#[cfg(all(test, loom))]
mod schedules {
    use loom::{
        model,
        sync::{Arc, Mutex},
        thread,
    };

    use super::*;

    /// What a thread adds to its room, or to the pool where it may not come in.
    fn add_one(key: &Owner<u32>, pool: &Mutex<Pool>) {
        if key.enter(|value| *value += 1).is_none() {
            pool.lock().unwrap().sum += 1;
        }
    }

    type Shared = Arc<Mutex<Pool>>;

    /// A pool, and a thread with a room in it.
    fn with_owner(run: fn(Owner<u32>, &Shared)) -> (Shared, thread::JoinHandle<()>) {
        let pool = Shared::default();
        let owner = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || {
                let key = pool.lock().unwrap().rooms.add(0);
                run(key, &pool);
            })
        };
        (pool, owner)
    }

    #[derive(Default)]
    struct Pool {
        rooms: Rooms<u32>,
        sum: u32,
    }

    impl Pool {
        /// Takes what is in the rooms.
        fn gather(&mut self, own: Option<&Owner<u32>>) {
            self.rooms.close(own);
            let sum = &mut self.sum;
            self.rooms.each(|value| *sum += std::mem::take(value));
            self.rooms.open();
        }
    }

    #[test]
    fn nothing_is_lost_or_taken_twice_where_others_gather() {
        model(|| {
            let (pool, owner) = with_owner(|key, pool| {
                add_one(&key, pool);
                add_one(&key, pool);
            });
            pool.lock().unwrap().gather(None);
            owner.join().unwrap();
            let mut pool = pool.lock().unwrap();
            pool.gather(None);
            assert_eq!(pool.sum, 2);
        });
    }

    #[test]
    fn two_owners_gather_from_each_other() {
        let mut builder = model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let run = |key: Owner<u32>, pool: &Shared| {
                add_one(&key, pool);
                pool.lock().unwrap().gather(Some(&key));
                add_one(&key, pool);
            };
            let (pool, other) = with_owner(run);
            let key = pool.lock().unwrap().rooms.add(0);
            run(key, &pool);
            other.join().unwrap();
            let mut pool = pool.lock().unwrap();
            pool.gather(None);
            assert_eq!(pool.sum, 4);
        });
    }

    #[test]
    fn an_owner_that_leaves_takes_its_value_along() {
        model(|| {
            let (pool, owner) = with_owner(|key, pool| {
                add_one(&key, pool);
                let mut pool = pool.lock().unwrap();
                let left = pool.rooms.remove(key).unwrap();
                pool.sum += left;
            });
            pool.lock().unwrap().gather(None);
            owner.join().unwrap();
            let pool = pool.lock().unwrap();
            assert_eq!((pool.sum, pool.rooms.len()), (1, 0));
        });
    }

    #[test]
    fn nobody_comes_in_unseen_once_the_rooms_are_watched() {
        model(|| {
            let (pool, owner) = with_owner(|key, pool| {
                for _ in 0..2 {
                    let unseen = key.enter_unseen((), |value, ()| *value += 1);
                    // What those who take notes add can be told from the rest.
                    if unseen.is_err() && key.enter(|value| *value += 10).is_none() {
                        pool.lock().unwrap().sum += 10;
                    }
                }
            });
            let unseen = {
                let mut pool = pool.lock().unwrap();
                pool.rooms.close(None);
                let mut unseen = 0;
                pool.rooms.each(|value| unseen += *value % 10);
                pool.rooms.watch(true);
                pool.rooms.open();
                unseen
            };
            owner.join().unwrap();
            let mut pool = pool.lock().unwrap();
            pool.gather(None);
            assert_eq!(pool.sum % 10, unseen, "none came after that");
        });
    }

    #[test]
    fn nobody_comes_in_while_rooms_are_closed() {
        model(|| {
            let (pool, owner) = with_owner(|key, pool| add_one(&key, pool));
            pool.lock().unwrap().rooms.close(None);
            let before = {
                let mut pool = pool.lock().unwrap();
                let mut before = 0;
                pool.rooms.each(|value| before += *value);
                before
            };
            // The lock is free here, and the owner runs.
            yield_now();
            let mut locked = pool.lock().unwrap();
            let mut after = 0;
            locked.rooms.each(|value| after += *value);
            assert_eq!(before, after);
            locked.rooms.open();
            drop(locked);
            owner.join().unwrap();
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn values(rooms: &mut Rooms<u32>) -> Vec<u32> {
        let mut values = Vec::new();
        rooms.each(|value| values.push(*value));
        values
    }

    #[test]
    fn an_owner_enters_an_open_room_only() {
        let mut rooms = Rooms::default();
        let owner = rooms.add(1);
        assert_eq!(owner.enter(|value| *value), Some(1));
        rooms.close(Some(&owner));
        assert_eq!(owner.enter(|value| *value), None);
        rooms.close(Some(&owner));
        rooms.open();
        assert_eq!(owner.enter(|value| *value), None, "it was closed twice");
        rooms.open();
        assert_eq!(owner.enter(|value| *value), Some(1));
    }

    #[test]
    fn a_watched_room_lets_those_in_who_take_notes() {
        let mut rooms = Rooms::default();
        let owner = rooms.add(1);
        for (is_watched, unseen) in [(true, Err(())), (false, Ok(1))] {
            rooms.close(Some(&owner));
            rooms.watch(is_watched);
            assert_eq!(owner.enter(|value| *value), None, "it is closed");
            rooms.open();
            assert_eq!(owner.enter(|value| *value), Some(1));
            assert_eq!(owner.enter_unseen((), |value, ()| *value), unseen);
            let other = rooms.add(2);
            assert_eq!(other.enter_unseen((), |_, ()| ()).is_err(), is_watched);
        }
    }

    #[test]
    fn a_room_that_is_added_while_others_are_closed_is_closed() {
        let mut rooms = Rooms::default();
        rooms.close(None);
        let owner = rooms.add(1);
        assert_eq!(owner.enter(|value| *value), None);
        assert_eq!(values(&mut rooms), [1]);
        rooms.open();
        assert_eq!(owner.enter(|value| *value), Some(1));
    }

    #[test]
    fn open_rooms_are_visited_by_their_owners_alone() {
        let mut rooms = Rooms::default();
        let owner = rooms.add(1);
        assert!(values(&mut rooms).is_empty());
        rooms.close(Some(&owner));
        assert_eq!(values(&mut rooms), [1]);
        rooms.open();
        assert!(values(&mut rooms).is_empty());
    }

    #[test]
    fn there_is_no_visit_inside_of_a_visit() {
        let mut rooms = Rooms::default();
        let owner = rooms.add(1);
        let inner = owner.enter(|_| owner.enter(|value| *value));
        assert_eq!(inner, Some(None));
        assert_eq!(owner.enter(|value| *value), Some(1), "it is over");
    }

    #[test]
    fn the_own_room_is_left_alone_during_a_visit() {
        let mut rooms = Rooms::default();
        let owner = rooms.add(1);
        owner.enter(|_| {
            rooms.close(Some(&owner));
            assert!(values(&mut rooms).is_empty());
            rooms.open();
        });
    }

    #[test]
    fn a_visit_that_panics_is_over() {
        let mut rooms = Rooms::default();
        let owner = rooms.add(1);
        let visit = std::panic::AssertUnwindSafe(|| owner.enter(|_| panic!("out")));
        assert!(std::panic::catch_unwind(visit).is_err());
        assert_eq!(owner.enter(|value| *value), Some(1));
    }

    #[test]
    fn luggage_comes_back_where_there_is_no_visit() {
        let mut rooms = Rooms::default();
        let owner = rooms.add(1);
        assert_eq!(owner.enter_with(2, |value, more| *value + more), Ok(3));
        rooms.close(None);
        assert_eq!(owner.enter_with(2, |value, more| *value + more), Err(2));
    }

    #[test]
    fn rooms_are_as_many_as_their_owners() {
        let mut rooms = Rooms::default();
        let mut owners: Vec<_> = (0..3).map(|value| rooms.add(value)).collect();
        assert_eq!(rooms.len(), 3);
        assert_eq!(rooms.remove(owners.remove(1)), Some(1));
        assert_eq!(rooms.len(), 2);
    }

    #[test]
    fn closing_waits_for_an_owner_who_is_inside() {
        let (tell, told) = std::sync::mpsc::channel();
        let inside = std::thread::spawn(move || {
            let mut rooms = Rooms::default();
            let owner = rooms.add(1);
            tell.send(rooms).unwrap();
            owner.enter(|value| {
                while owner.room.door.load(Ordering::Relaxed) != CLOSED {
                    yield_now();
                }
                (0..1000).for_each(|_| yield_now());
                *value = 2;
            })
        });
        let mut rooms = told.recv().unwrap();
        while !rooms.all[0].room.busy.load(Ordering::Relaxed) {
            yield_now();
        }
        rooms.close(None);
        assert_eq!(values(&mut rooms), [2]);
        assert_eq!(inside.join().unwrap(), Some(()));
    }
}
