//! Races by trying every order in which the host and the device may take their steps.

use std::collections::{BTreeSet, HashSet};

use crate::program::{Action, BLOCKS, Command, Pair, Program, Source};

/// How far a run has come: what the host has done, and the commands that have ended, a bit each.
type State = (usize, u32);

struct Search<'a> {
    program: &'a Program,
    seen: HashSet<State>,
    /// The pairs of commands that ended in this order in some run.
    orders: BTreeSet<(usize, usize)>,
}

/// The pairs of commands that touch the same bytes, one of them to write, and that can come in both orders.
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
        for one in (0..two).filter(|one| both_orders(*one, two)) {
            let blocks = (0..BLOCKS).filter(|block| {
                let touches =
                    [one, two].map(|number| program.commands[number].work.touches(*block));
                let [(reads, writes), (other_reads, other_writes)] = touches;
                writes & (other_reads | other_writes) != 0 || reads & other_writes != 0
            });
            races.extend(blocks.map(|block| Pair {
                block,
                commands: [one, two],
            }));
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

    fn has_happened(&self, source: Source, (done, ended): State) -> bool {
        match source {
            Source::Command(number) => has(ended, number),
            Source::Gate(gate) => self.has_done(
                |action| matches!(action, Action::Open(opened) if *opened == gate),
                done,
            ),
        }
    }

    fn can_do(&self, action: Action, state: State) -> bool {
        match action {
            Action::Enqueue(_) | Action::Gate | Action::Open(_) => true,
            Action::Wait(source) => self.has_happened(source, state),
            Action::Finish(queue) => {
                let mut commands = self.program.commands.iter().enumerate();
                commands.all(|(number, command)| {
                    command.queue != queue
                        || !self.is_enqueued(number, state)
                        || has(state.1, number)
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
            wait_for, after, ..
        } = &self.program.commands[number];
        !has(state.1, number)
            && self.is_enqueued(number, state)
            && after.iter().all(|earlier| has(state.1, *earlier))
            && wait_for
                .iter()
                .all(|source| self.has_happened(*source, state))
    }
}

fn has(ended: u32, number: usize) -> bool {
    ended >> number & 1 == 1
}
