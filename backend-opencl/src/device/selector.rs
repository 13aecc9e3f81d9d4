//! The description of the device that a program wants.

use std::{convert::Infallible, fmt, str::FromStr};

use crate::device::kind::DeviceKind;

/// The description of the device that a program wants.
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
    /// The best device: the first GPU, or else the first accelerator, processor or other device.
    #[default]
    Any,
    /// The device at this index of [`list_devices`](crate::list_devices).
    Index(usize),
    /// The first device of this kind.
    Kind(DeviceKind),
    /// The first device whose own name or whose platform's contains this, in upper or lower case.
    Name(String),
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
            Self::Any => f.write_str("available"),
            Self::Index(index) => write!(f, "number {index}"),
            Self::Kind(kind) => write!(f, "of kind {kind}"),
            Self::Name(part) => write!(f, "called {part:?}"),
        }
    }
}
