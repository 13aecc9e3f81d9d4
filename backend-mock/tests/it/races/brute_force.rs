//! Races by trying every order in which the host and the device may take their steps.

use std::collections::{BTreeSet, HashSet};

use binpool_allocators::FailureOrder;

use crate::races::program::{Action, BLOCKS, Command, Pair, Program, Source};

/// How far a run has come: what the host has done, and the commands that are out of their places, a bit each.
type State = (usize, u32);

struct Search<'a> {
    program: &'a Program,
    seen: HashSet<State>,
    /// The pairs of commands that ended in this order in some run.
    orders: BTreeSet<(usize, usize)>,
}

/// The pairs of commands that touch the same bytes, one of them to write, and that can come in both orders.
///
/// A command that fails early may do so at any time: its event says nothing of anything else. Where it loses its place,
/// it is out of it at any time, too.
pub(crate) fn races(program: &Program) -> BTreeSet<Pair> {
    let mut search = Search {
        program,
        seen: HashSet::new(),
        orders: BTreeSet::new(),
    };
    search.visit((0, 0));
    let both_orders = |one: usize, two: usize| {
        [(one, two), (two, one)]
            .iter()
            .all(|order| search.orders.contains(order))
    };
    let mut races = BTreeSet::new();
    for two in 0..program.commands.len() {
        let touches_something = |number: usize| !program.commands[number].is_doomed;
        let racing =
            |one: &usize| both_orders(*one, two) && [*one, two].into_iter().all(touches_something);
        for one in (0..two).filter(racing) {
            let pairs = (0..BLOCKS).map(|block| Pair {
                block,
                commands: [one, two],
            });
            races.extend(pairs.filter(|pair| program.raced_halves(*pair) != 0));
        }
    }
    races
}

impl Search<'_> {
    fn visit(&mut self, state: State) {
        if !self.seen.insert(state) {
            return;
        }
        let (done, ended) = state;
        if let Some(action) = self.program.actions.get(done)
            && self.can_do(*action, state)
        {
            self.visit((done + 1, ended));
        }
        for number in 0..self.program.commands.len() {
            if self.can_end(number, state) {
                let before = (0..self.program.commands.len()).filter(|other| has(ended, *other));
                self.orders.extend(before.map(|other| (other, number)));
                self.visit((done, ended | 1 << number));
            }
        }
    }

    /// Whether the host has done this.
    fn has_done(&self, wanted: impl Fn(&Action) -> bool, done: usize) -> bool {
        self.program.actions[..done].iter().any(wanted)
    }

    /// Returns whether what comes after this may run.
    fn has_happened(&self, source: Source, (done, ended): State) -> bool {
        match source {
            Source::Command(number) => has(ended, number),
            Source::Gate(gate) => self.has_done(
                |action| matches!(action, Action::Open(opened, _) if *opened == gate),
                done,
            ),
        }
    }

    /// Returns whether the host may be told that this has ended.
    fn can_be_seen(&self, source: Source, state: State) -> bool {
        match source {
            Source::Command(number)
                if self.program.failures.order != FailureOrder::Kept
                    && self.program.commands[number].may_fail =>
            {
                true
            }
            source => self.has_happened(source, state),
        }
    }

    fn can_do(&self, action: Action, state: State) -> bool {
        match action {
            Action::Enqueue(_) | Action::Gate | Action::Open(..) => true,
            Action::Wait(source) => self.can_be_seen(source, state),
            Action::Finish(queue) => {
                let mut commands = self.program.commands.iter().enumerate();
                commands.all(|(number, command)| {
                    command.queue != queue
                        || !self.is_enqueued(number, state)
                        || self.can_be_seen(Source::Command(number), state)
                })
            }
        }
    }

    fn is_enqueued(&self, number: usize, (done, _): State) -> bool {
        self.has_done(
            |action| matches!(action, Action::Enqueue(enqueued) if *enqueued == number),
            done,
        )
    }

    fn can_end(&self, number: usize, state: State) -> bool {
        let Command {
            wait_for,
            after,
            may_fail,
            ..
        } = &self.program.commands[number];
        let keeps_its_place = !may_fail || self.program.failures.order.keeps_places();
        let has_waited = || {
            let mut list = wait_for.iter();
            after.iter().all(|earlier| has(state.1, *earlier))
                && list.all(|source| self.has_happened(*source, state))
        };
        !has(state.1, number)
            && self.is_enqueued(number, state)
            && (!keeps_its_place || has_waited())
    }
}

fn has(ended: u32, number: usize) -> bool {
    ended >> number & 1 == 1
}
