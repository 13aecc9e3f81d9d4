//! Maps that are open while other steps are taken.
//!
//! A map borrows its memory, so the steps after it are taken inside of it: each open map is a frame of the program's own
//! stack. Any of them can be used and ended; a frame is left once its map has ended and no other is open inside.

use binpool_conformance::Random;

use super::run;
use crate::{model::roots::Place, rig::worker::Worker};

/// An open map.
pub(crate) trait Open {
    /// Waits for it, reads or writes it, or ends it.
    fn act(&mut self, worker: &mut Worker<'_>, random: &mut Random);

    /// Drops it, pending or not.
    fn forget(&mut self, worker: &mut Worker<'_>);

    fn is_over(&self) -> bool;
}

/// Takes steps while a map of memory at `place` is open, and ends the map where no step has.
pub(super) fn steps_within(
    worker: &mut Worker<'_>,
    open: &mut dyn Open,
    place: Place,
    above: Option<&mut dyn Above>,
) {
    worker.roots.mapped(place);
    worker.roots.keep(place);
    let mut chain = Chain {
        this: open,
        // For as long as this one is open.
        above: above.map(|above| above as &mut dyn Above),
    };
    run(worker, Some(&mut chain));
    if !open.is_over() {
        open.forget(worker);
    }
    worker.roots.let_go(place);
}

/// The maps around a map.
pub(crate) trait Above {
    /// Does something with the map that is `up` further out, or with the outermost.
    fn act(&mut self, up: usize, worker: &mut Worker<'_>, random: &mut Random);
}

pub(crate) struct Chain<'c> {
    pub(crate) this: &'c mut (dyn Open + 'c),
    pub(crate) above: Option<&'c mut (dyn Above + 'c)>,
}

impl Chain<'_> {
    pub(crate) fn is_over(&self) -> bool {
        self.this.is_over()
    }
}

impl Above for Chain<'_> {
    fn act(&mut self, up: usize, worker: &mut Worker<'_>, random: &mut Random) {
        match &mut self.above {
            Some(above) if up > 0 => above.act(up - 1, worker, random),
            _ if self.this.is_over() => {}
            _ => self.this.act(worker, random),
        }
    }
}
