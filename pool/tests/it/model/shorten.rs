//! Makes a program that fails as short as it can be: `proptest` stops short of that, since leaving out one operation changes
//! what the others stand for.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::model::{
    operation::{Operation, Setting},
    printer::Program,
    rig::Rig,
};

impl Program {
    /// What is wrong about the program, if anything is.
    pub(crate) fn fails(&self) -> Option<String> {
        run_caught(self.setting, &self.operations).err()
    }

    /// The same without every operation, and every two operations, that it fails without, too.
    pub(crate) fn shortened(&self) -> Self {
        let mut shortest = self.clone();
        while let Some(shorter) = shortest.shorter() {
            shortest = shorter;
        }
        shortest
    }

    fn shorter(&self) -> Option<Self> {
        let count = self.operations.len();
        let one = (0..count).map(|index| vec![index]);
        let two =
            (0..count).flat_map(|first| (first + 1..count).map(move |second| vec![first, second]));
        one.chain(two)
            .map(|left_out| self.without(&left_out))
            .find(|program| program.fails().is_some())
    }

    fn without(&self, left_out: &[usize]) -> Self {
        let operations = self.operations.iter().enumerate();
        let operations = operations.filter(|(index, _)| !left_out.contains(index));
        Self {
            setting: self.setting,
            operations: operations.map(|(_, operation)| *operation).collect(),
        }
    }
}

/// Runs a program, and answers what it panics with, too.
fn run_caught(setting: Setting, operations: &[Operation]) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| Rig::run(setting, operations))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref().map(|text: &&str| (*text).to_owned()));
        Err(text.unwrap_or_else(|| "a panic".into()))
    })
}
