//! One race of each kind, and each way of doing without.

use binpool_allocators::{
    Backend, Event, MemoryFlags, Outcome, Queue, QueueOrder, Region, SvmBackend, SvmGrain,
};
use binpool_mock::{
    Completion, Failures, MockBackend, MockDevice, MockEvent, MockMemory, MockQueue, Race,
    Violation,
};

const BYTES: usize = 64;

pub(crate) struct Rig {
    pub(crate) device: MockDevice,
    pub(crate) backend: MockBackend,
    pub(crate) one: MockQueue,
    pub(crate) two: MockQueue,
    pub(crate) unordered: MockQueue,
    block: MockMemory,
}

impl Rig {
    pub(crate) fn new(completion: Completion, failures: Failures) -> Self {
        let builder = MockDevice::builder().completion(completion);
        let device = builder.failures(failures).build();
        let backend = device.backend();
        let queue = |order| backend.create_queue(order).unwrap();
        Self {
            one: queue(QueueOrder::InOrder),
            two: queue(QueueOrder::InOrder),
            unordered: queue(QueueOrder::OutOfOrder),
            block: backend.create_buffer(BYTES, MemoryFlags::empty()).unwrap(),
            device,
            backend,
        }
    }

    pub(crate) fn fill(&self, queue: &MockQueue, wait_for: &[MockEvent]) -> MockEvent {
        self.fill_region(queue, Region::first(BYTES), wait_for)
    }

    fn fill_region(&self, queue: &MockQueue, region: Region, wait_for: &[MockEvent]) -> MockEvent {
        self.backend
            .enqueue_fill(queue.after(wait_for), &self.block, region, &[1_u8])
            .unwrap()
    }

    fn read(&self, queue: &MockQueue) {
        let all = Region::first(BYTES);
        let read = self.backend.enqueue_read(queue, &self.block, all);
        drop(read.unwrap());
    }

    fn open(&self, gate: &MockEvent) {
        self.backend
            .resolve_user_event(gate, Outcome::Complete)
            .unwrap();
    }

    pub(crate) fn races(&self) -> Vec<Race> {
        self.device.run();
        let violations = self.device.violations().into_iter();
        violations
            .map(|violation| match violation {
                Violation::Race(race) => *race,
                violation => panic!("not a race: {violation}"),
            })
            .collect()
    }
}

pub(crate) const COMPLETIONS: [Completion; 4] = [
    Completion::AtOnce,
    Completion::Manual,
    Completion::Seeded(1),
    Completion::Seeded(2),
];

/// Runs a program under every completion mode: it races as often as it should under each.
fn check(races: usize, program: impl Fn(&Rig)) {
    for completion in COMPLETIONS {
        let rig = Rig::new(completion, Failures::default());
        program(&rig);
        let found = rig.races();
        assert_eq!(found.len(), races, "{completion:?}: {found:#?}");
    }
}

#[test]
fn two_queues_that_nothing_orders_race() {
    check(1, |rig| {
        rig.fill(&rig.one, &[]);
        rig.fill(&rig.two, &[]);
    });
    check(1, |rig| {
        rig.fill(&rig.one, &[]);
        rig.read(&rig.two);
    });
    check(1, |rig| {
        rig.read(&rig.one);
        rig.fill(&rig.two, &[]);
    });
}

#[test]
fn an_out_of_order_queue_orders_nothing() {
    check(1, |rig| {
        rig.fill(&rig.unordered, &[]);
        rig.fill(&rig.unordered, &[]);
    });
}

#[test]
fn a_marker_is_no_barrier() {
    check(1, |rig| {
        rig.fill(&rig.unordered, &[]);
        rig.backend.enqueue_marker(&rig.unordered).unwrap();
        rig.fill(&rig.unordered, &[]);
    });
}

#[test]
fn the_wrong_event_orders_nothing() {
    check(1, |rig| {
        let early = rig.backend.enqueue_marker(&rig.one).unwrap();
        rig.fill(&rig.one, &[]);
        rig.fill(&rig.two, &[early]);
    });
}

#[test]
fn a_command_that_has_ended_unseen_is_not_before_anything() {
    check(1, |rig| {
        rig.fill(&rig.one, &[]);
        rig.device.run();
        rig.fill(&rig.two, &[]);
    });
}

#[test]
fn what_the_host_has_seen_is_not_before_what_was_enqueued_earlier() {
    check(1, |rig| {
        let half = Region::first(BYTES / 2);
        let seen = rig.fill_region(&rig.one, half, &[]);
        rig.fill_region(&rig.two, half, &[]);
        seen.wait().unwrap();
        // A command on other bytes of the block ends before the second one, where the device runs none by itself.
        let other_half = Region::new(BYTES / 2, BYTES / 2);
        let between = rig.fill_region(&rig.one, other_half, &[]);
        between.wait().unwrap();
    });
}

#[test]
fn a_kernel_races_like_any_command() {
    check(1, |rig| {
        rig.fill(&rig.one, &[]);
        rig.backend
            .launch(&rig.two, "k", &[&rig.block], &[], |_, _| {})
            .unwrap();
    });
}

#[test]
fn views_race_where_they_share_bytes() {
    let view = |rig: &Rig, region| {
        let memory = rig.backend.create_sub_region(&rig.block, region).unwrap();
        rig.backend
            .launch(&rig.two, "k", &[], &[&memory], |_, _| {})
            .unwrap();
    };
    for (region, races) in [(Region::first(8), 1), (Region::first(BYTES), 1)] {
        check(races, |rig| {
            rig.fill_region(&rig.one, Region::new(4, 8), &[]);
            view(rig, region);
        });
    }
    check(0, |rig| {
        rig.fill_region(&rig.one, Region::new(8, 8), &[]);
        view(rig, Region::first(8));
    });
}

#[test]
fn svm_races_too() {
    let device = MockDevice::new();
    let backend = device.backend();
    let queues = [(); 2].map(|()| backend.create_queue(QueueOrder::InOrder).unwrap());
    let block = backend
        .allocate_svm(BYTES, None, SvmGrain::Coarse, None)
        .unwrap();
    for queue in &queues {
        backend
            .enqueue_fill(queue, &block, Region::first(BYTES), &[1_u8])
            .unwrap();
    }
    assert!(matches!(device.violations()[..], [Violation::Race(_)]));
}

#[test]
fn the_hand_over_that_corrupts_is_reported_with_both_commands_and_the_history() {
    let rig = Rig::new(Completion::Manual, Failures::default());
    let gate = rig.backend.create_user_event().unwrap();
    rig.fill(&rig.one, &[]);
    rig.fill(&rig.one, std::slice::from_ref(&gate));
    rig.fill(&rig.two, &[]);
    rig.open(&gate);
    let races = rig.races();
    let told = races[0].to_string();
    for part in [
        "command 2 (enqueue_fill) on queue",
        "command 3 (enqueue_fill) on queue",
        "writes bytes 0..64",
    ] {
        assert!(told.contains(part), "{told}");
    }
    assert!(!races[0].history.is_empty());
}

#[test]
fn a_commit_is_a_write() {
    check(1, |rig| {
        rig.fill(&rig.one, &[]);
        rig.backend.commit(&rig.two, &rig.block).unwrap();
    });
}

#[test]
fn reads_do_not_race() {
    check(0, |rig| {
        rig.read(&rig.one);
        rig.read(&rig.two);
    });
}

#[test]
fn a_command_that_failed_touched_nothing() {
    check(0, |rig| {
        let gate = rig.backend.create_user_event().unwrap();
        rig.fill(&rig.one, std::slice::from_ref(&gate));
        rig.fill(&rig.two, &[]);
        rig.backend
            .resolve_user_event(&gate, Outcome::Failed)
            .unwrap();
    });
}

#[test]
fn every_way_of_ordering_orders() {
    // The order of a queue.
    check(0, |rig| {
        rig.fill(&rig.one, &[]);
        rig.fill(&rig.one, &[]);
    });
    // A wait list, over three queues.
    check(0, |rig| {
        let first = rig.fill(&rig.one, &[]);
        let second = rig.fill(&rig.two, &[first]);
        rig.fill(&rig.unordered, &[second]);
    });
    // A marker's event; a barrier.
    check(0, |rig| {
        rig.fill(&rig.unordered, &[]);
        let all = rig.backend.enqueue_marker(&rig.unordered).unwrap();
        rig.fill(&rig.two, &[all]);
    });
    check(0, |rig| {
        rig.fill(&rig.unordered, &[]);
        rig.backend.enqueue_barrier(&rig.unordered).unwrap();
        rig.fill(&rig.unordered, &[]);
    });
    check(0, |rig| {
        let first = rig.fill(&rig.one, &[]);
        rig.backend
            .enqueue_barrier(rig.unordered.after(&[first]))
            .unwrap();
        rig.fill(&rig.unordered, &[]);
    });
    // The host: a wait, a finish, a blocking call, a look.
    check(0, |rig| {
        rig.fill(&rig.one, &[]).wait().unwrap();
        rig.fill(&rig.two, &[]);
    });
    check(0, |rig| {
        rig.fill(&rig.unordered, &[]);
        rig.unordered.finish().unwrap();
        rig.fill(&rig.two, &[]);
    });
    check(0, |rig| {
        rig.fill(&rig.one, &[]);
        rig.backend
            .write(&rig.one, &rig.block, 0, &[1_u8; BYTES])
            .unwrap();
        rig.fill(&rig.two, &[]);
    });
    check(0, |rig| {
        let filled = rig.fill(&rig.one, &[]);
        while !filled.status().unwrap().has_ended() {
            rig.device.step();
        }
        rig.fill(&rig.two, &[]);
    });
    // A user event that the host resolves once it has seen.
    check(0, |rig| {
        let gate = rig.backend.create_user_event().unwrap();
        rig.fill(&rig.two, std::slice::from_ref(&gate));
        rig.fill(&rig.one, &[]).wait().unwrap();
        rig.open(&gate);
    });
}

#[test]
fn a_device_that_does_not_look_reports_nothing() {
    let device = MockDevice::builder().detect_races(false).build();
    let backend = device.backend();
    let block = backend.create_buffer(BYTES, MemoryFlags::empty()).unwrap();
    for _ in 0..2 {
        let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
        backend
            .enqueue_fill(&queue, &block, Region::first(BYTES), &[1_u8])
            .unwrap();
    }
    assert!(device.violations().is_empty());
}

/// What is remembered of a block does not grow with the commands that touch it, or this would take hours.
#[test]
fn a_hundred_thousand_commands_are_no_burden() {
    let rig = Rig::new(Completion::AtOnce, Failures::default());
    let mut last = rig.fill(&rig.one, &[]);
    for turn in 0..100_000 {
        let queue = if turn % 2 == 0 { &rig.two } else { &rig.one };
        last = rig.fill(queue, std::slice::from_ref(&last));
    }
    assert!(rig.races().is_empty());
}
