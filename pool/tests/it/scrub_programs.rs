//! Random programs on pools that scrub, on one to four queues of both kinds, under every policy, with commands that
//! run whenever they like and calls that fail: no byte of a fresh block is ever what another user left, and no race is
//! reported.

use std::slice::from_ref;

use binpool::{
    Allocator, Backend, Memory, Outcome, PendingRead, PoolError, PooledBuffer, Queue, QueueOrder,
    Region, ReusePolicy, ScrubPolicy,
};
use binpool_allocators::FailureOrder;
use binpool_mock::{
    CallKind, Completion, Failures, Fault, MockBackend, MockDevice, MockEvent, MockMemory,
    MockQueue, Persistence,
};
use proptest::{prelude::*, sample::Index};

use crate::common::tenants::{ALL, ORDERS, SCRUBBING, SECRET, Tenants, immediate, scrub, svm};

#[derive(Clone, Debug)]
enum Operation {
    Allocate {
        bytes: usize,
        queue: Index,
    },
    /// More secrets, on this queue, maybe after the gate.
    Fill {
        block: Index,
        queue: Index,
    },
    Bind {
        block: Index,
        queue: Index,
    },
    Unbind {
        block: Index,
    },
    Drop {
        block: Index,
    },
    Release {
        block: Index,
        queue: Index,
    },
    /// The next fill, or release, waits for a new gate.
    Gate,
    /// Whatever waits for the gates runs, or fails.
    OpenGates {
        outcome: bool,
    },
    FreeHeld,
    Hold(bool),
    Retire {
        queue: Index,
    },
    Run,
    /// A later call of this kind fails.
    Fail {
        kind: CallKind,
        nth: u64,
    },
}

fn any_operation() -> impl Strategy<Value = Operation> {
    let index = any::<Index>;
    let kinds = vec![CallKind::Fill, CallKind::Marker, CallKind::Barrier];
    prop_oneof![
        14 => (1..ALL / 3, index()).prop_map(|(bytes, queue)| Operation::Allocate { bytes, queue }),
        6 => (index(), index()).prop_map(|(block, queue)| Operation::Fill { block, queue }),
        2 => (index(), index()).prop_map(|(block, queue)| Operation::Bind { block, queue }),
        1 => index().prop_map(|block| Operation::Unbind { block }),
        10 => index().prop_map(|block| Operation::Drop { block }),
        2 => (index(), index()).prop_map(|(block, queue)| Operation::Release { block, queue }),
        2 => Just(Operation::Gate),
        2 => any::<bool>().prop_map(|outcome| Operation::OpenGates { outcome }),
        1 => Just(Operation::FreeHeld),
        1 => any::<bool>().prop_map(Operation::Hold),
        1 => index().prop_map(|queue| Operation::Retire { queue }),
        2 => Just(Operation::Run),
        2 => (prop::sample::select(kinds), 1..4u64)
            .prop_map(|(kind, nth)| Operation::Fail { kind, nth }),
    ]
}

/// A random program. Failures of its own calls are all the same to it; what is read of fresh blocks is not.
struct Program {
    tenants: Tenants,
    queues: Vec<MockQueue>,
    live: Vec<PooledBuffer<MockBackend>>,
    reads: Vec<PendingRead<MockEvent>>,
    gates: Vec<MockEvent>,
    next_gate: Option<MockEvent>,
    with_faults: bool,
}

impl Program {
    fn new(tenants: Tenants, orders: &[QueueOrder], with_faults: bool) -> Self {
        let mut queues = vec![tenants.queue.clone()];
        let others = orders.iter();
        queues.extend(others.map(|order| tenants.backend.create_queue(*order).unwrap()));
        Self {
            tenants,
            queues,
            live: Vec::new(),
            reads: Vec::new(),
            gates: Vec::new(),
            next_gate: None,
            with_faults,
        }
    }

    fn queue(&self, index: Index) -> MockQueue {
        index.get(&self.queues).clone()
    }

    fn pick(&self, index: Index) -> Option<usize> {
        (!self.live.is_empty()).then(|| index.index(self.live.len()))
    }

    fn open_gates(&mut self, outcome: Outcome) {
        for gate in self.gates.drain(..) {
            let backend = &self.tenants.backend;
            backend.resolve_user_event(&gate, outcome).unwrap();
        }
        self.next_gate = None;
    }

    /// A block whose bytes are read at once, and overwritten after that.
    fn allocate(&mut self, bytes: usize, queue: &MockQueue) -> Result<(), TestCaseError> {
        let block = match self.tenants.pool.allocate_on(queue, bytes) {
            Ok(block) => block,
            Err(PoolError::OutOfMemory(_)) => return Ok(()),
            Err(error) => {
                prop_assert!(self.with_faults, "{error}");
                return Ok(());
            }
        };
        let backend = &self.tenants.backend;
        let memory: &MockMemory = block.memory_on(queue).unwrap();
        let all = Region::first(memory.bytes());
        let read = backend.enqueue_read(queue, memory, all).unwrap();
        let behind = from_ref(read.event());
        let secret = backend.enqueue_fill(queue.after(behind), memory, all, &[SECRET]);
        prop_assert!(self.with_faults || secret.is_ok());
        self.reads.push(read);
        self.live.push(block);
        Ok(())
    }

    fn fill(&mut self, index: usize, queue: &MockQueue) {
        let block = &self.live[index];
        if block.order_before(queue).is_err() {
            return;
        }
        let gate = self.next_gate.take();
        let all = 0..block.size();
        let filled = block.enqueue_fill(queue.after(gate.as_slice()), all, &[SECRET]);
        assert!(self.with_faults || filled.is_ok());
    }

    fn run(&mut self, operation: &Operation) -> Result<(), TestCaseError> {
        match *operation {
            Operation::Allocate { bytes, queue } => {
                let queue = self.queue(queue);
                self.allocate(bytes, &queue)?;
            }
            Operation::Fill { block, queue } => {
                let queue = self.queue(queue);
                if let Some(block) = self.pick(block) {
                    self.fill(block, &queue);
                }
            }
            Operation::Bind { block, queue } => {
                let queue = self.queue(queue);
                if let Some(block) = self.pick(block) {
                    // Refused for an out-of-order queue, which leaves everything as it was.
                    let _refused = self.live[block].bind_to_queue(&queue);
                }
            }
            Operation::Unbind { block } => {
                self.open_gates(Outcome::Complete);
                if let Some(block) = self.pick(block) {
                    self.live[block].unbind_from_queue().unwrap();
                }
            }
            Operation::Drop { block } => {
                if let Some(block) = self.pick(block) {
                    drop(self.live.swap_remove(block));
                }
            }
            Operation::Release { block, queue } => {
                let queue = self.queue(queue);
                if let Some(block) = self.pick(block) {
                    let gate = self.next_gate.take();
                    let block = self.live.swap_remove(block);
                    let end = block.enqueue_release(Some(&queue), gate.as_slice());
                    prop_assert!(self.with_faults || end.is_ok());
                }
            }
            Operation::Gate => {
                let gate = self.tenants.gate();
                self.gates.push(gate.clone());
                self.next_gate = Some(gate);
            }
            Operation::OpenGates { outcome } => self.open_gates(if outcome {
                Outcome::Complete
            } else {
                Outcome::Failed
            }),
            Operation::FreeHeld => drop(self.tenants.pool.free_held()),
            Operation::Hold(true) => self.tenants.pool.resume_holding(),
            Operation::Hold(false) => drop(self.tenants.pool.stop_holding()),
            Operation::Retire { queue } => {
                let queue = self.queue(queue);
                self.tenants.pool.retire_queue(&queue);
            }
            Operation::Run => drop(self.tenants.device.run()),
            Operation::Fail { kind, nth } => {
                if self.with_faults {
                    let device = &self.tenants.device;
                    device.fail_nth(kind, nth, Fault::Backend(-7), Persistence::Once);
                }
            }
        }
        Ok(())
    }

    fn end(mut self, policy: ScrubPolicy) -> Result<(), TestCaseError> {
        self.open_gates(Outcome::Complete);
        self.tenants.device.clear_faults();
        for queue in &self.queues {
            queue.finish().unwrap();
        }
        for read in self.reads.drain(..) {
            let bytes = read.wait().unwrap();
            prop_assert!(bytes.iter().all(|byte| *byte == 0), "a secret was read");
        }
        self.live.clear();
        self.queues.clear();
        let Tenants {
            device,
            dirty,
            pool,
            ..
        } = self.tenants;
        drop(pool);
        device.run();
        // A block whose own wait fails goes to the allocator as it is.
        if policy == ScrubPolicy::OnFree && !self.with_faults {
            prop_assert!(dirty.got_zeros_only(), "a secret went to the allocator");
        }
        prop_assert!(device.violations().is_empty(), "{:#?}", device.violations());
        prop_assert_eq!(device.statistics().live_blocks, 0);
        Ok(())
    }
}

fn any_order() -> impl Strategy<Value = QueueOrder> {
    prop::sample::select(&ORDERS[..])
}

/// What a random program runs on.
#[derive(Clone, Debug)]
struct Setting {
    scrub: ScrubPolicy,
    reuse: ReusePolicy,
    segments: bool,
    orders: Vec<QueueOrder>,
    seed: u64,
    failures: Failures,
    with_faults: bool,
}

/// Where a failure does not spread: a fill of the pool's that fails, since a command before it did, overwrites nothing.
fn any_failures() -> impl Strategy<Value = Failures> {
    let spread = false;
    let order = prop::sample::select(&[FailureOrder::Kept, FailureOrder::FailsEarly][..]);
    order.prop_map(move |order| Failures { order, spread })
}

fn any_setting() -> impl Strategy<Value = Setting> {
    (
        prop::sample::select(&SCRUBBING[..]),
        prop::sample::select(&ReusePolicy::ALL[..]),
        any::<bool>(),
        prop::collection::vec(any_order(), 0..4),
        any::<u64>(),
        any_failures(),
        any::<bool>(),
    )
        .prop_map(
            |(scrub, reuse, segments, orders, seed, failures, with_faults)| Setting {
                scrub,
                reuse,
                segments,
                orders,
                seed,
                failures,
                with_faults,
            },
        )
}

fn run_program<A: Allocator<Backend = MockBackend>>(
    setting: &Setting,
    operations: &[Operation],
    allocator: impl Fn(&MockBackend) -> A,
) -> Result<(), TestCaseError> {
    let options = scrub(setting.scrub)
        .reuse(setting.reuse)
        .segments(setting.segments);
    let builder = MockDevice::builder()
        .completion(Completion::Seeded(setting.seed))
        .failures(setting.failures);
    let tenants = Tenants::new(builder, options, allocator);
    let mut program = Program::new(tenants, &setting.orders, setting.with_faults);
    for operation in operations {
        program.run(operation)?;
    }
    program.end(setting.scrub)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(600),
        // What is found is written down as a test of its own.
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_program_reads_a_secret_in_buffers(
        setting in any_setting(),
        operations in prop::collection::vec(any_operation(), 1..80),
    ) {
        run_program(&setting, &operations, immediate)?;
    }

    #[test]
    fn no_program_reads_a_secret_in_shared_virtual_memory(
        setting in any_setting(),
        operations in prop::collection::vec(any_operation(), 1..80),
    ) {
        run_program(&setting, &operations, svm)?;
    }
}
