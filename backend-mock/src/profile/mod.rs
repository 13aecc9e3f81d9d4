//! Device profiles: the limits and the costs of a real device.

mod cost;
#[cfg(feature = "serde")]
mod document;

use binpool_allocators::{Align, DeviceLimits, FailureOrder, SvmSupport};

pub use cost::{CostModel, CostTable};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The limits and the costs of a kind of device, so that a run on the mock predicts the time on a real one.
///
/// ```
/// use binpool_allocators::{Allocator, ImmediateAllocator};
/// use binpool_mock::{DeviceProfile, MockDevice};
///
/// let device = MockDevice::builder().profile(DeviceProfile::h200()).build();
/// let allocator = ImmediateAllocator::new(&device.backend())?;
/// let before = device.device_time();
/// let block = allocator.allocate(64 << 20)?;
/// let micros = (device.device_time() - before).as_micros();
/// assert_eq!(micros, 65); // The commit, and what creating it costs.
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
///
/// With the feature `serde`, a profile is a document with a format name and version:
/// `{"format": "binpool device profile", "version": 2, "limits": {...}, "costs": {...}}`, with sizes in bytes, costs in
/// microseconds, and tables as lists of a size and a cost. `binpool devices --measure` writes the one of a real device.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize),
    serde(try_from = "document::Document", into = "document::Document")
)]
#[non_exhaustive]
pub struct DeviceProfile {
    /// The limits and capabilities of the device, and its name.
    pub limits: DeviceLimits,
    /// The costs of its calls.
    pub costs: CostModel,
}

impl DeviceProfile {
    /// Makes a profile.
    #[must_use]
    pub const fn new(limits: DeviceLimits, costs: CostModel) -> Self {
        Self { limits, costs }
    }

    /// An NVIDIA H200 (driver 580, OpenCL 3.0), from the calls of `binpool-opencl`: medians of three runs of `binpool devices nvidia
    /// --measure`.
    ///
    /// Creating and releasing a view was measured in replays of the recorded traces (0.35 us together), where caches are colder than
    /// in a loop of nothing else. Bandwidth is not charged.
    ///
    /// Machines with this device differ: on four of them, the calls of the same replay took from 0.7 to 1.4 times their median.
    #[must_use]
    pub fn h200() -> Self {
        let mut limits = limits(
            "NVIDIA H200 (mock)",
            143_771 * MIB,
            35 * GIB,
            [512, 128],
            SvmSupport {
                coarse: true,
                ..SvmSupport::default()
            },
        );
        limits.failure_order = FailureOrder::Kept;
        Self {
            limits,
            costs: CostModel {
                create_buffer: CostTable::constant(0.8),
                commit: CostTable::new(&[
                    (4 * KIB, 11.2),
                    (64 * KIB, 11.7),
                    (MIB, 28.9),
                    (16 * MIB, 53.5),
                    (64 * MIB, 65.1),
                    (512 * MIB, 106.0),
                    (4 * GIB, 661.0),
                ]),
                release_deferred: CostTable::constant(0.7),
                release_committed: CostTable::new(&[
                    (4 * KIB, 5.0),
                    (64 * KIB, 5.5),
                    (MIB, 20.8),
                    (16 * MIB, 51.1),
                    (64 * MIB, 82.1),
                    (512 * MIB, 329.0),
                    (4 * GIB, 2606.0),
                ]),
                create_sub_region: CostTable::constant(0.2),
                release_sub_region: CostTable::constant(0.15),
                allocate_svm: CostTable::new(&[
                    (4 * KIB, 561.0),
                    (MIB, 568.0),
                    (16 * MIB, 8550.0),
                    (64 * MIB, 25_000.0),
                    (512 * MIB, 208_000.0),
                ]),
                free_svm: CostTable::new(&[
                    (4 * KIB, 322.0),
                    (MIB, 327.0),
                    (16 * MIB, 3260.0),
                    (64 * MIB, 8230.0),
                    (512 * MIB, 67_700.0),
                ]),
                create_pages: CostTable::new(&[
                    (2 * MIB, 15.0),
                    (128 * MIB, 15.0),
                    (512 * MIB, 31.0),
                    (4 * GIB, 2631.0),
                ]),
                map: CostTable::new(&[(2 * MIB, 36.0), (128 * MIB, 36.0), (512 * MIB, 63.0)]),
                unmap: CostTable::new(&[(2 * MIB, 21.0), (128 * MIB, 21.0), (512 * MIB, 29.0)]),
                release_pages: CostTable::new(&[
                    (2 * MIB, 12.0),
                    (64 * MIB, 43.0),
                    (512 * MIB, 259.0),
                ]),
                enqueue: 10.5,
                marker: 3.4,
                barrier: 2.0,
                status: 0.01,
                wait: 4.0,
                flush: 1.3,
                finish: 8.1,
                create_queue: 3.4,
                user_event: 0.9,
                bytes_per_second: None,
            },
        }
    }

    /// `PoCL` 3.1 on a CPU, from measured medians.
    ///
    /// Costs that were measured together are split:
    ///
    /// - A commit is "create, migrate, finish, release" less "create, release", and includes its enqueue and wait.
    /// - Creating and releasing a buffer or a view, and allocating and freeing SVM, are split in halves. The extra cost of
    ///   releasing a committed block over a deferred one is part of its commit.
    /// - Enqueueing was not measured apart from the wait that follows. The 22 us of waking a thread are charged to
    ///   waits and finishes, and an enqueue costs as much as creating a small object.
    ///
    /// Bandwidth is not charged, so the slow first touch of blocks above 32 MiB is not included.
    ///
    /// ```
    /// use binpool_mock::DeviceProfile;
    ///
    /// // The time that a fresh block of 1 MiB takes, in microseconds. A pool gains more on a GPU.
    /// let [h200, pocl] = [DeviceProfile::h200(), DeviceProfile::pocl()]
    ///     .map(|profile| profile.costs.commit.micros_at(1 << 20));
    /// assert_eq!(pocl, 25.0);
    /// assert!(h200 > pocl);
    /// ```
    #[must_use]
    pub fn pocl() -> Self {
        let object = 0.14;
        let half = CostTable::constant(object / 2.0);
        let svm = CostTable::new(&[(4 * KIB, 0.1), (MIB, 0.1), (64 * MIB, 3.9)]);
        Self {
            limits: limits(
                "PoCL (mock)",
                8026 * MIB,
                2006 * MIB,
                [128, 128],
                SvmSupport {
                    coarse: true,
                    fine: true,
                    atomics: true,
                    system: false,
                },
            ),
            costs: CostModel {
                create_buffer: half.clone(),
                commit: CostTable::new(&[(4 * KIB, 21.0), (MIB, 25.0), (64 * MIB, 60.0)]),
                release_deferred: half.clone(),
                release_committed: half.clone(),
                create_sub_region: half.clone(),
                release_sub_region: half,
                allocate_svm: svm.clone(),
                free_svm: svm,
                enqueue: object,
                marker: object,
                barrier: object,
                status: object,
                wait: 22.0,
                flush: object,
                finish: 22.0,
                create_queue: object,
                user_event: object,
                bytes_per_second: None,
                ..CostModel::default()
            },
        }
    }
}

fn limits(
    name: &str,
    capacity_bytes: u64,
    largest_block_bytes: u64,
    [alignment, svm_alignment]: [usize; 2],
    svm: SvmSupport,
) -> DeviceLimits {
    let align = |bytes| Align::new(bytes).unwrap_or(Align::ONE);
    let mut limits = DeviceLimits::new(
        name,
        capacity_bytes,
        crate::cause::saturate(largest_block_bytes),
        align(alignment),
    );
    limits.largest_svm_alignment = align(svm_alignment);
    limits.svm = svm;
    limits.out_of_order_queues = true;
    limits
}
