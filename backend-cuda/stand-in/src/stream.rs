//! Streams: threads that run commands in order.

use std::{
    sync::{
        Arc,
        mpsc::{Sender, channel},
    },
    thread,
    time::Duration,
};

use parking_lot::{Condvar, Mutex};

use crate::{
    Code,
    capture::{self, Command},
    device::Device,
    event::LOOK,
};

/// Each command runs so long after the one before has ended.
const LATE: Duration = Duration::from_micros(20);

/// The handle of the default stream of each thread. Those of the other default streams are less.
pub(crate) const PER_THREAD: usize = 2;

pub(crate) struct Stream {
    handle: usize,
    commands: Mutex<Sender<Command>>,
    progress: Arc<Progress>,
}

#[derive(Default)]
pub(crate) struct Progress {
    counts: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Default)]
struct Counts {
    enqueued: u64,
    ended: u64,
}

impl Stream {
    pub(crate) fn start(device: &Arc<Device>, handle: usize) -> Self {
        let (sender, receiver) = channel::<Command>();
        let progress = Arc::<Progress>::default();
        let (of_thread, device) = (Arc::clone(&progress), Arc::clone(device));
        // It ends when the stream is destroyed and its commands have ended.
        thread::spawn(move || {
            for command in receiver {
                thread::sleep(LATE);
                command(&device);
                of_thread.counts.lock().ended += 1;
                of_thread.changed.notify_all();
            }
        });
        Self {
            handle,
            commands: Mutex::new(sender),
            progress,
        }
    }

    pub(crate) fn enqueue(
        &self,
        command: impl Fn(&Device) + Send + Sync + 'static,
    ) -> Result<(), Code> {
        match capture::take(self.handle, Arc::new(command))? {
            Some(command) => self.run(command),
            None => Ok(()),
        }
    }

    /// Enqueues a command that is not captured.
    pub(crate) fn run(&self, command: Command) -> Result<(), Code> {
        let commands = self.commands.lock();
        self.progress.counts.lock().enqueued += 1;
        commands.send(command).map_err(|_| crate::INVALID_HANDLE)
    }

    pub(crate) fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }
}

impl Progress {
    /// Returns whether everything that was enqueued has ended.
    pub(crate) fn is_idle(&self) -> bool {
        let counts = self.counts.lock();
        counts.ended == counts.enqueued
    }

    /// The number of commands that were enqueued.
    pub(crate) fn enqueued(&self) -> u64 {
        self.counts.lock().enqueued
    }

    /// Waits for everything that was enqueued before, or until the device is lost.
    pub(crate) fn wait(&self, device: &Device) {
        self.wait_for(self.enqueued(), device);
    }

    /// Waits for the first `last` commands, or until the device is lost.
    pub(crate) fn wait_for(&self, last: u64, device: &Device) {
        let mut counts = self.counts.lock();
        while counts.ended < last && !device.is_lost() {
            self.changed.wait_for(&mut counts, LOOK);
        }
    }
}
