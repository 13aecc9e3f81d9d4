//! Parts of memory in every call of this backend that takes memory: offsets count from the part, and what lies beside it stays as it is.
//!
//! `checks/conformance/tests/parts.rs` lists these calls, and fails for one that it does not know.

use std::cell::RefCell;

use binpool::{Allocator, ImmediateAllocator, PoolOptions, SvmAllocator};
use binpool_allocators::{
    AsMemory, Backend, Error, Event, InvalidRequest, Memory, MemoryFlags, MemoryKind, Queue,
    Region, Slice, SvmBackend, SvmGrain,
};
use binpool_conformance::{part_of, transfers_keep_to};
use binpool_opencl::{
    Argument, ClKernel, ClMemory, ClProgram, Extent, ImageKind, ImagePart, ImageRegion, ImageShape,
    MapMode, MigrationFlags, OpenClBackend, OpenClError, Parameter, ParameterAccess, Rect,
    RectPart, SvmPointer,
};

use crate::common::{
    Bench, numbered,
    picture::{ANY, RGBA8, TIGHT},
};

const SOURCE: &str = "
kernel void plain(global uint *words) { words[get_global_id(0)] += 1; }
kernel void shifted(global uint *words, ulong first) { words[first + get_global_id(0)] += 1; }
kernel void follow(global const ulong *addresses)
{ ((global uint *) addresses[0])[get_global_id(0)] += 1; }
kernel void look(read_only image1d_buffer_t image, global uint4 *pixels)
{ pixels[get_global_id(0)] = read_imageui(image, get_global_id(0)); }
";

type AnyMemory<'a> = &'a dyn AsMemory<OpenClBackend>;

struct Parts {
    bench: Bench,
    plain: ClKernel,
    shifted: ClKernel,
    follow: ClKernel,
    look: ClKernel,
}

impl Parts {
    fn new() -> Self {
        let bench = Bench::new();
        let program = ClProgram::build(&bench.backend, SOURCE, "").unwrap();
        let each = Extent::PerItem(1);
        let words = Parameter::in_out::<u32>(each);
        let addresses = Parameter::input::<u64>(Extent::Fixed(1));
        // SAFETY: each work item reads and writes the word of its id, and nothing else.
        let plain = unsafe { program.kernel("plain", &[words]) };
        // SAFETY: as above, counted from the offset.
        let shifted = unsafe { program.kernel("shifted", &[words, Parameter::offset_u64(0)]) };
        // SAFETY: as above, at an address in memory that the launch names.
        let follow = unsafe { program.kernel("follow", &[addresses]) };
        let look = [
            Parameter::image(ImageKind::D1Buffer, ParameterAccess::Input),
            Parameter::output::<[u32; 4]>(each),
        ];
        // SAFETY: each work item reads the pixel of its id and writes its colour, and launches have at most as many items as the image has pixels.
        let look = unsafe { program.kernel("look", &look) };
        Self {
            plain: plain.unwrap(),
            shifted: shifted.unwrap(),
            follow: follow.unwrap(),
            look: look.unwrap(),
            bench,
        }
    }

    /// Makes every call with each kind of part of all kinds of memory.
    fn each(&self, test: fn(&Self, &Part<'_>)) {
        let backend = &self.bench.backend;
        let bytes = 2 * backend.limits().alignment.bytes() + 2048;
        self.of_memory(&self.bench.buffer(bytes), test);
        let host = backend.create_host_buffer(vec![0_u8; bytes], MemoryFlags::empty());
        self.of_memory(&host.unwrap(), test);
        let buffers = || ImmediateAllocator::new(backend).unwrap();
        self.of_pool(buffers(), true, test);
        self.of_pool(buffers(), false, test);
        if backend.limits().svm.coarse {
            let svm = self.bench.svm(bytes);
            self.of_memory(&svm, test);
            self.of_memory(&svm.as_buffer(MemoryFlags::empty(), None).unwrap(), test);
            self.of_pool(
                SvmAllocator::new(backend, SvmGrain::Coarse).unwrap(),
                true,
                test,
            );
        }
    }

    fn of_memory(&self, whole: AnyMemory<'_>, test: fn(&Self, &Part<'_>)) {
        let (backend, queue) = (&self.bench.backend, &self.bench.queue);
        let step = backend.limits().alignment.bytes();
        let test =
            |start, part: AnyMemory<'_>| test(self, &Part::new(&self.bench, (whole, start), part));
        test(4, &part_of(whole, Region::new(4, 1024)));
        let elements = Slice::<u32, _>::new((backend, whole)).unwrap();
        let slice = elements.slice(3..259).unwrap();
        test(12, &slice);
        test(32, &slice.slice(5..250).unwrap());
        test(step, &elements.slice(step / 4..).unwrap());
        let view = whole.memory_on(queue).unwrap().slice(step..step + 1024);
        let view = view.unwrap();
        test(step, &view);
        test(step + 20, &part_of(&view, Region::new(20, 800)));
    }

    fn of_pool(
        &self,
        allocator: impl Allocator<Backend = OpenClBackend>,
        segments: bool,
        test: fn(&Self, &Part<'_>),
    ) {
        let (backend, queue) = (&self.bench.backend, &self.bench.queue);
        let pool = PoolOptions::new()
            .segments(segments)
            .build(allocator, queue)
            .unwrap();
        let step = backend.limits().alignment.bytes();
        let _before = pool.allocate(step).unwrap();
        let block = pool.allocate(2 * step + 2048).unwrap();
        self.of_memory(&block, test);
        let test =
            |start, part: AnyMemory<'_>| test(self, &Part::new(&self.bench, (&block, start), part));
        test(8, &block.slice(8..1000).unwrap());
        let words = block.slice(..).unwrap().cast::<u32>().unwrap();
        test(20, &words.slice(5..).unwrap());
        test(step, &block.view(step..step + 1024).unwrap());
    }
}

/// A part of some memory, and what the bytes of that memory are.
struct Part<'a> {
    bench: &'a Bench,
    whole: AnyMemory<'a>,
    /// Where the part starts in `whole`.
    start: usize,
    memory: AnyMemory<'a>,
    expected: RefCell<Vec<u8>>,
}

impl<'a> Part<'a> {
    fn new(
        bench: &'a Bench,
        (whole, start): (AnyMemory<'a>, usize),
        memory: AnyMemory<'a>,
    ) -> Self {
        let expected = vec![200; whole.size()];
        bench
            .backend
            .write(&bench.queue, whole, 0, &expected)
            .unwrap();
        Self {
            bench,
            whole,
            start,
            memory,
            expected: expected.into(),
        }
    }

    /// The bytes of the part.
    fn bytes(&self) -> Vec<u8> {
        self.expected.borrow()[self.start..][..self.memory.size()].to_vec()
    }

    /// Checks that the part has `data` at `at`, and that nothing else has changed.
    fn changed(&self, call: &str, at: usize, data: &[u8]) {
        let mut expected = self.expected.borrow_mut();
        expected[self.start + at..][..data.len()].copy_from_slice(data);
        let mut bytes = vec![0_u8; expected.len()];
        self.bench
            .backend
            .read(&self.bench.queue, self.whole, 0, &mut bytes)
            .unwrap();
        let place = bytes
            .iter()
            .zip(&*expected)
            .position(|(one, other)| one != other);
        assert_eq!(
            place,
            None,
            "{call} at {at} of the part at {} of {}",
            self.start,
            expected.len()
        );
    }

    fn is_svm(&self) -> bool {
        let memory = self.memory.memory_on(&self.bench.queue).unwrap();
        matches!(memory.kind(), MemoryKind::Svm(_))
    }

    /// Where the part starts in the whole buffer, which this may itself be a view of.
    fn in_buffer(&self) -> usize {
        self.memory.memory_on(&self.bench.queue).unwrap().offset() + self.memory.start()
    }
}

#[test]
fn transfers_count_from_the_part() {
    Parts::new().each(|parts, part| {
        let Bench { backend, queue } = &parts.bench;
        transfers_keep_to(backend, queue, (part.whole, part.start), part.memory);
    });
}

#[test]
fn transfers_of_lent_memory_may_start_at_any_address() {
    let Bench { backend, queue } = &Bench::new();
    let mut bytes = vec![0_u8; 2000];
    for start in 0..17 {
        let lent = &mut bytes[start..][..1600];
        let check = |memory: &ClMemory| {
            transfers_keep_to(backend, queue, (memory, 0), memory);
            let part = part_of(memory, Region::new(start, 800));
            transfers_keep_to(backend, queue, (memory, start), &part);
        };
        backend.with_host_buffer(lent, ANY, check).unwrap();
    }
}

#[test]
fn transfers_of_parts_and_rectangles_count_from_the_part() {
    Parts::new().each(|parts, part| {
        let Bench { backend, queue } = &parts.bench;
        let memory = part.memory;
        backend
            .write_part(queue, (&memory, 7), &[1_u8, 2, 3])
            .unwrap();
        part.changed("write_part", 7, &[1, 2, 3]);
        let written = backend.enqueue_write_part(queue, (&memory, 17), [4, 5].into());
        written.unwrap().wait().unwrap();
        part.changed("enqueue_write_part", 17, &[4, 5]);
        let written = backend.enqueue_write_owned(queue, (&memory, 27), vec![6_u8; 3]);
        written.unwrap().wait().unwrap();
        part.changed("enqueue_write_owned", 27, &[6; 3]);
        let (mut read, own) = ([0_u8; 40], part.bytes());
        backend.read_part(queue, (&memory, 3), &mut read).unwrap();
        assert_eq!(read, own[3..43]);
        let read = backend.enqueue_read_part(queue, (&memory, 5)).unwrap();
        assert_eq!(read.wait().unwrap(), own[5..]);
        let read = backend
            .enqueue_read_owned(queue, (&memory, 9), vec![0_u8; 30])
            .unwrap();
        assert_eq!(read.wait().unwrap(), own[9..39]);

        let mut read = [0_u8; 10];
        backend
            .transfer_scope(|scope| {
                let written = scope.enqueue_write(queue, (&memory, 44), &[7_u8; 4])?;
                scope.enqueue_read(queue.after(&[written]), (&memory, 40), &mut read)?;
                Ok(())
            })
            .unwrap();
        part.changed("TransferScope::enqueue_write", 44, &[7; 4]);
        assert_eq!(read, part.bytes()[40..50]);

        // Two rows of three bytes, 16 bytes apart, from the third byte of the fourth row on.
        let rows = Rect::in_rows([3, 4, 0], 16);
        let rect = RectPart::new((&memory, rows), Rect::default(), [3, 2, 1]);
        backend.write_part(queue, rect, &[8_u8; 6]).unwrap();
        let mut two_rows = part.bytes()[67..86].to_vec();
        two_rows[..3].fill(8);
        two_rows[16..].fill(8);
        part.changed("write_part of a rectangle", 67, &two_rows);
    });
}

#[test]
fn rectangles_are_copied_between_parts() {
    Parts::new().each(|parts, part| {
        let Bench { backend, queue } = &parts.bench;
        let other = backend.create_buffer_from(&numbered(64), ANY).unwrap();
        let row = |origin| Rect::in_rows(origin, 16);
        let to = (&part.memory, row([5, 2, 0]));
        let copied = backend.enqueue_copy_rect(queue, (&other, row([1, 1, 0])), to, [9, 1, 1]);
        copied.unwrap().wait().unwrap();
        part.changed("enqueue_copy_rect", 37, &numbered(26)[17..]);
        let from = (&part.memory, row([4, 2, 0]));
        let copied = backend.enqueue_copy_rect(queue, from, (&other, row([0, 3, 0])), [9, 1, 1]);
        copied.unwrap().wait().unwrap();
        assert_eq!(parts.bench.read(&other)[48..57], part.bytes()[36..45]);
    });
}

#[test]
fn maps_count_from_the_part() {
    Parts::new().each(|parts, part| {
        let Bench { backend, queue } = &parts.bench;
        let memory = part.memory;
        backend.map_mut::<u8>(queue, memory, 5..9).unwrap().fill(1);
        part.changed("map_mut", 5, &[1; 4]);
        let map = backend.enqueue_map_mut::<u8>(queue, memory, 20..24, MapMode::Overwrite);
        map.unwrap().wait().unwrap().fill(2);
        part.changed("enqueue_map_mut", 20, &[2; 4]);
        let own = part.bytes();
        assert_eq!(
            *backend.map::<u8>(queue, memory, 3..30).unwrap(),
            own[3..30]
        );
        let map = backend.enqueue_map::<u8>(queue, memory, 8..).unwrap();
        assert_eq!(*map.wait().unwrap(), own[8..]);
    });
}

#[test]
fn elements_over_a_part_count_from_it() {
    Parts::new().each(|parts, part| {
        let Bench { backend, queue } = &parts.bench;
        let memory = part.memory;
        let words = || Slice::<u32, _>::new((backend, memory)).unwrap();
        let bytes = |words: &[u32]| bytemuck::cast_slice::<_, u8>(words).to_vec();
        words().write(queue, 2, &[1, 2]).unwrap();
        part.changed("Slice::write", 8, &bytes(&[1, 2]));
        words()
            .enqueue_write(queue, 5, &[3])
            .unwrap()
            .wait()
            .unwrap();
        part.changed("Slice::enqueue_write", 20, &bytes(&[3]));
        words()
            .enqueue_fill(queue, 7..9, &[4])
            .unwrap()
            .wait()
            .unwrap();
        part.changed("Slice::enqueue_fill", 28, &bytes(&[4, 4]));
        let other = backend.create_buffer_from(&[5_u32, 6], ANY).unwrap();
        let other = Slice::<u32, _>::new((backend, other)).unwrap();
        let copied = other.enqueue_copy_to(queue, &words().slice(10..).unwrap());
        copied.unwrap().wait().unwrap();
        part.changed("Slice::enqueue_copy_to", 40, &bytes(&[5, 6]));
        let source = words();
        let source = source.slice(2..4).unwrap();
        source.enqueue_copy_to(queue, &other).unwrap();
        assert_eq!(other.read_to_vec(queue).unwrap(), [1, 2]);
        backend.map_mut::<u32>(queue, &words(), ..).unwrap()[12] = 7;
        part.changed("map_mut of a slice", 48, &bytes(&[7]));
        let own: Vec<u32> = bytemuck::pod_collect_to_vec(&part.bytes());
        assert_eq!(*backend.map::<u32>(queue, &words(), ..).unwrap(), own);
        let mut read = [0; 5];
        words().read(queue, 1, &mut read).unwrap();
        assert_eq!(read, own[1..6]);
        assert_eq!(words().read_to_vec(queue).unwrap(), own);
        let pending = words().cast::<u8>().unwrap().enqueue_read(queue, 4..8);
        assert_eq!(pending.unwrap().wait().unwrap(), bytes(&own[1..2]));
    });
}

#[test]
fn images_and_parts_are_copied_to_each_other() {
    Parts::new().each(|parts, part| {
        let Bench { backend, queue } = &parts.bench;
        let shape = ImageShape::d2(4, 2);
        let all = ImageRegion::all(shape);
        let pixels = numbered(32);
        let image = backend
            .create_image_with_data(ANY, RGBA8, shape, &pixels, TIGHT)
            .unwrap();
        let copied = backend.enqueue_copy_image_to_buffer(queue, &image, all, part.memory, 40);
        copied.unwrap().wait().unwrap();
        part.changed("enqueue_copy_image_to_buffer", 40, &pixels);
        let copied = backend.enqueue_copy_buffer_to_image(queue, part.memory, 24, &image, all);
        copied.unwrap().wait().unwrap();
        assert_eq!(parts.bench.pixels(&image), part.bytes()[24..56]);
    });
}

#[test]
fn an_image_over_a_part_is_the_parts_bytes() {
    Parts::new().each(|parts, part| {
        let Bench { backend, queue } = &parts.bench;
        let shape = ImageShape::d1_buffer(64);
        let image = backend.create_image_over(queue, part.memory, RGBA8, shape, None);
        let alignment = backend.limits().alignment;
        let image = match image {
            Ok(image) => image,
            Err(OpenClError::Device(Error::InvalidRequest(refusal))) => {
                let offset = part.in_buffer();
                assert_eq!(refusal, InvalidRequest::Misaligned { offset, alignment });
                assert!(!alignment.divides(offset) && !part.is_svm());
                return;
            }
            Err(error) => {
                let is_part = part.in_buffer() > 0;
                let text = error.to_string();
                let of_part = text.contains("images over a part of a buffer") && is_part;
                assert!(
                    of_part || text.contains("shared virtual memory") && part.is_svm(),
                    "{text}"
                );
                return;
            }
        };
        let third = ImageRegion::new([2], [1]);
        backend
            .write_part(queue, ImagePart::new(&image, third), &[9_u8; 4])
            .unwrap();
        part.changed("create_image_over", 8, &[9; 4]);
        assert_eq!(parts.bench.pixels(&image), part.bytes()[..256]);
        let seen = backend.create_buffer(64 * 16, ANY).unwrap();
        let launch = parts.look.launch(queue, &[64]).image(&image).memory(&seen);
        if let Err(error) = launch.enqueue() {
            // NVIDIA's runtime has no images over sub-buffers in kernels.
            let is_refused = error.to_string().contains("code -52"); // CL_INVALID_KERNEL_ARGS
            assert!(is_refused && part.in_buffer() > 0, "{error}");
            return;
        }
        let seen = backend.map::<u32>(queue, &seen, ..).unwrap();
        let bytes = part.bytes()[..256].to_vec();
        let words: Vec<_> = bytes.into_iter().map(u32::from).collect();
        assert!(seen[..] == words, "a kernel sees them");
    });
}

#[test]
fn kernels_get_the_part() {
    Parts::new().each(|parts, part| {
        let Bench { backend, queue } = &parts.bench;
        let one_more = |at: usize, words: usize| -> Vec<u8> {
            let own = &part.bytes()[at..][..4 * words];
            let words = own.chunks_exact(4).map(bytemuck::pod_read_unaligned::<u32>);
            words.flat_map(|word| (word + 1).to_ne_bytes()).collect()
        };
        let launch = parts.shifted.launch(queue, &[10]).memory(part.memory);
        launch.enqueue().unwrap().wait().unwrap();
        part.changed("Launch::memory with an offset", 0, &one_more(0, 10));
        let argument = Argument::Memory(part.memory);
        let launched = parts
            .plain
            .launch(queue, &[20])
            .argument(argument)
            .enqueue();
        if part.is_svm() || backend.limits().alignment.divides(part.in_buffer()) {
            launched.unwrap().wait().unwrap();
            part.changed("Launch::argument", 0, &one_more(0, 20));
        } else {
            let error = launched.unwrap_err().to_string();
            assert!(error.contains("declare its offset"), "{error}");
        }
        let memory = part.memory.memory_on(queue).unwrap();
        let start = backend
            .svm_address(memory)
            .map_or(0, |start| start.addr().get());
        let address = (start + part.memory.start()) as u64;
        let addresses = backend.create_buffer_from(&[address], ANY).unwrap();
        let launch = parts.follow.launch(queue, &[5]).memory(&addresses);
        let launched = launch
            .indirect(part.memory, ParameterAccess::InOut)
            .enqueue();
        if part.is_svm() {
            launched.unwrap().wait().unwrap();
            part.changed("Launch::indirect", 0, &one_more(0, 5));
        } else {
            let OpenClError::Device(error) = launched.unwrap_err() else {
                panic!()
            };
            assert!(
                matches!(error, Error::InvalidRequest(InvalidRequest::NotSvm)),
                "{error}"
            );
        }
    });
}

#[test]
fn a_migration_leaves_the_bytes_as_they_are() {
    Parts::new().each(|parts, part| {
        let Bench { backend, queue } = &parts.bench;
        for flags in [MigrationFlags::HOST, MigrationFlags::CONTENT_UNDEFINED] {
            let moved = backend.enqueue_migrate(queue, &[part.memory], flags);
            moved.unwrap().wait().unwrap();
            part.changed("enqueue_migrate", 0, &part.bytes());
        }
    });
}

#[test]
fn a_part_is_lent_with_its_place_in_the_buffer() {
    Parts::new().each(|parts, part| {
        let Bench { backend, queue } = &parts.bench;
        let lent = backend.lend(queue, &[part.memory]).unwrap();
        let Ok((whole, offset)) = lent[0].whole_and_offset() else {
            assert!(part.is_svm());
            return;
        };
        let data = [3_u8; 8];
        // SAFETY: the buffer lives, and the call waits for the end of the write.
        let written = unsafe {
            let start = data.as_ptr().cast();
            cl3::command_queue::enqueue_write_buffer(
                queue.raw(),
                whole,
                1,
                offset + 16,
                data.len(),
                start,
                0,
                std::ptr::null(),
            )
        };
        // SAFETY: nothing else has the event.
        unsafe { cl3::event::release_event(written.unwrap()) }.unwrap();
        let view = lent[0].kernel_argument();
        assert_eq!(
            view.is_ok(),
            backend.limits().alignment.divides(part.in_buffer())
        );
        lent.end().unwrap();
        part.changed("lend", 16, &data);
    });
}
