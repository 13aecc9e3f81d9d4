//! What the host has of a map: slices.

use std::{
    fmt,
    marker::PhantomData,
    ops::{Deref, DerefMut},
};

use binpool_allocators::{InvalidRequest, Result};
use bytemuck::{AnyBitPattern, NoUninit};

use super::mapping::Mapping;
use crate::{event::ClEvent, queue::ClQueue};

/// Memory that the host reads: a slice of `T`, until it is dropped. Commands that write the memory are refused
/// meanwhile; see [`OpenClBackend::map`](crate::OpenClBackend::map).
///
/// Dropping it enqueues the end of the map, as [`unmap`](Self::unmap) does, and logs the error.
#[must_use = "the memory is unmapped when it is dropped"]
pub struct Map<'m, T> {
    mapping: Mapping<'m>,
    elements: PhantomData<&'m [T]>,
}

/// Memory that the host reads and writes: a mutable slice of `T`, until it is dropped. All commands on the memory are
/// refused meanwhile; see [`OpenClBackend::map_mut`](crate::OpenClBackend::map_mut).
///
/// Dropping it enqueues the end of the map, as [`unmap`](Self::unmap) does, and logs the error.
#[must_use = "the memory is unmapped when it is dropped"]
pub struct MapMut<'m, T> {
    mapping: Mapping<'m>,
    elements: PhantomData<&'m mut [T]>,
}

/// A map that was enqueued, and that [`wait`](Self::wait) gives: `G` is [`Map`] or [`MapMut`]. Conflicting commands are
/// refused from the start.
///
/// Dropping it enqueues the end of the map.
#[must_use = "the memory is unmapped when it is dropped"]
pub struct PendingMap<'m, G> {
    mapping: Mapping<'m>,
    guard: PhantomData<G>,
}

/// What a pending map becomes.
pub trait MapGuard<'m>: Sized + sealed::Sealed<'m> {}

impl<'m, G: sealed::Sealed<'m>> MapGuard<'m> for G {}

pub(crate) mod sealed {
    use super::Mapping;

    /// Guards that are made of a map.
    pub trait Sealed<'m>: Sized {
        #[expect(private_interfaces, reason = "nobody outside can name the trait")]
        fn of(mapping: Mapping<'m>) -> binpool_allocators::Result<Self>;
    }
}

impl<'m, T: AnyBitPattern> sealed::Sealed<'m> for Map<'m, T> {
    #[expect(private_interfaces, reason = "nobody outside can name the trait")]
    fn of(mapping: Mapping<'m>) -> Result<Self> {
        check_elements::<T>(mapping.view().as_slice())?;
        Ok(Self {
            mapping,
            elements: PhantomData,
        })
    }
}

impl<'m, T: AnyBitPattern + NoUninit> sealed::Sealed<'m> for MapMut<'m, T> {
    #[expect(private_interfaces, reason = "nobody outside can name the trait")]
    fn of(mapping: Mapping<'m>) -> Result<Self> {
        check_elements::<T>(mapping.view().as_slice())?;
        Ok(Self {
            mapping,
            elements: PhantomData,
        })
    }
}

/// Checks that the host's address suits `T`. The length was looked at before.
pub(super) fn check_elements<T: AnyBitPattern>(bytes: &[u8]) -> Result<()> {
    let place = bytes.as_ptr().addr();
    if place.is_multiple_of(align_of::<T>()) {
        return Ok(());
    }
    let alignment = binpool_allocators::Align::new(align_of::<T>());
    Err(InvalidRequest::Misaligned {
        offset: place,
        alignment: alignment.unwrap_or(binpool_allocators::Align::ONE),
    }
    .into())
}

impl<'m, G: MapGuard<'m>> PendingMap<'m, G> {
    pub(crate) const fn new(mapping: Mapping<'m>) -> Self {
        Self {
            mapping,
            guard: PhantomData,
        }
    }

    /// The event of the map, to be waited for by other commands.
    pub fn event(&self) -> &ClEvent {
        self.mapping.event()
    }

    /// Waits until the memory is there.
    ///
    /// # Errors
    ///
    /// Where the command failed, or something that it waits for; [`Misaligned`](InvalidRequest::Misaligned) where the
    /// host's address does not suit the elements. The memory is not mapped then.
    pub fn wait(self) -> Result<G> {
        self.mapping.wait()?;
        G::of(self.mapping)
    }
}

/// How a guard ends.
macro_rules! ending {
    ($name:ident) => {
        impl<T> $name<'_, T> {
            /// Enqueues the end of the map on the queue that it was made on, and returns its event.
            ///
            /// # Errors
            ///
            /// A failure of the runtime, after which the memory may stay mapped.
            pub fn unmap(self) -> Result<ClEvent> {
                self.mapping.end_here()
            }

            /// Enqueues the end of the map on `queue`, after `wait_for`, and returns its event. `PyOpenCL`'s
            /// `MemoryMap.release`.
            ///
            /// # Errors
            ///
            /// [`ForeignObject`](InvalidRequest::ForeignObject), after which the map was ended where it was made; a
            /// failure of the runtime, after which the memory may stay mapped.
            pub fn unmap_on(self, queue: &ClQueue, wait_for: &[ClEvent]) -> Result<ClEvent> {
                self.mapping.end(queue, wait_for)
            }
        }
    };
}

pub(super) use ending;

macro_rules! guard {
    ($name:ident) => {
        ending!($name);

        impl<T: AnyBitPattern> Deref for $name<'_, T> {
            type Target = [T];

            fn deref(&self) -> &[T] {
                bytemuck::cast_slice(self.mapping.view().as_slice())
            }
        }

        impl<T: AnyBitPattern + fmt::Debug> fmt::Debug for $name<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&&**self).finish()
            }
        }
    };
}

guard!(Map);
guard!(MapMut);

impl<T: AnyBitPattern + NoUninit> DerefMut for MapMut<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(self.mapping.view_mut().as_mut_slice())
    }
}

impl<G> fmt::Debug for PendingMap<'_, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingMap")
            .field("event", self.mapping.event())
            .finish_non_exhaustive()
    }
}
