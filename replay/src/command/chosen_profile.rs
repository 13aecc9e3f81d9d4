//! The device that the mock is, as the command line names it.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
};

use binpool_replay::{Profile, ProfileError};

/// The value of `--profile`.
#[derive(Clone, Debug)]
pub(crate) struct ChosenProfile {
    pub(crate) profile: Profile,
    name: PathBuf,
}

impl ChosenProfile {
    /// Returns the file that it was read from; `None` for one that is built in.
    pub(crate) fn file(&self) -> Option<&Path> {
        matches!(self.profile, Profile::Own(_)).then_some(&self.name)
    }
}

impl FromStr for ChosenProfile {
    type Err = ProfileError;

    fn from_str(name: &str) -> Result<Self, ProfileError> {
        Ok(Self {
            profile: name.parse()?,
            name: name.into(),
        })
    }
}
