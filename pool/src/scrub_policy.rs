//! When blocks are filled with zeros between their users.

/// When a pool fills blocks with zeros, so that no user reads what another left.
///
/// A fill is a command on the block's queue, over all bytes of its class. The host waits for it only where memory is
/// [fresh](Self::OnFree). For commands on another queue the rule of [`PooledBuffer`](crate::PooledBuffer) holds: they
/// must come [after the fill](crate::PooledBuffer::order_before), as after the commands of former users.
///
/// # When a fill fails
///
/// A fill that was enqueued can fail later, with a command before it: for example one that waits for a user event which
/// the program drops. Then nothing is filled:
///
/// - A fill that has failed when its block is handed out is [repeated](Self::OnFree).
/// - A fill that is still pending then, and fails afterwards, is not: the next user reads the old bytes. Under
///   [`OnHandOut`](Self::OnHandOut) this holds for every fill that fails. The host cannot wait for the fill: the
///   commands before it may wait for what the calling thread does next.
///
/// A tenant can cause the second case on purpose: give tenants that you do not trust queues and pools of their own. Memory
/// that is [detached](crate::PooledBuffer::detach) is filled by the program.
///
/// ```
/// # use binpool::{Backend, ImmediateAllocator, PoolOptions, QueueOrder};
/// use binpool::ScrubPolicy;
/// use binpool_mock::{CallKind, MockDevice};
///
/// for policy in ScrubPolicy::ALL {
/// #   let device = MockDevice::new();
/// #   let backend = device.backend();
/// #   let queue = backend.create_queue(QueueOrder::InOrder)?;
///     let pool = PoolOptions::new()
///         .scrub(policy)
///         .build(ImmediateAllocator::new(&backend)?, &queue)?;
///     let fills = || device.call_count(CallKind::Fill);
///     drop(pool.allocate(4096)?);
///     let before = fills();
///     let block = pool.allocate(4096)?; // From what the pool holds.
///     let handed_out = fills();
///     drop(block);
///     let costs = (handed_out - before, fills() - handed_out);
///     match policy {
///         ScrubPolicy::OnHandOut => assert_eq!(costs, (1, 0)),
///         ScrubPolicy::OnFree => assert_eq!(costs, (0, 1)),
///         _ => assert_eq!(costs, (0, 0)),
///     }
/// }
/// # Ok::<(), binpool::PoolError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ScrubPolicy {
    /// Blocks keep the bytes of their last user, or those from the driver. Costs nothing.
    #[default]
    Never,
    /// A block is filled when it is freed, after everything that was enqueued on its queues. So what the pool holds,
    /// and what it releases, is zeros. A request waits for no fill, unless the earlier one has failed.
    ///
    /// The pool keeps the event of a fill until that has completed, or the block is handed out. A block whose fill has
    /// failed by then is filled again, on the queue that it is for; the allocation fails if that cannot be enqueued.
    /// Memory that is released with a failed fill is filled again if no command uses it; otherwise it is released as it is,
    /// and an error is logged.
    ///
    /// If a block was used on other queues, its own queue waits for those on the device. If one of them waits for user
    /// events of the program, the host must not wait for the block's own queue before it resolves them: that would be a
    /// deadlock. A block without a queue is filled on the pool's default queue.
    ///
    /// Memory from the allocator is filled once, before its first user gets it, on a queue of the pool's own for which
    /// the host waits: a driver, or another user of the allocator, may hand out what was this pool's before.
    ///
    /// A block whose fill cannot be enqueued is not reused. It is released; as a part of a
    /// [segment](crate::PoolOptions::segments) it counts as held, but stays out of use until a later try succeeds. The
    /// last handle of the pool ends these tries: what is unscrubbed then is released as it is.
    ///
    /// A block with [views](crate::PooledBuffer#views) is filled once they are gone. If they outlive the pool, the
    /// block is released as it is.
    OnFree,
    /// A block is filled when it is handed out, held or fresh, on the queue that it is for. A block of an out-of-order
    /// queue gets a barrier after its fill.
    ///
    /// If the fill cannot be enqueued, the allocation fails, and the block is held as before. What the pool holds,
    /// and what it releases, is as its last user left it.
    OnHandOut,
}

impl ScrubPolicy {
    /// All policies.
    pub const ALL: [Self; 3] = [Self::Never, Self::OnFree, Self::OnHandOut];

    /// The policy as one word, as in snapshots and recordings.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::OnFree => "on_free",
            Self::OnHandOut => "on_hand_out",
        }
    }
}
