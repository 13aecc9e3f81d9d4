//! What the pools of this process do, in figures that `binpool run` reads from a file however the process ends.

use std::{
    fmt,
    fs::{self, OpenOptions},
    io,
    path::Path,
    ptr,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering},
};

use binpool::{Error, OutOfMemoryReport, PoolError};
use binpool_allocators::{Scope, words};

use crate::{
    recording::{ProcessMark, map, numbered, program_name, say},
    settings::settings,
};

/// What the pools of a process did, in numbers of requests and in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolFigures {
    /// Requests for memory.
    pub requests: u64,
    /// Those that a pool served.
    pub served: u64,
    /// Those that the limit refused.
    pub refused_by_limit: u64,
    /// The most bytes that the pools had at once.
    pub most_reserved: u64,
    /// How many of these the program did not have, but the pools kept for it.
    pub held_then: u64,
}

impl PoolFigures {
    /// Reads the file of a process.
    ///
    /// # Errors
    ///
    /// Those of reading it.
    pub fn read(path: &Path) -> io::Result<Self> {
        let bytes = fs::read(path)?;
        let mut numbers = bytes.as_chunks().0.iter().copied().map(u64::from_ne_bytes);
        let mut next = || numbers.next().unwrap_or(0);
        Ok(Self {
            requests: next(),
            served: next(),
            refused_by_limit: next(),
            most_reserved: next(),
            held_then: next(),
        })
    }
}

/// The index of a figure in the file: the fields of [`PoolFigures`] in their order, and what the pools and the program have now.
#[derive(Clone, Copy, Debug)]
enum Figure {
    Requests,
    Served,
    RefusedByLimit,
    MostReserved,
    HeldThen,
    Reserved,
    InUse,
}

/// How many figures the file has.
const FIGURES: usize = 7;

/// The figures, as the file has them, and the process that they are of.
type Mapped = (&'static [AtomicU64; FIGURES], ProcessMark);

/// Returns the figures of this process; `None` if it has no pool, or was forked from one that has.
fn figures() -> Option<&'static [AtomicU64; FIGURES]> {
    // Not a lock: the child of a fork may find it taken forever.
    static MAPPED: AtomicPtr<Option<Mapped>> = AtomicPtr::new(ptr::null_mut());
    let mut mapped = MAPPED.load(Ordering::Acquire);
    if mapped.is_null() {
        // Two threads may come here at once. They map the same file.
        mapped = Box::into_raw(Box::new(map_figures().ok()));
        MAPPED.store(mapped, Ordering::Release);
    }
    // SAFETY: it is never freed.
    let (figures, mark) = unsafe { mapped.as_ref() }?.as_ref()?;
    mark.is_of_this_process().then_some(*figures)
}

fn map_figures() -> io::Result<Mapped> {
    let begun = settings().pooled.as_deref();
    let begun = begun.filter(|_| settings().is_pooled);
    let begun = begun.ok_or(io::ErrorKind::NotFound)?;
    let mut options = OpenOptions::new();
    // A program that becomes another one by `exec` has one file.
    let file = options.read(true).write(true).create(true);
    let file = file.open(numbered(begun, &program_name(), 1))?;
    let map = Box::leak(Box::new(map(&file, 0, FIGURES * size_of::<u64>())?));
    // SAFETY: any bytes are numbers, and the map is never dropped.
    let (_, figures, _) = unsafe { map.align_to::<AtomicU64>() };
    let figures = figures.first_chunk().ok_or(io::ErrorKind::InvalidData)?;
    Ok((figures, ProcessMark::new()?))
}

fn add(figure: Figure, number: u64) {
    if let Some(all) = figures() {
        all[figure as usize].fetch_add(number, Ordering::Relaxed);
    }
}

/// Counts a request of the program, and whether a pool has served it.
pub(crate) fn count_request(is_served: bool) {
    add(Figure::Requests, 1);
    add(Figure::Served, is_served.into());
}

/// Counts the requests that the pool of a framework has served and its limit refused, and the most bytes that it had, with what it kept of these.
pub(crate) fn count_of_framework(served: u64, refused: u64, reserved: u64, held: u64) {
    add(Figure::Requests, served + refused);
    add(Figure::Served, served);
    add(Figure::RefusedByLimit, refused);
    if let Some(all) = figures() {
        all[Figure::MostReserved as usize].fetch_add(reserved, Ordering::Relaxed);
        all[Figure::HeldThen as usize].fetch_add(held, Ordering::Relaxed);
    }
}

/// Counts a request that the limit has refused, which leaves this much.
pub(crate) fn note_refusal(bytes: usize, left: u64) {
    add(Figure::RefusedByLimit, 1);
    let [asked, left, limit] =
        [bytes as u64, left, settings().limit.unwrap_or_default()].map(words::bytes);
    say_refusal(format_args!(
        "out of memory: could not allocate {asked}: {left} of the limit of {limit} are left"
    ));
}

/// Returns the report of a pool, if this is the error of a request that the limit has refused.
pub(crate) fn report_of_limit(error: PoolError) -> Option<Box<OutOfMemoryReport>> {
    let PoolError::OutOfMemory(report) = error else {
        return None;
    };
    let is_limit = |error: &Error| matches!(error, Error::OutOfMemory(refusal) if refusal.scope == Scope::Limit);
    let is_by_limit = report.source.as_ref().is_some_and(is_limit);
    is_by_limit.then_some(report)
}

/// Says on standard error why the limit has refused a request, for the first one of the process.
pub(crate) fn say_refusal(why: impl fmt::Display) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        // The program cannot watch its pool.
        let why = why.to_string();
        say(why.replace(
            "`watch` the pool to see whose",
            "`binpool run --report` says whose",
        ));
    }
}

/// Notes how much the pools have now.
pub(crate) fn set_reserved(bytes: u64) {
    if let Some(all) = figures() {
        all[Figure::Reserved as usize].store(bytes, Ordering::Relaxed);
    }
}

/// Bytes that are counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Counted(Figure, u64);

impl Counted {
    /// Memory that a pool has of the driver.
    pub(crate) fn reserved(bytes: usize) -> Self {
        add(Figure::Reserved, bytes as u64);
        Self(Figure::Reserved, bytes as u64)
    }

    /// A block that the program has. The pool has grown for it, if at all.
    pub(crate) fn in_use(bytes: usize) -> Self {
        add(Figure::InUse, bytes as u64);
        if let Some(all) = figures() {
            let [reserved, in_use] = [Figure::Reserved, Figure::InUse]
                .map(|figure| all[figure as usize].load(Ordering::Relaxed));
            let most = all[Figure::MostReserved as usize].fetch_max(reserved, Ordering::Relaxed);
            if reserved > most {
                let held = reserved.saturating_sub(in_use);
                all[Figure::HeldThen as usize].store(held, Ordering::Relaxed);
            }
        }
        Self(Figure::InUse, bytes as u64)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        add(self.0, self.1.wrapping_neg());
    }
}
