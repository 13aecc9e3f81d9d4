//! A program: what its threads share, and how they are run.

use std::{
    sync::{Arc, Barrier, Mutex},
    thread,
    time::{Duration, Instant},
};

use binpool_allocators::{Backend, Queue, QueueOrder};
use binpool_conformance::Random;
use binpool_opencl::{ClEvent, ClQueue, OpenClBackend};

use super::{
    counts::Counts,
    kernels::Kernels,
    object::Object,
    pools::{self, AnyPool},
    settings::Settings,
    worker::Worker,
};
use crate::steps;

/// A device, for one program after another.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) backend: OpenClBackend,
    pub(crate) kernels: Kernels,
}

impl Device {
    pub(crate) fn open() -> Self {
        let backend = crate::common::open();
        Self {
            kernels: Kernels::build(&backend),
            backend,
        }
    }
}

pub(crate) struct Program<'d> {
    pub(crate) device: &'d Device,
    pub(crate) seed: u64,
    pub(crate) threads: usize,
    /// Set if user events may fail.
    pub(crate) failing: bool,
    pub(crate) trace: bool,
    pub(crate) queues: Vec<ClQueue>,
    pub(crate) pools: Vec<AnyPool>,
    /// Memory that all threads write.
    pub(crate) shared: Mutex<Vec<Arc<Object>>>,
    /// Where the threads meet once all user events are resolved: from then on nothing fails.
    pub(crate) resolved: Barrier,
    /// Events of one thread for the wait lists of others.
    pub(crate) events: Mutex<Vec<ClEvent>>,
}

impl<'d> Program<'d> {
    fn new(device: &'d Device, settings: &Settings, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let threads = [1, 1, 1, 2, 3, 4][random.below(6)];
        let failing = random.below(2) == 0;
        let threads = settings.threads.unwrap_or(threads);
        let failing = settings.failing.unwrap_or(failing);
        let backend = &device.backend;
        let mut orders = vec![QueueOrder::InOrder; 2];
        if backend.limits().out_of_order_queues {
            orders.extend([QueueOrder::OutOfOrder; 2]);
        }
        let queue = |order| backend.create_queue(order).expect("a queue can be made");
        let queues: Vec<_> = orders.into_iter().map(queue).collect();
        let count = 1 + random.below(2);
        let pools = (0..count).map(|_| pools::any(backend, &queues, &mut random));
        Self {
            pools: pools.collect(),
            device,
            seed,
            threads,
            failing,
            trace: settings.trace,
            queues,
            shared: Mutex::default(),
            resolved: Barrier::new(threads),
            events: Mutex::default(),
        }
    }

    /// Takes the steps of a thread.
    fn run_thread(&self, thread: usize, steps: Vec<usize>) -> Counts {
        let mut worker = Worker::new(self, thread, steps);
        steps::run(&mut worker, None);
        steps::end::end(worker)
    }

    /// Checks that nothing is left.
    fn end(self) {
        drop(self.shared);
        drop(self.events);
        for queue in &self.queues {
            queue.finish().expect("a queue can be finished");
        }
        for AnyPool {
            pool, description, ..
        } in &self.pools
        {
            // A pool that scrubs has a queue of its own, whose fills may still run.
            let begun = Instant::now();
            pool.free_held();
            while pool.managed_bytes() > 0 && begun.elapsed() < Duration::from_secs(10) {
                thread::sleep(Duration::from_millis(1));
                pool.free_held();
            }
            let statistics = pool.statistics();
            assert_eq!(
                (statistics.active_blocks, pool.managed_bytes()),
                (0, 0),
                "a pool ({description}) still has memory where all blocks are back: {statistics:?}"
            );
        }
    }
}

/// Runs the program of `seed`.
pub(crate) fn run(device: &Device, settings: &Settings, seed: u64) -> Counts {
    let program = Program::new(device, settings, seed);
    if program.trace {
        let (threads, failing) = (program.threads, program.failing);
        let pools = program.pools.iter().map(|pool| &*pool.description);
        let pools: Vec<_> = pools.collect();
        eprintln!("program {seed}: {threads} threads, events fail: {failing}, pools: {pools:?}");
    }
    let mut counts = Counts {
        programs: 1,
        ..Counts::default()
    };
    thread::scope(|scope| {
        let threads = (0..program.threads).map(|thread| {
            let of_thread = thread * settings.steps..(thread + 1) * settings.steps;
            let kept = |step: &usize| match &settings.keep {
                Some(keep) => keep.contains(step),
                None => true,
            };
            let steps = of_thread.filter(kept).collect();
            let program = &program;
            scope.spawn(move || program.run_thread(thread, steps))
        });
        let threads: Vec<_> = threads.collect();
        for thread in threads {
            counts.merge(&thread.join().expect("the thread has not panicked"));
        }
    });
    program.end();
    counts
}
