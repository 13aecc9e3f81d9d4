//! Trains a small transformer with candle for some steps, with sequences of different lengths, and then generates with it. Prints a checksum
//! of the results, the memory that the device gave, and the time.
//!
//! `candle-figures pool` has the memory of its tensors from a pool, and `candle-figures driver` from `cuMemAllocAsync`, as cudarc does by itself.
//! After either, `stream` uses a stream of its own in the place of the per-thread default stream. `candle-figures cpu` runs a little of it without
//! a GPU.

use std::time::{Duration, Instant};

use candle_core::{D, DType, Device, Result, Tensor, Var};
use cudarc::driver::{CudaStream, DeviceAllocator, StreamAllocator, result, set_device_allocator, sys};

const LAYERS: usize = 6;
const WIDTH: usize = 512;
const HEADS: usize = 8;
const WORDS: usize = 4096;
const BATCH: usize = 8;
/// Steps of training, and words that are generated.
const RUN: (usize, usize) = (60, 200);
const RUN_WITHOUT_GPU: (usize, usize) = (2, 2);

/// Numbers that look random, and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn tensor(&mut self, shape: (usize, usize), scale: f32, device: &Device) -> Result<Tensor> {
        let count = shape.0 * shape.1;
        let values = (0..count).map(|_| ((self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0) * scale);
        Tensor::from_vec(values.collect(), shape, device)
    }
}

struct Layer {
    attention: Var,
    output: Var,
    up: Var,
    down: Var,
}

struct Model {
    embedding: Var,
    layers: Vec<Layer>,
    memory: Memory,
}

impl Model {
    fn new(numbers: &mut Numbers, device: &Device) -> Result<Self> {
        let mut weight = |rows: usize, columns: usize| Var::from_tensor(&numbers.tensor((rows, columns), 1.0 / (rows as f32).sqrt(), device)?);
        let embedding = weight(WORDS, WIDTH)?;
        let mut layer = || {
            Ok(Layer {
                attention: weight(WIDTH, 3 * WIDTH)?,
                output: weight(WIDTH, WIDTH)?,
                up: weight(WIDTH, 4 * WIDTH)?,
                down: weight(4 * WIDTH, WIDTH)?,
            })
        };
        let layers = (0..LAYERS).map(|_| layer()).collect::<Result<_>>()?;
        Ok(Self { embedding, layers, memory: Memory::new(device)? })
    }

    fn weights(&self) -> impl Iterator<Item = &Var> {
        let of_layers = self.layers.iter().flat_map(|layer| [&layer.attention, &layer.output, &layer.up, &layer.down]);
        std::iter::once(&self.embedding).chain(of_layers)
    }

    /// The logarithms of probabilities of the next word at each place of each sequence.
    fn forward(&mut self, words: &Tensor) -> Result<Tensor> {
        let (batch, length) = words.dims2()?;
        let mut x = self.embedding.embedding(&words.flatten_all()?)?;
        let mask: Vec<f32> = (0..length).flat_map(|i| (0..length).map(move |j| if j > i { -1e9 } else { 0.0 })).collect();
        let mask = Tensor::from_vec(mask, (length, length), words.device())?;
        for layer in &self.layers {
            let heads = normalized(&x)?.matmul(&layer.attention)?.reshape((batch, length, 3, HEADS, WIDTH / HEADS))?;
            let part = |number: usize| heads.narrow(2, number, 1)?.squeeze(2)?.transpose(1, 2)?.contiguous();
            let (q, k, v) = (part(0)?, part(1)?, part(2)?);
            let scores = (q.matmul(&k.transpose(2, 3)?.contiguous()?)? * (1.0 / ((WIDTH / HEADS) as f64).sqrt()))?;
            let scores = candle_nn::ops::softmax(&scores.broadcast_add(&mask)?, D::Minus1)?;
            let mixed = scores.matmul(&v)?.transpose(1, 2)?.contiguous()?.reshape((batch * length, WIDTH))?;
            x = (x + mixed.matmul(&layer.output)?)?;
            self.memory.look();
            x = (&x + normalized(&x)?.matmul(&layer.up)?.gelu()?.matmul(&layer.down)?)?;
            self.memory.look();
        }
        candle_nn::ops::log_softmax(&normalized(&x)?.matmul(&self.embedding.t()?)?, D::Minus1)
    }
}

fn normalized(x: &Tensor) -> Result<Tensor> {
    x.broadcast_div(&(x.sqr()?.mean_keepdim(D::Minus1)? + 1e-5)?.sqrt()?)
}

/// What the device has given since the start.
struct Memory {
    free_at_start: usize,
    most_taken: usize,
    is_watched: bool,
}

impl Memory {
    fn new(device: &Device) -> Result<Self> {
        // What cuBLAS and the kernels take once.
        let one = Tensor::ones((64, 64), DType::F32, device)?;
        one.matmul(&one)?.sum_all()?.to_scalar::<f32>()?;
        drop(one);
        device.synchronize()?;
        let free_at_start = result::mem_get_info().map_or(0, |(free, _)| free);
        Ok(Self { free_at_start, most_taken: 0, is_watched: true })
    }

    fn look(&mut self) {
        if self.is_watched && let Ok((free, _)) = result::mem_get_info() {
            self.most_taken = self.most_taken.max(self.free_at_start.saturating_sub(free));
        }
    }
}

/// The most that was allocated from the driver's own pool at once, and the most that this had, in bytes.
fn of_the_drivers_pool() -> [u64; 2] {
    let mut pool = std::ptr::null_mut();
    // SAFETY: the device is there.
    let found = unsafe { sys::cuDeviceGetDefaultMemPool(&raw mut pool, 0) }.result();
    let attributes = [sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH, sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH];
    attributes.map(|attribute| {
        let mut bytes = 0_u64;
        if found.is_ok() {
            // SAFETY: the attribute is a number of 64 bits.
            let _ = unsafe { sys::cuMemPoolGetAttribute(pool, attribute, (&raw mut bytes).cast()) };
        }
        bytes
    })
}

fn checksum(sum: u64, value: f32) -> u64 {
    sum.wrapping_mul(0x100_0000_01b3) ^ u64::from(value.to_bits())
}

/// Leaves all memory to the driver.
struct Driver;

impl DeviceAllocator for Driver {
    fn for_stream(&self, _: &CudaStream) -> Option<Box<dyn StreamAllocator>> {
        None
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    if has("driver") && set_device_allocator(Box::new(Driver)).is_err() {
        candle_core::bail!("another allocator is set");
    }
    let device = match () {
        () if has("cpu") => Device::Cpu,
        () if has("stream") => Device::new_cuda_with_stream(0)?,
        () => Device::new_cuda(0)?,
    };
    let (steps, words_to_generate) = if has("cpu") { RUN_WITHOUT_GPU } else { RUN };
    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    let mut model = Model::new(&mut numbers, &device)?;
    let mut sum = 0;
    let (mut host, mut whole, mut timed) = (Duration::ZERO, Duration::ZERO, 0_u32);
    for step in 0..steps {
        // Memory is watched in the first half, and the second is timed.
        model.memory.is_watched = step < steps / 2;
        let length = 64 + (numbers.next() % 448) as usize;
        let words: Vec<u32> = (0..BATCH * (length + 1)).map(|_| (numbers.next() % WORDS as u64) as u32).collect();
        let words = Tensor::from_vec(words, (BATCH, length + 1), &device)?;
        device.synchronize()?;
        let start = Instant::now();
        let logarithms = model.forward(&words.narrow(1, 0, length)?.contiguous()?)?;
        let next = words.narrow(1, 1, length)?.contiguous()?.reshape((BATCH * length, 1))?;
        let loss = logarithms.gather(&next, 1)?.mean_all()?.neg()?;
        let gradients = loss.backward()?;
        model.memory.look();
        for weight in model.weights() {
            if let Some(gradient) = gradients.get(weight) {
                weight.set(&(weight.as_tensor() - (gradient * 0.1)?)?)?;
            }
        }
        drop((gradients, logarithms));
        let enqueued = start.elapsed();
        device.synchronize()?;
        if step >= steps / 2 {
            host += enqueued;
            whole += start.elapsed();
            timed += 1;
        }
        sum = checksum(sum, loss.to_scalar()?);
    }
    println!("{}", arguments.join(" "));
    let [live, reserved] = if has("cpu") { [0, 0] } else { of_the_drivers_pool() };
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    println!("training: checksum {sum:016x}, {:.2} ms of host time a step, {:.2} ms a step", host.as_secs_f64() * 1e3 / f64::from(timed), whole.as_secs_f64() * 1e3 / f64::from(timed));
    println!("training: taken from the device at most {:.3} GiB; from the driver's pool {:.3} GiB live, {:.3} GiB reserved", gib(model.memory.most_taken as u64), gib(live), gib(reserved));
    // Words one after another, each after all before: a sequence that grows.
    let mut words = vec![1_u32];
    let start = Instant::now();
    for _ in 0..words_to_generate {
        let logarithms = model.forward(&Tensor::new(&words[..], &device)?.unsqueeze(0)?)?;
        let last = logarithms.narrow(0, words.len() - 1, 1)?.argmax(D::Minus1)?;
        let last = last.to_vec1::<u32>()?[0];
        words.push(last);
        sum = checksum(sum, last as f32);
    }
    println!("generating: checksum {sum:016x}, {:.2} ms a word", start.elapsed().as_secs_f64() * 1e3 / words_to_generate as f64);
    Ok(())
}
