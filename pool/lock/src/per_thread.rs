//! A thread's own values: one for each pool that it uses.

#![expect(
    unsafe_code,
    reason = "looking through the list with all checks costs as much as the rest of a hit"
)]

use std::{
    cell::{Cell, RefCell},
    marker::PhantomData,
    ptr,
    sync::{
        Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use binpool_allocators::contained::contained;

use crate::{
    biased::{Own, Owner},
    sync::thread_local,
};

/// Identifies a pool that keeps a value of type `T` for each thread. No number is used twice in a process.
#[derive(Debug)]
pub struct PoolId<T> {
    number: u64,
    value: PhantomData<fn() -> T>,
}

impl<T> Clone for PoolId<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for PoolId<T> {}

impl<T> PoolId<T> {
    /// Returns a number that no pool had before.
    pub fn fresh() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(NO_POOL + 1);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            value: PhantomData,
        }
    }
}

/// A pool of which each thread has a value.
pub trait PerThread<T> {
    /// Takes back the value of a thread that ends.
    fn end_thread(&self, owner: Owner<T>);
}

const NO_POOL: u64 = 0;

/// A [`Membership`] of any type.
trait Member {
    fn has_pool(&self) -> bool;

    /// Returns the [address](Owner::address) of the `Owner<T>`, where `T` is the type that the pool's [`PoolId`] names.
    fn owner(&self) -> Option<*const ()>;
}

/// A thread's value of one pool. When the thread ends, the pool takes the value back.
#[derive(Debug)]
struct Membership<T, P: PerThread<T>> {
    /// `None` only during `drop`.
    owner: Option<Owner<T>>,
    pool: Weak<P>,
}

impl<T, P: PerThread<T>> Member for Membership<T, P> {
    fn has_pool(&self) -> bool {
        self.pool.strong_count() > 0
    }

    fn owner(&self) -> Option<*const ()> {
        self.owner.as_ref().map(Owner::address)
    }
}

impl<T, P: PerThread<T>> Drop for Membership<T, P> {
    fn drop(&mut self) {
        Latest::NONE.remember();
        if let (Some(owner), Some(pool)) = (self.owner.take(), self.pool.upgrade()) {
            // This may drop the last reference to the pool, which calls the program's code; a panic here would end the process.
            contained("giving a thread's blocks back", move || {
                pool.end_thread(owner);
            });
        }
    }
}

/// The membership that this thread looked up last.
#[derive(Clone, Copy)]
struct Latest {
    pool: u64,
    /// The [address](Owner::address) of the `Owner<T>` in a [`Membership`] of [`MEMBERS`], where `T` is the type that the [`PoolId`] names.
    owner: *const (),
}

impl Latest {
    const NONE: Self = Self {
        pool: NO_POOL,
        owner: ptr::null(),
    };

    /// Returns the latest membership of this thread.
    #[inline]
    fn here() -> Self {
        LATEST.try_with(Cell::get).unwrap_or(Self::NONE)
    }

    fn remember(self) {
        // Only `shuttle` destroys it before the thread ends: the standard library keeps thread-locals that need no `drop`.
        let _is_there = LATEST.try_with(|latest| latest.set(self));
    }
}

thread_local! {
    static MEMBERS: RefCell<Vec<(u64, Box<dyn Member>)>> = const { RefCell::new(Vec::new()) };
    static LATEST: Cell<Latest> = const { Cell::new(Latest::NONE) };
    /// Set once this thread has joined a pool. It has no destructor, so a thread that ends can look at it.
    static HAS_JOINED: Cell<bool> = const { Cell::new(false) };
}

/// Calls `visit` with this thread's value of the pool. Returns `None` if the thread has no value yet, and while the thread ends.
#[inline]
pub fn with_own<T, R>(pool: PoolId<T>, visit: impl FnOnce(Own<'_, T>) -> R) -> Option<R> {
    if !is_latest(pool) && !find(pool) {
        return None;
    }
    with_latest(pool, (), |owner, ()| visit(owner)).ok()
}

/// Returns whether this thread's value of the pool is the one that it looked up last.
#[inline]
pub fn is_latest<T>(pool: PoolId<T>) -> bool {
    Latest::here().pool == pool.number
}

/// Calls `visit` with this thread's value of the pool and `argument`, if the value is the one that the thread looked up last. Returns the
/// argument as an error otherwise.
#[expect(
    clippy::inline_always,
    reason = "a call would cost more than what it does"
)]
#[inline(always)]
pub fn with_latest<T, R, C>(
    pool: PoolId<T>,
    argument: C,
    visit: impl FnOnce(Own<'_, T>, C) -> R,
) -> Result<R, C> {
    with_latest_or(pool, argument, Err, |owner, argument| {
        Ok(visit(owner, argument))
    })
}

/// Calls `visit` with this thread's value of the pool and `argument`, if the value is the one that the thread looked up last, or else
/// `otherwise` with the argument alone. A caller that ends with this call returns a large result without copying it.
#[expect(
    clippy::inline_always,
    reason = "a call would cost more than what it does"
)]
#[inline(always)]
pub fn with_latest_or<T, R, C>(
    pool: PoolId<T>,
    argument: C,
    otherwise: impl FnOnce(C) -> R,
    visit: impl FnOnce(Own<'_, T>, C) -> R,
) -> R {
    let latest = Latest::here();
    if latest.pool != pool.number {
        return otherwise(argument);
    }
    // SAFETY: `latest.owner` is the address of an `Owner<T>`: `PoolId::fresh` gives each number once, with one `T`, `join` stores a
    // membership with an `Owner<T>` beside that number, and `find` takes the address from that membership. The `Owner` is alive:
    // the `drop` of its membership resets `LATEST`, so its address is not found afterwards. It is not dropped while `visit` uses it either:
    // only `join`, `leave_pools` and the end of the thread drop memberships, and a `visit` that may lead to one of them, as it runs the
    // program's code, does so last.
    let owner = unsafe { Own::at(latest.owner) };
    visit(owner, argument)
}

/// Makes this thread's membership of the pool the latest. Returns whether there is one.
#[cold]
fn find<T>(pool: PoolId<T>) -> bool {
    let found = MEMBERS.try_with(|members| {
        let members = members.try_borrow().ok()?;
        let (_, member) = members.iter().find(|(number, _)| *number == pool.number)?;
        Some(Latest {
            pool: pool.number,
            owner: member.owner()?,
        })
    });
    let found = found.ok().flatten();
    found.inspect(|found| found.remember());
    found.is_some()
}

/// Gives this thread a value of the pool, which `join` makes. Returns `false` if the thread is about to end and gets none.
#[cold]
pub fn join<T: 'static, P: PerThread<T> + 'static>(
    id: PoolId<T>,
    pool: Weak<P>,
    join: impl FnOnce() -> Owner<T>,
) -> bool {
    let joined = MEMBERS.try_with(|members| {
        let Ok(mut members) = members.try_borrow_mut() else {
            return false;
        };
        members.retain(|(_, member)| member.has_pool());
        let membership = Membership {
            owner: Some(join()),
            pool,
        };
        members.push((id.number, Box::new(membership)));
        let _is_there = HAS_JOINED.try_with(|has_joined| has_joined.set(true));
        true
    });
    joined.unwrap_or(false)
}

/// Gives back what the calling thread has cached of all pools, as its end does by itself; it may go on.
///
/// For libraries in other languages: where the first call of a thread comes from a destructor of thread-specific data of C, no destructors of
/// thread-locals of Rust run any more, and the pools would keep its caches. Like the end of a thread, it is called by no code that a pool calls.
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
/// # use binpool_mock::MockDevice;
/// # let backend = MockDevice::new().backend();
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
/// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
/// drop(pool.allocate(4096)?); // Cached by this thread.
/// binpool::leave_pools();
/// assert!(pool.statistics().held_bytes > 0); // The pool has it.
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn leave_pools() {
    // A first use of `MEMBERS` by a thread that ends would register a destructor that never runs, and glibc would keep 32 bytes for it.
    if !HAS_JOINED.try_with(Cell::get).unwrap_or(true) {
        return;
    }
    let members =
        MEMBERS.try_with(|members| Some(std::mem::take(&mut *members.try_borrow_mut().ok()?)));
    // Each gives its blocks back, which calls the device.
    drop(members);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::biased::BiasedLocks;

    struct Pool(PoolId<u32>);

    impl PerThread<u32> for Pool {
        fn end_thread(&self, _: Owner<u32>) {}
    }

    /// The numbers of the pools that this thread has values of.
    fn pools() -> Vec<u64> {
        MEMBERS.with_borrow(|members| members.iter().map(|(pool, _)| *pool).collect())
    }

    #[test]
    fn joining_a_pool_drops_the_values_of_pools_that_are_gone() {
        let mut locks = BiasedLocks::default();
        let mut new = || {
            let pool = Arc::new(Pool(PoolId::fresh()));
            assert!(join(pool.0, Arc::downgrade(&pool), || locks.add(1)));
            pool
        };
        let [one, two] = [new(), new()];
        let [first, second] = [one.0.number, two.0.number];
        assert_eq!(pools(), [first, second]);
        drop(one);
        let three = new();
        assert_eq!(pools(), [second, three.0.number]);
    }

    #[test]
    fn a_thread_that_leaves_gives_its_values_back_and_may_join_again() {
        struct Counted(PoolId<u32>, std::sync::atomic::AtomicUsize);
        impl PerThread<u32> for Counted {
            fn end_thread(&self, _: Owner<u32>) {
                self.1.fetch_add(1, Ordering::Relaxed);
            }
        }
        let mut locks = BiasedLocks::default();
        let pool = Arc::new(Counted(PoolId::fresh(), 0.into()));
        for round in 1..=2 {
            assert!(join(pool.0, Arc::downgrade(&pool), || locks.add(1)));
            assert!(with_own(pool.0, |_| ()).is_some());
            leave_pools();
            assert!(with_own(pool.0, |_| ()).is_none());
            assert_eq!(pool.1.load(Ordering::Relaxed), round);
        }
    }
}
