//! The profile of the mock device of a replay.

use std::{fs, io, path::Path, str::FromStr, sync::Arc, time::Duration};

use binpool_mock::{Completion, CostModel, CostTable, DeviceProfile, MockDevice};

use crate::figures::ratio;
use binpool_recordings::Trace;
use binpool_trace::shown;

/// The device whose limits and costs the mock device has.
///
/// As text, it is `h200`, `pocl`, `none`, or the name of a file that `binpool devices --measure` wrote:
///
/// ```
/// use binpool_replay::{Profile};
///
/// assert_eq!("pocl".parse::<Profile>().unwrap().name(), "PoCL (mock)");
/// let error = "abacus".parse::<Profile>().unwrap_err();
/// assert!(error.to_string().contains("h200, pocl, none"));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Profile {
    /// An NVIDIA H200 with NVIDIA's OpenCL. Recordings of programs on CUDA, such as `PyTorch`'s, may have blocks as large as all of its memory.
    #[default]
    H200,
    /// `PoCL` on a processor.
    Pocl,
    /// The H200's limits, without costs.
    None,
    /// The profile of another device, and the file that it was read from.
    Own(Arc<DeviceProfile>, Arc<Path>),
}

/// Why a name does not give a profile.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The file cannot be read, and the name is not a built-in one.
    #[error(
        "expected h200, pocl, none, or a file that `binpool devices --measure -o FILE.json` wrote; could not read {name}: \
         {problem}"
    )]
    Read {
        /// The name.
        name: String,
        /// Why.
        problem: io::Error,
    },
    /// The file is not a profile.
    #[error("{name} is not a device profile: {problem}")]
    Wrong {
        /// The file.
        name: String,
        /// Why.
        problem: serde_json::Error,
    },
    /// A size in the file is larger than any device's, so that sums of sizes could overflow.
    #[error("{name}: expected {field} to be at most {LARGEST}, found {value}")]
    TooLarge {
        /// The file.
        name: String,
        /// The field.
        field: &'static str,
        /// Its value in bytes.
        value: u64,
    },
}

/// How long a marker takes to arrive on an idle queue and to end: the host sees it as pending if it looks at once.
const MARKERS: Duration = Duration::from_micros(5);

/// The most bytes that the device of a file may have: 1 EiB.
const LARGEST: u64 = 1 << 60;

impl Profile {
    pub(crate) fn device(&self) -> DeviceProfile {
        match self {
            Self::H200 => DeviceProfile::h200(),
            Self::Pocl => DeviceProfile::pocl(),
            Self::None => {
                let mut limits = DeviceProfile::h200().limits;
                limits.device_name = "a device without costs (mock)".into();
                DeviceProfile::new(limits, CostModel::default())
            }
            Self::Own(profile, _) => DeviceProfile::clone(profile),
        }
    }

    /// The profile for a replay of a trace. OpenCL on the H200 gives a quarter of the memory in one piece at most, and CUDA all of it: programs on CUDA, and
    /// those that cannot have run on OpenCL there, get what CUDA gives. So does any pool of pages, which OpenCL has not.
    pub(crate) fn device_for(&self, trace: &Trace, has_pages: bool) -> DeviceProfile {
        let mut device = self.device();
        if has_pages || self.gives_as_cuda(trace) {
            let all = usize::try_from(device.limits.capacity_bytes).unwrap_or(usize::MAX);
            device.limits.largest_block_bytes = all;
        }
        device
    }

    /// Returns whether the device gives this trace its memory as CUDA does.
    pub(crate) fn gives_as_cuda(&self, trace: &Trace) -> bool {
        let is_built_in = matches!(self, Self::H200 | Self::None);
        let largest = self.device().limits.largest_block_bytes;
        is_built_in && (trace.is_of_cuda() || trace.largest_block_bytes() > largest)
    }

    /// Returns the time of these numbers of calls that map and unmap pages. It does not depend on their size up to 128 MiB, and pools
    /// take no larger ones.
    pub(crate) fn remap_time(&self, maps: u64, unmaps: u64) -> Duration {
        let costs = self.device().costs;
        let of = |table: &CostTable, calls| ratio(calls, 1) * table.micros_at(1);
        let micros = of(&costs.map, maps) + of(&costs.unmap, unmaps);
        Duration::from_secs_f64(micros / 1e6)
    }

    /// Makes a mock device for a replay of a trace, with this many bytes of memory; `None` for the profile's own capacity. It is so far
    /// behind the host; `None` if commands end at once.
    pub(crate) fn mock(
        &self,
        trace: &Trace,
        has_pages: bool,
        capacity_bytes: Option<u64>,
        behind: Option<Duration>,
    ) -> MockDevice {
        let profile = self.device_for(trace, has_pages);
        let largest = profile.limits.largest_block_bytes;
        let mut builder = MockDevice::builder().profile(profile).virtual_memory(true);
        if let Some(capacity) = capacity_bytes {
            builder = builder
                .capacity_bytes(capacity)
                .largest_block_bytes(largest);
        }
        if let Some(commands) = behind {
            builder = builder.completion(Completion::Behind {
                commands,
                markers: MARKERS,
            });
        }
        builder.build()
    }

    /// The device's name, for display.
    #[must_use]
    pub fn name(&self) -> String {
        self.device().limits.device_name
    }

    /// The file that it was read from; `None` for one that is built in.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Own(_, file) => Some(file),
            _ => None,
        }
    }

    /// Reads the profile of a device from a file.
    ///
    /// # Errors
    ///
    /// [`ProfileError`].
    pub fn open(path: &Path) -> Result<Self, ProfileError> {
        let name = shown(path.display());
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(problem) => return Err(ProfileError::Read { name, problem }),
        };
        let mut profile: DeviceProfile = match serde_json::from_str(&text) {
            Ok(profile) => profile,
            Err(problem) => return Err(ProfileError::Wrong { name, problem }),
        };
        let limits = &mut profile.limits;
        let sizes = [
            ("capacity_bytes", limits.capacity_bytes),
            ("largest_block_bytes", limits.largest_block_bytes as u64),
        ];
        for (field, value) in sizes {
            if value > LARGEST {
                return Err(ProfileError::TooLarge { name, field, value });
            }
        }
        limits.device_name = shown(&limits.device_name);
        Ok(Self::Own(Arc::new(profile), path.into()))
    }
}

impl FromStr for Profile {
    type Err = ProfileError;

    fn from_str(text: &str) -> Result<Self, ProfileError> {
        match text {
            "h200" => Ok(Self::H200),
            "pocl" => Ok(Self::Pocl),
            "none" => Ok(Self::None),
            path => Self::open(Path::new(path)),
        }
    }
}
