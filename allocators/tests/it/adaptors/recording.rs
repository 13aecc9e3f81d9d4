//! `Recording`.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

use binpool_allocators::{Allocator, adaptors::Recording};
use tracing_subscriber::filter::LevelFilter;

use crate::adaptors::{deferred, device, log::logged, odd::Odd};

/// A file as a test sees it.
#[derive(Clone, Debug, Default)]
struct Paper(Arc<Mutex<Sheet>>);

#[derive(Debug, Default)]
struct Sheet {
    text: String,
    flushes: usize,
    /// Writes that succeed before one fails; `None` for all.
    good_writes: Option<usize>,
    bad_flush: bool,
    failures: usize,
}

impl Paper {
    /// What is written, without the times, which never fall.
    fn text(&self) -> String {
        let text = self.0.lock().unwrap().text.clone();
        let mut last = 0;
        let lines = text.lines().map(|line| {
            let (line, time) = line.rsplit_once(' ').unwrap();
            let time: u128 = time.parse().unwrap();
            assert!(time >= last, "{line}: time falls");
            last = time;
            format!("{line}\n")
        });
        lines.collect()
    }

    fn failing_after(writes: usize) -> Self {
        let paper = Self::default();
        paper.0.lock().unwrap().good_writes = Some(writes);
        paper
    }
}

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut sheet = self.0.lock().unwrap();
        match &mut sheet.good_writes {
            Some(0) => {
                sheet.failures += 1;
                return Err(io::Error::new(io::ErrorKind::StorageFull, "no paper left"));
            }
            Some(left) => *left -= 1,
            None => {}
        }
        sheet.text.push_str(std::str::from_utf8(bytes).unwrap());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut sheet = self.0.lock().unwrap();
        sheet.flushes += 1;
        if sheet.bad_flush {
            sheet.failures += 1;
            return Err(io::Error::other("smudged"));
        }
        Ok(())
    }
}

#[test]
fn blocks_are_written_as_they_come_and_go() {
    let paper = Paper::default();
    let allocator = deferred(&device());
    let before = allocator.allocate(1).unwrap();
    let recording = Recording::new(allocator, paper.clone());
    let one = recording.allocate(4096).unwrap();
    assert!(recording.allocate(0).is_err());
    let two = recording.clone().allocate(100).unwrap();
    recording.clone().release(one, &[]).unwrap();
    let three = recording.allocate(7).unwrap();
    recording.release(before, &[]).unwrap();
    recording.release(three, &[]).unwrap();
    drop(two);
    recording.flush().unwrap();
    assert_eq!(paper.0.lock().unwrap().flushes, 1);
    recording.finish().unwrap();
    assert_eq!(paper.text(), "a 1 4096 0\na 2 100 0\nf 1\na 3 7 0\nf 3\n");
    assert_eq!(paper.0.lock().unwrap().flushes, 2);
}

#[test]
fn nothing_is_recorded_once_it_is_finished() {
    let paper = Paper::default();
    let recording = Recording::new(deferred(&device()), paper.clone());
    let block = recording.allocate(10).unwrap();
    recording.clone().finish().unwrap();
    // The writer is let go of, and what was remembered of the blocks.
    assert!(
        format!("{recording:?}").contains("live: 0"),
        "{recording:?}"
    );
    assert_eq!(Arc::strong_count(&paper.0), 1);
    recording.release(block, &[]).unwrap();
    assert!(recording.allocate(20).is_ok());
    recording.flush().unwrap();
    recording.finish().unwrap();
    assert_eq!(paper.text(), "a 1 10 0\n");
}

#[test]
fn a_failed_write_ends_the_recording_and_nothing_else() {
    let paper = Paper::failing_after(2);
    let recording = Recording::new(deferred(&device()), paper.clone());
    let lines = logged(LevelFilter::ERROR, || {
        let one = recording.allocate(10).unwrap();
        let two = recording.allocate(20).unwrap();
        // Here it fails.
        recording.release(one, &[]).unwrap();
        recording.release(two, &[]).unwrap();
        let three = recording.allocate(30).unwrap();
        recording.release(three, &[]).unwrap();
    });
    assert!(
        lines.len() == 1 && lines[0].contains("no paper left"),
        "{lines:?}"
    );
    assert_eq!(paper.text(), "a 1 10 0\na 2 20 0\n");
    // Not even tried again.
    assert_eq!(paper.0.lock().unwrap().failures, 1);
    let told = recording.flush().unwrap_err();
    assert_eq!(told.kind(), io::ErrorKind::StorageFull);
    assert!(told.to_string().contains("no paper left"), "{told}");
    let told = recording.finish().unwrap_err();
    assert_eq!(
        (told.kind(), told.to_string()),
        (io::ErrorKind::StorageFull, "no paper left".into())
    );
    // Once.
    assert!(recording.finish().is_ok() && recording.flush().is_ok());
}

#[test]
fn an_allocation_whose_write_fails_is_not_lost() {
    let device = device();
    let recording = Recording::new(deferred(&device), Paper::failing_after(0));
    let block = recording.allocate(10).unwrap();
    assert_eq!(device.leaks().memory.len(), 1);
    recording.release(block, &[]).unwrap();
    assert!(device.leaks().memory.is_empty());
    assert!(recording.finish().is_err());
}

#[test]
fn a_failed_flush_is_told_by_who_asked_for_it() {
    for ask in [Recording::flush, Recording::finish] {
        let paper = Paper::default();
        let recording = Recording::new(deferred(&device()), paper.clone());
        let block = recording.allocate(10).unwrap();
        paper.0.lock().unwrap().bad_flush = true;
        let lines = logged(LevelFilter::ERROR, || {
            let told = ask(&recording).unwrap_err();
            assert!(told.to_string().contains("smudged"), "{told}");
        });
        assert!(
            lines.len() == 1 && lines[0].contains("smudged"),
            "{lines:?}"
        );
        recording.release(block, &[]).unwrap();
        assert_eq!(paper.text(), "a 1 10 0\n");
        assert_eq!(Arc::strong_count(&paper.0), 1);
    }
}

/// So that a trace never has more live than there was, whatever other threads do in between.
#[test]
fn a_block_is_written_after_it_was_given_and_before_it_goes_back() {
    let paper = Paper::default();
    let [at_allocate, at_release] = [paper.clone(), paper.clone()];
    let odd = Odd::new(&device())
        .on_allocate(move |_| {
            assert_eq!(at_allocate.text(), "");
            Ok(())
        })
        .on_release(move |_| {
            assert_eq!(at_release.text(), "a 1 10 0\nf 1\n");
            Ok(())
        });
    let recording = Recording::new(odd, paper);
    let block = recording.allocate(10).unwrap();
    recording.release(block, &[]).unwrap();
    recording.finish().unwrap();
}

#[test]
fn threads_write_whole_lines_in_an_order_that_makes_sense() {
    let paper = Paper::default();
    let recording = Recording::new(deferred(&device()), paper.clone());
    std::thread::scope(|scope| {
        for thread in 1..=4 {
            let recording = recording.clone();
            scope.spawn(move || {
                for _ in 0..100 {
                    let block = recording.allocate(thread).unwrap();
                    std::thread::yield_now();
                    recording.release(block, &[]).unwrap();
                }
            });
        }
    });
    recording.finish().unwrap();
    let (mut next, mut live, mut most) = (1_u64, std::collections::HashSet::new(), 0);
    for line in paper.text().lines() {
        let words: Vec<_> = line.split(' ').collect();
        let id: u64 = words[1].parse().unwrap();
        match words[..] {
            ["a", _, "1" | "2" | "3" | "4", "0"] => {
                assert_eq!(id, next);
                next += 1;
                assert!(live.insert(id));
                most = most.max(live.len());
            }
            ["f", _] => assert!(live.remove(&id)),
            _ => panic!("{line:?}"),
        }
    }
    assert_eq!((next, live.len()), (401, 0));
    assert!(most <= 4);
}
