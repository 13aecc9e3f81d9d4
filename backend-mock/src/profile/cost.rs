//! The costs of calls.

/// A cost in microseconds as a function of a size, from measured points.
///
/// Between two points the cost follows a power of the size (a straight line where both axes are
/// logarithmic), or a straight line over the logarithm of the size where one of the two costs is 0. Below the
/// first point it is the first one's. Above the last point it goes on with the slope of the last piece where
/// that rises, and stays where it falls.
///
/// ```
/// use binpool_mock::CostTable;
///
/// let table = CostTable::new(&[(1 << 10, 10.0), (1 << 20, 10.0), (1 << 30, 10_240.0)]);
/// assert_eq!(table.micros_at(1), 10.0);
/// assert_eq!(table.micros_at(1 << 15), 10.0);
/// assert!((table.micros_at(1 << 25) - 320.0).abs() < 1e-6);
/// assert!((table.micros_at(1 << 31) - 20_480.0).abs() < 1e-6);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize),
    serde(from = "Vec<(u64, f64)>", into = "Vec<(u64, f64)>")
)]
pub struct CostTable {
    /// Rising sizes (in bytes, or in the table's own unit) with their costs in microseconds, none negative.
    points: Vec<(u64, f64)>,
}

impl CostTable {
    /// A cost that does not depend on the size, in microseconds.
    ///
    /// ```
    /// use binpool_mock::CostTable;
    ///
    /// let release = CostTable::constant(0.1);
    /// assert_eq!(release.micros_at(1), 0.1);
    /// assert_eq!(release.micros_at(1 << 30), 0.1);
    /// ```
    #[must_use]
    pub fn constant(micros: f64) -> Self {
        Self::new(&[(1, micros)])
    }

    /// A table of (size, microseconds). Points may come in any order; of two with the same size the first counts.
    /// A cost that is negative or not a number counts as 0.
    ///
    /// ```
    /// use binpool_mock::CostTable;
    ///
    /// let table = CostTable::new(&[(1000, 19.0), (30, -1.8), (30, 2.0)]);
    /// assert_eq!(table.points(), [(30, 0.0), (1000, 19.0)]);
    /// ```
    #[must_use]
    pub fn new(points: &[(u64, f64)]) -> Self {
        let mut points: Vec<_> = points
            .iter()
            .map(|(size, micros)| (*size.max(&1), if *micros > 0.0 { *micros } else { 0.0 }))
            .collect();
        points.sort_by_key(|(size, _)| *size);
        points.dedup_by_key(|(size, _)| *size);
        Self { points }
    }

    /// The sizes with their costs in microseconds, sizes ascending.
    #[must_use]
    pub fn points(&self) -> &[(u64, f64)] {
        &self.points
    }

    /// Returns the cost at this size, in microseconds; 0 for a table without points.
    #[must_use]
    pub fn micros_at(&self, size: u64) -> f64 {
        let after = self.points.partition_point(|(point, _)| *point <= size);
        let piece = match self.points.as_slice() {
            [] => return 0.0,
            [(_, micros)] => return *micros,
            [first, ..] if after == 0 => return first.1,
            points => {
                let end = after.min(points.len() - 1);
                (points[end - 1], points[end])
            }
        };
        let ((from, low), (to, high)) = piece;
        let beyond = after == self.points.len();
        if beyond && (high <= low || low == 0.0) {
            return high;
        }
        let position = (log2(size) - log2(from)) / (log2(to) - log2(from));
        if low > 0.0 && high > 0.0 {
            low * (high / low).powf(position)
        } else {
            low + (high - low) * position
        }
    }
}

#[cfg(feature = "serde")]
impl From<Vec<(u64, f64)>> for CostTable {
    fn from(points: Vec<(u64, f64)>) -> Self {
        Self::new(&points)
    }
}

#[cfg(feature = "serde")]
impl From<CostTable> for Vec<(u64, f64)> {
    fn from(table: CostTable) -> Self {
        table.points
    }
}

fn log2(size: u64) -> f64 {
    #[allow(
        clippy::cast_precision_loss,
        reason = "a cost is no more exact than that"
    )]
    let size = size.max(1) as f64;
    size.log2()
}

/// The cost of every call of a device, in microseconds. The default is a device that costs nothing.
///
/// A cost that is not known by itself is charged with the call that it was measured with: see the built-in
/// [`DeviceProfile`](crate::DeviceProfile)s.
///
/// ```
/// use binpool_allocators::{Allocator, ImmediateAllocator};
/// use binpool_mock::{CostModel, CostTable, DeviceProfile, MockDevice};
///
/// // The gain of a program if a commit took 10 us, and all else nothing.
/// let mut costs = CostModel::default();
/// costs.commit = CostTable::constant(10.0);
/// let profile = DeviceProfile::new(DeviceProfile::h200().limits, costs);
/// let device = MockDevice::builder().profile(profile).build();
/// let allocator = ImmediateAllocator::new(&device.backend())?;
/// for _ in 0..100 {
///     drop(allocator.allocate(1 << 20)?);
/// }
/// assert_eq!(device.device_time().as_micros(), 1000);
/// # Ok::<(), binpool_allocators::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize),
    serde(deny_unknown_fields)
)]
#[non_exhaustive]
pub struct CostModel {
    /// Creating a buffer that is not committed yet, by its bytes.
    pub create_buffer: CostTable,
    /// Committing a block, by its bytes. Charged once a block, in the call that first uses it.
    pub commit: CostTable,
    /// Releasing a block that was never committed, by its bytes.
    pub release_deferred: CostTable,
    /// Releasing a committed block, by its bytes.
    pub release_committed: CostTable,
    /// Creating a view, by the number of live views of the same block, the new one among them.
    pub create_sub_region: CostTable,
    /// Releasing a view, by the number of live views of the same block, this one among them.
    pub release_sub_region: CostTable,
    /// Allocating SVM, by its bytes.
    pub allocate_svm: CostTable,
    /// Freeing SVM, by its bytes.
    pub free_svm: CostTable,
    /// Creating pages of virtual memory, by their bytes.
    #[cfg_attr(feature = "serde", serde(default))]
    pub create_pages: CostTable,
    /// Mapping pages and giving access to them, by their bytes.
    #[cfg_attr(feature = "serde", serde(default))]
    pub map: CostTable,
    /// Unmapping pages, by their bytes.
    #[cfg_attr(feature = "serde", serde(default))]
    pub unmap: CostTable,
    /// Releasing pages, by their bytes.
    #[cfg_attr(feature = "serde", serde(default))]
    pub release_pages: CostTable,
    /// Enqueueing a kernel, a fill, a copy, a read or a write, whatever its size.
    pub enqueue: f64,
    /// Enqueueing a marker.
    pub marker: f64,
    /// Enqueueing a barrier.
    pub barrier: f64,
    /// Asking an event for its status.
    pub status: f64,
    /// Waiting for an event, or at the end of a blocking read or write.
    pub wait: f64,
    /// Flushing a queue.
    pub flush: f64,
    /// Finishing a queue.
    pub finish: f64,
    /// Creating a queue.
    pub create_queue: f64,
    /// Creating a user event, and again resolving it.
    pub user_event: f64,
    /// The bytes that a fill, copy, read or write moves in a second; `None` to charge none of that time.
    pub bytes_per_second: Option<f64>,
}

impl CostModel {
    /// The microseconds that moving `bytes` bytes takes.
    pub(crate) fn transfer(&self, bytes: usize) -> f64 {
        #[allow(
            clippy::cast_precision_loss,
            reason = "a cost is no more exact than that"
        )]
        let bytes = bytes as f64;
        match self.bytes_per_second {
            Some(rate) if rate > 0.0 => bytes / rate * 1e6,
            _ => 0.0,
        }
    }
}
