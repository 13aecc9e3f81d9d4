//! Where the blocks of a program lay whose allocator `binpool run` recorded, by the addresses that the lines have for IDs.

use std::collections::HashMap;

use binpool_trace::{PoolEvent, ShortageReport, What};

use crate::{
    PoolStep, Trace,
    places::{Places, Takes, Unplaced, number_of, while_known},
};

/// The word that the name of an allocator comes with, from which on its blocks and its memory are recorded.
const ALLOCATOR: &str = "allocator";

/// The word for the bytes that the device had free when a request failed, which comes before the request.
const FREE: &str = "free";

/// What is known of the memory of an allocator.
#[derive(Debug)]
pub(crate) struct Followed {
    /// The first contradiction, from which on it is not known where blocks lay.
    places: Result<Places, Unplaced>,
    /// What each block takes, by its number, where the allocator has said so.
    known: HashMap<u64, u64>,
    /// Set once pages were mapped.
    has_pages: bool,
    device_free: Option<u64>,
}

/// Returns the name of the allocator that is recorded from here on.
pub(crate) fn allocator(event: &PoolEvent) -> Option<&str> {
    match event {
        PoolEvent::Did { what, text, .. } if what.word() == ALLOCATOR => Some(text),
        _ => None,
    }
}

impl Followed {
    /// Returns whether a trace says nothing yet of where blocks lie.
    pub(crate) fn fits(trace: &Trace) -> bool {
        let keys = ["allocator", "blocks", "pages"];
        let is_note = |step: &PoolStep| matches!(step.event, PoolEvent::Did { .. });
        keys.iter().all(|key| trace.header_value(key).is_none())
            && trace.pool_steps.iter().all(is_note)
    }

    /// Begins with the allocator of this name.
    pub(crate) fn new(allocator: &str, trace: &mut Trace) -> Self {
        trace.push_header("allocator", allocator);
        Self {
            places: Ok(Places::default()),
            known: HashMap::new(),
            has_pages: false,
            device_free: None,
        }
    }

    /// Takes what a line says, and adds what it means to the trace.
    pub(crate) fn take(&mut self, event: PoolEvent, time: u64, trace: &mut Trace) {
        let changed = match event {
            PoolEvent::Taken { memory, bytes } => while_known(&mut self.places, |places| {
                Ok(vec![places.take(memory, bytes)?])
            }),
            PoolEvent::GivenBack { memory } => while_known(&mut self.places, |places| {
                Ok(vec![places.give_back_all(memory)?])
            }),
            PoolEvent::Mapped { offset, bytes, .. } => {
                self.has_pages = true;
                while_known(&mut self.places, |places| {
                    Ok(vec![places.map(offset, bytes)?])
                })
            }
            PoolEvent::Unmapped { offset, bytes, .. } => {
                while_known(&mut self.places, |places| places.unmap(offset, bytes))
            }
            PoolEvent::Placed { block, bytes, .. } => {
                match bytes {
                    0 => self.known.remove(&block),
                    _ => self.known.insert(block, bytes),
                };
                return;
            }
            PoolEvent::Did {
                what: What::Other(word),
                bytes,
                ..
            } if &*word == FREE => {
                self.device_free = Some(bytes);
                return;
            }
            event => Some(vec![event]),
        };
        for event in changed.into_iter().flatten() {
            trace.push_step(event, time);
        }
    }

    /// Adds where the block lies that is allocated next.
    pub(crate) fn place(&mut self, address: u64, bytes: usize, time: u64, trace: &mut Trace) {
        let known = self.known.get(&number_of(address)).copied();
        let takes = known.map_or(Takes::Split, Takes::Known);
        let placed = while_known(&mut self.places, |places| {
            places.place(address, bytes as u64, takes)
        });
        if let Some(event) = placed.flatten() {
            trace.push_step(event, time);
        }
    }

    pub(crate) fn free(&mut self, address: u64) {
        while_known(&mut self.places, |places| places.free(address));
    }

    /// Returns what is known of a request that failed.
    pub(crate) fn report(&mut self, bytes: usize) -> Option<ShortageReport> {
        let device_free = self.device_free.take();
        while_known(&mut self.places, |places| {
            Ok(places.report(bytes as u64, device_free))
        })
    }

    /// Has the trace say that it knows where all blocks lay, or remarks why it does not.
    pub(crate) fn end(self, trace: &mut Trace) {
        match self.places {
            Ok(_) => {
                trace.push_header("blocks", "segments");
                if self.has_pages {
                    in_pages(trace);
                }
            }
            Err(why) => {
                trace.push_remark(why.remark());
            }
        }
    }
}

/// Turns all memory of a trace into pages, which blocks may lie across: of one reservation, which begins at the lowest address.
fn in_pages(trace: &mut Trace) {
    let addresses = trace.pool_steps.iter().filter_map(|step| match step.event {
        PoolEvent::Taken { memory, .. } => Some(memory),
        _ => None,
    });
    let lowest = addresses.min().unwrap_or(0);
    let mut taken = HashMap::new();
    for step in &mut trace.pool_steps {
        step.event = match step.event {
            PoolEvent::Taken { memory, bytes } => {
                taken.insert(memory, bytes);
                PoolEvent::Mapped {
                    reservation: 0,
                    offset: memory - lowest,
                    bytes,
                }
            }
            PoolEvent::GivenBack { memory } => PoolEvent::Unmapped {
                reservation: 0,
                offset: memory - lowest,
                bytes: taken.remove(&memory).unwrap_or(0),
            },
            PoolEvent::Placed {
                block,
                memory,
                offset,
                bytes,
            } => PoolEvent::Placed {
                block,
                memory: 0,
                offset: memory - lowest + offset,
                bytes,
            },
            _ => continue,
        };
    }
    trace.push_header("pages", "");
}
