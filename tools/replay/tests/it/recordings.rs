//! What a pool records can be replayed.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

use binpool::{Backend, ImmediateAllocator, MemoryPool, PoolOptions, QueueOrder};
use binpool_mock::MockDevice;
use binpool_recordings::Trace;
use binpool_replay::{AllocatorChoice, Device, Profile, ReplaySettings, Touch};

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

#[test]
fn a_recorded_program_can_be_replayed() {
    let file = File::default();
    let backend = MockDevice::new().backend();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let allocator = ImmediateAllocator::new(&backend).unwrap();
    let pool = MemoryPool::new(allocator, &queue).unwrap();
    let recording = pool.record(file.clone()).unwrap();
    for _ in 0..10 {
        drop(pool.allocate(1000).unwrap());
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
