//! Trains a perceptron of three layers on several threads, each with a stream of its own, as cubecl gives it. Every round one thread
//! has a large batch, and the others a small one. The weights are those of the main thread, which sums the gradients of all.
//! Prints a checksum of the weights, and what memory was reserved and live; then times allocations.
//!
//! `cubecl-figures [threads] [rounds] [largest batch]`, or `cubecl-figures copies`, which runs no kernels: threads make tensors from
//! the host in turn, and the main thread reads them.

use cubecl::prelude::*;
use cubecl::server::Handle;
use cubecl_environment::future::block_on;
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread::Scope;
use std::time::Instant;

const INPUTS: usize = 256;
const HIDDEN: usize = 1024;
const OUTPUTS: usize = 64;

/// Multiplies `a` of m x k by `b` of k x n, either of which can be stored transposed.
#[cube(launch)]
fn matmul(
    a: &[f32],
    b: &[f32],
    out: &mut [f32],
    m: usize,
    n: usize,
    k: usize,
    #[comptime] a_transposed: bool,
    #[comptime] b_transposed: bool,
) {
    if ABSOLUTE_POS < m * n {
        let row = ABSOLUTE_POS / n;
        let column = ABSOLUTE_POS % n;
        let (a_start, a_step) = if comptime!(a_transposed) { (row, m) } else { (row * k, 1usize) };
        let (b_start, b_step) = if comptime!(b_transposed) { (column * k, 1usize) } else { (column, n) };
        let mut sum = f32::new(0.0);
        for i in 0..k {
            sum += a[a_start + i * a_step] * b[b_start + i * b_step];
        }
        out[ABSOLUTE_POS] = sum;
    }
}

#[cube(launch)]
fn relu(x: &[f32], out: &mut [f32]) {
    if ABSOLUTE_POS < out.len() {
        out[ABSOLUTE_POS] = x[ABSOLUTE_POS].max(0.0);
    }
}

/// The gradient where the activation was positive.
#[cube(launch)]
fn masked(gradient: &[f32], activation: &[f32], out: &mut [f32]) {
    if ABSOLUTE_POS < out.len() {
        out[ABSOLUTE_POS] = select(activation[ABSOLUTE_POS] > 0.0, gradient[ABSOLUTE_POS], 0.0);
    }
}

#[cube(launch)]
fn add_scaled(x: &[f32], y: &[f32], out: &mut [f32], scale: f32) {
    if ABSOLUTE_POS < out.len() {
        out[ABSOLUTE_POS] = x[ABSOLUTE_POS] + scale * y[ABSOLUTE_POS];
    }
}

/// Bytes of all tensors that the program holds, and the most so far.
static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Tensor {
    handle: Handle,
    length: usize,
    /// The bytes that it adds to those that live.
    bytes: usize,
}

impl Tensor {
    fn new(handle: Handle, length: usize) -> Self {
        let live = LIVE.fetch_add(4 * length, Relaxed) + 4 * length;
        PEAK.fetch_max(live, Relaxed);
        Self { handle, length, bytes: 4 * length }
    }

    fn empty(client: &Client, length: usize) -> Self {
        Self::new(client.empty(4 * length), length)
    }

    /// Numbers from -0.5 to 0.5, the same for a seed, from the host.
    fn random(client: &Client, length: usize, seed: usize, scale: f32) -> Self {
        let mut state = seed as u32 | 1;
        let numbers: Vec<f32> = (0..length)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                ((state >> 8) as f32 / (1 << 24) as f32 - 0.5) * scale
            })
            .collect();
        Self::new(client.create_from_slice(f32::as_bytes(&numbers)), length)
    }

    fn shared(&self) -> Self {
        Self { handle: self.handle.clone(), length: self.length, bytes: 0 }
    }

    fn arg(&self) -> BufferArg {
        // SAFETY: the buffer has this many numbers.
        unsafe { BufferArg::from_raw_parts(self.handle.clone(), self.length) }
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        LIVE.fetch_sub(self.bytes, Relaxed);
    }
}

fn cubes(length: usize) -> CubeCount {
    CubeCount::Static(length.div_ceil(UNITS as usize) as u32, 1, 1)
}

const UNITS: u32 = 256;

fn times(client: &Client, (a, a_transposed): (&Tensor, bool), (b, b_transposed): (&Tensor, bool), m: usize, n: usize) -> Tensor {
    let out = Tensor::empty(client, m * n);
    let k = a.length / m;
    matmul::launch(client, cubes(m * n), CubeDim::new_1d(UNITS), a.arg(), b.arg(), out.arg(), m, n, k, a_transposed, b_transposed);
    out
}

fn rectified(client: &Client, x: &Tensor) -> Tensor {
    let out = Tensor::empty(client, x.length);
    relu::launch(client, cubes(x.length), CubeDim::new_1d(UNITS), x.arg(), out.arg());
    out
}

fn where_positive(client: &Client, gradient: &Tensor, activation: &Tensor) -> Tensor {
    let out = Tensor::empty(client, gradient.length);
    masked::launch(client, cubes(out.length), CubeDim::new_1d(UNITS), gradient.arg(), activation.arg(), out.arg());
    out
}

fn plus(client: &Client, x: &Tensor, y: &Tensor, scale: f32) -> Tensor {
    let out = Tensor::empty(client, x.length);
    add_scaled::launch(client, cubes(x.length), CubeDim::new_1d(UNITS), x.arg(), y.arg(), out.arg(), scale);
    out
}

type Layers = [Tensor; 3];

/// The gradients of the squared error of a batch.
fn gradients(client: &Client, [w1, w2, w3]: &Layers, batch: usize, seed: usize) -> Layers {
    let x = Tensor::random(client, batch * INPUTS, seed, 2.0);
    let target = Tensor::random(client, batch * OUTPUTS, seed + 1, 2.0);
    let h1 = rectified(client, &times(client, (&x, false), (w1, false), batch, HIDDEN));
    let h2 = rectified(client, &times(client, (&h1, false), (w2, false), batch, HIDDEN));
    let y = times(client, (&h2, false), (w3, false), batch, OUTPUTS);
    let dy = plus(client, &y, &target, -1.0);
    let d3 = times(client, (&h2, true), (&dy, false), HIDDEN, OUTPUTS);
    let dh2 = where_positive(client, &times(client, (&dy, false), (w3, true), batch, HIDDEN), &h2);
    let d2 = times(client, (&h1, true), (&dh2, false), HIDDEN, HIDDEN);
    let dh1 = where_positive(client, &times(client, (&dh2, false), (w2, true), batch, HIDDEN), &h1);
    let d1 = times(client, (&x, true), (&dh1, false), INPUTS, HIDDEN);
    [d1, d2, d3]
}

fn free_bytes() -> usize {
    cudarc::driver::result::mem_get_info().expect("the context is current").0
}

/// Microseconds for an empty buffer, and its drop, with some others alive.
fn allocation_us(client: &Client, alive: usize) -> f64 {
    const PAIRS: usize = 20_000;
    let held: Vec<_> = (0..alive).map(|i| client.empty(4096 + 512 * (i % 64))).collect();
    let run = |pairs| {
        for i in 0..pairs {
            drop(black_box(client.empty(1024 * (1 + i % 61))));
        }
        wait(client);
    };
    run(PAIRS / 10);
    let start = Instant::now();
    run(PAIRS);
    let elapsed = start.elapsed();
    drop(held);
    elapsed.as_secs_f64() * 1e6 / PAIRS as f64
}

/// How much less memory the device has free than at the start.
struct Reserved {
    before: usize,
    peak: usize,
}

impl Reserved {
    fn new() -> Self {
        Self { before: free_bytes(), peak: 0 }
    }

    fn now(&mut self) -> usize {
        let now = self.before.saturating_sub(free_bytes());
        self.peak = self.peak.max(now);
        now
    }

    fn print(&mut self) {
        let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
        let live = PEAK.load(Relaxed);
        let end = self.now();
        println!("live at the peak: {:.1} MiB", mib(live));
        println!("reserved at the peak: {:.1} MiB, {:.2} of live", mib(self.peak), self.peak as f64 / live as f64);
        println!("reserved at the end: {:.1} MiB", mib(end));
    }
}

/// FNV-1a.
struct Checksum(u64);

impl Checksum {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

fn wait(client: &Client) {
    block_on(client.sync()).expect("nothing failed");
}

/// Starts a thread for each number below `threads`, which does with what it is sent what `work` says.
fn workers<'scope, Work: Send + 'scope, Done: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    client: &Client,
    threads: usize,
    work: impl Fn(&Client, Work) -> Done + Copy + Send + 'scope,
) -> Vec<(mpsc::Sender<Work>, mpsc::Receiver<Done>)> {
    let start = |_| {
        let (send_work, tasks) = mpsc::channel();
        let (send_done, done) = mpsc::channel();
        let client = client.clone();
        scope.spawn(move || {
            for task in tasks {
                if send_done.send(work(&client, task)).is_err() {
                    return;
                }
            }
        });
        (send_work, done)
    };
    (0..threads).map(start).collect()
}

fn train(client: &Client, threads: usize, rounds: usize, largest: usize) {
    let mut reserved = Reserved::new();
    let mut weights: Layers = [(INPUTS, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, OUTPUTS)]
        .map(|(from, to)| Tensor::random(client, from * to, from + to, (4.0 / from as f32).sqrt()));
    // Every kernel is compiled once.
    let warm = gradients(client, &weights, 8, 1);
    drop(plus(client, &weights[0], &warm[0], 0.0));
    drop(warm);
    wait(client);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let workers = workers(scope, client, threads, |client, (weights, batch, seed): (Layers, usize, usize)| {
            gradients(client, &weights, batch, seed)
        });
        for round in 0..rounds {
            let mut samples = 0;
            for (index, (work, _)) in workers.iter().enumerate() {
                let seed = round * threads + index;
                let large = round % threads == index;
                let batch = if large { largest - (seed * 37) % (largest / 4) } else { 16 + (seed * 29) % 112 };
                samples += batch;
                let shared = [0, 1, 2].map(|layer: usize| weights[layer].shared());
                work.send((shared, batch, 1000 + 10 * seed)).expect("the worker lives");
            }
            for (_, done) in &workers {
                let gradients = done.recv().expect("the worker lives");
                for (weight, gradient) in weights.iter_mut().zip(gradients) {
                    *weight = plus(client, weight, &gradient, -0.1 / samples as f32);
                }
            }
            wait(client);
            reserved.now();
        }
    });
    println!("a round: {:.2} ms", start.elapsed().as_secs_f64() * 1e3 / rounds as f64);
    reserved.print();
    let mut checksum = Checksum(0xcbf2_9ce4_8422_2325);
    let mut sum = 0.0;
    for weight in &weights {
        let bytes = client.read_one(weight.handle.clone()).expect("nothing failed");
        checksum.add(&bytes);
        sum += f32::from_bytes(&bytes).iter().map(|number| f64::from(*number)).sum::<f64>();
    }
    println!("weights: checksum {:016x}, sum {sum:.6}", checksum.0);
}

/// The threads take turns: one makes large tensors, and the main thread reads them on its own stream.
fn copies(client: &Client, threads: usize, rounds: usize, largest: usize) {
    wait(client);
    let mut reserved = Reserved::new();
    let mut checksum = Checksum(0xcbf2_9ce4_8422_2325);
    std::thread::scope(|scope| {
        let workers = workers(scope, client, threads, |client, seed: usize| {
            let length = |index| largest / 16 + (seed * 7919 + index * 104_729) % (largest / 4);
            (0..8).map(|index| Tensor::random(client, length(index), seed + index, 1.0)).collect::<Vec<_>>()
        });
        for round in 0..rounds {
            let (work, done) = &workers[round % threads];
            work.send(round).expect("the worker lives");
            for tensor in done.recv().expect("the worker lives") {
                checksum.add(&client.read_one(tensor.handle.clone()).expect("nothing failed"));
            }
            wait(client);
            reserved.now();
        }
    });
    reserved.print();
    println!("tensors: checksum {:016x}", checksum.0);
}

fn main() {
    let client = cubecl::Device::default().client();
    wait(&client);
    let device = cudarc::driver::result::device::get(0).expect("a device");
    // SAFETY: the device is there; the context is released with the process.
    unsafe {
        let context = cudarc::driver::result::primary_ctx::retain(device).expect("a context");
        cudarc::driver::result::ctx::set_current(context).expect("a context");
    }
    let mut arguments: Vec<_> = std::env::args().skip(1).collect();
    let copying = arguments.first().is_some_and(|argument| argument == "copies");
    if copying {
        arguments.remove(0);
    }
    let number = |at: usize, usual| arguments.get(at).map_or(usual, |argument| argument.parse().expect("a number"));
    let (threads, rounds) = (number(0, 8), number(1, 64));
    if copying {
        return copies(&client, threads, rounds, number(2, 1 << 20));
    }
    train(&client, threads, rounds, number(2, 16_384));
    for alive in [0, 1000] {
        println!("an allocation and a drop, {alive} others alive: {:.2} us", allocation_us(&client, alive));
    }
}
