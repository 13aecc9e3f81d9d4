//! `ec-gpu-gen`'s FFT over `rust-gpu-tools`: compares its results with those of the CPU, and prints the figures of one side.

use std::time::{Duration, Instant};

use blstrs::Scalar;
use ec_gpu_gen::{fft::FftKernel, fft_cpu::serial_fft, SourceBuilder};
use ff::{Field, PrimeField};
use rust_gpu_tools::{opencl, Device, Program};

/// Lengths of transforms, as powers of two.
const LENGTHS: [u32; 5] = [12, 6, 10, 12, 8];

/// And of longer ones, whose buffers alone are made: PoCL takes minutes for their kernels.
const LONG: [u32; 8] = [20, 17, 21, 18, 20, 16, 21, 19];

fn main() {
    let device = Device::all()[0].opencl_device().unwrap();
    let source = SourceBuilder::new()
        .add_fft::<Scalar>()
        .build_64_bit_limbs();
    let program = || opencl::Program::from_opencl(device, &source).unwrap();

    let buffers = program();
    let host_time = host_time(&buffers);

    let mut kernel = FftKernel::create(vec![Program::Opencl(program())]).unwrap();
    let mut sum = Scalar::ZERO;
    for log_n in LENGTHS {
        sum += transform(&mut kernel, log_n);
    }
    println!(
        r#"{{"result": "{sum:?}", "host_us": {:.3}, "memory_over_live": {:.2}}}"#,
        host_time.as_secs_f64() * 1e6,
        memory_over_live(&program()),
    );
}

/// Makes the buffers of long transforms, and returns the most memory that was taken, over the most that was in use.
fn memory_over_live(program: &opencl::Program) -> f64 {
    for log_n in LONG {
        let bytes = |count: usize| count * size_of::<Scalar>();
        // As in `SingleFftKernel::radix_fft`: source, destination, two tables.
        let buffers = [1 << log_n, 1 << log_n, 128, 32]
            // SAFETY: nothing reads them.
            .map(|count| unsafe { program.create_buffer::<u8>(bytes(count)) }.unwrap());
        // A transform waits for the device in the end, as this does.
        program.read_into_buffer(&buffers[0], &mut [0]).unwrap();
    }
    #[cfg(feature = "pooled")]
    {
        let statistics = program.pool().statistics();
        statistics.peak_managed_bytes as f64 / statistics.peak_active_bytes as f64
    }
    // Without a pool the crate takes from the runtime what is in use, to the byte.
    #[cfg(not(feature = "pooled"))]
    1.0
}

/// Returns the time to make a buffer of 1 MiB and drop it: the median of many.
fn host_time(program: &opencl::Program) -> Duration {
    let mut times: Vec<_> = (0..2000)
        .map(|_| {
            let start = Instant::now();
            // SAFETY: nothing reads it.
            drop(unsafe { program.create_buffer::<u8>(1 << 20) }.unwrap());
            start.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}

/// Transforms numbers on the device and on the CPU, and returns the sum of the results, each times its place.
fn transform(kernel: &mut FftKernel<Scalar>, log_n: u32) -> Scalar {
    let mut omega = Scalar::ROOT_OF_UNITY;
    for _ in log_n..Scalar::S {
        omega = omega.square();
    }
    let mut values: Vec<_> = (0..1_u64 << log_n)
        .map(|i| Scalar::from(i * i + u64::from(log_n)))
        .collect();
    let mut expected = values.clone();
    kernel
        .radix_fft_many(&mut [&mut values], &[omega], &[log_n])
        .unwrap();
    serial_fft::<Scalar>(&mut expected, &omega, log_n);
    assert!(
        values == expected,
        "the device and the CPU differ at 2^{log_n}"
    );
    values
        .iter()
        .zip(1_u64..)
        .map(|(value, place)| *value * Scalar::from(place))
        .sum()
}
