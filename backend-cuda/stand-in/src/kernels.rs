//! The kernels that the stand-in has, on the host: those of the array crate, one for the tests and the example of cudarc, one of
//! `binpool replay`, and one of the example `check`.

use std::{ffi::c_void, thread, time::Duration};

use crate::{
    Code, INVALID_VALUE, NOT_FOUND,
    device::Device,
    transfer::{read, write},
};

/// What a kernel does with its arguments, each 8 bytes.
type Body = fn(&Device, &Launch) -> Result<(), Code>;

/// Name, number of arguments, body. The number of a kernel is its place here, counted from 1.
const KERNELS: [(&str, usize, Body); 9] = [
    ("array_add", 7, |device, launch| {
        launch.pairs(device, |left, right| left + right)
    }),
    ("array_subtract", 7, |device, launch| {
        launch.pairs(device, |left, right| left - right)
    }),
    ("array_multiply", 7, |device, launch| {
        launch.pairs(device, |left, right| left * right)
    }),
    ("array_sum", 5, |device, launch| {
        launch.reduce(device, 0.0, |one, other| one + other)
    }),
    ("array_minimum", 5, |device, launch| {
        launch.reduce(device, f32::NAN, f32::min)
    }),
    ("array_maximum", 5, |device, launch| {
        launch.reduce(device, f32::NAN, f32::max)
    }),
    // Result, operand, number of elements: adds the operand to the result.
    ("add_to", 3, |device, launch| {
        let [result, operand, count, ..] = launch.arguments;
        let sums = floats(device, result, count)?
            .into_iter()
            .zip(floats(device, operand, count)?)
            .map(|(one, other)| one + other);
        put(device, result, sums)
    }),
    // A byte, and nanoseconds: takes so long, and writes the byte as it is.
    ("last_use", 2, |device, launch| {
        let [byte, nanoseconds, ..] = launch.arguments;
        thread::sleep(Duration::from_nanos(nanoseconds));
        write(device, byte, &read(device, byte, 1)?)
    }),
    // Words to read, words to write, their number, the first one, the number that they are to be, and how many were another: counts
    // those, and writes the next number.
    ("hand_over", 6, |device, launch| {
        let [from, to, count, _first, expected, wrong, ..] = launch.arguments;
        if count > launch.blocks * launch.threads {
            return Err(INVALID_VALUE);
        }
        let words = |number: u64| u32::try_from(number).map_err(|_| INVALID_VALUE);
        let (is, next) = (
            words(expected)?.to_ne_bytes(),
            words(expected + 1)?.to_ne_bytes(),
        );
        let count = usize::try_from(count).map_err(|_| INVALID_VALUE)?;
        let seen = read(device, from, 4 * count)?;
        let others = seen.as_chunks().0.iter().filter(|word| **word != is);
        let before = read(device, wrong, 8)?
            .try_into()
            .map_err(|_| INVALID_VALUE)?;
        let sum = u64::from_ne_bytes(before) + others.count() as u64;
        write(device, wrong, &sum.to_ne_bytes())?;
        write(device, to, &next.repeat(count))
    }),
];

/// Returns the number of the kernel of a name in a module.
pub(crate) fn find(module: &str, name: &str) -> Result<usize, Code> {
    let place = KERNELS.iter().position(|(known, ..)| *known == name);
    let is_there = module.contains(&format!(".entry {name}("));
    place
        .filter(|_| is_there)
        .map(|place| place + 1)
        .ok_or(NOT_FOUND)
}

/// A launch of a kernel.
pub(crate) struct Launch {
    body: Body,
    blocks: u64,
    threads: u64,
    arguments: [u64; 7],
}

impl Launch {
    pub(crate) fn new(
        kernel: usize,
        blocks: u32,
        threads: u32,
        arguments: *const *const c_void,
    ) -> Result<Self, Code> {
        let kernel = kernel.checked_sub(1).and_then(|place| KERNELS.get(place));
        let (_, count, body) = *kernel.ok_or(INVALID_VALUE)?;
        let mut values = [0; 7];
        for (place, value) in values.iter_mut().take(count).enumerate() {
            // SAFETY: The program passes a pointer to the place of each argument.
            let argument = unsafe { arguments.wrapping_add(place).read() };
            // SAFETY: The arguments of these kernels are 8 bytes each.
            *value = unsafe { argument.cast::<u64>().read_unaligned() };
        }
        Ok(Self {
            body,
            blocks: blocks.into(),
            threads: threads.into(),
            arguments: values,
        })
    }

    pub(crate) fn run(&self, device: &Device) -> Result<(), Code> {
        (self.body)(device, self)
    }

    /// Element by element: left, its start, right, its start, result, its start, number of elements.
    fn pairs(&self, device: &Device, combine: fn(f32, f32) -> f32) -> Result<(), Code> {
        let [left, left_start, right, right_start, result, start, count] = self.arguments;
        if count > self.blocks * self.threads {
            return Err(INVALID_VALUE);
        }
        let left = floats(device, left + 4 * left_start, count)?;
        let right = floats(device, right + 4 * right_start, count)?;
        let results = left.into_iter().zip(right);
        let results = results.map(|(left, right)| combine(left, right));
        put(device, result + 4 * start, results)
    }

    /// A partial result for each block: data, its start, its length, results, their start.
    fn reduce(
        &self,
        device: &Device,
        nothing: f32,
        combine: fn(f32, f32) -> f32,
    ) -> Result<(), Code> {
        let [data, start, length, results, results_start, ..] = self.arguments;
        let mut partial = vec![nothing; usize::try_from(self.blocks).map_err(|_| INVALID_VALUE)?];
        let blocks = partial.len();
        let threads = usize::try_from(self.threads).map_err(|_| INVALID_VALUE)?;
        for (place, element) in floats(device, data + 4 * start, length)?.iter().enumerate() {
            let block = &mut partial[place / threads % blocks];
            *block = combine(*block, *element);
        }
        put(device, results + 4 * results_start, partial.into_iter())
    }
}

fn floats(device: &Device, address: u64, count: u64) -> Result<Vec<f32>, Code> {
    let count = usize::try_from(count).map_err(|_| INVALID_VALUE)?;
    let bytes = read(device, address, 4 * count)?;
    let floats = bytes.as_chunks().0.iter();
    Ok(floats.map(|bytes| f32::from_ne_bytes(*bytes)).collect())
}

fn put(device: &Device, address: u64, floats: impl Iterator<Item = f32>) -> Result<(), Code> {
    let bytes: Vec<u8> = floats.flat_map(f32::to_ne_bytes).collect();
    write(device, address, &bytes)
}
