//! What `binpool run` asks for, by variables of the environment.

use std::{fs::File, path::PathBuf, sync::OnceLock};

/// The settings of this process.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    /// `BINPOOL_RECORD`: the file for the recording of the first process that uses a device.
    pub(crate) record: Option<PathBuf>,
    /// Whether requests are recorded with their call stacks: unless `BINPOOL_NO_STACKS` is set.
    pub(crate) has_stacks: bool,
    /// `BINPOOL_POOL`: set where memory comes from a pool.
    pub(crate) is_pooled: bool,
    /// `BINPOOL_LIMIT`: the most bytes of device memory that the process may have.
    pub(crate) limit: Option<u64>,
    /// `BINPOOL_POOLED`: an empty file that is made when a pool begins. Beside it, each process with a pool has a file of its figures.
    pub(crate) pooled: Option<PathBuf>,
}

impl Settings {
    /// Returns whether memory comes from a pool, which begins. `binpool run` learns of it by an empty file: a program that never loads the layer, or
    /// loads another driver, has no pool.
    pub(crate) fn begin_pool(&self) -> bool {
        if self.is_pooled
            && let Some(path) = &self.pooled
        {
            // If that fails, the command reports that there was no pool, which is not worth a message in the program.
            let _ = File::create(path);
        }
        self.is_pooled
    }
}

/// Returns the settings of this process.
pub(crate) fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let is_on = |name| set(name).is_some_and(|value| value != "0");
        let limit = set("BINPOOL_LIMIT").and_then(|value| value.to_str()?.parse().ok());
        Settings {
            record: set("BINPOOL_RECORD").map(PathBuf::from),
            has_stacks: !is_on("BINPOOL_NO_STACKS"),
            is_pooled: is_on("BINPOOL_POOL"),
            limit,
            pooled: set("BINPOOL_POOLED").map(PathBuf::from),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_that_begins_leaves_an_empty_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pooled");
        let mut settings = Settings {
            pooled: Some(path.clone()),
            ..Settings::default()
        };
        assert!(!settings.begin_pool());
        assert!(!path.exists());
        settings.is_pooled = true;
        assert!(settings.begin_pool());
        assert_eq!(path.metadata().unwrap().len(), 0);
    }
}
