//! Collects panics: their places and messages.

use std::{
    cell::{Cell, RefCell},
    fmt,
    panic::{self, PanicHookInfo, resume_unwind},
    path::Path,
    sync::{
        Arc, Once,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, ScopedJoinHandle, ThreadId},
};

use parking_lot::Mutex;

/// One panic.
#[derive(Clone, Debug)]
pub(super) struct Panic {
    file: String,
    line: u32,
    message: String,
    thread: ThreadId,
}

impl Panic {
    fn new(info: &PanicHookInfo<'_>) -> Self {
        let place = info.location();
        Self {
            file: place.map_or("?", |place| place.file()).to_owned(),
            line: place.map_or(0, panic::Location::line),
            message: crate::report::message(info.payload()),
            thread: thread::current().id(),
        }
    }

    /// Returns whether a check, or the fixture in this file, itself unwrapped an error with this mark. A panic in code that it
    /// called does not count.
    pub(super) fn is_an_end(&self, fixture: &str, mark: &str) -> bool {
        let source = Path::new(file!()).parent().and_then(Path::parent);
        let folder = Path::new(&self.file).parent();
        let is_a_check = folder == source
            || folder.and_then(Path::parent) == source
                && folder.is_some_and(|it| it.ends_with("checks"));
        (is_a_check || self.file == fixture) && self.message.contains(mark)
    }
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

/// Collects the panics of all threads of a run, instead of the standard error output.
#[derive(Clone, Debug)]
pub(super) struct Collector {
    /// The name of the run.
    what: Arc<str>,
    panics: Arc<Mutex<Vec<Panic>>>,
    /// The number of stray panics when the run began: those of threads without a collector.
    strays: u64,
}

/// The panics of a run.
#[derive(Debug)]
pub(super) struct Collected {
    pub(super) panics: Vec<Panic>,
    /// A panic of a thread that belongs to no run.
    pub(super) stray: Option<Panic>,
}

thread_local! {
    static CURRENT: RefCell<Option<Collector>> = const { RefCell::new(None) };

    /// Set if this thread called a sweep. It reports findings by a panic.
    static IS_CALLER: Cell<bool> = const { Cell::new(false) };
}

/// The number of panics of threads without a collector, and the last of them.
static STRAYS: AtomicU64 = AtomicU64::new(0);
static LAST_STRAY: Mutex<Option<Panic>> = Mutex::new(None);

impl Collector {
    pub(super) fn new(what: String) -> Self {
        install();
        IS_CALLER.set(true);
        Self {
            what: what.into(),
            panics: Arc::default(),
            strays: STRAYS.load(Ordering::Relaxed),
        }
    }

    fn current() -> Option<Self> {
        CURRENT
            .try_with(|current| current.borrow().clone())
            .ok()
            .flatten()
    }

    /// Collects the panics of this thread here while `body` runs.
    pub(super) fn within<R>(&self, body: impl FnOnce() -> R) -> R {
        let before = CURRENT.replace(Some(self.clone()));
        let result = body();
        CURRENT.set(before);
        result
    }

    pub(super) fn take(&self) -> Collected {
        let has_strays = STRAYS.load(Ordering::Relaxed) > self.strays;
        Collected {
            panics: std::mem::take(&mut self.panics.lock()),
            stray: LAST_STRAY.lock().clone().filter(|_| has_strays),
        }
    }
}

/// Installs the panic hook that collects panics in this whole process.
fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let panic = Panic::new(info);
            let Some(collector) = Collector::current() else {
                if IS_CALLER.try_with(Cell::get).unwrap_or_default() {
                    return previous(info);
                }
                *LAST_STRAY.lock() = Some(panic);
                STRAYS.fetch_add(1, Ordering::Relaxed);
                previous(info);
                return;
            };
            let mut panics = collector.panics.lock();
            let is_second = panics.iter().any(|other| other.thread == panic.thread);
            panics.push(panic);
            drop(panics);
            if is_second {
                // A second panic during unwinding ends the process, and the collected ones would be lost.
                eprintln!("{}: a second panic", collector.what);
                previous(info);
            }
        }));
    });
}

/// Calls `body` with each of `inputs`, on a thread each. Panics like the first of them if some panic.
pub(crate) fn on_threads<T: Send, R: Send>(
    inputs: impl IntoIterator<Item = T>,
    body: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let (body, collector) = (&body, Collector::current());
    let on_one = |input| match &collector {
        Some(collector) => collector.within(|| body(input)),
        None => body(input),
    };
    let on_one = &on_one;
    thread::scope(|scope| {
        let inputs = inputs.into_iter();
        let threads: Vec<_> = inputs
            .map(|input| scope.spawn(move || on_one(input)))
            .collect();
        let ended: Vec<_> = threads.into_iter().map(ScopedJoinHandle::join).collect();
        let results = ended.into_iter();
        results
            .map(|result| result.unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}
