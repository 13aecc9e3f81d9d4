//! Snapshots that are written by themselves.

use std::{
    fs, io,
    path::Path,
    process,
    sync::atomic::{AtomicU32, Ordering},
};

use binpool_allocators::Allocator;

use super::{Snapshot, SnapshotShortage};
use crate::{OutOfMemoryReport, seeing::asker::Asker, shared::Shared};

/// How many snapshots a process writes at most: one that goes on after the first shortage may run into many more.
const MOST_FILES: u32 = 16;

/// How many there were, of all pools of the process.
static WRITTEN: AtomicU32 = AtomicU32::new(0);

impl<A: Allocator> Shared<A> {
    /// Writes down how the pool is, which has just run out of memory, if the program wants that.
    pub(crate) fn write_shortage(&self, report: &OutOfMemoryReport, asker: Option<Asker>) {
        let Some(directory) = &self.snapshots else {
            return;
        };
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        if number >= MOST_FILES {
            // So that it never comes round.
            WRITTEN.store(MOST_FILES, Ordering::Relaxed);
            return;
        }
        let snapshot = Snapshot {
            out_of_memory: Some(SnapshotShortage::new(report, asker)),
            ..self.snapshot()
        };
        let name = format!("binpool-out-of-memory-{}-{number}.json", process::id());
        let path = directory.join(name);
        match write(&path, &snapshot) {
            Ok(()) => {
                tracing::warn!(path = %path.display(), "wrote a snapshot: `binpool view` shows it");
            }
            Err(error) => {
                tracing::error!(%error, path = %path.display(), "could not write a snapshot");
            }
        }
    }
}

fn write(path: &Path, snapshot: &Snapshot) -> io::Result<()> {
    let json = snapshot.to_json().map_err(io::Error::other)?;
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(path, json)
}
