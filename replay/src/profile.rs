//! The device whose limits and costs the mock has.

use std::{fs, io, path::Path, str::FromStr, sync::Arc};

use binpool_mock::{CostModel, DeviceProfile, MockDevice};

/// The device whose limits and costs the mock has.
///
/// As text, it is `h200`, `pocl`, `none`, or the name of a file that `binpool devices --measure` wrote:
///
/// ```
/// use binpool_replay::Profile;
///
/// assert_eq!("pocl".parse::<Profile>().unwrap().name(), "PoCL (mock)");
/// let error = "abacus".parse::<Profile>().unwrap_err();
/// assert!(error.to_string().contains("h200, pocl, none"));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Profile {
    /// An NVIDIA H200 with NVIDIA's OpenCL.
    #[default]
    H200,
    /// `PoCL` on a processor.
    Pocl,
    /// The H200's limits, where nothing costs time.
    None,
    /// A device of one's own.
    Own(Arc<DeviceProfile>),
}

/// Why there is no profile of a name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The file cannot be read, and the name is none of the built-in ones.
    #[error(
        "expected h200, pocl, none, or a file that `binpool devices --measure -o FILE.json` wrote; {name} cannot be read: \
         {source}"
    )]
    Read {
        /// The name.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// The file is no profile.
    #[error("{name} is no profile of a device: {source}")]
    Wrong {
        /// The file.
        name: String,
        /// Why.
        source: serde_json::Error,
    },
}

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
            Self::Own(profile) => DeviceProfile::clone(profile),
        }
    }

    /// A fresh mock device with this profile, and so many bytes of memory; `None` for all that such a device has.
    pub(crate) fn mock(&self, capacity_bytes: Option<u64>) -> MockDevice {
        let profile = self.device();
        let largest = profile.limits.largest_block_bytes;
        let mut builder = MockDevice::builder().profile(profile);
        if let Some(capacity) = capacity_bytes {
            builder = builder
                .capacity_bytes(capacity)
                .largest_block_bytes(largest);
        }
        builder.build()
    }

    /// The device's name, for people.
    #[must_use]
    pub fn name(&self) -> String {
        self.device().limits.device_name
    }

    /// Reads the profile of a device from a file.
    ///
    /// # Errors
    ///
    /// [`ProfileError`].
    pub fn open(path: &Path) -> Result<Self, ProfileError> {
        let name = path.display().to_string();
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(source) => return Err(ProfileError::Read { name, source }),
        };
        match serde_json::from_str(&text) {
            Ok(profile) => Ok(Self::Own(Arc::new(profile))),
            Err(source) => Err(ProfileError::Wrong { name, source }),
        }
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
