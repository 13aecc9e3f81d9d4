//! A replay on the simulated device that notes the history of all memory.

use binpool::{Allocator, Backend, ImmediateAllocator, PoolError, PoolOptions, PooledBuffer};

use crate::{
    Failure, Profile,
    replay::{STRIDE, queues_of, queues_of_blocks},
    segment_record::SegmentRecord,
};
use binpool_recordings::{
    Event, Trace,
    view::{FailedRequest, History, Life, Lives},
};

/// Replays `trace` through a pool on a mock device, and records the history of each block and segment. The history ends with
/// the trace, or with the first allocation that runs out of memory. `progress` is called now and
/// then with the number of events that are done.
///
/// ```
/// use binpool::PoolOptions;
/// use binpool_recordings::Trace;
/// use binpool_replay::{Profile, simulate};
///
/// let trace = Trace::parse("leaky", &b"a 0 4096 0\na 1 100 0\nf 0\n"[..])?;
/// let options = PoolOptions::new().segments(true);
/// let numbers = simulate(&trace, &Profile::None, None, &options, &|_| {})?.numbers();
/// assert_eq!(numbers.peak_active.active_bytes, 4196);
/// assert_eq!(numbers.at_end.active_bytes, 100);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`Failure`], which names the event, for any failure but out-of-memory.
pub fn simulate(
    trace: &Trace,
    profile: &Profile,
    capacity_bytes: Option<u64>,
    options: &PoolOptions,
    progress: &dyn Fn(usize),
) -> Result<History, Failure> {
    let backend = profile.mock(trace, false, capacity_bytes, None).backend();
    let streams = trace.streams();
    let queues = queues_of(streams.len(), &backend).map_err(Failure::setup)?;
    let queue_of_block = queues_of_blocks(trace, &streams);
    let recorded = SegmentRecord::new(ImmediateAllocator::new(&backend).map_err(Failure::setup)?);
    let home = queues
        .first()
        .ok_or_else(|| Failure::setup("the trace has no streams"))?;
    let pool = options.clone().build(recorded.clone(), home);
    let pool = pool.map_err(Failure::setup)?;

    let mut live: Vec<Option<PooledBuffer<_>>> = Vec::new();
    live.resize_with(trace.allocations(), || None);
    let mut blocks: Vec<Life> = Vec::with_capacity(trace.allocations());
    let mut frees = Vec::with_capacity(trace.events().len());
    let mut out_of_memory = None;
    for (index, event) in trace.events().iter().enumerate() {
        if index % STRIDE == 0 {
            progress(index);
        }
        recorded.begin(index);
        match *event {
            Event::Allocate {
                block,
                bytes,
                stream,
            } => {
                let given = match pool.allocate_on(&queues[queue_of_block[block]], bytes) {
                    Ok(given) => given,
                    Err(PoolError::OutOfMemory(report)) => {
                        out_of_memory = Some(FailedRequest {
                            event: trace.describe(index),
                            bytes,
                            stream,
                            group: trace.group_of(block).map(str::to_owned),
                            report: (&*report).into(),
                        });
                        break;
                    }
                    Err(error) => return Err(Failure::at(trace, index, false, error)),
                };
                let place = given.place();
                blocks.push(Life {
                    requested_bytes: bytes as u64,
                    class_bytes: place.map_or(0, |place| place.bytes as u64),
                    stream,
                    from: index,
                    to: None,
                    waiting: None,
                    segment: place.and_then(|place| recorded.segment_of(place.memory)),
                    offset: place.map_or(0, |place| place.offset as u64),
                    stack: trace.stack_of(block),
                });
                live[block] = Some(given);
                frees.push(None);
            }
            Event::Free { block } => {
                if let Some(buffer) = live[block].take() {
                    let freed = buffer.release();
                    freed.map_err(|error| Failure::at(trace, index, false, error))?;
                }
                blocks[block].to = Some(index);
                frees.push(Some(block));
            }
        }
    }
    let lives = Lives {
        frees,
        blocks,
        segments: recorded.segments(),
    };
    let device = &backend.limits().device_name;
    let capacity_bytes = recorded.capacity_bytes();
    Ok(History::simulated(
        trace,
        device,
        capacity_bytes,
        lives,
        out_of_memory,
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failing test panics")]
mod tests {
    use binpool::PoolOptions;

    use binpool_recordings::Trace;

    use super::simulate;
    use crate::Profile;

    #[test]
    fn what_is_reserved_at_a_moment_is_the_segments_that_are_there() {
        // Each block needs a segment of its own, and the room of the one before it.
        let text = "a 0 41943040 0\nf 0\na 1 73400320 0\nf 1\na 2 83886080 0\nf 2\n";
        let trace = Trace::parse("t", text.as_bytes()).unwrap();
        let options = PoolOptions::new().segments(true);
        let history = simulate(&trace, &Profile::H200, Some(100 << 20), &options, &|_| {}).unwrap();
        let gone = history.segments.iter().filter_map(|segment| segment.to);
        assert_eq!(gone.collect::<Vec<_>>(), [2, 4]);
        let there = (0..=history.last_moment()).map(|moment| {
            let segments = history.segments.iter();
            let there = segments.filter(|segment| {
                segment.from < moment && segment.to.is_none_or(|to| moment <= to)
            });
            there.map(|segment| segment.bytes).sum()
        });
        assert_eq!(history.reserved_bytes(), there.collect::<Vec<u64>>());
    }
}
