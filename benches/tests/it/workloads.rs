//! What the workloads do to a subject, seen by one that keeps a log.

use std::{
    sync::{Mutex, MutexGuard},
    thread::{self, ThreadId},
    time::Duration,
};

use binpool_benches::{Failure, Refused, Subject, SubjectChoice, Visitor, Workload, race};

/// What was done: the number of a block, its size, and the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Allocate(usize, usize, ThreadId),
    Free(usize, ThreadId),
}

/// Keeps a log, and has as many blocks as it is told.
struct Log {
    entries: Mutex<Vec<Entry>>,
    blocks: usize,
}

struct Block<'a> {
    log: &'a Log,
    number: usize,
}

impl Log {
    fn new(blocks: usize) -> Self {
        Self {
            entries: Mutex::default(),
            blocks,
        }
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap()
    }
}

impl<'a> Subject for &'a Log {
    type Block = Block<'a>;

    const NAME: &'static str = "log";

    fn allocate(&self, bytes: usize) -> Option<Block<'a>> {
        let mut entries = self.entries();
        let number = entries.len();
        if number >= self.blocks {
            return None;
        }
        entries.push(Entry::Allocate(number, bytes, thread::current().id()));
        Some(Block { log: self, number })
    }
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        let entry = Entry::Free(self.number, thread::current().id());
        self.log.entries().push(entry);
    }
}

/// What `threads` threads did, that were told to do `pairs` pairs each, without warming up.
fn logged(workload: Workload, threads: usize, pairs: u64) -> Vec<Entry> {
    let log = Log::new(usize::MAX);
    race(workload, &&log, threads, |race| {
        // Threads warm up on their own; after a first round, all of them have.
        race.run(1).unwrap();
        log.entries().clear();
        race.run(pairs).unwrap();
        std::mem::take(&mut *log.entries())
    })
}

#[test]
fn every_thread_does_exactly_as_many_pairs_as_it_is_told() {
    for workload in Workload::ALL {
        for (threads, pairs) in [(1, 1), (1, 64), (1, 200), (3, 100)] {
            let entries = logged(workload, threads, pairs);
            let is_free = |entry: &&Entry| matches!(entry, Entry::Free(..));
            let frees = entries.iter().filter(is_free).count() as u64;
            assert_eq!(frees, threads as u64 * pairs, "{workload}");
            assert_eq!(entries.len() as u64, 2 * frees, "{workload}");
        }
    }
}

#[test]
fn the_sizes_are_the_same_each_time() {
    for workload in Workload::ALL {
        let sizes = || -> Vec<usize> {
            let entries = logged(workload, 1, 200).into_iter();
            let sizes = entries.filter_map(|entry| match entry {
                Entry::Allocate(_, bytes, _) => Some(bytes),
                Entry::Free(..) => None,
            });
            sizes.collect()
        };
        assert_eq!(sizes(), sizes(), "{workload}");
    }
}

#[test]
fn lifo_drops_the_last_of_64_blocks_first() {
    let entries = logged(Workload::Lifo, 1, 128);
    for round in entries.chunks(128) {
        let (climb, descent) = round.split_at(64);
        for (up, down) in climb.iter().zip(descent.iter().rev()) {
            match (up, down) {
                (Entry::Allocate(up, ..), Entry::Free(down, _)) => assert_eq!(up, down),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn across_threads_every_block_is_dropped_by_another_thread_than_allocated_it() {
    let own = thread::current().id();
    for entry in logged(Workload::CrossThread, 1, 1000) {
        match entry {
            Entry::Allocate(_, bytes, thread) => assert_eq!((bytes, thread), (4096, own)),
            Entry::Free(_, thread) => assert_ne!(thread, own),
        }
    }
}

#[test]
fn no_memory_is_an_error_that_names_the_subject_and_the_workload() {
    for workload in Workload::ALL {
        let none = Log::new(0);
        let refused = race(workload, &&none, 2, |race| race.run(10)).unwrap_err();
        let expected = Refused {
            subject: "log",
            workload,
        };
        assert_eq!(refused, expected);
    }
}

#[test]
fn every_subject_does_every_workload_of_its_own() {
    struct Race(Workload);

    impl Visitor for Race {
        type Output = Result<Duration, Refused>;

        fn visit<S: Subject>(self, subject: &S) -> Self::Output {
            race(self.0, subject, 1, |race| race.run(64))
        }
    }

    for workload in Workload::ALL {
        for subject in workload.subjects() {
            subject.show(Race(workload)).unwrap().unwrap();
        }
    }
}

#[test]
fn names_are_those_of_the_subjects_and_all_different() {
    struct Name;

    impl Visitor for Name {
        type Output = &'static str;

        fn visit<S: Subject>(self, _: &S) -> &'static str {
            S::NAME
        }
    }

    let mut names = Vec::new();
    for subject in SubjectChoice::ALL {
        assert_eq!(subject.show(Name).unwrap(), subject.name());
        names.push(subject.name());
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), SubjectChoice::ALL.len());
}

#[test]
fn failures_say_what_failed() {
    let refused = Refused {
        subject: "log",
        workload: Workload::Hot,
    };
    assert_eq!(
        Failure::from(refused).to_string(),
        "log has no memory left for the workload hot"
    );
}
