//! The histories that `binpool view` shows of a file: of each device of a recording what happened, and what binpool would do instead.

use std::{error::Error, path::Path};

use binpool_recordings::{
    Content, PoolStep, Trace,
    view::{By, History},
};
use binpool_replay::{Failure, Profile, report::named_beyond, simulate};
use binpool_trace::{PoolEvent, TraceError};

use crate::command::{
    output::{name_of, print_remarks, remark},
    progress_bar::bar,
    view_options::View,
};

/// What a file shows.
pub(crate) struct Histories {
    /// Each with its name in the menu.
    pub(crate) all: Vec<(String, History)>,
    /// The index of the one of the device with the most live bytes.
    pub(crate) busiest: usize,
    /// What the blocks are grouped by at first.
    pub(crate) by: By,
}

impl Histories {
    /// Returns the history of the device with the most live bytes, and what its blocks are grouped by at first.
    pub(crate) fn into_busiest(mut self) -> (History, By) {
        let (_, history) = self.all.swap_remove(self.busiest);
        (history, self.by)
    }
}

/// Reads the traces of a file, one for each device, and makes their histories. Where `is_one`, one history is shown: that of the device
/// with the most live bytes, and a remark says so.
pub(crate) fn histories_of(
    options: &View,
    file: &Path,
    is_one: bool,
    content: Content<'_>,
) -> Result<Histories, Box<dyn Error>> {
    let mut traces = read(options, &name_of(file), content)?;
    let busiest = (0..traces.len())
        .rev()
        .max_by_key(|index| traces[*index].1.peak_live_bytes());
    let mut busiest = busiest.unwrap_or(0);
    let mut place_of_busiest = 0;
    if is_one && traces.len() > 1 {
        let others: Vec<String> = traces
            .iter()
            .map(|(device, _)| device.to_string())
            .collect();
        let one = traces.swap_remove(busiest);
        remark(&format!(
            "showing device {} of {}, which has the most live bytes: `--device` selects another",
            one.0,
            others.join(", ")
        ));
        (traces, busiest) = (vec![one], 0);
    }
    let has_groups = traces.iter().any(|(_, trace)| !trace.groups().is_empty());
    let by = if has_groups { By::Group } else { By::Size };
    let several = traces.len() > 1;
    let mut all = Vec::new();
    for (index, (device, trace)) in traces.into_iter().enumerate() {
        if index == busiest {
            place_of_busiest = all.len();
        }
        print_remarks(&trace);
        let named = |what: &str| {
            if several {
                format!("device {device}, {what}")
            } else {
                what.to_owned()
            }
        };
        let happened = if options.simulates() {
            None
        } else {
            History::happened(&trace)
        };
        match happened {
            Some(history) if history.allocator.is_some() => {
                all.push((named("as it happened"), history));
                if !is_one {
                    match replayed(options, &trace) {
                        Ok(history) => all.push((named("with binpool"), history)),
                        Err(why) => remark(&format!("not shown with binpool: {why}")),
                    }
                }
            }
            Some(history) => all.push((history.name.clone(), history)),
            None => {
                if !options.simulates() && !trace.header().is_empty() {
                    remark("simulated: the recording does not say where its blocks were");
                }
                all.push((named("simulated"), replayed(options, &trace)?));
            }
        }
    }
    Ok(Histories {
        all,
        busiest: place_of_busiest,
        by,
    })
}

fn read(
    options: &View,
    name: &str,
    content: Content<'_>,
) -> Result<Vec<(usize, Trace)>, TraceError> {
    let traces = match options.device {
        Some(device) => vec![(device, Trace::read_content(name, content, Some(device))?)],
        None => Trace::read_devices(name, content)?,
    };
    let scaled = traces.into_iter().map(|(device, trace)| {
        let trace = named_beyond(trace, &options.beyond);
        (device, trace.scaled_down(options.scale))
    });
    Ok(scaled.collect())
}

/// Replays a trace through a pool on the simulated device.
fn replayed(options: &View, trace: &Trace) -> Result<History, Failure> {
    let bar = bar(trace.events().len(), trace.name());
    let is_chosen = options.profile.is_some() || options.capacity.is_some();
    let recorded = device_of_program(trace).filter(|_| !is_chosen);
    let capacity = options.capacity.map(|size| size.as_u64());
    let capacity = capacity.or(recorded.map(|(_, bytes)| bytes));
    let profile = options.profile.as_ref().unwrap_or(&Profile::H200);
    let mut history = simulate(trace, profile, capacity, &options.pool(), &|events| {
        bar.set_position(events as u64);
    })?;
    bar.finish_and_clear();
    if let Some((device, _)) = recorded {
        device.clone_into(&mut history.device);
    }
    Ok(history)
}

/// The name and the bytes of the device that `binpool run` recorded a program on, if it was one.
fn device_of_program(trace: &Trace) -> Option<(&str, u64)> {
    let device = trace.header_value("device")?;
    let of_context = |step: &PoolStep| match &step.event {
        PoolEvent::Did { what, text, .. } if what.word() == "context" => text.ends_with(device),
        _ => true,
    };
    let is_one = trace.is_of_program() && trace.pool_steps().iter().all(of_context);
    let capacity = trace.header_value("capacity")?.parse().ok()?;
    is_one.then_some((device, capacity))
}
