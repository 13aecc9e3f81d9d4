//! Maps of images: waited for, read, written, ended, and dropped while they are pending.

use binpool_allocators::Queue;
use binpool_conformance::Random;
use binpool_opencl::{ImageMap, ImageMapMut, ImageRegion, MapMode, PendingMap};

use super::{
    open::{Above, Open, steps_within},
    pick,
};
use crate::{
    model::{
        cells::{Cell, Source},
        commands::CommandId,
    },
    rig::{
        picture::Picture,
        worker::{Wait, Worker},
    },
};

enum State<'m> {
    PendingRead(PendingMap<'m, ImageMap<'m, u8>>),
    PendingWrite(PendingMap<'m, ImageMapMut<'m, u8>>),
    Read(ImageMap<'m, u8>),
    Write(ImageMapMut<'m, u8>),
    Over,
}

struct OpenMap<'m> {
    state: State<'m>,
    picture: &'m Picture,
    slot: usize,
    region: ImageRegion,
    /// What it shows, as long as the host has not written it.
    shown: Vec<Cell>,
    map: CommandId,
    /// The command that ends it, once there is one.
    unmap: Option<CommandId>,
}

pub(crate) fn map(worker: &mut Worker<'_>, random: &mut Random, above: Option<&mut dyn Above>) {
    let Some(picture) = worker.any_picture(random) else {
        return;
    };
    let region = picture.any_region(random);
    let (slot, wait) = (worker.any_queue(random), worker.wait_list(random));
    let queue = worker.queue(slot);
    let writes = random.below(2) == 0;
    let place = picture.place;
    worker.say(format_args!(
        "map {} at {region:?}, to be written: {writes}, on queue {slot}, {wait:?}",
        picture.name
    ));
    let (backend, events) = (worker.backend(), &wait.events);
    let mapped = worker.may_be_mapped(&[place]);
    let (state, event) = if writes {
        let map = backend.enqueue_map_image_mut::<u8>(
            queue.after(events),
            &picture.image,
            region,
            MapMode::ReadWrite,
        );
        let Some(map) = worker.accepted("enqueue_map_image_mut", map, mapped) else {
            return;
        };
        let event = map.event().clone();
        (State::PendingWrite(map), event)
    } else {
        let map = backend.enqueue_map_image::<u8>(queue.after(events), &picture.image, region);
        let Some(map) = worker.accepted("enqueue_map_image", map, mapped) else {
            return;
        };
        let event = map.event().clone();
        (State::PendingRead(map), event)
    };
    let shown = picture.read(&worker.roots, region);
    let map = worker.enqueued(slot, &wait, &[place], event);
    // A user event is to be dropped by the step that drops it.
    drop(wait);
    let mut open = OpenMap {
        state,
        picture: &picture,
        slot,
        region,
        shown,
        map,
        unmap: None,
    };
    steps_within(worker, &mut open, place, above);
    worker.ordered_by_a_pool(None);
}

impl OpenMap<'_> {
    fn wait(&mut self, worker: &mut Worker<'_>, random: &mut Random) {
        worker.may_block(worker.commands.gates(self.map), random);
        worker.say(format_args!("wait for the map of {}", self.picture.name));
        let state = match std::mem::replace(&mut self.state, State::Over) {
            State::PendingRead(map) => {
                let map = worker.accepted("map_image", map.wait(), false);
                map.map(State::Read)
            }
            State::PendingWrite(map) => {
                let map = worker.accepted("map_image_mut", map.wait(), false);
                map.map(State::Write)
            }
            state => Some(state),
        };
        match state {
            Some(state) => {
                self.state = state;
                self.check(worker);
            }
            None => worker.roots.unmapped(self.picture.place),
        }
    }

    fn check(&self, worker: &mut Worker<'_>) {
        let bytes: Vec<u8> = match &self.state {
            State::Read(map) => map.rows().flatten().copied().collect(),
            State::Write(map) => map.rows().flatten().copied().collect(),
            State::PendingRead(_) | State::PendingWrite(_) | State::Over => return,
        };
        let what = format!("map of {} at {:?}", self.picture.name, self.region);
        if bytes.len() != self.shown.len() {
            worker.violated(format_args!("{what} has {} bytes", bytes.len()));
        }
        worker.compare(&what, &bytes, &self.shown);
    }

    /// Writes one row.
    fn write(&mut self, worker: &mut Worker<'_>, random: &mut Random) {
        let (row, slice) = (
            random.below(self.region.size[1]),
            random.below(self.region.size[2]),
        );
        let width = self.picture.row_bytes(self.region);
        let data = pick::bytes(width, random);
        let State::Write(map) = &mut self.state else {
            return;
        };
        worker.say(format_args!(
            "write row {row} of slice {slice} of the map of {}",
            self.picture.name
        ));
        // Arrays of one dimension, whose rows are the layers, are not among the pictures.
        map.row_mut(row, slice)
            .expect("the row is in the map")
            .copy_from_slice(&data);
        let commands = &mut worker.commands;
        let unmap = *self
            .unmap
            .get_or_insert_with(|| commands.add_without_event(0));
        let first = (slice * self.region.size[1] + row) * width;
        let known = data.iter().map(|&value| Cell {
            value,
            source: Source::HOST,
        });
        self.shown.splice(first..first + width, known);
        let cells = worker.sources.written(unmap, &data);
        let start = self.picture.rows(self.region)[slice * self.region.size[1] + row];
        worker.roots.write(self.picture.place, start, &cells);
    }

    fn unmap(&mut self, worker: &mut Worker<'_>, random: &mut Random) {
        let elsewhere = random.below(2) == 0;
        let (mut slot, mut wait) = (self.slot, Wait::default());
        if elsewhere {
            (slot, wait) = (worker.any_queue(random), worker.wait_list(random));
        }
        let place = self.picture.place;
        worker.say(format_args!(
            "unmap {} on queue {slot}, elsewhere: {elsewhere}, {wait:?}",
            self.picture.name
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
        if let Some(event) = worker.accepted("unmap an image", event, false) {
            let gates = worker.note(slot, &wait, &[place]);
            match self.unmap {
                Some(unmap) => worker.commands.set_event(unmap, event, gates),
                None => {
                    worker.commands.add(event, gates);
                }
            }
        }
        worker.roots.unmapped(place);
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
        worker.say(format_args!("drop the map of {}", self.picture.name));
        self.state = State::Over;
        worker.enqueued_without_event(self.slot, &Wait::default(), &[self.picture.place]);
        worker.roots.unmapped(self.picture.place);
    }

    fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }
}
