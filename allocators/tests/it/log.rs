//! What is logged.

use std::{
    io,
    sync::{Arc, LazyLock, Mutex},
};

use tracing::Dispatch;
use tracing_subscriber::{filter::LevelFilter, fmt::MakeWriter, layer::SubscriberExt};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// The lines that the adaptors logged while `program` ran, down to this level.
///
/// While `tracing` knows of one subscriber only, it asks the thread that comes to an event first whether a subscriber wants it, and
/// keeps the answer: that of a thread of another test is no. Once it knows of two, it asks them, so that one stays for good.
pub(crate) fn logged(level: LevelFilter, program: impl FnOnce()) -> Vec<String> {
    static DEAF: LazyLock<Dispatch> =
        LazyLock::new(|| Dispatch::new(tracing_subscriber::registry().with(LevelFilter::OFF)));
    LazyLock::force(&DEAF);
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(log.clone())
        .with_ansi(false)
        .finish();
    tracing::subscriber::with_default(subscriber, program);
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let ours = |line: &&str| line.contains("binpool_allocators::");
    text.lines().filter(ours).map(str::to_owned).collect()
}
