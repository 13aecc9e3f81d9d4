//! The steps that programs are made of.

pub(crate) mod copies;
pub(crate) mod create;
pub(crate) mod drops;
pub(crate) mod end;
pub(crate) mod events;
pub(crate) mod extremes;
pub(crate) mod image_copies;
pub(crate) mod image_maps;
pub(crate) mod images;
pub(crate) mod launches;
pub(crate) mod maps;
pub(crate) mod open;
pub(crate) mod pick;
pub(crate) mod pooled;
pub(crate) mod queues;
pub(crate) mod reads;
pub(crate) mod rects;
pub(crate) mod scoped;
pub(crate) mod typed;
pub(crate) mod writes;

use binpool_conformance::Random;

use crate::rig::worker::Worker;
use open::{Above, Chain};

type Step = fn(&mut Worker<'_>, &mut Random);

/// How often each step is taken, of [`TOTAL`] times that one of these is.
const STEPS: [(usize, Step); 34] = [
    (10, create::buffer),
    (4, create::buffer_with_data),
    (6, create::shared_memory),
    (8, create::block),
    (2, create::host_buffer),
    (1, create::system_memory),
    (8, create::view),
    (3, create::buffer_over_shared_memory),
    (2, create::publish),
    (8, drops::forget),
    (4, drops::release),
    (2, drops::hosts_again),
    (14, writes::fill),
    (12, writes::write),
    (14, reads::read),
    (6, reads::take),
    (10, copies::copy),
    (8, rects::rect),
    (4, copies::migrate),
    (4, scoped::scope),
    (4, typed::elements),
    (12, launches::launch),
    (6, images::create),
    (8, images::transfer),
    (4, images::fill),
    (6, image_copies::copy),
    (2, images::forget),
    (12, events::gate),
    (8, events::open),
    (5, events::mark),
    (5, events::wait),
    (4, events::forget),
    (4, queues::queue),
    (9, pooled::pool),
];
/// How often a block of a pool is used in its own ways, and a call is made with extreme numbers.
const POOLED: usize = 8;
const EXTREME: usize = 8;
/// How often memory and images are mapped, and something is done with a map that is open.
const MAP: usize = 10;
const MAP_IMAGE: usize = 4;
const USE_MAP: usize = 16;

fn total() -> usize {
    let plain: usize = STEPS.iter().map(|(weight, _)| weight).sum();
    plain + POOLED + EXTREME + MAP + MAP_IMAGE + USE_MAP
}

/// Takes steps until none is left, or until the innermost map has ended.
pub(crate) fn run(worker: &mut Worker<'_>, mut chain: Option<&mut Chain<'_>>) {
    while let Some(mut random) = worker.next_step() {
        take_one(worker, &mut random, chain.as_deref_mut());
        if chain.as_ref().is_some_and(|chain| chain.is_over()) {
            return;
        }
    }
}

fn take_one(worker: &mut Worker<'_>, random: &mut Random, chain: Option<&mut Chain<'_>>) {
    let mut number = random.below(total());
    for (weight, step) in STEPS {
        if number < weight {
            return step(worker, random);
        }
        number -= weight;
    }
    if number < POOLED {
        return pooled::block(worker, random);
    }
    number -= POOLED;
    if number < EXTREME {
        return extremes::extreme(worker, random);
    }
    number -= EXTREME;
    if number < MAP {
        return maps::map(worker, random, chain.map(|chain| chain as &mut dyn Above));
    }
    number -= MAP;
    if number < MAP_IMAGE {
        return image_maps::map(worker, random, chain.map(|chain| chain as &mut dyn Above));
    }
    if let Some(chain) = chain {
        chain.act(random.below(3), worker, random);
    }
}
