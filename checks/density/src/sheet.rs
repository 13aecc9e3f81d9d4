//! The files of recorded figures.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fmt::Write,
    fs,
};

/// The figures of each policy, source and program: of each column of a sheet, those of the program itself, the mean of its copies, and the
/// worst of them.
pub(crate) type Figures = BTreeMap<String, Vec<f64>>;

/// A kind of file of recorded figures.
pub(crate) struct Sheet {
    /// What stands above the figures.
    head: &'static str,
    /// The name and the digits of each column.
    columns: &'static [(&'static str, usize)],
}

/// The first round.
pub(crate) const COLD: Sheet = Sheet {
    head: "\
# The memory that a pool reserves at most over what the program has live at most, on the mock device, with segments and with pages of
# virtual memory: on a program itself, and the mean and the worst of 8 copies with other sizes, with each `GrowthPolicy`. Written by
# `scripts/density --record`.

",
    columns: &[("reserved / live", 3)],
};

/// The last rounds.
pub(crate) const WARM: Sheet = Sheet {
    head: "\
# What a pool takes that has seen the work: of eight rounds of a program in one pool, on the mock device, the last two. First the
# calls of a round that take segments from the device, or with pages of virtual memory map some; then the memory that is reserved at most
# over what is live at most. Each on a program itself, and the mean and the worst of 8 copies with other sizes, with each `GrowthPolicy`.
# Written by `scripts/density --record`.

",
    columns: &[("calls a round", 1), ("reserved / live", 3)],
};

/// Programs that no rule was tuned on.
pub(crate) const JUDGED: Sheet = Sheet {
    head: "\
# What the default pool takes for programs on which no rule was tuned, and what the simplest rule takes: best fit in one range of addresses
# that never shrinks. Of 60 rounds in one pool (6 for that rule), on the mock device, the last 30: the calls of a round that take segments
# from the device, or with pages of virtual memory map some; the memory that is reserved at most over what is live at most; then the same of all
# rounds. Each on a program itself, and the mean and the worst of 2 copies with other sizes. Written by `scripts/density --record`.

",
    columns: &[
        ("calls a round", 1),
        ("reserved / live", 3),
        ("most of any round", 3),
    ],
};

/// The figures of a column.
const PARTS: usize = 3;

/// What figures may be above the recorded ones, in units of the last digit. They are the same on every machine.
const ROUNDING: f64 = 0.6;

impl Sheet {
    /// Writes the figures.
    pub(crate) fn record(&self, file: &str, figures: &Figures) -> Result<(), Box<dyn Error>> {
        let mut text = self.head.to_owned();
        for (name, figures) in figures {
            writeln!(text, "{name:40}{}", self.line(figures))?;
        }
        fs::write(file, &text)?;
        print!("{text}");
        Ok(())
    }

    /// Returns whether no figure is above the recorded one.
    pub(crate) fn check(&self, file: &str, measured: &Figures) -> Result<bool, Box<dyn Error>> {
        let recorded = self.parse(&fs::read_to_string(file)?)?;
        if recorded.keys().ne(measured.keys()) {
            return Err(format!("{file} has other programs: record it anew").into());
        }
        let titles = self.columns.iter().map(|(title, _)| *title);
        let titles = titles.collect::<Vec<_>>().join("; ");
        println!("{file}, {titles}: itself, mean of copies, worst copy");
        let mut is_good = true;
        for ((name, now), before) in measured.iter().zip(recorded.values()) {
            let mut pairs = now.iter().zip(before).enumerate();
            let is_above = pairs.any(|(index, (now, before))| {
                let (_, digits) = self.columns[index / PARTS];
                let unit = 0.1_f64.powi(i32::try_from(digits).unwrap_or(0));
                *now > before + ROUNDING * unit || now.is_nan()
            });
            let mark = if is_above {
                format!("  above the recorded{}", self.line(before))
            } else {
                String::new()
            };
            is_good &= !is_above;
            println!("{name:40}{}{mark}", self.line(now));
        }
        let prefix = |name: &String| name.rsplit_once('/').map(|(prefix, _)| prefix.to_owned());
        let prefixes: BTreeSet<String> = measured.keys().filter_map(prefix).collect();
        for prefix in prefixes {
            let of_prefix = measured
                .iter()
                .filter(|(name, _)| name.rsplit_once('/').is_some_and(|(of, _)| of == prefix));
            let of_prefix: Vec<_> = of_prefix.map(|(_, figures)| figures).collect();
            println!("{prefix:40}{}  all", self.line(&together(&of_prefix)));
        }
        println!();
        Ok(is_good)
    }

    fn line(&self, figures: &[f64]) -> String {
        let words = figures.iter().enumerate().map(|(index, figure)| {
            let (_, digits) = self.columns[index / PARTS];
            format!(" {figure:.digits$}")
        });
        words.collect()
    }

    fn parse(&self, text: &str) -> Result<Figures, Box<dyn Error>> {
        let mut figures = Figures::new();
        for line in text.lines() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut words = line.split_whitespace();
            let name = words.next().ok_or("a line without a name")?;
            let numbers: Vec<f64> = words.map(str::parse).collect::<Result<_, _>>()?;
            let expected = PARTS * self.columns.len();
            if numbers.len() != expected {
                return Err(format!("{name}: {expected} figures a line are expected").into());
            }
            figures.insert(name.to_owned(), numbers);
        }
        Ok(figures)
    }
}

/// The means of the figures of programs, or the worst of what is the worst of each.
#[expect(clippy::cast_precision_loss, reason = "programs are few")]
fn together(figures: &[&Vec<f64>]) -> Vec<f64> {
    let length = figures.first().map_or(0, |figures| figures.len());
    let column = |index: usize| {
        let column = figures.iter().map(|figures| figures[index]);
        if index % PARTS == PARTS - 1 {
            column.fold(0.0, f64::max)
        } else {
            column.sum::<f64>() / figures.len() as f64
        }
    };
    (0..length).map(column).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failing test panics")]
mod tests {
    use super::*;

    fn figures(name: &str, figures: &[f64]) -> Figures {
        Figures::from([(name.to_owned(), figures.to_vec())])
    }

    #[test]
    fn what_is_above_what_was_recorded_fails_and_what_is_below_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("warm.txt");
        let file = file.to_str().unwrap();
        let recorded = [10.0, 11.0, 12.0, 1.1, 1.2, 1.3];
        let check = |index: usize, by: f64| {
            let mut now = recorded;
            now[index] += by;
            WARM.check(file, &figures("a/b/c", &now)).unwrap()
        };
        WARM.record(file, &figures("a/b/c", &recorded)).unwrap();
        for index in 0..6 {
            assert!(check(index, 0.0) && check(index, -1.0));
            assert!(!check(index, 0.1), "{index}");
            assert!(!check(index, f64::NAN));
        }
        assert!(check(0, 0.05) && check(3, 0.0005) && !check(3, 0.001));
        assert!(WARM.check(file, &figures("a/b/d", &recorded)).is_err());
        assert!(COLD.check(file, &figures("a/b/c", &recorded)).is_err());
    }

    #[test]
    fn of_several_programs_there_is_the_mean_and_the_worst() {
        let [one, other] = [vec![1.0, 2.0, 9.0], vec![3.0, 3.0, 4.0]];
        assert_eq!(together(&[&one, &other]), [2.0, 2.5, 9.0]);
    }
}
