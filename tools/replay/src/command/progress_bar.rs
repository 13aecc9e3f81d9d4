//! A progress bar on the terminal.

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};

/// A bar of `steps` steps on standard error, where that is a terminal. It disappears when it is dropped.
pub(crate) fn bar(steps: usize, name: &str) -> ProgressBar {
    ProgressBar::new(steps as u64)
        .with_style(
            ProgressStyle::with_template("{msg} {wide_bar} {percent:>3} % {elapsed}")
                .unwrap_or_else(|_| ProgressStyle::default_bar()),
        )
        .with_message(name.to_owned())
        // After a failure, too, so that the message stands alone.
        .with_finish(ProgressFinish::AndClear)
}
