//! What the pool says through `tracing`.

use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use tracing::{Dispatch, Subscriber};
use tracing_subscriber::{filter::LevelFilter, fmt::MakeWriter, layer::SubscriberExt};

/// Keeps what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// What is logged while `program` runs, down to this level.
pub(crate) fn logged(level: LevelFilter, program: impl FnOnce()) -> String {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(log.clone())
        .with_ansi(false)
        .finish();
    told(subscriber, program);
    String::from_utf8(std::mem::take(&mut *log.0.lock())).unwrap()
}

/// Runs `program` with a subscriber for this thread.
///
/// While `tracing` knows of one subscriber only, it asks the thread that comes to an event first whether a subscriber wants it, and
/// keeps the answer: that of a thread of another test is no. Once it knows of two, it asks them, so that one stays for good.
pub(crate) fn told(subscriber: impl Subscriber + Send + Sync, program: impl FnOnce()) {
    static DEAF: LazyLock<Dispatch> =
        LazyLock::new(|| Dispatch::new(tracing_subscriber::registry().with(LevelFilter::OFF)));
    LazyLock::force(&DEAF);
    tracing::subscriber::with_default(subscriber, program);
}
