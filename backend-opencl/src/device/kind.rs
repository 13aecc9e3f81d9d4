//! The kinds of devices.

use std::fmt;

use cl3::device::{CL_DEVICE_TYPE_ACCELERATOR, CL_DEVICE_TYPE_CPU, CL_DEVICE_TYPE_GPU};

/// The kind of a device. The kinds are ordered by preference, the best first.
///
/// ```
/// use binpool_opencl::{DeviceKind, DeviceSelector, list_devices};
///
/// assert!(DeviceKind::Gpu < DeviceKind::Cpu); // Best first, so a sort puts graphics processors in front.
/// let mut devices = list_devices()?;
/// devices.sort_by_key(|device| device.kind());
/// let best = DeviceSelector::Kind(devices[0].kind());
/// assert_eq!(devices[0].kind().to_string().parse(), Ok(best)); // "gpu", or what there is.
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum DeviceKind {
    /// A graphics processor.
    Gpu,
    /// A dedicated accelerator.
    Accelerator,
    /// The host's processor.
    Cpu,
    /// Something else.
    Other,
}

impl DeviceKind {
    pub(crate) const ALL: [Self; 4] = [Self::Gpu, Self::Accelerator, Self::Cpu, Self::Other];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Accelerator => "accelerator",
            Self::Cpu => "cpu",
            Self::Other => "other",
        }
    }

    pub(crate) fn of_type(bits: u64) -> Self {
        [
            (CL_DEVICE_TYPE_GPU, Self::Gpu),
            (CL_DEVICE_TYPE_ACCELERATOR, Self::Accelerator),
            (CL_DEVICE_TYPE_CPU, Self::Cpu),
        ]
        .into_iter()
        .find(|(bit, _)| bits & bit != 0)
        .map_or(Self::Other, |(_, kind)| kind)
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
