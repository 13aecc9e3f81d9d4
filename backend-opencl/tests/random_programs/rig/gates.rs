//! User events that the program has not resolved yet.

use binpool_allocators::{Backend, Outcome};
use binpool_conformance::Random;
use binpool_opencl::{ClEvent, OpenClBackend};

use crate::model::commands::Gates as Mask;

/// A program has at most one for each bit of a mask.
#[derive(Debug, Default)]
pub(crate) struct Gates {
    all: Vec<Option<ClEvent>>,
}

/// How a gate is got rid of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Opening {
    Complete,
    Failed,
    /// Dropped unresolved, which fails it.
    Dropped,
}

impl Opening {
    pub(crate) fn any(failing: bool, random: &mut Random) -> Self {
        if !failing {
            return Self::Complete;
        }
        match random.below(10) {
            0..6 => Self::Complete,
            6..8 => Self::Failed,
            _ => Self::Dropped,
        }
    }
}

impl Gates {
    pub(crate) fn is_full(&self) -> bool {
        self.all.len() == Mask::BITS as usize
    }

    pub(crate) fn add(&mut self, gate: ClEvent) -> usize {
        self.all.push(Some(gate));
        self.all.len() - 1
    }

    /// Those that are not resolved.
    pub(crate) fn unresolved(&self) -> Mask {
        let numbers = (0..).zip(&self.all);
        numbers.fold(0, |mask, (number, gate)| {
            mask | Mask::from(gate.is_some()) << number
        })
    }

    /// One of those that are not resolved.
    pub(crate) fn any(&self, random: &mut Random) -> Option<(usize, ClEvent)> {
        self.any_of(self.unresolved(), random)
    }

    /// One of those in `mask` that are not resolved.
    pub(crate) fn any_of(&self, mask: Mask, random: &mut Random) -> Option<(usize, ClEvent)> {
        let gates = self.all.iter().enumerate();
        let gates = gates.filter(|(number, _)| mask >> number & 1 == 1);
        let gates: Vec<_> = gates
            .filter_map(|(number, gate)| Some((number, gate.clone()?)))
            .collect();
        (!gates.is_empty()).then(|| gates[random.below(gates.len())].clone())
    }

    pub(crate) fn open(&mut self, number: usize, opening: Opening, backend: &OpenClBackend) {
        let Some(gate) = self.all[number].take() else {
            return;
        };
        let resolved = match opening {
            Opening::Complete => backend.resolve_user_event(&gate, Outcome::Complete),
            Opening::Failed => backend.resolve_user_event(&gate, Outcome::Failed),
            Opening::Dropped => Ok(()),
        };
        resolved.expect("an unresolved user event can be resolved");
    }
}
