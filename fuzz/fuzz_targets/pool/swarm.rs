//! Which kinds of steps a program has: each program goes without some kinds, so that the others come in combinations that a program of all
//! kinds hardly ever has (swarm testing: Groce, Zhang, Eide, Chen and Regehr, 2012).

use std::{
    hash::{Hash, Hasher},
    mem::discriminant,
};

use crate::step::Step;

/// A choice of kinds of steps by its number; 0 has all of them.
#[derive(Clone, Copy)]
pub(crate) struct Swarm(pub(crate) u32);

impl Swarm {
    /// Returns whether the program takes the step with this index: always, never, or every second time, as the number says of its kind.
    pub(crate) fn has(self, step: &Step, index: usize) -> bool {
        let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
        (self.0, discriminant(step)).hash(&mut hasher);
        match hasher.finish() >> 32 & 3 {
            _ if self.0 == 0 => true,
            0 | 1 => true,
            2 => index.is_multiple_of(2),
            _ => false,
        }
    }
}

/// The hash function FNV-1a, which is the same in every version of the standard library: saved programs stay what they are.
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
