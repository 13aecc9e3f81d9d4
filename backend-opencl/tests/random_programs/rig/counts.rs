//! How much was done, so that a run in which everything is refused does not count as one that passed.

use std::{collections::BTreeMap, fmt};

#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// Calls that were taken, by name.
    pub(crate) accepted: BTreeMap<String, u64>,
    /// Calls that were refused, or failed with what they wait for, by name.
    pub(crate) refused: BTreeMap<String, u64>,
    /// Bytes that were compared with the model.
    pub(crate) compared: u64,
    pub(crate) programs: u64,
}

impl Counts {
    pub(crate) fn accept(&mut self, call: &str) {
        add(&mut self.accepted, call, 1);
    }

    pub(crate) fn refuse(&mut self, call: &str) {
        add(&mut self.refused, call, 1);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (call, count) in &other.accepted {
            add(&mut self.accepted, call, *count);
        }
        for (call, count) in &other.refused {
            add(&mut self.refused, call, *count);
        }
        self.compared += other.compared;
        self.programs += other.programs;
    }

    pub(crate) fn calls(&self) -> u64 {
        self.accepted.values().sum()
    }

    /// One line, which [`parse`](Self::parse) reads.
    pub(crate) fn line(&self) -> String {
        let calls = |map: &BTreeMap<String, u64>| {
            let calls = map.iter().map(|(call, count)| format!("{call}={count}"));
            calls.collect::<Vec<_>>().join(",")
        };
        let (accepted, refused) = (calls(&self.accepted), calls(&self.refused));
        format!("{} {} {accepted};{refused}", self.programs, self.compared)
    }

    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (programs, rest) = line.split_once(' ')?;
        let (compared, rest) = rest.split_once(' ')?;
        let (accepted, refused) = rest.split_once(';')?;
        let calls = |text: &str| {
            let calls = text.split(',').filter_map(|call| call.split_once('='));
            let calls = calls.map(|(call, count)| Some((call.to_owned(), count.parse().ok()?)));
            calls.collect::<Option<BTreeMap<_, _>>>()
        };
        Some(Self {
            accepted: calls(accepted)?,
            refused: calls(refused)?,
            compared: compared.parse().ok()?,
            programs: programs.parse().ok()?,
        })
    }
}

fn add(map: &mut BTreeMap<String, u64>, call: &str, count: u64) {
    *map.entry(call.to_owned()).or_default() += count;
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} programs, {} calls accepted, {} bytes compared",
            self.programs,
            self.calls(),
            self.compared
        )?;
        let mut names: Vec<_> = self.accepted.keys().chain(self.refused.keys()).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let count = |map: &BTreeMap<String, u64>| map.get(name).copied().unwrap_or(0);
            let (accepted, refused) = (count(&self.accepted), count(&self.refused));
            writeln!(f, "  {name:24} {accepted:>9} accepted {refused:>9} refused")?;
        }
        Ok(())
    }
}
