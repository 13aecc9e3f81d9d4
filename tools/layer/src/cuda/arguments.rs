//! The arguments of a call: words, one for each of those that are read here. CUPTI has them in structs, a call in registers.

use super::function::{Allocates, Bytes, Effect, Function, NODE, Place};

/// The words of `CUDA_MEM_ALLOC_NODE_PARAMS` that have the bytes and the address.
const NODE_BYTES: usize = 13;
const NODE_ADDRESS: usize = 14;

/// A pool of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DriverPool {
    /// Of a device, and nothing else is said: other processes cannot open it, and it has no maximum.
    Ordinary { device: usize },
    /// Of a device, with more that is said of it.
    Other,
    /// Of the host's memory, or of managed memory.
    OfHost,
}

/// `CU_MEM_ALLOCATION_TYPE_PINNED`; larger ones are of managed memory.
const PINNED: usize = 1;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const ON_DEVICE: usize = 1;

/// The arguments of a call.
///
/// # Invariants
///
/// I1: It points to as many words as the function has arguments that are read, and these are what CUDA's manual says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arguments(*const usize);

impl Arguments {
    /// Wraps the arguments that CUPTI passes.
    ///
    /// # Safety
    ///
    /// They are those of a call that has not returned, of the function that the effect is of (I1).
    pub(super) unsafe fn new(words: *const usize) -> Self {
        Self(words)
    }

    pub(super) fn word(self, number: usize) -> usize {
        word_at(self.0, number)
    }

    /// An argument of 32 bits.
    pub(super) fn number(self, number: usize) -> usize {
        self.word(number) & 0xffff_ffff
    }

    /// An argument that is an address.
    fn pointer(self, number: usize) -> *const usize {
        std::ptr::with_exposed_provenance(self.word(number))
    }

    /// The stream that a call allocates or frees on, if it names one.
    pub(super) fn stream(self, function: &Function) -> Option<usize> {
        let (Effect::Allocates(Allocates { stream, .. }) | Effect::Frees { stream, .. }) =
            function.effect
        else {
            return None;
        };
        stream.map(|number| function.stream_of(self.word(number)))
    }

    /// The address or handle that the call has written, which has succeeded.
    pub(super) fn result(self, place: Place) -> usize {
        match place {
            Place::First => self.got(0),
            Place::Node => word_at(self.pointer(NODE), NODE_ADDRESS),
        }
    }

    /// The bytes of the block. A pitch is known of a call that has succeeded only.
    pub(super) fn bytes(self, bytes: Bytes, has_succeeded: bool) -> usize {
        match bytes {
            Bytes::Second => self.word(1),
            Bytes::Pitched if has_succeeded => {
                word_at(self.pointer(1), 0).saturating_mul(self.word(3))
            }
            Bytes::Pitched => self.word(2).saturating_mul(self.word(3)),
            Bytes::Node => word_at(self.pointer(NODE), NODE_BYTES),
            Bytes::Array {
                has_depth,
                has_levels,
            } => {
                let levels = if has_levels { self.number(2) } else { 1 };
                array_bytes(self.pointer(1), has_depth, levels)
            }
        }
    }

    /// What is written to where an argument points.
    pub(super) fn got(self, number: usize) -> usize {
        word_at(self.pointer(number), 0)
    }

    /// What the pool is that a call makes, by its `CUmemPoolProps`.
    pub(super) fn made_pool(self) -> DriverPool {
        let [kind, location, security, most, usage] =
            std::array::from_fn(|number| word_at(self.pointer(1), number));
        let (place, device) = (location & 0xffff_ffff, location >> 32);
        if kind & 0xffff_ffff > PINNED || place > ON_DEVICE {
            DriverPool::OfHost
        } else if [kind, place, security, most, usage] == [PINNED, ON_DEVICE, 0, 0, 0] {
            DriverPool::Ordinary { device }
        } else {
            DriverPool::Other
        }
    }

    /// Writes a result to where an argument points, if it does.
    pub(super) fn put(self, number: usize, value: usize) {
        let place: *mut usize = std::ptr::with_exposed_provenance_mut(self.word(number));
        if !place.is_null() {
            // SAFETY: the program passes a place for the driver's result, of this size.
            unsafe { place.write(value) };
        }
    }

    /// Corrects attributes that the driver has answered: their count, their numbers, and the places of their values.
    pub(super) fn correct_attributes(self, value_of: impl Fn(usize) -> Option<usize>) {
        let attributes: *const u32 = std::ptr::with_exposed_provenance(self.word(1));
        for index in 0..self.number(0) {
            // SAFETY: the program passes as many numbers as it says.
            let attribute = unsafe { attributes.wrapping_add(index).read() };
            if let Some(value) = value_of(attribute as usize) {
                let place = word_at(self.pointer(2), index);
                let place: *mut usize = std::ptr::with_exposed_provenance_mut(place);
                // SAFETY: the program passes as many places as numbers, and the value of this attribute is of this size.
                unsafe { place.write(value) };
            }
        }
    }
}

/// Reads a word of a struct of the driver; 0 if there is none.
fn word_at(words: *const usize, number: usize) -> usize {
    if words.is_null() {
        return 0;
    }
    // SAFETY: each caller reads a word that the driver's struct has (I1 of `Arguments`).
    unsafe { words.wrapping_add(number).read() }
}

/// The bytes of an array: width, height, maybe depth, and a word that has the format and the channels.
fn array_bytes(description: *const usize, has_depth: bool, levels: usize) -> usize {
    let word = |number| word_at(description, number);
    let (depth, last) = if has_depth { (word(2), 3) } else { (0, 2) };
    let (format, channels) = (word(last) & 0xffff_ffff, word(last) >> 32);
    let channel_bytes = match format {
        2 | 9 | 0x10 => 2,
        3 | 10 | 0x20 => 4,
        _ => 1,
    };
    let texel = channel_bytes * channels.max(1);
    let mut sides = [word(0), word(1), depth].map(|side| side.max(1));
    let mut bytes = 0_usize;
    for _ in 0..levels.clamp(1, 32) {
        let texels = sides
            .iter()
            .fold(1, |all: usize, side| all.saturating_mul(*side));
        bytes = bytes.saturating_add(texels.saturating_mul(texel));
        sides = sides.map(|side| (side / 2).max(1));
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(words: &[usize]) -> Arguments {
        // SAFETY: each test passes as many words as it reads.
        unsafe { Arguments::new(words.as_ptr()) }
    }

    fn address_of<T>(value: &T) -> usize {
        std::ptr::from_ref(value).expose_provenance()
    }

    #[test]
    fn the_bytes_of_pitched_memory_are_rows_of_the_pitch() {
        let (address, pitch) = (0x1000_usize, 512_usize);
        let words = [address_of(&address), address_of(&pitch), 500, 10, 4];
        assert_eq!(arguments(&words).bytes(Bytes::Pitched, true), 5120);
        assert_eq!(arguments(&words).bytes(Bytes::Pitched, false), 5000);
        assert_eq!(arguments(&words).result(Place::First), 0x1000);
    }

    #[test]
    fn the_bytes_of_an_array_are_those_of_its_texels_and_levels() {
        let floats_of_four = (4_usize << 32) | 0x20;
        let flat = [64, 32, floats_of_four];
        let bytes = Bytes::Array {
            has_depth: false,
            has_levels: false,
        };
        assert_eq!(
            arguments(&[0, address_of(&flat)]).bytes(bytes, true),
            64 * 32 * 16
        );
        let halves_of_two = [64, 32, (2_usize << 32) | 0x10];
        let words = [0, address_of(&halves_of_two)];
        assert_eq!(arguments(&words).bytes(bytes, true), 64 * 32 * 4);
        let deep = [8, 4, 2, (1_usize << 32) | 1];
        let bytes = Bytes::Array {
            has_depth: true,
            has_levels: true,
        };
        let words = [0, address_of(&deep), 3];
        assert_eq!(arguments(&words).bytes(bytes, true), 64 + 8 + 2);
    }

    #[test]
    fn a_pool_is_an_ordinary_one_of_a_device_if_nothing_else_is_said() {
        let ordinary = [PINNED, (3 << 32) | ON_DEVICE, 0, 0, 0];
        let made = |properties: [usize; 5]| arguments(&[0, address_of(&properties)]).made_pool();
        assert_eq!(made(ordinary), DriverPool::Ordinary { device: 3 });
        assert_eq!(made([2, ON_DEVICE, 0, 0, 0]), DriverPool::OfHost);
        assert_eq!(made([PINNED, 2, 0, 0, 0]), DriverPool::OfHost);
        assert_eq!(arguments(&[0, 0]).made_pool(), DriverPool::Other);
        for word in 0..5 {
            for bit in [0, 33] {
                let mut other = ordinary;
                other[word] ^= 1 << bit;
                let expected = match (word, bit) {
                    (1, 33) => DriverPool::Ordinary { device: 1 },
                    _ => DriverPool::Other,
                };
                assert_eq!(made(other), expected, "{word} {bit}");
            }
        }
    }

    #[test]
    fn the_node_of_a_graph_has_its_bytes_and_address() {
        let mut node = [0_usize; 15];
        node[NODE_BYTES] = 4096;
        node[NODE_ADDRESS] = 0x5000;
        let words = [0, 0, 0, 0, address_of(&node)];
        assert_eq!(arguments(&words).bytes(Bytes::Node, true), 4096);
        assert_eq!(arguments(&words).result(Place::Node), 0x5000);
    }
}
