//! The choice of a device.

use crate::device::{info::DeviceInfo, selector::DeviceSelector};

impl DeviceSelector {
    /// Returns the device that is meant, among these.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::kind::DeviceKind;

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
