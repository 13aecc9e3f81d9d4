//! The period of a program that repeats its work: the blocks that it takes again and again, in the same order.

use super::{
    log::{Log, Logged},
    space::RangeNumber,
};

/// The most repetitions of the same sizes that are one period.
const MOST_PERIODS: usize = 4;

/// One part in this of the blocks of a period may have other lives than in the one before.
const DIFFERING_PARTS: usize = 16;

/// The last period of a log has to be one of repetitions that have at least one part in this of it.
const LOG_PARTS: usize = 3;

/// A block of a period. Times are numbers of blocks that were taken since the period began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    pub(super) bytes: usize,
    /// When it is taken: its number in the period.
    pub(super) start: usize,
    /// When it is given back: after the end of the period if it lives on into the next one, and `None` if it stays.
    pub(super) end: Option<usize>,
    /// Which commands may still use it then.
    pub(super) kind: u32,
    /// The range that the last block of this kind still has.
    pub(super) range: Option<RangeNumber>,
}

/// The blocks of a period, or of a few if some of them live that long. It ends now.
#[derive(Debug)]
pub(super) struct Period {
    pub(super) lives: Vec<Life>,
    /// The most bytes that are taken in a period, less those that are taken now.
    pub(super) most: i64,
    /// The fewest bytes.
    pub(super) least: i64,
}

impl Period {
    /// Returns the last period of a log that ends with at least so many `repetitions` of it: the same sizes in the same order, and nearly the same lives.
    pub(super) fn of(log: &Log, repetitions: usize) -> Option<Self> {
        let blocks = log.blocks();
        let (once, repeated) = longest_repetition(blocks, repetitions)?;
        if repeated < blocks.len() / LOG_PARTS {
            return None;
        }
        // Blocks that live longer, or whose lives alternate, make several periods one.
        let several = (1..=MOST_PERIODS).map(|periods| periods * once);
        let mut possible = several.take_while(|period| period * repetitions <= repeated);
        let mut lives = possible.find_map(|period| last_lives(blocks, period))?;
        for (block, range) in log.still_taken() {
            let start = (block + lives.len()).checked_sub(blocks.len());
            if let Some(life) = start.and_then(|start| lives.get_mut(start)) {
                life.range = Some(range);
            }
        }
        let (most, least) = levels(&lives);
        Some(Self { lives, most, least })
    }
}

/// Returns the lives of the last `period` blocks, unless they differ from those of the period before, or exceed it.
fn last_lives(blocks: &[Logged], period: usize) -> Option<Vec<Life>> {
    let first = blocks.len() - period;
    let mut differing = 0;
    let lives = (first..blocks.len()).map(|number| {
        let life = |number: usize| Some(blocks[number].end()? - number);
        let (last, before) = (life(number), life(number - period));
        // One that is still taken has lived until now.
        let so_far = blocks.len() - number;
        differing += match (last, before) {
            (Some(last), Some(before)) => usize::from(last != before),
            (None, Some(before)) => usize::from(before < so_far),
            (_, None) => 0,
        };
        let start = number - first;
        Life {
            bytes: blocks[number].bytes,
            start,
            end: before
                .or(last)
                .map(|life| start + life.max(last.unwrap_or(0))),
            kind: blocks[number - period].kind,
            range: None,
        }
    });
    let lives: Vec<_> = lives.collect();
    let fits = |it: &Life| it.end.is_none_or(|end| end - it.start <= period);
    let is_alike = differing <= period / DIFFERING_PARTS;
    (is_alike && lives.iter().all(fits)).then_some(lives)
}

/// Returns the period of the longest end of a log that is made of repetitions, and the length of that end.
fn longest_repetition(blocks: &[Logged], repetitions: usize) -> Option<(usize, usize)> {
    let backwards = |number: usize| blocks[blocks.len() - 1 - number].bytes;
    // Of each end, the longest part with which it begins, too (Knuth, Morris, Pratt: "Fast pattern matching in strings", 1977).
    let mut borders = vec![0; blocks.len()];
    let mut border: usize = 0;
    for number in 1..blocks.len() {
        while border > 0 && backwards(number) != backwards(border) {
            border = borders[border - 1];
        }
        border += usize::from(backwards(number) == backwards(border));
        borders[number] = border;
    }
    let ends = (1..=blocks.len())
        .rev()
        .map(|end| (end - borders[end - 1], end));
    ends.into_iter()
        .find(|(period, end)| period * repetitions <= *end)
}

/// Returns the most and the fewest bytes of these blocks that are taken at once, less those that are taken now.
fn levels(lives: &[Life]) -> (i64, i64) {
    let signed = |life: &Life| i64::try_from(life.bytes).unwrap_or(i64::MAX);
    let mut given = vec![0; lives.len()];
    for life in lives {
        // Those that end now have ended.
        if let Some(end) = life.end.filter(|end| *end != lives.len()) {
            given[end % lives.len()] += signed(life);
        }
    }
    let (mut level, mut most, mut least) = (0, 0, 0);
    for (life, given) in lives.iter().zip(given) {
        level -= given;
        least = least.min(level);
        // One that stays was there before.
        level += life.end.map_or(0, |_| signed(life));
        most = most.max(level);
    }
    (most, least)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The log of a program that takes and gives back blocks: `+7` takes one of 7 bytes in range 7, and `-7` gives it back.
    fn log(events: &[i32]) -> Log {
        let mut log = Log::default();
        for event in events {
            let range = event.unsigned_abs() as usize;
            if *event > 0 {
                log.take(range, range);
            } else {
                log.give(range, 0);
            }
        }
        log
    }

    fn lives(period: &Period) -> Vec<(usize, Option<usize>)> {
        period
            .lives
            .iter()
            .map(|it| (it.bytes, it.end.map(|end| end - it.start)))
            .collect()
    }

    #[test]
    fn a_period_is_what_the_end_of_a_log_repeats() {
        let round = [5, 6, -5, 7, -6, -7];
        assert!(Period::of(&log(&round), 2).is_none());
        let period = Period::of(&log(&round.repeat(2)), 2).unwrap();
        assert_eq!(lives(&period), [(5, Some(2)), (6, Some(2)), (7, Some(1))]);
        assert_eq!((period.most, period.least), (13, 0));
        // Not what it repeats within a period, and not what it repeated for a small part of the log.
        let outer = [&[9][..], &round, &round, &[-9]].concat();
        let period = Period::of(&log(&outer.repeat(2)), 2).unwrap();
        assert_eq!(period.lives.len(), 7);
        let before: Vec<i32> = (100..120).flat_map(|range| [range, -range]).collect();
        assert!(Period::of(&log(&[&before[..], &round, &round].concat()), 2).is_none());
        assert!(Period::of(&Log::default(), 2).is_none());
    }

    #[test]
    fn one_that_has_to_be_repeated_more_often_is_not_found_before() {
        let round = [5, 6, -5, -6];
        assert!(Period::of(&log(&round.repeat(3)), 4).is_none());
        assert!(Period::of(&log(&round.repeat(4)), 4).is_some());
    }

    #[test]
    fn a_period_may_begin_anywhere_and_its_blocks_may_live_on_into_the_next() {
        // The block of 5 lives across the end of each round, and that of 8 stays.
        let rounds = [6, -5, -6, 5, 7, -7].repeat(3);
        let period = Period::of(&log(&[&[8], &rounds[..]].concat()), 2).unwrap();
        assert_eq!(lives(&period), [(6, Some(1)), (5, Some(3)), (7, Some(1))]);
        let living: Vec<_> = period.lives.iter().filter_map(|it| it.range).collect();
        assert_eq!(living, [5]);
        assert_eq!((period.most, period.least), (7, -5));
        // In the middle of a round.
        let middle = [&rounds[..], &[6, -5, -6]].concat();
        let period = Period::of(&log(&middle), 2).unwrap();
        assert_eq!(lives(&period), [(5, Some(3)), (7, Some(1)), (6, Some(1))]);
        assert_eq!((period.most, period.least), (12, 0));
    }

    #[test]
    fn blocks_that_live_longer_than_a_period_make_several_of_them_one() {
        // Each block of 5 is given back after the next one was taken.
        let mut log = Log::default();
        for round in 0..6 {
            log.take(round, 5);
            if round > 0 {
                log.give(round - 1, 0);
            }
            log.take(100, 7);
            log.give(100, 0);
        }
        let period = Period::of(&log, 2).unwrap();
        assert_eq!(
            lives(&period),
            [(5, Some(3)), (7, Some(1)), (5, Some(3)), (7, Some(1))]
        );
        assert_eq!(period.lives[2].range, Some(5));
        assert_eq!((period.most, period.least), (7, 0));
    }
}
