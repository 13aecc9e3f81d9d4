//! Which device is meant.

use std::{convert::Infallible, fmt, str::FromStr};

use crate::device::info::{DeviceInfo, DeviceKind};

/// Which of the system's devices is meant.
///
/// ```
/// use binpool_opencl::{DeviceKind, DeviceSelector};
///
/// assert_eq!("any".parse(), Ok(DeviceSelector::Any));
/// assert_eq!("0".parse(), Ok(DeviceSelector::Index(0)));
/// assert_eq!("gpu".parse(), Ok(DeviceSelector::Kind(DeviceKind::Gpu)));
/// assert_eq!("nvidia".parse(), Ok(DeviceSelector::Name("nvidia".into())));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum DeviceSelector {
    /// The best there is: the first GPU, or else the first accelerator, processor or other device.
    #[default]
    Any,
    /// The device at this place of [`list_devices`](crate::list_devices).
    Index(usize),
    /// The first device of this kind.
    Kind(DeviceKind),
    /// The first device whose own name or whose platform's contains this, in upper or lower case.
    Name(String),
}

impl DeviceSelector {
    /// The device that is meant, among these.
    ///
    /// ```
    /// use binpool_opencl::{DeviceSelector, list_devices};
    ///
    /// // The best among those that have shared virtual memory.
    /// let mut devices = list_devices()?;
    /// devices.retain(|device| device.limits().svm.coarse);
    /// if let Some(best) = DeviceSelector::Any.select(&devices) {
    ///     assert!(devices.iter().all(|device| best.kind() <= device.kind()));
    /// }
    /// # Ok::<(), binpool_opencl::OpenClError>(())
    /// ```
    #[must_use]
    pub fn select<'a>(&self, devices: &'a [DeviceInfo]) -> Option<&'a DeviceInfo> {
        match self {
            // The first of the least: kinds are ordered by preference.
            Self::Any => devices.iter().min_by_key(|device| device.kind()),
            Self::Index(index) => devices.get(*index),
            Self::Kind(kind) => devices.iter().find(|device| device.kind() == *kind),
            Self::Name(part) => {
                let part = part.to_lowercase();
                devices.iter().find(|device| {
                    device.name().to_lowercase().contains(&part)
                        || device.platform().to_lowercase().contains(&part)
                })
            }
        }
    }
}

impl FromStr for DeviceSelector {
    type Err = Infallible;

    /// Reads `any` (or nothing), a number, a kind (`gpu`, `cpu`, `accelerator`, `other`), or else a part of
    /// a name.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        let text = text.trim();
        if text.is_empty() || text.eq_ignore_ascii_case("any") {
            return Ok(Self::Any);
        }
        if let Ok(index) = text.parse() {
            return Ok(Self::Index(index));
        }
        let kind = DeviceKind::ALL
            .into_iter()
            .find(|kind| text.eq_ignore_ascii_case(kind.word()));
        Ok(kind.map_or_else(|| Self::Name(text.to_owned()), Self::Kind))
    }
}

impl fmt::Display for DeviceSelector {
    /// Completes the sentence "no device is ...".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("there"),
            Self::Index(index) => write!(f, "number {index}"),
            Self::Kind(kind) => write!(f, "of the kind {kind}"),
            Self::Name(part) => write!(f, "named like {part:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system() -> Vec<DeviceInfo> {
        [
            (
                "Portable Computing Language",
                "pthread-EPYC",
                DeviceKind::Cpu,
            ),
            ("Intel(R) OpenCL", "AMD EPYC", DeviceKind::Cpu),
            ("NVIDIA CUDA", "NVIDIA H200", DeviceKind::Gpu),
            ("NVIDIA CUDA", "NVIDIA H100", DeviceKind::Gpu),
        ]
        .into_iter()
        .enumerate()
        .map(|(index, (platform, name, kind))| DeviceInfo::imaginary(index, platform, name, kind))
        .collect()
    }

    fn selected(text: &str) -> Option<usize> {
        let selector: DeviceSelector = text.parse().unwrap();
        selector.select(&system()).map(DeviceInfo::index)
    }

    #[test]
    fn any_device_is_a_gpu_where_there_is_one() {
        assert_eq!(selected("any"), Some(2));
        assert_eq!(selected(""), Some(2));
        let processors = &system()[..2];
        let any = DeviceSelector::Any.select(processors);
        assert_eq!(any.map(DeviceInfo::index), Some(0));
        assert!(DeviceSelector::Any.select(&[]).is_none());
    }

    #[test]
    fn numbers_count_over_all_platforms() {
        assert_eq!(selected("3"), Some(3));
        assert_eq!(selected("4"), None);
    }

    #[test]
    fn kinds_give_the_first_of_the_kind() {
        assert_eq!(selected("CPU"), Some(0));
        assert_eq!(selected("gpu"), Some(2));
        assert_eq!(selected("accelerator"), None);
    }

    #[test]
    fn names_are_parts_of_the_name_of_device_or_platform_in_any_case() {
        assert_eq!(selected("h100"), Some(3));
        assert_eq!(selected("nvidia"), Some(2));
        assert_eq!(selected("portable"), Some(0));
        assert_eq!(selected("  intel "), Some(1));
        assert_eq!(selected("radeon"), None);
    }
}
