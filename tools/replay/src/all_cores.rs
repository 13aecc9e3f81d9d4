//! Work that is done by as many threads as there are cores.

use std::{num::NonZero, sync::OnceLock, thread};

use parking_lot::Mutex;

/// Returns what `work` makes of each item, in the order of the items.
pub fn on_all_cores<T: Sync, R: Send + Sync>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let results: Vec<OnceLock<R>> = items.iter().map(|_| OnceLock::new()).collect();
    let waiting = Mutex::new(items.iter().zip(&results));
    let next = || waiting.lock().next();
    let work = || {
        while let Some((item, result)) = next() {
            result.get_or_init(|| work(item));
        }
    };
    thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        for _ in 0..threads.min(items.len()) {
            scope.spawn(work);
        }
    });
    results
        .into_iter()
        .filter_map(OnceLock::into_inner)
        .collect()
}
