//! A replay that records the history of all memory.

use binpool::{Allocator, Backend, ImmediateAllocator, PoolError, PoolOptions, PooledBuffer};

use crate::{
    Event, Failure, Profile, Trace,
    replay::{STRIDE, queues_of, queues_of_blocks},
    view::{By, FailedRequest, History, Life, Origin, segment_record::SegmentRecord},
};

/// Replays `trace` through a pool on a mock device, and records the history of each block and segment. The history ends with
/// the trace, or with the first allocation that runs out of memory. `progress` is called now and
/// then with the number of events that are done.
///
/// ```
/// use binpool::PoolOptions;
/// use binpool_replay::{Profile, Trace, view::record};
///
/// let trace = Trace::parse("leaky", &b"a 0 4096 0\na 1 100 0\nf 0\n"[..])?;
/// let options = PoolOptions::new().segments(true);
/// let numbers = record(&trace, &Profile::None, None, &options, &|_| {})?.numbers();
/// assert_eq!(numbers.peak_active.active_bytes, 4196);
/// assert_eq!(numbers.at_end.active_bytes, 100);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`Failure`], which names the event, for any failure but out-of-memory.
pub fn record(
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
                            stream,
                            group: trace.group_of(block).map(str::to_owned),
                            report: *report,
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
    let segments = recorded.segments();
    let moments = frees.len() + usize::from(out_of_memory.is_some());
    let limits = backend.limits();
    Ok(History {
        name: trace.name().to_owned(),
        origin: Origin::Simulated,
        limit_bytes: None,
        stacks: trace.stacks().to_vec(),
        pool_events: Vec::new(),
        device: limits.device_name.clone(),
        allocator: None,
        capacity_bytes: recorded.capacity_bytes(),
        times: (0..moments)
            .map_while(|event| trace.time_of(event))
            .collect(),
        groups: trace.groups().to_vec(),
        shortages: trace
            .shortages()
            .iter()
            .filter(|shortage| shortage.events_before <= moments)
            .copied()
            .collect(),
        groupings: By::ALL.map(|by| by.of(trace, &blocks)),
        frees,
        blocks,
        segments,
        out_of_memory,
    })
}
