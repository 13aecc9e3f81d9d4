//! Random programs on one to four queues of both kinds, under every policy, with commands that run whenever they
//! like: no race is reported, every block has the bytes of a model in which commands run one after the other, nothing
//! waits forever, and memory finds its way back. The same where commands fail, in every way in which devices let them.

use binpool::{Backend, Error, Outcome, PoolError, PoolOptions, Queue, QueueOrder, ReusePolicy};
use binpool_allocators::FailureOrder;
use binpool_mock::{Completion, Failures, MockDevice, MockEvent, MockQueue};
use proptest::{prelude::*, sample::Index};

use crate::common::{Block, Rig, class_size};

const CAPACITY: usize = 64 << 10;

#[derive(Clone, Debug)]
enum Operation {
    Allocate {
        bytes: usize,
        queue: Index,
    },
    /// A fill on this queue, ordered by events, or else by the pool.
    Fill {
        block: Index,
        queue: Index,
        by_events: bool,
    },
    Copy {
        from: Index,
        to: Index,
        queue: Index,
    },
    Bind {
        block: Index,
        queue: Index,
    },
    Unbind {
        block: Index,
    },
    Read {
        block: Index,
    },
    Drop {
        block: Index,
    },
    Release {
        block: Index,
        queue: Index,
    },
    /// The next fill waits for a new gate.
    Gate,
    OpenGates,
    /// A gate fails, and with it what waits for it; the others stay closed.
    FailGate {
        gate: Index,
    },
    FreeHeld,
    Retire {
        queue: Index,
    },
    /// The device runs what it can.
    Run,
}

fn any_operation() -> impl Strategy<Value = Operation> {
    let index = any::<Index>;
    prop_oneof![
        12 => (1..CAPACITY / 3, index()).prop_map(|(bytes, queue)| Operation::Allocate { bytes, queue }),
        8 => (index(), index(), any::<bool>())
            .prop_map(|(block, queue, by_events)| Operation::Fill { block, queue, by_events }),
        4 => (index(), index(), index()).prop_map(|(from, to, queue)| Operation::Copy { from, to, queue }),
        2 => (index(), index()).prop_map(|(block, queue)| Operation::Bind { block, queue }),
        1 => index().prop_map(|block| Operation::Unbind { block }),
        2 => index().prop_map(|block| Operation::Read { block }),
        10 => index().prop_map(|block| Operation::Drop { block }),
        2 => (index(), index()).prop_map(|(block, queue)| Operation::Release { block, queue }),
        2 => Just(Operation::Gate),
        2 => Just(Operation::OpenGates),
        1 => Just(Operation::FreeHeld),
        1 => index().prop_map(|queue| Operation::Retire { queue }),
        2 => Just(Operation::Run),
    ]
}

/// Gates fail, and blocks are of few sizes, so that they are handed out again after them.
fn any_failing_operation() -> impl Strategy<Value = Operation> {
    let index = any::<Index>;
    let few = prop::sample::select(&[200_usize, 1000][..]);
    prop_oneof![
        30 => any_operation(),
        10 => (few, index()).prop_map(|(bytes, queue)| Operation::Allocate { bytes, queue }),
        6 => (index(), index()).prop_map(|(block, queue)| Operation::Fill { block, queue, by_events: true }),
        6 => index().prop_map(|block| Operation::Drop { block }),
        6 => Just(Operation::Gate),
        4 => index().prop_map(|gate| Operation::FailGate { gate }),
    ]
}

/// A block in use by the program, and what the model knows of it.
struct Live {
    block: Block,
    /// Every byte of it; `None` if commands that fail may be among those that wrote it.
    mark: Option<u8>,
    /// The commands that touched it: what the next one has to come after.
    events: Vec<MockEvent>,
    /// The queues whose commands come after those of the block's former users.
    ordered: Vec<MockQueue>,
}

struct Program {
    failures: Failures,
    /// Set if a gate has failed.
    has_failed: bool,
    rig: Rig,
    queues: Vec<MockQueue>,
    live: Vec<Live>,
    gates: Vec<MockEvent>,
    next_gate: Option<MockEvent>,
    next_mark: u8,
    /// Blocks lie in segments, between which bytes that are free cannot become one range.
    is_fragmented: bool,
}

impl Program {
    fn new(options: PoolOptions, orders: &[QueueOrder], seed: u64, failures: Failures) -> Self {
        let builder = MockDevice::builder()
            .capacity_bytes(CAPACITY as u64)
            .completion(Completion::Seeded(seed))
            .failures(failures);
        let rig = Rig::with_options(builder, options);
        let mut queues = vec![rig.queue.clone()];
        queues.extend(orders.iter().map(|order| rig.another_queue(*order)));
        Self {
            failures,
            has_failed: false,
            rig,
            queues,
            live: Vec::new(),
            gates: Vec::new(),
            next_gate: None,
            next_mark: 0,
            is_fragmented: false,
        }
    }

    fn queue(&self, index: Index) -> MockQueue {
        index.get(&self.queues).clone()
    }

    fn pick(&self, index: Index) -> Option<usize> {
        (!self.live.is_empty()).then(|| index.index(self.live.len()))
    }

    fn open_gates(&mut self) {
        for gate in self.gates.drain(..) {
            self.rig.open(&gate);
        }
        self.next_gate = None;
    }

    fn fail_gate(&mut self, gate: Index) {
        if self.gates.is_empty() {
            return;
        }
        let gate = self.gates.swap_remove(gate.index(self.gates.len()));
        self.next_gate.take_if(|next| *next == gate);
        self.rig
            .backend
            .resolve_user_event(&gate, Outcome::Failed)
            .unwrap();
        self.has_failed = true;
        for live in &mut self.live {
            live.mark = None;
        }
    }

    /// Returns whether commands that are enqueued now may fail though they wait for nothing that does.
    fn is_in_doubt(&self) -> bool {
        self.has_failed && self.failures.spread
    }

    fn in_use(&self) -> usize {
        self.live.iter().map(|live| live.block.class_size()).sum()
    }

    /// Has the block's former users' commands come before what is enqueued on `queue`. Whether it could: where the order
    /// of queues is worth nothing, the host waits, and cannot for what waits for the host.
    fn order(&mut self, index: usize, queue: &MockQueue) -> bool {
        let live = &mut self.live[index];
        if live.ordered.contains(queue) {
            return true;
        }
        self.order_again(index, queue)
    }

    fn order_again(&mut self, index: usize, queue: &MockQueue) -> bool {
        let live = &mut self.live[index];
        let ordered = live.block.order_before(queue);
        if self.may_refuse(&ordered) {
            return false;
        }
        ordered.unwrap();
        self.live[index].ordered.push(queue.clone());
        true
    }

    fn may_refuse<T>(&self, result: &Result<T, Error>) -> bool {
        result.is_err() && self.failures.order == FailureOrder::Lost && !self.gates.is_empty()
    }

    fn fill(&mut self, index: usize, queue: &MockQueue, by_events: bool) {
        self.next_mark = self.next_mark.wrapping_add(1);
        // The order of a queue is not to be relied on where a failure may lose it.
        let by_events = by_events || self.failures.order == FailureOrder::Lost;
        let mut wait_for = Vec::new();
        if by_events && !self.live[index].events.is_empty() {
            wait_for.clone_from(&self.live[index].events);
        } else if !self.order_again(index, queue) {
            return;
        }
        let mark = (!self.is_in_doubt()).then_some(self.next_mark);
        let live = &mut self.live[index];
        if wait_for.is_empty() || live.mark.is_some() {
            live.mark = mark;
        }
        wait_for.extend(self.next_gate.take());
        let all = 0..live.block.size();
        let event = live
            .block
            .enqueue_fill(queue.after(&wait_for), all, &[self.next_mark])
            .unwrap();
        live.events = vec![event];
    }

    fn copy(&mut self, from: usize, to: usize, queue: &MockQueue) {
        if from == to || ![from, to].iter().all(|index| self.order(*index, queue)) {
            return;
        }
        let [source, target] = self.live.get_disjoint_mut([from, to]).unwrap();
        let bytes = source.block.size().min(target.block.size());
        if bytes < target.block.size() {
            return;
        }
        let wait_for = [&source.events[..], &target.events[..]].concat();
        let event = source
            .block
            .enqueue_copy_region_to(queue.after(&wait_for), 0..bytes, &target.block, 0)
            .unwrap();
        // Where the one waits for a failure, so does whatever waits for the copy.
        source.mark = source.mark.filter(|_| target.mark.is_some());
        target.mark = source.mark;
        source.events.push(event.clone());
        target.events = vec![event];
    }

    /// The bytes are read, which the host waits for: for no gate that it has yet to open.
    fn check(&mut self, index: usize) -> Result<(), TestCaseError> {
        self.open_gates();
        let queue = self.queues[0].clone();
        self.order(index, &queue);
        let is_in_doubt = self.is_in_doubt();
        let live = &mut self.live[index];
        let mark = live.mark.filter(|_| !is_in_doubt);
        let mut bytes = vec![mark.map_or(0, |mark| !mark); live.block.size()];
        let read = live.block.read(queue.after(&live.events), 0, &mut bytes);
        if let Some(mark) = mark {
            read.unwrap();
            prop_assert!(
                bytes.iter().all(|byte| *byte == mark),
                "a block was overwritten"
            );
        }
        Ok(())
    }

    fn allocate(&mut self, bytes: usize, queue: &MockQueue) -> Result<(), TestCaseError> {
        let fits = self.in_use() + class_size(bytes) <= CAPACITY;
        match self.rig.pool.allocate_on(queue, bytes) {
            Ok(block) => {
                self.live.push(Live {
                    block,
                    mark: None,
                    events: Vec::new(),
                    ordered: vec![queue.clone()],
                });
                self.fill(self.live.len() - 1, queue, false);
                Ok(())
            }
            Err(PoolError::OutOfMemory(report)) => {
                let may_fail = !fits || !self.gates.is_empty() || self.is_fragmented;
                prop_assert!(may_fail, "{report}");
                Ok(())
            }
            Err(error) => Err(TestCaseError::fail(error.to_string())),
        }
    }

    fn run(&mut self, operation: &Operation) -> Result<(), TestCaseError> {
        match *operation {
            Operation::Allocate { bytes, queue } => {
                let queue = self.queue(queue);
                self.allocate(bytes, &queue)?;
            }
            Operation::Fill {
                block,
                queue,
                by_events,
            } => {
                let queue = self.queue(queue);
                if let Some(block) = self.pick(block) {
                    self.fill(block, &queue, by_events);
                }
            }
            Operation::Copy { from, to, queue } => {
                let queue = self.queue(queue);
                if let (Some(from), Some(to)) = (self.pick(from), self.pick(to)) {
                    self.copy(from, to, &queue);
                }
            }
            Operation::Bind { block, queue } => {
                let queue = self.queue(queue);
                if let Some(block) = self.pick(block) {
                    let live = &mut self.live[block];
                    // Refused for an out-of-order queue, which leaves everything as it was.
                    // So it is where the host would have to wait.
                    if live.block.bind_to_queue(&queue).is_ok() {
                        live.ordered.push(queue);
                    }
                }
            }
            Operation::Unbind { block } => {
                self.open_gates();
                if let Some(block) = self.pick(block) {
                    let live = &mut self.live[block];
                    live.block.unbind_from_queue().unwrap();
                    live.ordered.clone_from(&self.queues);
                }
            }
            Operation::Read { block } => {
                if let Some(block) = self.pick(block) {
                    self.check(block)?;
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
                    let Live { block, events, .. } = self.live.swap_remove(block);
                    let released = block.enqueue_release(Some(&queue), &events);
                    if !self.may_refuse(&released) {
                        released.unwrap();
                    }
                }
            }
            Operation::Gate => {
                let gate = self.rig.gate();
                self.gates.push(gate.clone());
                self.next_gate = Some(gate);
            }
            Operation::OpenGates => self.open_gates(),
            Operation::FailGate { gate } => self.fail_gate(gate),
            Operation::FreeHeld => drop(self.rig.pool.free_held()),
            Operation::Retire { queue } => {
                let queue = self.queue(queue);
                self.rig.pool.retire_queue(&queue);
            }
            Operation::Run => drop(self.rig.device.run()),
        }
        let statistics = self.rig.pool.statistics();
        prop_assert_eq!(
            statistics.managed_bytes,
            statistics.held_bytes + self.in_use() as u64
        );
        Ok(())
    }

    /// Everything comes to an end, and every byte is what it was to be.
    fn end(mut self, policy: ReusePolicy) -> Result<(), TestCaseError> {
        self.open_gates();
        for index in 0..self.live.len() {
            self.check(index)?;
        }
        let sizes: Vec<usize> = self
            .live
            .iter()
            .map(|live| live.block.class_size())
            .collect();
        self.live.clear();
        self.queues.clear();
        let gives_back = matches!(policy, ReusePolicy::Opportunistic | ReusePolicy::InsertWait);
        let keeps_places = self.failures.order.keeps_places();
        if gives_back && keeps_places && !self.is_fragmented {
            self.everything_is_common(&sizes)?;
        }
        let Rig { device, pool, .. } = self.rig;
        prop_assert!(device.violations().is_empty(), "{:#?}", device.violations());
        drop(pool);
        device.run();
        prop_assert_eq!(device.statistics().live_blocks, 0);
        prop_assert!(device.violations().is_empty());
        Ok(())
    }

    /// The home queue gets the blocks of all queues, without asking the device for one.
    fn everything_is_common(&self, sizes: &[usize]) -> Result<(), TestCaseError> {
        let pool = &self.rig.pool;
        let misses = || pool.statistics().misses;
        // Who asks first has the queues marked. On a full device that would give blocks back.
        let asked: u64 = sizes.iter().map(|bytes| *bytes as u64).sum();
        if pool.managed_bytes() + asked > CAPACITY as u64 {
            return Ok(());
        }
        let blocks: Vec<_> = sizes
            .iter()
            .map(|bytes| (misses(), pool.allocate(*bytes).unwrap(), misses()))
            .collect();
        self.rig.device.run();
        for (before, block, after) in blocks {
            if after > before {
                drop(block.detach());
            }
        }
        let before = misses();
        let blocks: Result<Vec<_>, _> = sizes.iter().map(|bytes| pool.allocate(*bytes)).collect();
        prop_assert_eq!(blocks.unwrap().len(), sizes.len());
        prop_assert_eq!(misses(), before);
        Ok(())
    }
}

fn any_order() -> impl Strategy<Value = QueueOrder> {
    prop_oneof![Just(QueueOrder::InOrder), Just(QueueOrder::OutOfOrder)]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(1200),
        // What is found is written down as a test of its own.
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn nothing_is_overwritten_whatever_the_order(
        policy in prop::sample::select(&ReusePolicy::ALL[..]),
        segments in any::<bool>(),
        orders in prop::collection::vec(any_order(), 0..4),
        seed in any::<u64>(),
        operations in prop::collection::vec(any_operation(), 1..80),
    ) {
        let options = PoolOptions::new().reuse(policy).segments(segments);
        let mut program = Program::new(options, &orders, seed, Failures::default());
        program.is_fragmented = segments;
        for operation in operations {
            program.run(&operation)?;
        }
        program.end(policy)?;
    }

    #[test]
    fn nothing_is_overwritten_though_commands_fail(
        policy in prop::sample::select(&ReusePolicy::ALL[..]),
        segments in any::<bool>(),
        orders in prop::collection::vec(any_order(), 0..4),
        seed in any::<u64>(),
        failures in prop::sample::select(&Failures::ALL[..]),
        operations in prop::collection::vec(any_failing_operation(), 1..80),
    ) {
        let options = PoolOptions::new().reuse(policy).segments(segments);
        let mut program = Program::new(options, &orders, seed, failures);
        program.is_fragmented = segments;
        for operation in operations {
            program.run(&operation)?;
        }
        program.end(policy)?;
    }
}
