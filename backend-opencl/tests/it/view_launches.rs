//! Launches with views that share bytes. NVIDIA's driver crashed after such launches when the views went.

use binpool_allocators::{Backend, Event, Memory, MemoryFlags, Queue};
use binpool_opencl::{
    Argument, ChannelOrder, ChannelType, ClKernel, ClMemory, HostPitches, ImageFormat, ImagePart,
    ImageRegion, ImageShape, OpenClError, SvmPointer,
};

use crate::common::{
    Bench,
    launches::{ADD, Kernels, SCALE},
};

/// The views of the tests, in steps of the device's alignment: two begin together, one lies in another, and two overlap.
const VIEWS: [[usize; 2]; 4] = [[0, 4], [0, 2], [1, 3], [3, 5]];
const STEPS: usize = 6;

struct Views {
    kernels: Kernels,
    scale: ClKernel,
    /// The floats of a step.
    step: usize,
}

impl Views {
    fn new() -> Self {
        let kernels = Kernels::new();
        let alignment = kernels.bench.backend.limits().alignment.bytes();
        Self {
            scale: kernels.kernel("scale", &SCALE),
            step: alignment.max(256) / size_of::<f32>(),
            kernels,
        }
    }

    fn view(&self, whole: &ClMemory, [start, end]: [usize; 2]) -> ClMemory {
        let step = self.step * size_of::<f32>();
        whole.slice(start * step..end * step).unwrap()
    }

    /// Doubles the floats of a view.
    fn double(&self, view: &ClMemory) {
        let bench = &self.kernels.bench;
        let launch = self.scale.launch(&bench.queue, &[view.bytes() / 4]);
        let launch = launch.arguments([Argument::Memory(view), Argument::value(&2.0_f32)]);
        launch.enqueue().unwrap();
    }
}

#[test]
fn views_that_share_bytes_go_in_any_order_after_launches() {
    let views = Views::new();
    let bench = &views.kernels.bench;
    let orders = [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2], [2, 3, 0, 1]];
    for (index, order) in orders.iter().enumerate() {
        let ones = vec![1.0_f32; STEPS * views.step];
        let whole = bench
            .backend
            .create_buffer_from(&ones, MemoryFlags::empty());
        let whole = whole.unwrap();
        let mut made = VIEWS.map(|steps| Some(views.view(&whole, steps)));
        let gate = bench.gate();
        bench
            .backend
            .enqueue_barrier(bench.queue.after(std::slice::from_ref(&gate)))
            .unwrap();
        made.iter().flatten().for_each(|view| views.double(view));
        let drop_all = |made: &mut [Option<ClMemory>; 4]| {
            for &view in order {
                drop(made[view].take());
            }
        };
        // Once while the launches are pending, and once after they have ended.
        if index % 2 == 0 {
            drop_all(&mut made);
        }
        bench.open_gate(&gate);
        bench.queue.finish().unwrap();
        drop_all(&mut made);
        let doubled = |step: usize| {
            let times = VIEWS
                .iter()
                .filter(|[start, end]| (*start..*end).contains(&step));
            2.0_f32.powi(i32::try_from(times.count()).unwrap())
        };
        let expected: Vec<_> = (0..ones.len()).map(|at| doubled(at / views.step)).collect();
        assert_eq!(views.kernels.read_floats(&whole), expected);
    }
}

#[test]
fn one_launch_reads_a_buffer_and_views_of_it_that_share_bytes() {
    let views = Views::new();
    let bench = &views.kernels.bench;
    let add = views.kernels.kernel("add", &ADD);
    let counted: Vec<f32> = (0_u16..).take(STEPS * views.step).map(f32::from).collect();
    let whole = views.kernels.floats(&counted);
    let [long, short, later, _] = VIEWS.map(|steps| views.view(&whole, steps));
    let result = bench.buffer(views.step * 4);
    for (one, other, apart) in [(&whole, &later, 1), (&long, &later, 1), (&short, &long, 0)] {
        let launch = add.launch(&bench.queue, &[views.step]);
        let arguments = [one, other, &result].map(|memory| Argument::Memory(memory));
        launch
            .arguments(arguments)
            .enqueue()
            .unwrap()
            .wait()
            .unwrap();
        let sum = |at: usize| counted[at] + counted[at + apart * views.step];
        let expected: Vec<_> = (0..views.step).map(sum).collect();
        assert_eq!(views.kernels.read_floats(&result), expected);
    }
}

/// NVIDIA's driver reads other bytes.
#[test]
fn a_row_of_pixels_over_a_view_is_the_bytes_of_the_view() {
    let views = Views::new();
    let bench = &views.kernels.bench;
    let (backend, queue) = (&bench.backend, &bench.queue);
    let whole = bench.filled(STEPS * views.step * 4, 3);
    let view = views.view(&whole, VIEWS[2]);
    let format = ImageFormat::new(ChannelOrder::R, ChannelType::UnsignedInt8);
    let shape = ImageShape::d1_buffer(64);
    let row = match backend.create_image_over(queue, &view, format, shape, None) {
        Ok(row) => row,
        // PoCL 3.1 makes no images over parts of buffers.
        Err(OpenClError::Device(error)) => {
            return assert!(
                error.to_string().contains("use a buffer of its own"),
                "{error}"
            );
        }
        Err(error) => panic!("{error}"),
    };
    let (all, tight) = (ImageRegion::all(shape), HostPitches::TIGHT);
    let middle = ImageRegion::new([16], [8]);
    backend
        .write_part(
            queue,
            ImagePart::new(&row, middle).with_pitches(tight),
            &[5_u8; 8],
        )
        .unwrap();
    let mut expected = [3_u8; 64];
    expected[16..24].fill(5);
    let mut seen = [0_u8; 64];
    backend
        .read_part(
            queue,
            ImagePart::new(&row, all).with_pitches(tight),
            &mut seen,
        )
        .unwrap();
    assert_eq!(seen, expected);
    assert_eq!(bench.read(&view)[..64], expected);
    let mut map = backend.map_image_mut::<u8>(queue, &row, middle).unwrap();
    assert_eq!(map.row(0, 0), Some(&[5_u8; 8][..]));
    map.row_mut(0, 0).unwrap().fill(6);
    map.unmap().unwrap();
    assert_eq!(bench.read(&view)[15..25], [3, 6, 6, 6, 6, 6, 6, 6, 6, 3]);
}

/// A runtime may take the address under a buffer over shared memory for memory of the host to copy to.
#[test]
fn a_row_of_pixels_over_a_buffer_over_shared_memory_is_mapped() {
    let bench = Bench::new();
    let (backend, queue) = (&bench.backend, &bench.queue);
    let shared = bench.svm(256);
    bench.write(&shared, &[3; 256]);
    let buffer = shared.as_buffer(MemoryFlags::empty(), None).unwrap();
    let format = ImageFormat::new(ChannelOrder::R, ChannelType::UnsignedInt8);
    let shape = ImageShape::d1_buffer(64);
    let row = backend.create_image_over(queue, &buffer, format, shape, None);
    let row = row.unwrap();
    let middle = ImageRegion::new([16], [8]);
    let mut map = backend.map_image_mut::<u8>(queue, &row, middle).unwrap();
    assert_eq!(map.row(0, 0), Some(&[3_u8; 8][..]));
    map.row_mut(0, 0).unwrap().fill(6);
    map.unmap().unwrap();
    assert_eq!(bench.read(&buffer)[15..25], [3, 6, 6, 6, 6, 6, 6, 6, 6, 3]);
    assert_eq!(bench.read(&shared)[15..25], [3, 6, 6, 6, 6, 6, 6, 6, 6, 3]);
}
