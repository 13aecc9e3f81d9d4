//! Rectangles: written, read and copied.

use binpool_allocators::{Queue, Region};
use binpool_conformance::Random;
use binpool_opencl::{Rect, RectPart};

use super::{copies::may_overlap, pick};
use crate::{
    model::cells::{Cell, Source},
    rig::{
        object::Object,
        worker::{Read, Reading, Worker},
    },
};

/// A rectangle of a region in memory of this many bytes, and where its rows start.
struct Placed {
    rect: Rect,
    rows: Vec<usize>,
}

fn place(bytes: usize, [width, rows, slices]: [usize; 3], random: &mut Random) -> Option<Placed> {
    let row_pitch = width + random.below(8);
    let slice_pitch = row_pitch * (rows + random.below(3));
    let span = (slices - 1) * slice_pitch + (rows - 1) * row_pitch + width;
    let room = bytes.checked_sub(span)?;
    let first = random.below(room + 1);
    // The same byte, told by a row or by its distance.
    let origin = match random.below(2) {
        0 => [first, 0, 0],
        _ => [first % row_pitch, first / row_pitch, 0],
    };
    let rows = (0..slices)
        .flat_map(|slice| (0..rows).map(move |row| first + slice * slice_pitch + row * row_pitch));
    Some(Placed {
        rect: Rect {
            origin,
            row_pitch,
            slice_pitch,
        },
        rows: rows.collect(),
    })
}

fn any_region(random: &mut Random) -> [usize; 3] {
    [
        1 + random.below(40),
        1 + random.below(5),
        1 + random.below(3),
    ]
}

fn cells(worker: &Worker<'_>, object: &Object, placed: &Placed, width: usize) -> Vec<Cell> {
    let rows = placed.rows.iter();
    rows.flat_map(|row| worker.roots.read(object.place, *row, width))
        .collect()
}

fn set(worker: &mut Worker<'_>, object: &Object, placed: &Placed, width: usize, cells: &[Cell]) {
    for (row, cells) in placed.rows.iter().zip(cells.chunks(width)) {
        worker.roots.write(object.place, *row, cells);
    }
}

pub(crate) fn rect(worker: &mut Worker<'_>, random: &mut Random) {
    let Some(object) = worker.any_object(random) else {
        return;
    };
    let region = any_region(random);
    let Some(placed) = place(object.bytes(), region, random) else {
        return;
    };
    match random.below(5) {
        0 | 1 => copy(worker, random, &object, &placed, region),
        2 if object.host_writes() => write(worker, random, &object, &placed, region),
        3 if object.host_reads() => read(worker, random, &object, &placed, region),
        4 if object.host_reads() && object.host_writes() => {
            at_once(worker, random, &object, &placed, region);
        }
        _ => {}
    }
}

fn copy(
    worker: &mut Worker<'_>,
    random: &mut Random,
    source: &Object,
    from: &Placed,
    region: [usize; 3],
) {
    let Some(target) = worker.any_object(random) else {
        return;
    };
    let Some(to) = place(target.bytes(), region, random) else {
        return;
    };
    let whole = |object: &Object| Region::first(object.bytes());
    if may_overlap((source, whole(source)), (&target, whole(&target))) {
        return;
    }
    let (slot, wait) = (worker.any_queue(random), worker.wait_list(random));
    worker.say(format_args!(
        "copy {region:?} from {} at {:?} to {} at {:?} on queue {slot}, {wait:?}",
        source.name, from.rect, target.name, to.rect
    ));
    let queue = worker.queue(slot);
    let event = worker.backend().enqueue_copy_rect(
        queue.after(&wait.events),
        (source.memory(), from.rect),
        (target.memory(), to.rect),
        region,
    );
    let places = [source.place, target.place];
    let mapped = worker.may_be_mapped(&places);
    if let Some(event) = worker.accepted("enqueue_copy_rect", event, mapped) {
        let cells = cells(worker, source, from, region[0]);
        let command = worker.enqueued(slot, &wait, &places, event);
        let cells = worker.sources.copied(command, &cells);
        set(worker, &target, &to, region[0], &cells);
    }
}

fn write(
    worker: &mut Worker<'_>,
    random: &mut Random,
    object: &Object,
    placed: &Placed,
    region: [usize; 3],
) {
    let data = pick::bytes(region.iter().product(), random);
    let (slot, wait) = (worker.any_queue(random), worker.wait_list(random));
    worker.say(format_args!(
        "write {region:?} to {} at {:?} on queue {slot}, {wait:?}",
        object.name, placed.rect
    ));
    let queue = worker.queue(slot);
    let event = worker.backend().enqueue_write_part(
        queue.after(&wait.events),
        RectPart::new((object.memory(), placed.rect), Rect::default(), region),
        data.clone().into(),
    );
    let mapped = worker.may_be_mapped(&[object.place]);
    if let Some(event) = worker.accepted("enqueue_write_part", event, mapped) {
        let command = worker.enqueued(slot, &wait, &[object.place], event);
        let cells = worker.sources.written(command, &data);
        set(worker, object, placed, region[0], &cells);
    }
}

fn read(
    worker: &mut Worker<'_>,
    random: &mut Random,
    object: &Object,
    placed: &Placed,
    region: [usize; 3],
) {
    let (slot, wait) = (worker.any_queue(random), worker.wait_list(random));
    let what = format!("read {region:?} of {} at {:?}", object.name, placed.rect);
    worker.say(format_args!("{what} on queue {slot}, {wait:?}"));
    let queue = worker.queue(slot);
    let read = worker.backend().enqueue_read_part(
        queue.after(&wait.events),
        RectPart::new((object.memory(), placed.rect), Rect::default(), region),
    );
    let mapped = worker.may_be_mapped(&[object.place]);
    if let Some(read) = worker.accepted("enqueue_read_part", read, mapped) {
        let expected = cells(worker, object, placed, region[0]);
        let event = read.event().clone();
        let command = worker.enqueued(slot, &wait, &[object.place], event);
        worker.reads.push(Read {
            reading: Reading::Bytes(read),
            expected,
            command,
            what,
        });
    }
}

/// A write and a read of the same rectangle, both waited for.
fn at_once(
    worker: &mut Worker<'_>,
    random: &mut Random,
    object: &Object,
    placed: &Placed,
    region: [usize; 3],
) {
    let data = pick::bytes(region.iter().product(), random);
    let (slot, wait) = (worker.any_queue(random), worker.wait_list(random));
    let gates = worker.gates_of(slot, &wait, &[object.place]);
    worker.may_block(gates, random);
    worker.say(format_args!(
        "write and read {region:?} of {} at {:?} on queue {slot}, {wait:?}",
        object.name, placed.rect
    ));
    let queue = worker.queue(slot);
    let mapped = worker.may_be_mapped(&[object.place]);
    let expected = cells(worker, object, placed, region[0]);
    let mut bytes = vec![0; data.len()];
    let read = worker.backend().read_part(
        queue.after(&wait.events),
        RectPart::new((object.memory(), placed.rect), Rect::default(), region),
        &mut bytes,
    );
    if worker.accepted("read_part", read, mapped).is_some() {
        worker.compare(&format!("rectangle of {}", object.name), &bytes, &expected);
    }
    let written = worker.backend().write_part(
        queue.after(&wait.events),
        RectPart::new((object.memory(), placed.rect), Rect::default(), region),
        &data,
    );
    let failed = matches!(
        &written,
        Err(error) if !matches!(error, binpool_allocators::Error::InvalidRequest(_))
    );
    if worker.accepted("write_part", written, mapped).is_some() {
        let cells = data.iter().map(|&value| Cell {
            value,
            source: Source::HOST,
        });
        let cells: Vec<_> = cells.collect();
        set(worker, object, placed, region[0], &cells);
    } else if failed {
        let unknown = vec![Cell::UNKNOWN; data.len()];
        set(worker, object, placed, region[0], &unknown);
    }
}
