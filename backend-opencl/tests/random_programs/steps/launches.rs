//! Steps that launch kernels, with arguments of every kind.

use std::sync::Arc;

use binpool_allocators::{Queue, Region};
use binpool_conformance::Random;

use super::copies::may_overlap;
use crate::{
    model::cells::{Cell, Source},
    rig::{object::Object, worker::Worker},
};

const WORD: usize = size_of::<u32>();

/// The words of cells, and where they come from.
fn words(cells: &[Cell]) -> Vec<(u32, Vec<Source>)> {
    let words = cells.chunks_exact(WORD).map(|cells| {
        let bytes = [0, 1, 2, 3].map(|index| cells[index].value);
        let mut sources: Vec<_> = cells.iter().map(|cell| cell.source).collect();
        sources.dedup();
        (u32::from_ne_bytes(bytes), sources)
    });
    words.collect()
}

fn any_for_kernels(worker: &Worker<'_>, random: &mut Random) -> Option<Arc<Object>> {
    worker
        .any_object(random)
        .filter(|object| object.is_for_kernels() && object.bytes() >= WORD)
}

pub(crate) fn launch(worker: &mut Worker<'_>, random: &mut Random) {
    let kernels = worker.kernels();
    let (kernel, inputs) = match random.below(4) {
        0 => (&kernels.add, 2),
        1 => (&kernels.scale_and_add, 0),
        2 => (&kernels.fill, 0),
        _ => (&kernels.copy, 1),
    };
    let mut objects = Vec::new();
    for _ in 0..=inputs {
        match any_for_kernels(worker, random) {
            Some(object) => objects.push(object),
            None => return,
        }
    }
    let smallest = objects.iter().map(|object| object.bytes()).min();
    let items = 1 + random.below(smallest.unwrap_or(WORD) / WORD);
    let value = u32::try_from(random.next() >> 32).unwrap();
    let (slot, wait) = (worker.any_queue(random), worker.wait_list(random));
    let names: Vec<_> = objects.iter().map(|object| &object.name).collect();
    worker.say(format_args!(
        "launch {} of {items} items on {names:?}, {value}, on queue {slot}, {wait:?}",
        kernel.name()
    ));
    let queue = worker.queue(slot);
    let sizes = [items];
    let mut launch = kernel.launch(queue.after(&wait.events), &sizes);
    for object in &objects {
        launch = launch.memory(object.memory());
    }
    if inputs == 0 {
        launch = launch.value(&value);
    }
    let event = launch.enqueue();
    let places: Vec<_> = objects.iter().map(|object| object.place).collect();
    let mapped = worker.may_be_mapped(&places);
    let all = Region::first(items * WORD);
    let Some((output, inputs)) = objects.split_last() else {
        return;
    };
    let overlaps = |input: &Arc<Object>| may_overlap((input, all), (output, all));
    if inputs.iter().any(overlaps) {
        // Memory that threads share may overlap or not.
        if output.place.root.is_some() {
            worker.refused("a launch that overlaps", event);
        }
        return;
    }
    let Some(event) = worker.accepted("launch", event, mapped) else {
        return;
    };
    let read = |object: &Object| words(&worker.roots.read(object.place, 0, all.bytes));
    let result: Vec<(u32, Vec<Source>)> = match (kernel.name(), inputs) {
        ("add", [a, b]) => {
            let sum = |((a, mut from), (b, too)): ((u32, Vec<_>), (u32, Vec<_>))| {
                from.extend(too);
                (a.wrapping_add(b), from)
            };
            read(a).into_iter().zip(read(b)).map(sum).collect()
        }
        ("scale_and_add", _) => {
            let scale = |(word, from): (u32, _)| (word.wrapping_mul(3).wrapping_add(value), from);
            read(output).into_iter().map(scale).collect()
        }
        ("fill", _) => {
            let fill = |index| (value ^ index, Vec::new());
            (0..).take(items).map(fill).collect()
        }
        (_, [from]) => read(from),
        _ => return,
    };
    let place = output.place;
    let command = worker.enqueued(slot, &wait, &places, event);
    let mut cells = Vec::with_capacity(all.bytes);
    for (word, from) in result {
        let source = worker.sources.after(command, &from);
        let bytes = word.to_ne_bytes();
        cells.extend(bytes.map(|value| Cell { value, source }));
    }
    worker.roots.write(place, 0, &cells);
}
