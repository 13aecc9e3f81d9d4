//! Writes into a trace where the blocks lay, as long as that is known.

use std::mem;

use binpool_trace::{PoolEvent, ShortageReport, What};

use crate::{
    Trace,
    places::{Change, Places, Takes, Told, Unplaced, number_of, while_known},
};

/// The recording of another tool that says where its blocks lay.
#[derive(Debug)]
pub(crate) struct Source {
    /// What it is, for the header.
    pub(crate) name: &'static str,
    pub(crate) allocator: &'static str,
    pub(crate) device: usize,
    pub(crate) told: Told,
}

pub(crate) struct Placing {
    source: Option<Source>,
    /// The first contradiction, from which on nothing is known; `None` for a recording that says nothing of places.
    places: Result<Places, Option<Unplaced>>,
}

impl Placing {
    /// Writes the memory from before the recording.
    pub(crate) fn new(
        source: Option<Source>,
        changes: impl Iterator<Item = Change>,
        trace: &mut Trace,
    ) -> Self {
        let Some(mut source) = source else {
            return Self {
                source: None,
                places: Err(None),
            };
        };
        let places = Places::new(mem::take(&mut source.told));
        let before = places.before(changes);
        let mut placing = Self {
            source: Some(source),
            places: Ok(places),
        };
        match before {
            Ok(before) => {
                for (address, bytes) in before {
                    placing.change(Change::Taken(address, bytes), 0, trace);
                }
            }
            Err(why) => placing.places = Err(Some(why)),
        }
        placing
    }

    pub(crate) fn change(&mut self, change: Change, time: u64, trace: &mut Trace) {
        let action = while_known(&mut self.places, |places| match change {
            Change::Taken(address, bytes) => places.take(address, bytes),
            Change::GivenBack(address, bytes) => places.give_back(address, bytes),
        });
        if let Some(action) = action {
            trace.push_step(action, time);
        }
    }

    /// Writes where the block lies that is allocated next. `lasts` is set for the one that the snapshot
    /// lists at its end, and `is_before` for one from before the recording.
    pub(crate) fn place(
        &mut self,
        (address, bytes): (u64, usize),
        (lasts, is_before): (bool, bool),
        time: u64,
        trace: &mut Trace,
    ) {
        let bytes = bytes as u64;
        let place = while_known(&mut self.places, |places| {
            let at_end = places.at_end(address).filter(|_| lasts);
            let otherwise = if is_before {
                Takes::Rounded
            } else {
                Takes::Split
            };
            places.place(address, bytes, at_end.map_or(otherwise, Takes::Known))
        });
        if let Some(action) = place.flatten() {
            trace.push_step(action, time);
        }
    }

    /// Writes that other streams still use a block that the program has freed.
    pub(crate) fn wait(&self, address: u64, time: u64, trace: &mut Trace) {
        if self.places.is_ok() {
            let block = number_of(address);
            trace.push_step(PoolEvent::Waiting { block }, time);
        }
    }

    pub(crate) fn free(&mut self, address: u64) {
        while_known(&mut self.places, |places| places.free(address));
    }

    pub(crate) fn report(
        &mut self,
        bytes: usize,
        device_free: Option<u64>,
    ) -> Option<ShortageReport> {
        while_known(&mut self.places, |places| {
            Ok(places.report(bytes as u64, device_free))
        })
    }

    pub(crate) fn note(&self, what: &str, text: &str, time: u64, trace: &mut Trace) {
        if self.places.is_ok() {
            let action = PoolEvent::Did {
                what: What::of(what),
                bytes: 0,
                text: text.into(),
            };
            trace.push_step(action, time);
        }
    }

    /// Writes the header, or removes all that was written where it is not known where all blocks lay, and remarks why.
    pub(crate) fn end(self, trace: &mut Trace) {
        match (self.places, self.source) {
            (Ok(places), Some(source)) => {
                trace.push_header("version", "2");
                trace.push_header("source", source.name);
                trace.push_header("device", &format!("device {}", source.device));
                trace.push_header("allocator", source.allocator);
                if let Some(capacity) = places.capacity() {
                    trace.push_header("capacity", &capacity.to_string());
                }
                trace.push_header("blocks", "segments");
            }
            (Err(why), _) => {
                trace.forget_pool();
                if let Some(why) = why {
                    trace.push_remark(why.remark());
                }
            }
            (Ok(_), None) => {}
        }
    }
}
