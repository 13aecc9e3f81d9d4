//! A byte of memory, and the commands that it depends on.

use std::collections::HashMap;

use super::commands::CommandId;

/// The commands that must all have completed for a byte to be what the model says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Source(u32);

impl Source {
    /// Nothing is known of the byte.
    pub(crate) const UNKNOWN: Self = Self(0);
    /// The byte is known without any command.
    pub(crate) const HOST: Self = Self(1);
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) value: u8,
    pub(crate) source: Source,
}

impl Cell {
    pub(crate) const UNKNOWN: Self = Self {
        value: 0,
        source: Source::UNKNOWN,
    };
}

/// A byte that has gone through more commands than these counts as unknown.
const MOST: usize = 24;

/// All sources, each once.
#[derive(Debug)]
pub(crate) struct Sources {
    sets: Vec<Vec<CommandId>>,
    numbers: HashMap<Vec<CommandId>, u32>,
}

impl Default for Sources {
    fn default() -> Self {
        Self {
            sets: vec![Vec::new(); 2],
            numbers: HashMap::from([(Vec::new(), 1)]),
        }
    }
}

impl Sources {
    /// The source of what `command` makes of bytes of these sources.
    pub(crate) fn after(&mut self, command: CommandId, sources: &[Source]) -> Source {
        if sources.contains(&Source::UNKNOWN) {
            return Source::UNKNOWN;
        }
        let mut set = vec![command];
        for source in sources {
            set.extend_from_slice(self.commands(*source));
        }
        set.sort_unstable();
        set.dedup();
        if set.len() > MOST {
            return Source::UNKNOWN;
        }
        let next = u32::try_from(self.sets.len()).unwrap();
        let number = *self.numbers.entry(set.clone()).or_insert(next);
        if number == next {
            self.sets.push(set);
        }
        Source(number)
    }

    pub(crate) fn commands(&self, source: Source) -> &[CommandId] {
        &self.sets[source.0 as usize]
    }

    /// `bytes`, as `command` writes them from the host.
    pub(crate) fn written(&mut self, command: CommandId, bytes: &[u8]) -> Vec<Cell> {
        let source = self.after(command, &[]);
        let cells = bytes.iter().map(|&value| Cell { value, source });
        cells.collect()
    }

    /// These cells, as `command` copies them.
    pub(crate) fn copied(&mut self, command: CommandId, cells: &[Cell]) -> Vec<Cell> {
        let mut last = (Source::UNKNOWN, Source::UNKNOWN);
        let mut copied = Vec::with_capacity(cells.len());
        for cell in cells {
            if cell.source != last.0 {
                last = (cell.source, self.after(command, &[cell.source]));
            }
            copied.push(Cell {
                value: cell.value,
                source: last.1,
            });
        }
        copied
    }
}
