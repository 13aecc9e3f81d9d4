//! What happens where something is logged.

use tracing::{
    Level, Metadata, Subscriber,
    span::{Attributes, Id, Record},
};

/// Runs a program, and calls `each` where it logs a warning or an error on this thread.
pub(crate) fn logged(each: impl Fn() + Send + Sync + 'static, program: impl FnOnce()) {
    tracing::subscriber::with_default(Each(each), program);
}

struct Each<F>(F);

impl<F: Fn() + Send + Sync + 'static> Subscriber for Each<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        (self.0)();
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
