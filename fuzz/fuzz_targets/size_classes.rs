//! The laws of the size classes, over every size and number of leading bits.
#![no_main]

use binpool::{LeadingBits, SizeClasses};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, usize)| {
    let (bits, bytes) = input;
    let Ok(classes) = LeadingBits::new(u32::from(bits)) else {
        assert!(u32::from(bits) > LeadingBits::LARGEST);
        return;
    };
    let bin = classes.bin_number(bytes);
    let size = classes.alloc_size(bin);
    assert!(bin < classes.bin_count());
    assert!(size >= bytes);
    assert!(bin == 0 || classes.alloc_size(bin - 1) < bytes);
    assert_eq!(classes.bin_number(size), bin);
});
