//! Kernels on images, samplers and pipes.

use std::slice::from_ref;

use binpool_allocators::{Error, Event, EventStatus, MemoryFlags, Queue};
use binpool_opencl::{
    Addressing, ChannelOrder, ChannelType, ClImage, ClKernel, ClPipe, ClProgram, ClSampler, Extent,
    Filter, ImageColor, ImageFormat, ImageKind, ImagePart, ImageRegion, ImageShape, Parameter,
    ParameterAccess,
};

use crate::common::{
    Bench,
    launches::{elements, parameter_refusal},
    picture::assert_says,
};

const SOURCE: &str = "
kernel void double_up(read_only image2d_t from, write_only image2d_t to)
{
    int2 place = (int2)(get_global_id(0), get_global_id(1));
    if (all(place < get_image_dim(from)) && all(place < get_image_dim(to)))
        write_imageui(to, place, read_imageui(from, place) * 2u);
}

kernel void sample(read_only image2d_t from, sampler_t sampler, float2 place, global float4 *color)
{
    color[0] = read_imagef(from, sampler, place);
}

kernel void increase(global uint *words)
{
    words[get_global_id(0)] += 1u;
}

// For rows of 4 pixels: PoCL 3.1 cannot ask how long one over a buffer is.
kernel void row_sum(read_only image1d_buffer_t row, global uint *sum)
{
    uint total = 0;
    for (int x = 0; x < 4; ++x)
        total += read_imageui(row, x).x;
    sum[0] = total;
}
";

const WORDS: ImageFormat = ImageFormat::new(ChannelOrder::Rgba, ChannelType::UnsignedInt32);
const FLOATS: ImageFormat = ImageFormat::new(ChannelOrder::Rgba, ChannelType::Float);
const SQUARE: ImageShape = ImageShape::d2(4, 4);

struct Images {
    bench: Bench,
    program: ClProgram,
}

impl Images {
    fn new() -> Self {
        let bench = Bench::new();
        let program = ClProgram::build(&bench.backend, SOURCE, "").unwrap();
        Self { bench, program }
    }

    fn kernel(&self, name: &str, parameters: &[Parameter]) -> ClKernel {
        // SAFETY: Every declaration in this file is what the source above does.
        let kernel = unsafe { self.program.kernel(name, parameters) }.unwrap();
        // SAFETY: Those that are launched in a plane go by both numbers of their work items.
        unsafe { kernel.in_dimensions(2) }
    }

    fn image(&self, format: ImageFormat, color: ImageColor) -> ClImage {
        let backend = &self.bench.backend;
        let image = backend
            .create_image(MemoryFlags::empty(), format, SQUARE)
            .unwrap();
        backend
            .enqueue_fill_image(&self.bench.queue, &image, ImageRegion::all(SQUARE), color)
            .unwrap()
            .wait()
            .unwrap();
        image
    }

    fn words(&self, image: &ClImage) -> Vec<u32> {
        let mut words = vec![0; 4 * 16];
        let (backend, queue) = (&self.bench.backend, &self.bench.queue);
        let all = ImageRegion::all(SQUARE);
        backend
            .read_part(queue, ImagePart::new(image, all), &mut words)
            .unwrap();
        words
    }
}

fn double_up(images: &Images) -> ClKernel {
    let [from, to] = [ParameterAccess::Input, ParameterAccess::Output]
        .map(|access| Parameter::image(ImageKind::D2, access));
    images.kernel("double_up", &[from, to])
}

#[test]
fn kernels_use_images_as_their_flags_allow() {
    let images = Images::new();
    let kernel = double_up(&images);
    let image = |flags| {
        let backend = &images.bench.backend;
        backend.create_image(flags, WORDS, SQUARE).unwrap()
    };
    let (read_only, write_only) = (
        image(MemoryFlags::READ_ONLY),
        image(MemoryFlags::WRITE_ONLY),
    );
    let launch = |from, to| {
        let launch = kernel.launch(&images.bench.queue, &[4, 4]);
        launch.image(from).image(to).enqueue()
    };
    let read = launch(&write_only, &write_only).unwrap_err();
    let flag = MemoryFlags::WRITE_ONLY;
    let says = format!(
        "parameter 0 of double_up is read only, but was given memory that was made with {flag}"
    );
    assert_says(&read, &says);
    let written = launch(&read_only, &read_only).unwrap_err();
    let flag = MemoryFlags::READ_ONLY;
    let says = format!(
        "parameter 1 of double_up is written, but was given memory that was made with {flag}"
    );
    assert_says(&written, &says);
    let done = launch(&read_only, &write_only).unwrap();
    done.wait().unwrap();
}

#[test]
fn kernels_read_and_write_images_in_order_across_queues() {
    let images = Images::new();
    let kernel = double_up(&images);
    let [one, two, three] =
        [1, 0, 0].map(|word| images.image(WORDS, ImageColor::Unsigned([word; 4])));
    let queues = [(); 2].map(|()| images.bench.another_queue());
    let gate = images.bench.gate();
    kernel
        .launch(queues[0].after(from_ref(&gate)), &[4, 4])
        .image(&one)
        .image(&two)
        .enqueue()
        .unwrap();
    // It has no wait list.
    let launch = kernel.launch(&queues[1], &[4, 4]).image(&two).image(&three);
    let later = launch.enqueue().unwrap();
    assert_eq!(later.status().unwrap(), EventStatus::Pending);
    images.bench.open_gate(&gate);
    for queue in &queues {
        queue.finish().unwrap();
    }
    assert_eq!(images.words(&three), [4; 64]);
}

#[test]
fn an_image_that_is_written_is_passed_once() {
    let images = Images::new();
    let kernel = double_up(&images);
    let image = images.image(WORDS, ImageColor::Unsigned([1; 4]));
    let launch = kernel.launch(&images.bench.queue, &[4, 4]);
    let error = launch.image(&image).image(&image).enqueue().unwrap_err();
    assert_says(
        &error,
        "parameter 0 of double_up shares bytes with parameter 1",
    );
}

#[test]
fn an_image_of_another_kind_or_context_is_refused() {
    let images = Images::new();
    let kernel = double_up(&images);
    let plane = images.image(WORDS, ImageColor::Unsigned([1; 4]));
    let volume = ImageShape::d3(4, 4, 4);
    let backend = &images.bench.backend;
    let volume = backend.create_image(MemoryFlags::empty(), WORDS, volume);
    let launch = kernel.launch(&images.bench.queue, &[4, 4]);
    let launched = launch.image(&volume.unwrap()).image(&plane).enqueue();
    let problem = "is a 2D image, but a 3D image was given".into();
    assert_eq!(parameter_refusal(launched), (0, problem));
    let other = Images::new();
    let foreign = other.image(WORDS, ImageColor::Unsigned([1; 4]));
    let launch = kernel.launch(&images.bench.queue, &[4, 4]);
    let error = launch.image(&foreign).image(&plane).enqueue().unwrap_err();
    assert!(error.to_string().contains("another backend"), "{error}");
}

#[test]
fn a_sampler_says_how_an_image_is_read() {
    let images = Images::new();
    let sample = images.kernel(
        "sample",
        &[
            Parameter::image(ImageKind::D2, ParameterAccess::Input),
            Parameter::sampler(),
            Parameter::value::<[f32; 2]>(),
            Parameter::output::<[f32; 4]>(Extent::Fixed(1)),
        ],
    );
    let image = images.image(FLOATS, ImageColor::Float([1.0, 2.0, 3.0, 4.0]));
    let color = images.bench.buffer(16);
    let read = |addressing, place: [f32; 2]| {
        let backend = &images.bench.backend;
        let sampler = ClSampler::new(backend, false, addressing, Filter::Nearest).unwrap();
        let launch = sample.launch(&images.bench.queue, &[1]);
        let launch = launch.image(&image).sampler(&sampler);
        launch.value(&place).memory(&color).enqueue().unwrap();
        elements::<f32>(&images.bench.read(&color))
    };
    assert_eq!(read(Addressing::Clamp, [1.5, 1.5]), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(read(Addressing::Clamp, [-9.5, 1.5]), [0.0; 4]);
    assert_eq!(
        read(Addressing::ClampToEdge, [-9.5, 1.5]),
        [1.0, 2.0, 3.0, 4.0]
    );
}

#[test]
fn an_image_over_a_buffer_is_ordered_with_the_buffer() {
    let images = Images::new();
    let words = Parameter::in_out::<u32>(Extent::PerItem(1));
    let increase = images.kernel("increase", &[words]);
    let row_sum = images.kernel(
        "row_sum",
        &[
            Parameter::image(ImageKind::D1Buffer, ParameterAccess::Input),
            Parameter::output::<u32>(Extent::Fixed(1)),
        ],
    );
    let (buffer, sum) = (images.bench.filled(64, 0), images.bench.buffer(4));
    let row = ImageShape::d1_buffer(4);
    let backend = &images.bench.backend;
    let row = backend
        .create_image_over(&images.bench.queue, &buffer, WORDS, row, None)
        .unwrap();
    let queues = [(); 2].map(|()| images.bench.another_queue());
    let gate = images.bench.gate();
    let launch = increase.launch(queues[0].after(from_ref(&gate)), &[16]);
    launch.memory(&buffer).enqueue().unwrap();
    let launch = row_sum.launch(&queues[1], &[1]).image(&row).memory(&sum);
    let later = launch.enqueue().unwrap();
    assert_eq!(later.status().unwrap(), EventStatus::Pending);
    images.bench.open_gate(&gate);
    later.wait().unwrap();
    assert_eq!(elements::<u32>(&images.bench.read(&sum)), [4]);
    // The sum would be written into the row that is summed.
    let launch = row_sum.launch(&queues[1], &[1]).image(&row).memory(&buffer);
    let error = launch.enqueue().unwrap_err();
    assert_says(&error, "shares bytes with parameter 1");
}

const PIPE_SOURCE: &str = "
kernel void put(global const uint *words, write_only pipe uint packets)
{
    write_pipe(packets, &words[get_global_id(0)]);
}

kernel void take(read_only pipe uint packets, global uint *words)
{
    read_pipe(packets, &words[get_global_id(0)]);
}
";

#[test]
fn kernels_pass_packets_on_or_the_device_has_no_pipes() {
    let bench = Bench::new();
    let pipes = [4, 8].map(|bytes| ClPipe::new(&bench.backend, bytes, 16));
    let [pipe, wide] = match pipes {
        [Ok(pipe), Ok(wide)] => [pipe, wide],
        [error, _] => {
            let error = error.unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
            return;
        }
    };
    let program = ClProgram::build(&bench.backend, PIPE_SOURCE, "-cl-std=CL2.0").unwrap();
    let words = Parameter::input::<u32>(Extent::PerItem(1));
    let taken = Parameter::output::<u32>(Extent::PerItem(1));
    let put = [words, Parameter::pipe::<u32>(ParameterAccess::Output)];
    let take = [Parameter::pipe::<u32>(ParameterAccess::Input), taken];
    // SAFETY: Each work item touches the word of its id, and nothing else.
    let put = unsafe { program.kernel("put", &put) }.unwrap();
    // SAFETY: As above.
    let take = unsafe { program.kernel("take", &take) }.unwrap();
    let (words, taken) = (bench.filled(64, 7), bench.buffer(64));
    let launch = put.launch(&bench.queue, &[16]).memory(&words);
    launch.pipe(&pipe).enqueue().unwrap();
    let launch = take.launch(&bench.queue, &[16]).pipe(&pipe);
    launch.memory(&taken).enqueue().unwrap();
    assert_eq!(bench.read(&taken), [7; 64]);
    let launch = take.launch(&bench.queue, &[16]).pipe(&wide);
    let (_, problem) = parameter_refusal(launch.memory(&taken).enqueue());
    assert_eq!(problem, "takes packets of 4 bytes, but was given 8");
}
