//! Replays a trace through `DeviceBuffer`, as a prover would: one stream, and each buffer is written when it is made. Prints a part of a row.
//!
//! `openvm-figures ROUNDS < TRACE`, where a trace has lines `a ID BYTES` and `f ID`. The program runs so often, and the last time is what is
//! timed.

use std::{
    collections::HashMap,
    error::Error,
    io::stdin,
    time::{Duration, Instant},
};

use openvm_cuda_common::{
    d_buffer::{DeviceBuffer, cudaMemsetAsync},
    memory_manager::device_memory_used,
    stream::GpuDeviceCtx,
};

/// The bytes of each buffer that are written.
const WRITTEN: usize = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let rounds: u32 = std::env::args().nth(1).ok_or("how many rounds?")?.parse()?;
    let device = GpuDeviceCtx::for_device(0)?;
    // What the first use takes.
    drop(DeviceBuffer::<u8>::with_capacity_on(256, &device));
    device.stream.synchronize()?;
    let base = device_memory_used();
    let mut buffers: HashMap<u64, DeviceBuffer<u8>> = HashMap::new();
    let (mut most, mut taken, mut micros) = (0, 0, 0.0);
    let lines = stdin().lines().collect::<Result<Vec<_>, _>>()?;
    for _ in 0..rounds {
        let (mut live, mut pairs, mut of_pairs) = (0, 0_u32, Duration::ZERO);
        for (number, line) in lines.iter().enumerate() {
            let words: Vec<&str> = line.split(' ').collect();
            let id: u64 = words.get(1).ok_or("a line without an id")?.parse()?;
            if words[0] == "a" {
                let bytes = words.get(2).ok_or("a line without bytes")?.parse::<usize>()?.max(1);
                let start = Instant::now();
                let buffer = DeviceBuffer::with_capacity_on(bytes, &device);
                of_pairs += start.elapsed();
                // SAFETY: the buffer has as many bytes.
                let code = unsafe { cudaMemsetAsync(buffer.as_mut_raw_ptr(), 1, bytes.min(WRITTEN), device.stream.as_raw()) };
                if code != 0 {
                    return Err(format!("cudaMemsetAsync: {code}").into());
                }
                live += bytes;
                most = most.max(live);
                pairs += 1;
                buffers.insert(id, buffer);
            } else if let Some(buffer) = buffers.remove(&id) {
                live -= buffer.len();
                let start = Instant::now();
                drop(buffer);
                of_pairs += start.elapsed();
            }
            if number % 16 == 0 {
                taken = taken.max(device_memory_used().saturating_sub(base));
            }
        }
        buffers.clear();
        micros = of_pairs.as_secs_f64() * 1e6 / f64::from(pairs);
    }
    device.stream.synchronize()?;
    let of_gib = |bytes: usize| bytes as f64 / f64::from(1 << 30);
    println!("{} | {:.3} | {:.3} | {:.3}", if cfg!(feature = "pooled") { "after" } else { "before" }, of_gib(most), taken as f64 / most as f64, micros);
    Ok(())
}
