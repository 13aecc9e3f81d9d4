//! A program over cudarc that knows nothing of binpool: `binpool run --pool -- cudarc_pairs` runs it over pools.
//!
//! It allocates and drops on two streams, checks what it has written, and prints what a pair of `alloc` and drop takes, and how much of the
//! device it has.

use std::{error::Error, process::Command, time::Instant};

use cudarc::driver::{CudaContext, CudaSlice};

const MIB: usize = 1 << 20;
const PAIRS: u32 = 60_000;

fn main() -> Result<(), Box<dyn Error>> {
    // SAFETY: it only looks for the library.
    if !unsafe { cudarc::driver::sys::is_culib_present() } {
        println!("there is no CUDA driver");
        return Ok(());
    }
    let context = CudaContext::new(0)?;
    // Two streams that wait for each other by events of cudarc.
    let streams = [context.new_stream()?, context.new_stream()?];
    let before = used_mib();

    let mut kept: Vec<(CudaSlice<u8>, u8)> = Vec::new();
    let mut random = 1_u64;
    let mut next = |below: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) as usize % below
    };
    let (mut live, mut peak, mut reserved) = (0, 0, 0);
    for round in 0..400_u32 {
        let stream = &streams[next(2)];
        if kept.len() > 40 {
            let (slice, value) = kept.swap_remove(next(kept.len()));
            let bytes = stream.clone_dtoh(&slice)?;
            assert!(bytes.iter().all(|byte| *byte == value), "round {round}");
            live -= slice.len();
            continue;
        }
        let (bytes, value) = (MIB / 2 + next(64 * MIB), (round % 251) as u8);
        // SAFETY: it is written before it is read.
        let mut slice = unsafe { stream.alloc::<u8>(bytes) }?;
        stream.memcpy_htod(&vec![value; bytes], &mut slice)?;
        live += bytes;
        kept.push((slice, value));
        if live > peak {
            peak = live;
        }
        if round % 20 == 19 {
            reserved = reserved.max(used_mib() - before);
        }
    }
    reserved = reserved.max(used_mib() - before);
    drop(kept);
    context.synchronize()?;
    println!(
        "at most {} MiB live, {reserved} MiB taken from the device",
        peak / MIB
    );

    for bytes in [4096, MIB, 16 * MIB] {
        let stream = &streams[0];
        for _ in 0..100 {
            // SAFETY: it is never read.
            drop(unsafe { stream.alloc::<u8>(bytes) }?);
        }
        let begin = Instant::now();
        for _ in 0..PAIRS {
            // SAFETY: it is never read.
            drop(unsafe { stream.alloc::<u8>(bytes) }?);
        }
        let pair = begin.elapsed().as_secs_f64() * 1e6 / f64::from(PAIRS);
        println!("{bytes} bytes: {pair:.3} us a pair");
    }
    Ok(())
}

/// What the device has given to all programs, as `nvidia-smi` says.
fn used_mib() -> usize {
    let output = Command::new("nvidia-smi")
        .args([
            "--query-gpu=memory.used",
            "--format=csv,noheader,nounits",
            "--id=0",
        ])
        .output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default().trim().parse().unwrap_or(0)
}
