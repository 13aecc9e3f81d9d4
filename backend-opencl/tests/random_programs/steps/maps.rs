//! Maps of memory: waited for, written, read, ended, and dropped while they are pending.

use binpool_allocators::{Queue, Region};
use binpool_conformance::Random;
use binpool_opencl::{ClEvent, Map, MapMode, MapMut, PendingMap};

use super::{
    drops,
    open::{Above, Open, steps_within},
    pick,
};
use crate::{
    model::{cells::Cell, commands::CommandId, roots::Place},
    rig::worker::{Wait, Worker},
};

enum State<'m> {
    PendingRead(PendingMap<'m, Map<'m, u8>>),
    PendingWrite(PendingMap<'m, MapMut<'m, u8>>),
    Read(Map<'m, u8>),
    Write(MapMut<'m, u8>),
    Over,
}

struct OpenMap<'m> {
    state: State<'m>,
    name: &'m str,
    slot: usize,
    place: Place,
    region: Region,
    /// What it shows, as long as the host has not written it.
    shown: Vec<Cell>,
    map: CommandId,
    /// The command that ends it, once there is one.
    unmap: Option<CommandId>,
}

pub(crate) fn map(worker: &mut Worker<'_>, random: &mut Random, above: Option<&mut dyn Above>) {
    let Some(object) = worker.any_object(random) else {
        return;
    };
    if !object.host_reads() || !object.host_writes() {
        return;
    }
    let region = pick::region(object.bytes(), random);
    let (slot, wait) = (worker.any_queue(random), worker.wait_list(random));
    let queue = worker.queue(slot);
    let way = random.below(5);
    let place = object.place;
    worker.say(format_args!(
        "map {} at {region:?} in way {way} on queue {slot}, {wait:?}",
        object.name
    ));
    let (backend, memory, events) = (worker.backend(), object.memory(), &wait.events);
    let mapped = worker.may_be_mapped(&[place]);
    let (state, event): (_, Option<ClEvent>) = match way {
        0 | 1 => {
            let map = backend.enqueue_map::<u8>(queue.after(events), memory, region);
            let Some(map) = worker.accepted("enqueue_map", map, mapped) else {
                return;
            };
            let event = map.event().clone();
            (State::PendingRead(map), Some(event))
        }
        2 | 3 => {
            let map = backend.enqueue_map_mut::<u8>(
                queue.after(events),
                memory,
                region,
                MapMode::ReadWrite,
            );
            let Some(map) = worker.accepted("enqueue_map_mut", map, mapped) else {
                return;
            };
            let event = map.event().clone();
            (State::PendingWrite(map), Some(event))
        }
        _ => {
            let gates = worker.gates_of(slot, &wait, &[place]);
            worker.may_block(gates, random);
            let map = backend.enqueue_map_mut::<u8>(
                queue.after(events),
                memory,
                region,
                MapMode::Overwrite,
            );
            let map = map.and_then(PendingMap::wait);
            let Some(map) = worker.accepted("map_overwrite", map, mapped) else {
                // It may have been made, and ended at once.
                worker.roots.forget(place, region.offset, region.bytes);
                return;
            };
            worker.roots.forget(place, region.offset, region.bytes);
            (State::Write(map), None)
        }
    };
    let shown = worker.roots.read(place, region.offset, region.bytes);
    let map = match event {
        Some(event) => worker.enqueued(slot, &wait, &[place], event),
        None => worker.enqueued_without_event(slot, &wait, &[place]),
    };
    // A user event is to be dropped by the step that drops it.
    drop(wait);
    let mut open = OpenMap {
        state,
        name: &object.name,
        slot,
        place,
        region,
        shown,
        map,
        unmap: None,
    };
    steps_within(worker, &mut open, place, above);
    // It may be the last that has the block.
    drops::went(worker, &object.handle);
}

impl OpenMap<'_> {
    fn wait(&mut self, worker: &mut Worker<'_>, random: &mut Random) {
        worker.may_block(worker.commands.gates(self.map), random);
        worker.say(format_args!("wait for the map of {}", self.name));
        let state = match std::mem::replace(&mut self.state, State::Over) {
            State::PendingRead(map) => {
                let map = worker.accepted("map", map.wait(), false);
                map.map(State::Read)
            }
            State::PendingWrite(map) => {
                let map = worker.accepted("map_mut", map.wait(), false);
                map.map(State::Write)
            }
            state => Some(state),
        };
        match state {
            Some(state) => {
                self.state = state;
                self.check(worker);
            }
            None => self.end(worker),
        }
    }

    fn bytes(&self) -> Option<&[u8]> {
        match &self.state {
            State::Read(map) => Some(map),
            State::Write(map) => Some(map),
            State::PendingRead(_) | State::PendingWrite(_) | State::Over => None,
        }
    }

    fn check(&self, worker: &mut Worker<'_>) {
        if let Some(bytes) = self.bytes() {
            let what = format!("map of {} at {:?}", self.name, self.region);
            worker.compare(&what, bytes, &self.shown);
        }
    }

    fn write(&mut self, worker: &mut Worker<'_>, random: &mut Random) {
        let part = pick::region(self.region.bytes, random);
        let data = pick::bytes(part.bytes, random);
        let State::Write(map) = &mut self.state else {
            return;
        };
        worker.say(format_args!("write {part:?} of the map of {}", self.name));
        map[part.offset..part.offset + part.bytes].copy_from_slice(&data);
        // The device has it when the map has ended well.
        let commands = &mut worker.commands;
        let unmap = *self
            .unmap
            .get_or_insert_with(|| commands.add_without_event(0));
        let known = data.iter().map(|&value| Cell {
            value,
            source: crate::model::cells::Source::HOST,
        });
        self.shown
            .splice(part.offset..part.offset + part.bytes, known);
        let cells = worker.sources.written(unmap, &data);
        let offset = self.region.offset + part.offset;
        worker.roots.write(self.place, offset, &cells);
    }

    /// Ends it by a call, with an event.
    fn unmap(&mut self, worker: &mut Worker<'_>, random: &mut Random) {
        let elsewhere = random.below(2) == 0;
        let (mut slot, mut wait) = (self.slot, Wait::default());
        if elsewhere {
            (slot, wait) = (worker.any_queue(random), worker.wait_list(random));
        }
        worker.say(format_args!(
            "unmap {} on queue {slot}, elsewhere: {elsewhere}, {wait:?}",
            self.name
        ));
        let queue = worker.queue(slot);
        let event = match std::mem::replace(&mut self.state, State::Over) {
            State::Read(map) if elsewhere => map.unmap_on(queue.after(&wait.events)),
            State::Read(map) => map.unmap(),
            State::Write(map) if elsewhere => map.unmap_on(queue.after(&wait.events)),
            State::Write(map) => map.unmap(),
            state => {
                self.state = state;
                return;
            }
        };
        if let Some(event) = worker.accepted("unmap", event, false) {
            let gates = worker.note(slot, &wait, &[self.place]);
            match self.unmap {
                Some(unmap) => worker.commands.set_event(unmap, event, gates),
                None => {
                    worker.commands.add(event, gates);
                }
            }
        }
        self.end(worker);
    }

    fn end(&self, worker: &mut Worker<'_>) {
        worker.roots.unmapped(self.place);
    }
}

impl Open for OpenMap<'_> {
    fn act(&mut self, worker: &mut Worker<'_>, random: &mut Random) {
        match (&self.state, random.below(8)) {
            (State::PendingRead(_) | State::PendingWrite(_), 0..5) => self.wait(worker, random),
            (State::PendingRead(_) | State::PendingWrite(_), _) | (_, 0) => self.forget(worker),
            (State::Read(_), 1..3) => self.check(worker),
            (State::Write(_), 1..4) => self.write(worker, random),
            (State::Write(_), 4) => self.check(worker),
            _ => self.unmap(worker, random),
        }
    }

    fn forget(&mut self, worker: &mut Worker<'_>) {
        worker.say(format_args!("drop the map of {}", self.name));
        self.state = State::Over;
        worker.enqueued_without_event(self.slot, &Wait::default(), &[self.place]);
        self.end(worker);
    }

    fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }
}
