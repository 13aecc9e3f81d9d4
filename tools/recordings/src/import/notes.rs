//! What a program noted while a snapshot was recorded: `external_annotations`, such as the steps of an optimizer.

use std::rc::Rc;

use binpool_trace::cut;

use super::{
    blocks::Moment,
    objects::{List, Node, Objects},
};

/// The most characters of a note that count. A small file may name one long note many times.
const LONGEST_NOTE: usize = 120;

/// The notes of a device that have not come yet, in the order of time.
#[derive(Debug)]
pub(crate) struct Notes<'o> {
    /// Each with its time in microseconds, the last one first.
    waiting: Vec<(u64, Node<'o>)>,
}

/// A note: a word of the trace's format, a text, and its moment.
pub(crate) type Note = (&'static str, Rc<str>, Moment);

impl<'o> Notes<'o> {
    /// The notes from `start` on, in nanoseconds; none where the recording has no times.
    pub(crate) fn new(objects: &'o Objects, device: usize, start: Option<u64>) -> Self {
        let list = objects
            .root()
            .and_then(|it| it.list("external_annotations"));
        let all = list.into_iter().flat_map(List::iter);
        let own = all.filter(|note| note.natural("device") == Some(device as u64));
        let timed = own.filter_map(|note| Some((note.natural("time_us")?, note)));
        let is_in = |time| start.is_some_and(|start| nanoseconds(time) >= start);
        let mut waiting: Vec<_> = timed.filter(|(time, _)| is_in(*time)).collect();
        waiting.sort_by_key(|(time, _)| *time);
        waiting.reverse();
        Self { waiting }
    }

    /// Removes and returns the next note from before `moment`.
    pub(crate) fn before(&mut self, moment: Moment) -> Option<Note> {
        let (time, _) = *self.waiting.last()?;
        let is_before = moment.time.is_some_and(|now| nanoseconds(time) < now);
        is_before.then(|| self.next()).flatten()
    }

    /// Removes and returns the notes that are left.
    pub(crate) fn rest(&mut self) -> Vec<Note> {
        std::iter::from_fn(|| self.next()).collect()
    }

    fn next(&mut self) -> Option<Note> {
        let (time, note) = self.waiting.pop()?;
        let what = match note.text("stage") {
            Some("START") => "begin",
            Some("END") => "end",
            _ => "annotate",
        };
        let moment = Moment {
            time: Some(nanoseconds(time)),
            line: 0,
        };
        Some((what, note_text(note.text("name")), moment))
    }
}

fn nanoseconds(microseconds: u64) -> u64 {
    microseconds.saturating_mul(1000)
}

/// The text of a note, in one line.
pub(crate) fn note_text(text: Option<&str>) -> Rc<str> {
    let text = cut(text.unwrap_or_default(), LONGEST_NOTE);
    let text = text.replace(char::is_control, " ");
    text.split_whitespace().collect::<Vec<_>>().join(" ").into()
}
