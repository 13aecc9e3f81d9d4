//! Snapshots that a pool writes when memory runs out.

use std::{
    fs, io,
    path::Path,
    process,
    sync::atomic::{AtomicU32, Ordering},
};

use binpool_allocators::Backend;

use crate::{
    OutOfMemoryReport,
    inspect::snapshot::{Snapshot, taking::shortage},
    shared::Shared,
    track::caller::Caller,
};

/// The most snapshots that a process writes: a program that goes on after the first shortage may run into many more.
const MAX_FILES: u32 = 16;

/// The snapshots so far, of all pools of the process.
static WRITTEN: AtomicU32 = AtomicU32::new(0);

impl<B: Backend> Shared<B> {
    /// Writes a snapshot of a pool that has just run out of memory, if the program set a directory for it.
    pub(crate) fn write_shortage(&self, report: &OutOfMemoryReport, caller: Option<Caller>) {
        let Some(directory) = &self.snapshots else {
            return;
        };
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        if number >= MAX_FILES {
            // So that the counter never wraps around.
            WRITTEN.store(MAX_FILES, Ordering::Relaxed);
            return;
        }
        let snapshot = Snapshot {
            out_of_memory: Some(shortage(report, caller)),
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
