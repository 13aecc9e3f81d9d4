//! Writing a trace as its lines.

use std::{borrow::Cow, fmt, iter::Peekable};

use binpool_trace::{Line, PoolEvent, Request};

use crate::{Event, PoolStep, Shortage, Trace, Use};

/// Writes a line.
fn write(f: &mut fmt::Formatter<'_>, text: &mut Vec<u8>, line: &Line<'_>) -> fmt::Result {
    text.clear();
    line.write(text);
    f.write_str(str::from_utf8(text).map_err(|_| fmt::Error)?)
}

impl Trace {
    /// Writes the uses, the shortages and the steps of the pool that come before event number `index`, in the order of time.
    fn write_between<'t>(
        &self,
        f: &mut fmt::Formatter<'_>,
        text: &mut Vec<u8>,
        index: usize,
        uses: &mut Peekable<impl Iterator<Item = &'t Use>>,
        shortages: &mut Peekable<impl Iterator<Item = &'t Shortage>>,
        steps: &mut Peekable<impl Iterator<Item = &'t PoolStep>>,
    ) -> fmt::Result {
        let has_times = !self.times.is_empty();
        loop {
            let limit = shortages
                .peek()
                .filter(|shortage| shortage.events_before == index)
                .map_or(u64::MAX, |shortage| shortage.time);
            let next_step = steps.peek().filter(|step| step.events_before == index);
            let before = next_step.map_or(limit, |step| step.time.min(limit));
            let used = uses.next_if(|used| used.events_before == index && used.time <= before);
            if let Some(used) = used {
                let line = Line::Used {
                    id: self.ids[used.block],
                    stream: used.stream,
                    time: has_times.then_some(used.time),
                };
                write(f, text, &line)?;
                continue;
            }
            let step = steps.next_if(|step| step.events_before == index && step.time <= limit);
            if let Some(step) = step {
                let line = Line::Pool {
                    event: Cow::Borrowed(&step.event),
                    time: has_times.then_some(step.time),
                };
                write(f, text, &line)?;
                continue;
            }
            let Some(shortage) = shortages.next_if(|it| it.events_before == index) else {
                return Ok(());
            };
            let request = Request {
                bytes: shortage.bytes,
                stream: shortage.stream,
                time: has_times.then_some(shortage.time),
                group: shortage.group.map(u64::from),
                stack: shortage.stack.map(u64::from),
            };
            write(f, text, &Line::Refused { request })?;
            if let Some(report) = shortage.report {
                let event = Cow::Owned(PoolEvent::Report(Box::new(report)));
                write(f, text, &Line::Pool { event, time: None })?;
            }
        }
    }
}

impl fmt::Display for Trace {
    /// Writes the trace as text that [`Trace::parse`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &mut Vec::new();
        for (key, value) in &self.header {
            write(f, text, &Line::Header { key, value })?;
        }
        for (group, name) in (0..).zip(&self.groups) {
            write(f, text, &Line::Group { group, name })?;
        }
        for (stack, frames) in (0..).zip(&self.stacks) {
            for frame in frames {
                write(f, text, &Line::Frame { stack, frame })?;
            }
        }
        let mut uses = self.uses.iter().peekable();
        let mut shortages = self.shortages.iter().peekable();
        let mut steps = self.pool_steps.iter().peekable();
        for index in 0..=self.events.len() {
            self.write_between(f, text, index, &mut uses, &mut shortages, &mut steps)?;
            let time = self.time_of(index);
            let line = match self.events.get(index) {
                Some(&Event::Allocate {
                    block,
                    bytes,
                    stream,
                }) => Line::Allocated {
                    id: self.ids[block],
                    request: Request {
                        bytes,
                        stream,
                        time,
                        group: self.group_of_block[block].map(u64::from),
                        stack: self.stack_of_block[block].map(u64::from),
                    },
                },
                Some(Event::Free { block }) => Line::Freed {
                    id: self.ids[*block],
                    time,
                },
                None => continue,
            };
            write(f, text, &line)?;
        }
        Ok(())
    }
}
