//! What `Recording` writes is what `Trace` reads.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

use binpool::{
    Allocator, DeferredAllocator, PoolOptions,
    adaptors::{Recording, Statistics},
};
use binpool_mock::MockDevice;
use binpool_replay::{AllocatorChoice, Device, Profile, ReplaySettings, Touch};
use binpool_trace::{Event, Trace};
use proptest::{collection::vec, prelude::*};

/// A file as the test sees it.
#[derive(Clone, Default)]
struct File(Arc<Mutex<Vec<u8>>>);

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Of 0 bytes, or too many, it fails.
    Allocate(usize),
    Release(usize),
    /// A block that is dropped goes back unseen.
    Drop(usize),
}

const LARGEST: usize = 1 << 20;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => (0..LARGEST + LARGEST / 10).prop_map(Step::Allocate),
        1 => Just(Step::Allocate(0)),
        4 => any::<usize>().prop_map(Step::Release),
        1 => any::<usize>().prop_map(Step::Drop),
    ];
    vec(step, 1..200)
}

proptest! {
    #[test]
    fn a_recorded_program_is_read_back_as_it_was(steps in steps()) {
        let file = File::default();
        let device = MockDevice::builder()
            .capacity_bytes(1 << 40)
            .largest_block_bytes(LARGEST)
            .build();
        let allocator = Statistics::new(DeferredAllocator::new(&device.backend()));
        let recording = Recording::new(allocator, io::BufWriter::new(file.clone()));
        let (mut live, mut expected, mut blocks) = (Vec::new(), Vec::new(), 0);
        // So that there is something to read.
        for step in std::iter::once(Step::Allocate(1)).chain(steps) {
            match step {
                Step::Allocate(bytes) => if let Ok(memory) = recording.allocate(bytes) {
                    live.push((blocks, memory));
                    expected.push(Event::Allocate { block: blocks, bytes, stream: 0 });
                    blocks += 1;
                },
                Step::Release(which) if !live.is_empty() => {
                    let (block, memory) = live.swap_remove(which % live.len());
                    recording.release(memory, &[]).unwrap();
                    expected.push(Event::Free { block });
                }
                Step::Drop(which) if !live.is_empty() => {
                    drop(live.swap_remove(which % live.len()));
                }
                Step::Release(_) | Step::Drop(_) => {}
            }
        }
        recording.finish().unwrap();
        let text = file.0.lock().unwrap().clone();
        let trace = Trace::parse("recorded", &text[..]).unwrap();
        prop_assert_eq!(trace.events(), &expected[..]);
        let reading = recording.inner().reading();
        prop_assert_eq!(trace.allocations() as u64, reading.allocations);
        prop_assert_eq!(trace.frees() as u64, reading.releases);
        prop_assert_eq!(trace.peak_live_bytes(), reading.peak_bytes);
        // The IDs, too: they count up from 1.
        prop_assert_eq!(trace.to_string().into_bytes(), text);
        prop_assert!(trace.describe(0).ends_with("as block 1"));
    }
}

#[test]
fn a_recorded_program_can_be_replayed() {
    let file = File::default();
    let backend = MockDevice::new().backend();
    let recording = Recording::new(DeferredAllocator::new(&backend), file.clone());
    for _ in 0..10 {
        let block = recording.allocate(1000).unwrap();
        recording.release(block, &[]).unwrap();
    }
    recording.finish().unwrap();
    let text = file.0.lock().unwrap().clone();
    let trace = Trace::parse("recorded", &text[..]).unwrap();
    let settings = ReplaySettings {
        allocator: AllocatorChoice::Immediate,
        pool: Some(PoolOptions::new()),
        capacity_bytes: None,
        touch: Touch::Nothing,
        threads: 1,
        rounds: 1,
        behind: None,
    };
    let replayed = Device::Mock(Profile::None).replay(&trace, &settings, &|_| {});
    let outcome = replayed.unwrap().outcome;
    assert_eq!((outcome.pairs, outcome.hits), (10, 9));
}
