//! Where a thread finds its caches, one for each pool that it uses.

#![expect(
    unsafe_code,
    reason = "looking through the list with all checks costs as much as the rest of a hit"
)]

use std::{
    cell::{Cell, RefCell},
    marker::PhantomData,
    ptr,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use binpool_allocators::Allocator;

use crate::{
    at_hand::{biased::Owner, thread_cache::ThreadCache},
    shared::Shared,
    sync::thread_local,
};

/// Names a pool, and its type, for as long as the process runs.
#[derive(Debug)]
pub(crate) struct PoolId<A> {
    number: u64,
    pool: PhantomData<fn() -> A>,
}

impl<A> Clone for PoolId<A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for PoolId<A> {}

impl<A> PoolId<A> {
    pub(crate) fn fresh() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(NO_POOL + 1);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            pool: PhantomData,
        }
    }
}

const NO_POOL: u64 = 0;

/// A thread's cache of one pool, whatever that is a pool of.
trait Member {
    fn has_pool(&self) -> bool;
}

/// A thread's cache of one pool. Ends with the thread, and then gives back what it has.
#[derive(Debug)]
struct Membership<A: Allocator> {
    /// `None` only once it has ended.
    owner: Option<Owner<ThreadCache<A>>>,
    pool: Weak<Shared<A>>,
}

impl<A: Allocator> Member for Membership<A> {
    fn has_pool(&self) -> bool {
        self.pool.strong_count() > 0
    }
}

impl<A: Allocator> Drop for Membership<A> {
    fn drop(&mut self) {
        Latest::NONE.remember();
        if let (Some(owner), Some(pool)) = (self.owner.take(), self.pool.upgrade()) {
            pool.end_thread(owner);
        }
    }
}

/// The membership that was asked for last.
#[derive(Clone, Copy)]
struct Latest {
    pool: u64,
    /// The owner in a [`Membership`] of [`MEMBERS`], of the type that its pool says.
    owner: *const (),
}

impl Latest {
    const NONE: Self = Self {
        pool: NO_POOL,
        owner: ptr::null(),
    };

    /// The one of this thread.
    #[inline]
    fn here() -> Self {
        LATEST.try_with(Cell::get).unwrap_or(Self::NONE)
    }

    fn remember(self) {
        // Only under `shuttle` is there ever none in a thread that ends: the standard library keeps what needs no `drop`.
        let _is_there = LATEST.try_with(|latest| latest.set(self));
    }
}

thread_local! {
    static MEMBERS: RefCell<Vec<(u64, Box<dyn Member>)>> = const { RefCell::new(Vec::new()) };
    static LATEST: Cell<Latest> = const { Cell::new(Latest::NONE) };
}

/// Has `visit` have this thread's key to its cache of the pool; `None` where there is none yet, and in a thread that ends.
#[inline]
pub(crate) fn with_own<A: Allocator, R>(
    pool: PoolId<A>,
    visit: impl FnOnce(&Owner<ThreadCache<A>>) -> R,
) -> Option<R> {
    with_own_and(pool, (), |owner, ()| visit(owner)).ok()
}

/// The same with something for `visit`; gives it back where there is no visit.
#[expect(
    clippy::inline_always,
    reason = "a call would cost more than what it does"
)]
#[inline(always)]
pub(crate) fn with_own_and<A: Allocator, R, C>(
    pool: PoolId<A>,
    luggage: C,
    visit: impl FnOnce(&Owner<ThreadCache<A>>, C) -> R,
) -> Result<R, C> {
    let mut latest = Latest::here();
    if latest.pool != pool.number {
        match find(pool) {
            Some(found) => latest = found,
            None => return Err(luggage),
        }
    }
    // SAFETY: `find` took the address from a membership of this type, by the pool's number. Memberships stay where they are
    // until they go, which ends their being the latest. None goes during the visit: `visit` ends no thread, and calls no
    // `join`, which are all that let one go.
    let owner = unsafe { &*latest.owner.cast::<Owner<ThreadCache<A>>>() };
    Ok(visit(owner, luggage))
}

/// Makes this thread's membership of the pool the latest.
#[cold]
fn find<A: Allocator>(pool: PoolId<A>) -> Option<Latest> {
    let found = MEMBERS.try_with(|members| {
        let members = members.try_borrow().ok()?;
        let (_, member) = members.iter().find(|(number, _)| *number == pool.number)?;
        let member: *const dyn Member = &raw const **member;
        #[expect(clippy::cast_ptr_alignment, reason = "it is that type's")]
        // SAFETY: a number names one pool, and `join` puts a membership of its type beside it.
        let member = unsafe { &*member.cast::<Membership<A>>() };
        let owner: *const Owner<ThreadCache<A>> = member.owner.as_ref()?;
        Some(Latest {
            pool: pool.number,
            owner: owner.cast(),
        })
    });
    let found = found.ok().flatten()?;
    found.remember();
    Some(found)
}

/// Gives this thread a cache of the pool, which `join` makes, unless it is about to end. Whether it has got one.
#[cold]
pub(crate) fn join<A: Allocator>(
    shared: &Arc<Shared<A>>,
    join: impl FnOnce() -> Owner<ThreadCache<A>>,
) -> bool {
    let joined = MEMBERS.try_with(|members| {
        let Ok(mut members) = members.try_borrow_mut() else {
            return false;
        };
        members.retain(|(_, member)| member.has_pool());
        let membership = Membership {
            owner: Some(join()),
            pool: Arc::downgrade(shared),
        };
        members.push((shared.id.number, Box::new(membership)));
        true
    });
    joined.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mock_pool::MockPool;

    /// The pools that this thread has caches of.
    fn pools() -> Vec<u64> {
        MEMBERS.with_borrow(|members| members.iter().map(|(pool, _)| *pool).collect())
    }

    #[test]
    fn a_thread_is_a_member_of_pools_that_there_are() {
        let join = |mock: &MockPool| drop(mock.pool.allocate(100).unwrap());
        let [one, two, three] = [(); 3].map(|()| MockPool::of_blocks());
        let [first, second, third] = [&one, &two, &three].map(|mock| mock.shared.id.number);
        join(&one);
        join(&two);
        assert_eq!(pools(), [first, second]);
        drop(one);
        join(&three);
        assert_eq!(pools(), [second, third]);
    }
}
