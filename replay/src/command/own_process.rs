//! Measurements in processes of their own.

use std::{
    env,
    error::Error,
    fmt,
    process::{Command, ExitStatus},
};

use serde::de::DeserializeOwned;

/// A measurement in another process that has failed.
#[derive(Debug)]
pub(crate) struct Failed {
    status: ExitStatus,
    /// What the process said of it.
    said: String,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.said.trim() {
            "" => write!(f, "a measurement ended with {}", self.status),
            said => f.write_str(said.strip_prefix("binpool: ").unwrap_or(said)),
        }
    }
}

impl Error for Failed {}

/// Runs this program with `arguments`, which have to make it print JSON, and returns what that says.
///
/// A subject that has run in a process changes the figures of the next one: the heap of the host that it leaves behind is
/// another one, with other thresholds.
pub(crate) fn measured<T: DeserializeOwned>(arguments: &[&str]) -> Result<T, Box<dyn Error>> {
    let ran = Command::new(env::current_exe()?).args(arguments).output()?;
    if ran.status.success() {
        return Ok(serde_json::from_slice(&ran.stdout)?);
    }
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    Err(Failed {
        status: ran.status,
        said,
    }
    .into())
}
