// What is measured of one build of `cudarc`, which the module that includes this names.

use std::{collections::HashMap, error::Error, sync::Arc, time::{Duration, Instant}};

use self::cudarc::driver::{CudaContext, CudaSlice, CudaStream};
use super::Call;

const PAIRS: u32 = 100_000;

pub(crate) fn pairs() -> Result<Vec<(String, f64)>, Box<dyn Error>> {
    let mut rows = Vec::new();
    for bytes in [4 << 10, 1 << 20, 64 << 20] {
        let context = CudaContext::new(0)?;
        rows.push((format!("{} KiB, the default stream", bytes >> 10), pair(&context.default_stream(), bytes)?));
        rows.push((format!("{} KiB, the per-thread stream", bytes >> 10), pair(&context.per_thread_stream(), bytes)?));
        rows.push((format!("{} KiB, a stream of several", bytes >> 10), pair(&context.new_stream()?, bytes)?));
        // SAFETY: each slice is used on its own stream.
        unsafe { context.disable_event_tracking() };
        rows.push((format!("{} KiB, a stream of several, without events", bytes >> 10), pair(&context.new_stream()?, bytes)?));
    }
    Ok(rows)
}

/// The microseconds of a pair: the least of five rounds.
fn pair(stream: &Arc<CudaStream>, bytes: usize) -> Result<f64, Box<dyn Error>> {
    let mut least = Duration::MAX;
    for _ in 0..6 {
        stream.synchronize()?;
        let start = Instant::now();
        for _ in 0..PAIRS {
            // SAFETY: nothing reads it.
            drop(unsafe { stream.alloc::<u8>(bytes) }?);
        }
        least = least.min(start.elapsed());
    }
    stream.synchronize()?;
    Ok(least.as_secs_f64() * 1e6 / f64::from(PAIRS))
}

pub(crate) struct Replayed {
    pub(crate) live: usize,
    taken: usize,
    pub(crate) micros_a_pair: f64,
    pub(crate) checksum: u64,
}

impl Replayed {
    pub(crate) fn taken_over_live(&self) -> f64 {
        self.taken as f64 / self.live as f64
    }
}

/// Replays a trace so often, and times the last round: each slice is written when it is made, and some are read before they are dropped.
pub(crate) fn replay(calls: &[Call], rounds: u32) -> Result<Replayed, Box<dyn Error>> {
    let context = CudaContext::new(0)?;
    let mut streams = vec![context.new_stream()?];
    for call in calls {
        while let Call::Allocate { stream, .. } = call && *stream >= streams.len() {
            streams.push(context.new_stream()?);
        }
    }
    // What the first use of a stream takes.
    for stream in &streams {
        drop(stream.alloc_zeros::<u8>(256)?);
        stream.synchronize()?;
    }
    let (free_before, _) = context.mem_get_info()?;
    let mut slices: HashMap<u64, CudaSlice<u8>> = HashMap::new();
    let (mut most, mut taken, mut checksum, mut micros_a_pair) = (0, 0, 0_u64, 0.0);
    for _ in 0..rounds {
        let (mut live, mut pairs, mut of_pairs) = (0, 0_u32, Duration::ZERO);
        for (number, call) in calls.iter().enumerate() {
            match *call {
                Call::Allocate { id, bytes, stream } => {
                    let bytes = bytes.max(1);
                    let start = Instant::now();
                    // SAFETY: what is read of it is written first.
                    let mut slice = unsafe { streams[stream].alloc::<u8>(bytes) }?;
                    of_pairs += start.elapsed();
                    let mark = [(id & 0xff) as u8; 1];
                    streams[stream].memcpy_htod(&mark, &mut slice.slice_mut(..1))?;
                    live += bytes;
                    most = most.max(live);
                    pairs += 1;
                    slices.insert(id, slice);
                }
                Call::Free { id } => {
                    if let Some(slice) = slices.remove(&id) {
                        if number % 64 == 0 {
                            let first = slice.stream().clone_dtoh(&slice.slice(..1))?;
                            slice.stream().synchronize()?;
                            checksum = checksum.wrapping_mul(31).wrapping_add(u64::from(first[0]));
                        }
                        live -= slice.len();
                        let start = Instant::now();
                        drop(slice);
                        of_pairs += start.elapsed();
                    }
                }
            }
            if number % 16 == 0 {
                let (free, _) = context.mem_get_info()?;
                taken = taken.max(free_before.saturating_sub(free));
            }
        }
        slices.clear();
        micros_a_pair = of_pairs.as_secs_f64() * 1e6 / f64::from(pairs);
    }
    context.synchronize()?;
    Ok(Replayed { live: most, taken, micros_a_pair, checksum })
}
