//! The number of work items of a launch, and of its groups.

use cl3::{
    device::{
        CL_DEVICE_ADDRESS_BITS, CL_DEVICE_LOCAL_MEM_SIZE, CL_DEVICE_MAX_PARAMETER_SIZE,
        CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS, CL_DEVICE_MAX_WORK_ITEM_SIZES,
        CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT,
    },
    kernel::{
        CL_KERNEL_COMPILE_WORK_GROUP_SIZE, CL_KERNEL_LOCAL_MEM_SIZE, CL_KERNEL_WORK_GROUP_SIZE,
    },
};
use smallvec::SmallVec;

use super::problem::KernelProblem;
use crate::{
    device::info::version_of,
    sys::{
        ClResult, DeviceId,
        kernel::{self, KernelHandle, WorkItems},
    },
};

/// One number for each dimension.
pub(super) type Sizes = SmallVec<[usize; 3]>;

/// The limits of launches of a kernel on a device.
#[derive(Clone, Debug)]
pub(super) struct LaunchLimits {
    dimensions: usize,
    /// The number of dimensions that the kernel is promised to be for.
    pub(super) promised_dimensions: usize,
    /// The largest local size of each dimension.
    local: Sizes,
    /// The most work items of a group.
    group: usize,
    /// The local size that the kernel is compiled for.
    required: Option<Sizes>,
    /// One more than the largest id of a work item.
    ids: usize,
    /// Whether groups at the end may be smaller.
    uneven: bool,
    /// The local memory of the device, in bytes.
    pub(super) local_bytes: usize,
    /// The local memory that each group takes by itself.
    pub(super) own_local_bytes: usize,
    /// The most bytes of parameters.
    pub(super) parameter_bytes: usize,
}

impl LaunchLimits {
    /// Asks the device for the limits of a kernel that has no argument set and was built with `options`.
    pub(super) fn query(handle: &KernelHandle, device: DeviceId, options: &str) -> ClResult<Self> {
        let of_device = |what| device.info(what)?.size();
        let of_kernel = |what| kernel::group_info(handle, device, what)?.size();
        let required = kernel::group_info(handle, device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE)?;
        let required: Sizes = required.list().into();
        let bits = of_device(CL_DEVICE_ADDRESS_BITS)?;
        Ok(Self {
            dimensions: of_device(CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS)?.min(3),
            promised_dimensions: 1,
            local: device.info(CL_DEVICE_MAX_WORK_ITEM_SIZES)?.list().into(),
            group: of_kernel(CL_KERNEL_WORK_GROUP_SIZE)?,
            required: required.iter().any(|&size| size != 0).then_some(required),
            ids: if bits == 32 {
                u32::MAX as usize
            } else {
                usize::MAX
            },
            uneven: are_built_uneven(options) && has_uneven_groups(device)?,
            local_bytes: of_device(CL_DEVICE_LOCAL_MEM_SIZE)?,
            own_local_bytes: of_kernel(CL_KERNEL_LOCAL_MEM_SIZE)?,
            parameter_bytes: of_device(CL_DEVICE_MAX_PARAMETER_SIZE)?,
        })
    }
}

/// Returns whether the device has groups of several sizes in one launch. Every device of OpenCL 2 has, and none before.
fn has_uneven_groups(device: DeviceId) -> ClResult<bool> {
    Ok(match version_of(device)? {
        (0 | 1, _) => false,
        (2, _) => true,
        _ => {
            let answer = device.info(CL_DEVICE_NON_UNIFORM_WORK_GROUP_SUPPORT);
            answer.is_ok_and(|answer| matches!(answer.number(), Ok(1..)))
        }
    })
}

/// Returns whether a program that is built with `options` can have such groups.
fn are_built_uneven(options: &str) -> bool {
    let has = |start: &str| {
        options
            .split_whitespace()
            .any(|word| word.starts_with(start))
    };
    let is_later = ["CL2", "CL3", "CLC++"].map(|version| has(&format!("-cl-std={version}")));
    is_later.contains(&true) && !has("-cl-uniform-work-group-size")
}

/// The work items of a launch.
///
/// # Invariants
///
/// I1: All lists have the same length, and no size is 0.
/// I2: A local size is one that the kernel can have.
#[derive(Clone, Debug)]
pub(super) struct WorkSize {
    global: Sizes,
    offset: Sizes,
    local: Option<Sizes>,
}

impl WorkSize {
    /// Checks the sizes that a launch was given. A kernel that is compiled for one local size has that size, even if the
    /// launch names none.
    pub(super) fn new(
        limits: &LaunchLimits,
        global: &Sizes,
        offset: Option<&Sizes>,
        local: Option<&Sizes>,
    ) -> Result<Self, KernelProblem> {
        let dimensions = global.len();
        if dimensions == 0 || dimensions > limits.dimensions {
            let largest = limits.dimensions;
            return Err(KernelProblem::WorkSize(format!(
                "{dimensions} dimensions: use 1 to {largest}"
            )));
        }
        let promised = limits.promised_dimensions;
        if dimensions > promised {
            return Err(KernelProblem::WorkSize(format!(
                "{dimensions} dimensions of a kernel for {promised}: make it with `ClKernel::in_dimensions({dimensions})` \
                 if it is for as many"
            )));
        }
        check_no_zero("global size", global)?;
        let none = || SmallVec::from_elem(0, dimensions);
        let offset = offset.cloned().unwrap_or_else(none);
        check_dimensions("the offset", &offset, dimensions)?;
        for (dimension, (&size, &offset)) in global.iter().zip(&offset).enumerate() {
            let largest = limits.ids;
            if size.checked_add(offset).is_none_or(|end| end > largest) {
                return Err(KernelProblem::WorkSize(format!(
                    "global size {size} at offset {offset} in dimension {dimension}: this device counts to {largest}"
                )));
            }
        }
        let work = Self {
            global: global.clone(),
            offset,
            local: limits.local_size(dimensions, local)?,
        };
        work.check_local(limits)?;
        Ok(work)
    }

    fn check_local(&self, limits: &LaunchLimits) -> Result<(), KernelProblem> {
        let Some(local) = &self.local else {
            return Ok(());
        };
        for (dimension, (&given, &largest)) in local.iter().zip(&limits.local).enumerate() {
            if given > largest {
                return Err(KernelProblem::LocalSize {
                    dimension,
                    given,
                    largest,
                });
            }
        }
        let (given, largest) = (product(local.iter().copied()), limits.group);
        if given > largest {
            return Err(KernelProblem::GroupSize { given, largest });
        }
        for (dimension, (&global, &local)) in self.global.iter().zip(local).enumerate() {
            if !limits.uneven && !global.is_multiple_of(local) {
                return Err(KernelProblem::WorkSize(format!(
                    "global size {global} and local size {local} in dimension {dimension}: it has to be a multiple on this \
                     device, or for programs that are not built with -cl-std=CL2.0 or later"
                )));
            }
        }
        Ok(())
    }

    /// Returns the number of work items, counted as if their ids started at 0.
    pub(super) fn items(&self) -> usize {
        let ends = self.global.iter().zip(&self.offset);
        product(ends.map(|(&size, &offset)| size.saturating_add(offset)))
    }

    /// Returns the largest possible number of groups.
    pub(super) fn groups(&self) -> usize {
        let Some(local) = &self.local else {
            return product(self.global.iter().copied());
        };
        let groups = self.global.iter().zip(local);
        product(groups.map(|(&global, &local)| global.div_ceil(local)))
    }

    /// Returns the number of work items of a group, if it is known.
    pub(super) fn group_items(&self) -> Option<usize> {
        let local = self.local.as_ref()?;
        Some(product(local.iter().copied()))
    }

    pub(super) fn as_items(&self) -> WorkItems<'_> {
        WorkItems {
            global: &self.global,
            offset: &self.offset,
            local: self.local.as_deref(),
        }
    }
}

impl LaunchLimits {
    /// Returns the local size of a launch of that many dimensions that was given `local`.
    fn local_size(
        &self,
        dimensions: usize,
        local: Option<&Sizes>,
    ) -> Result<Option<Sizes>, KernelProblem> {
        if let Some(local) = local {
            check_dimensions("the local size", local, dimensions)?;
            check_no_zero("local size", local)?;
        }
        let Some(required) = &self.required else {
            return Ok(local.cloned());
        };
        let all = || required.iter().copied().take(dimensions).collect();
        let given: Sizes = local.cloned().unwrap_or_else(all);
        // The required size has three dimensions; those that a launch does not have are of size 1.
        let size_in = |sizes: &Sizes, dimension| sizes.get(dimension).copied().unwrap_or(1);
        if (0..3).any(|dimension| size_in(&given, dimension) != size_in(required, dimension)) {
            return Err(KernelProblem::WorkSize(format!(
                "local size {given:?}: the kernel is compiled for {required:?}"
            )));
        }
        Ok(Some(given))
    }
}

fn check_dimensions(what: &str, sizes: &Sizes, expected: usize) -> Result<(), KernelProblem> {
    let given = sizes.len();
    let problem = || {
        let text = format!("{given} dimensions of {what} and {expected} of the global size");
        KernelProblem::WorkSize(text)
    };
    (given == expected).then_some(()).ok_or_else(problem)
}

fn check_no_zero(what: &str, sizes: &Sizes) -> Result<(), KernelProblem> {
    match sizes.iter().position(|&size| size == 0) {
        Some(dimension) => Err(KernelProblem::WorkSize(format!(
            "a {what} of 0 in dimension {dimension}"
        ))),
        None => Ok(()),
    }
}

/// Returns the product, or the largest number if it overflows.
fn product(sizes: impl Iterator<Item = usize>) -> usize {
    sizes.fold(1, usize::saturating_mul)
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;

    fn limits() -> LaunchLimits {
        LaunchLimits {
            dimensions: 3,
            promised_dimensions: 3,
            local: smallvec![64, 64, 8],
            group: 128,
            required: None,
            ids: usize::MAX,
            uneven: false,
            local_bytes: 1024,
            own_local_bytes: 0,
            parameter_bytes: 1024,
        }
    }

    fn size_of(
        limits: &LaunchLimits,
        global: &[usize],
        offset: Option<&[usize]>,
        local: Option<&[usize]>,
    ) -> Result<WorkSize, String> {
        let [offset, local] = [offset, local].map(|sizes| sizes.map(Sizes::from));
        let work = WorkSize::new(limits, &global.into(), offset.as_ref(), local.as_ref());
        work.map_err(|problem| problem.to_string())
    }

    #[test]
    fn items_and_groups_are_counted_over_all_dimensions() {
        let work = size_of(&limits(), &[64, 32], Some(&[10, 0]), Some(&[16, 8])).unwrap();
        assert_eq!(work.items(), 74 * 32);
        assert_eq!(work.groups(), 4 * 4);
        assert_eq!(work.group_items(), Some(128));
        let free = size_of(&limits(), &[64, 32], None, None).unwrap();
        assert_eq!((free.items(), free.groups()), (2048, 2048));
        assert_eq!(free.group_items(), None);
        let huge = size_of(&limits(), &[usize::MAX, 2], None, None).unwrap();
        assert_eq!(huge.items(), usize::MAX);
    }

    #[test]
    fn each_limit_is_told_apart() {
        let limits = limits();
        let problem = |global: &[usize], offset: Option<&[usize]>, local: Option<&[usize]>| {
            size_of(&limits, global, offset, local).unwrap_err()
        };
        let too_many = [1, 1, 1, 1];
        for (text, says) in [
            (problem(&[], None, None), "0 dimensions: use 1 to 3"),
            (problem(&too_many, None, None), "4 dimensions"),
            (
                problem(&[4, 0], None, None),
                "a global size of 0 in dimension 1",
            ),
            (
                problem(&[4], Some(&[1, 1]), None),
                "2 dimensions of the offset and 1",
            ),
            (
                problem(&[4], None, Some(&[1, 1])),
                "2 dimensions of the local size and 1",
            ),
            (
                problem(&[4], None, Some(&[0])),
                "a local size of 0 in dimension 0",
            ),
            (
                problem(&[2], Some(&[usize::MAX]), None),
                "this device counts to",
            ),
            (
                problem(&[128], None, Some(&[128])),
                "a local size of 128 in dimension 0",
            ),
            (
                problem(&[64, 64], None, Some(&[64, 64])),
                "4096 work items in a group",
            ),
            (
                problem(&[65], None, Some(&[64])),
                "global size 65 and local size 64",
            ),
        ] {
            assert!(text.contains(says), "{text}");
        }
    }

    #[test]
    fn a_kernel_that_is_compiled_for_a_local_size_has_it() {
        let limits = LaunchLimits {
            required: Some(smallvec![8, 4, 1]),
            ..limits()
        };
        let work = size_of(&limits, &[64, 32], None, None).unwrap();
        assert_eq!(work.group_items(), Some(32));
        assert!(size_of(&limits, &[64, 32], None, Some(&[8, 4])).is_ok());
        for (global, local, says) in [
            (
                &[64, 32][..],
                Some(&[4, 8][..]),
                "local size [4, 8]: the kernel is compiled for [8, 4, 1]",
            ),
            (
                &[64],
                None,
                "local size [8]: the kernel is compiled for [8, 4, 1]",
            ),
            (
                &[63, 32],
                None,
                "global size 63 and local size 8 in dimension 0",
            ),
        ] {
            let problem = size_of(&limits, global, None, local).unwrap_err();
            assert!(problem.contains(says), "{problem}");
        }
    }

    #[test]
    fn uneven_groups_need_a_program_of_opencl_2() {
        assert!(are_built_uneven("-w -cl-std=CL2.0"));
        assert!(are_built_uneven("-cl-std=CL3.0"));
        assert!(!are_built_uneven("-cl-std=CL1.2"));
        assert!(!are_built_uneven(""));
        assert!(!are_built_uneven(
            "-cl-std=CL3.0 -cl-uniform-work-group-size"
        ));
        let uneven = LaunchLimits {
            uneven: true,
            ..limits()
        };
        let work = size_of(&uneven, &[65], None, Some(&[64])).unwrap();
        assert_eq!(work.groups(), 2);
    }
}
