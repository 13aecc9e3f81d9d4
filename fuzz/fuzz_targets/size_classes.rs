//! The laws of the size classes, over every size and number of leading bits; and pools over classes that a program made up
//! and that keep no law: they refuse, and hand out nothing that is too small.
#![no_main]

use std::sync::OnceLock;

use arbitrary::Arbitrary;
use binpool::{
    Backend, DeferredAllocator, LeadingBits, PoolError, PoolOptions, QueueOrder, SizeClasses,
};
use binpool_allocators::Align;
use binpool_mock::{MockBackend, MockDevice, MockQueue};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input {
    bits: u8,
    sizes: [Size; 2],
    pool: Option<PoolOver>,
}

/// A pool over lawful classes, or made up ones.
#[derive(Arbitrary, Debug)]
struct PoolOver {
    made_up: Option<MadeUp>,
}

/// A size next to a power of two, next to the largest size, or any.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Size {
    Near { exponent: u8, nudge: i16 },
    FromTheTop(u16),
    Any(usize),
}

impl Size {
    fn bytes(self) -> usize {
        match self {
            Self::Near { exponent, nudge } => {
                let power = 1_usize << (u32::from(exponent) % usize::BITS);
                power.wrapping_add_signed(isize::from(nudge))
            }
            Self::FromTheTop(below) => usize::MAX - usize::from(below),
            Self::Any(bytes) => bytes,
        }
    }
}

/// Classes of a program's own, with any numbers in them.
#[derive(Arbitrary, Clone, Debug)]
struct MadeUp {
    bins: u16,
    /// What becomes of a size: the bin is `(size >> shift) + start`, in no order where `mixed`.
    shift: u8,
    start: u16,
    mixed: bool,
    sizes: Vec<Size>,
}

impl SizeClasses for MadeUp {
    fn bin_count(&self) -> usize {
        self.bins.into()
    }

    fn bin_number(&self, bytes: usize) -> usize {
        let bytes = if self.mixed {
            bytes.rotate_left(17)
        } else {
            bytes
        };
        (bytes >> (u32::from(self.shift) % usize::BITS)).wrapping_add(self.start.into())
    }

    fn alloc_size(&self, bin: usize) -> usize {
        match self.sizes.len() {
            0 => 0,
            sizes => self.sizes[bin % sizes].bytes(),
        }
    }
}

fn check_laws(classes: LeadingBits, bytes: usize) {
    let bin = classes.bin_number(bytes);
    let size = classes.alloc_size(bin);
    assert!(bin < classes.bin_count());
    assert!(size >= bytes, "the class is too small");
    assert!(
        bin == 0 || classes.alloc_size(bin - 1) < bytes,
        "the class is not the least"
    );
    assert_eq!(
        classes.bin_number(size),
        bin,
        "a class size is its own class"
    );
    assert!(
        bytes == 0 || size - bytes <= bytes >> classes.bits(),
        "too much is wasted"
    );
    assert!(
        !bytes.is_power_of_two() || size == bytes,
        "classes end on round sizes"
    );
}

/// A device that says no to nothing but the largest sizes.
fn device() -> &'static (MockBackend, MockQueue) {
    static DEVICE: OnceLock<(MockBackend, MockQueue)> = OnceLock::new();
    DEVICE.get_or_init(|| {
        let device = MockDevice::builder()
            .capacity_bytes(1 << 60)
            .alignment(Align::new(64).expect("a power of two"))
            .build();
        let backend = device.backend();
        let queue = backend
            .create_queue(QueueOrder::InOrder)
            .expect("no fault was asked for");
        (backend, queue)
    })
}

fuzz_target!(|input: Input| {
    let [a, b] = input.sizes.map(Size::bytes);
    let Ok(classes) = LeadingBits::new(input.bits.into()) else {
        assert!(u32::from(input.bits) > LeadingBits::LARGEST);
        return;
    };
    check_laws(classes, a);
    check_laws(classes, b);
    let (less, more) = (a.min(b), a.max(b));
    let (low, high) = (classes.bin_number(less), classes.bin_number(more));
    assert!(low <= high && classes.alloc_size(low) <= classes.alloc_size(high));

    // Bins take time to be made: many do without.
    let Some(pool) = input.pool else {
        return;
    };
    let (backend, queue) = device();
    let is_lawful = pool.made_up.is_none();
    let options = match pool.made_up {
        Some(made_up) => PoolOptions::new().size_classes(made_up),
        None => PoolOptions::new().leading_bits(input.bits.into()),
    };
    for segments in [false, true] {
        let options = options.clone().segments(segments);
        let pool = options
            .build(DeferredAllocator::new(backend), queue)
            .expect("valid options");
        for bytes in [a, b, a] {
            match pool.allocate(bytes) {
                Ok(block) => {
                    assert_eq!(block.size(), bytes);
                    assert!(block.class_size() >= bytes, "{} bytes", block.class_size());
                }
                Err(PoolError::SizeClassTooSmall { .. }) => assert!(!is_lawful),
                Err(error) => assert!(error.is_out_of_memory(), "{error}"),
            }
        }
        assert_eq!(pool.active_bytes(), 0);
    }
});
