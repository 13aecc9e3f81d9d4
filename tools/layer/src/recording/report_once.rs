//! Faults of the layer itself.

use std::{
    fmt,
    fs::File,
    io::{self, Write},
    mem::ManuallyDrop,
    os::{fd::FromRawFd, unix::fs::MetadataExt},
    sync::{
        Once, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::event::{PollFd, PollFlags, poll};

/// The file that standard error was when the layer was loaded.
static STANDARD_ERROR: OnceLock<Option<(u64, u64)>> = OnceLock::new();

/// Begins, when the layer is first called: notes which file standard error is, and keeps panics of the layer from being printed there.
pub(super) fn begin() {
    static BEGINS: Once = Once::new();
    BEGINS.call_once(|| {
        let _ = STANDARD_ERROR.set(standard_error());
        if !cfg!(test) {
            std::panic::set_hook(Box::new(|_| ()));
        }
    });
}

/// The numbers of the file that standard error is, and of its device.
fn standard_error() -> Option<(u64, u64)> {
    // SAFETY: it is not closed here, and the value lives no longer than this call.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(2) });
    let file = file.metadata().ok()?;
    Some((file.ino(), file.dev()))
}

/// Says on standard error what failed here, for the first fault of the process.
pub(crate) fn report_once(what: impl fmt::Display) {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    if !REPORTED.swap(true, Ordering::Relaxed) {
        say(format_args!("{what}; the program goes on without it"));
    }
}

/// Says something on standard error.
pub(crate) fn say(what: impl fmt::Display) {
    begin();
    if may_write() {
        let _ = writeln!(io::stderr(), "binpool: {what}");
    }
}

/// Returns whether standard error is what it was, and is read: the program may have opened a file of its own by its number, and the system would end a
/// program that writes into a pipe without a reader.
fn may_write() -> bool {
    let is_same = STANDARD_ERROR
        .get()
        .is_some_and(|begun| begun.is_some() && *begun == standard_error());
    let stderr = io::stderr();
    let mut states = [PollFd::new(&stderr, PollFlags::OUT)];
    let polled = is_same && poll(&mut states, Some(&rustix::event::Timespec::default())).is_ok();
    let broken = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
    polled
        && states[0].revents().contains(PollFlags::OUT)
        && !states[0].revents().intersects(broken)
}
