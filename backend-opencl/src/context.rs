//! The part that all objects of one backend share.

use std::sync::Arc;

use binpool_allocators::{DeviceLimits, Error, Result, debug_by};

#[cfg(feature = "images")]
use std::sync::OnceLock;

#[cfg(feature = "images")]
use crate::device::image_limits::ImageLimits;
use crate::{
    cache::Cache,
    device::info::DeviceInfo,
    quirks::{Quirks, dropped_queues},
    registry::Registry,
    sys::{self, ContextHandle, DeviceId, MapShape, Purpose, transfer::DevicePixels},
};

/// The contexts, by the addresses of the runtime's context and of one of its devices.
static CONTEXTS: Registry<(usize, usize), Context> = Registry::new();

/// A context, one of its devices, and what that device can do.
pub(crate) struct Context {
    pub(crate) handle: ContextHandle,
    pub(crate) device: DeviceId,
    pub(crate) limits: DeviceLimits,
    /// The device's OpenCL version, major and minor.
    pub(crate) version: (u32, u32),
    pub(crate) quirks: Quirks,
    /// The values that the program has had built for this context.
    pub(crate) cache: Cache,
    /// The limits of images on the device, which are asked for when first needed.
    #[cfg(feature = "images")]
    image_limits: OnceLock<ImageLimits>,
}

debug_by!(Context, |this| device: this.limits.device_name);

impl Context {
    pub(crate) fn new(handle: ContextHandle, device: &DeviceInfo) -> Self {
        Self {
            quirks: Quirks::of(device.platform(), device.kind()),
            cache: Cache::default(),
            handle,
            device: device.id(),
            limits: device.limits().clone(),
            version: device.version(),
            #[cfg(feature = "images")]
            image_limits: OnceLock::new(),
        }
    }

    /// Returns the value that stands for this context and device: this one, unless there is one already.
    pub(crate) fn registered(self) -> Arc<Self> {
        CONTEXTS.find_or_insert(self.key(), Arc::new(self))
    }

    fn key(&self) -> (usize, usize) {
        (self.handle.raw().addr(), self.device.raw().addr())
    }

    /// Returns whether both stand for the same context of the runtime, so that their objects work together.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.handle.raw() == other.handle.raw()
    }

    /// The error of `what` the device does not have, and what to do instead.
    pub(crate) fn lacks(&self, what: &str, instead: &str) -> Error {
        let name = &self.limits.device_name;
        Error::unsupported(format!("{what} on {name}: {instead}"))
    }

    /// Checks that the device has this version of OpenCL, or a later one.
    pub(crate) fn check_version(&self, least: (u32, u32), what: &str, instead: &str) -> Result<()> {
        let ((major, minor), name) = (self.version, &self.limits.device_name);
        if self.version >= least {
            return Ok(());
        }
        Err(Error::unsupported(format!(
            "{what} on {name}, which has OpenCL {major}.{minor} and not {}.{}: {instead}",
            least.0, least.1
        )))
    }

    /// Brings what the device has written to an object over memory of the host into that memory.
    pub(crate) fn bring_back(&self, pixels: DevicePixels<'_>, shape: MapShape) -> Result<()> {
        let bytes = shape.bytes;
        // A new queue, which has no other command to wait for.
        sys::create_queue(&self.handle, self.device, false)
            .and_then(|queue| sys::map::bring_back(&queue, pixels, shape))
            .map_err(|error| error.into_error(Purpose::Memory(bytes)))
    }

    /// Returns the limits of images on the device.
    #[cfg(feature = "images")]
    pub(crate) fn image_limits(&self) -> sys::ClResult<&ImageLimits> {
        if let Some(limits) = self.image_limits.get() {
            return Ok(limits);
        }
        let limits = ImageLimits::query(self.device)?;
        Ok(self.image_limits.get_or_init(|| limits))
    }

    /// Returns the limits of images on the device, for a test to change.
    #[cfg(test)]
    #[cfg(feature = "images")]
    pub(crate) fn image_limits_mut(&mut self) -> &mut ImageLimits {
        self.image_limits().unwrap();
        self.image_limits.get_mut().unwrap()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // Before the handle is released: until then no other context can have the same one.
        CONTEXTS.forget(&self.key());
        if self.quirks.keeps_dropped_queues {
            dropped_queues::finish_those_of(&self.handle);
        }
    }
}
