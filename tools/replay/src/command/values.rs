//! Values of options, as they are read from the command line.

use std::{ffi::OsStr, path::PathBuf, time::Duration};

use binpool::{GrowthPolicy, Retain};
use binpool_recordings::view::By;
use binpool_replay::AllocatorChoice;
use bytesize::ByteSize;
use clap::{
    ValueEnum,
    builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser},
};

/// The longest time that a device may be behind.
const LONGEST: Duration = Duration::from_secs(10);

pub(crate) fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".into()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

/// The allocators that a trial of settings can use: those of the mock, except for memory that is taken only when it is touched.
pub(crate) fn allocator_of_mock() -> impl TypedValueParser<Value = AllocatorChoice> {
    let names = PossibleValuesParser::new(["immediate", "svm", "svm-fine", "virtual-memory"]);
    names.map(|name| AllocatorChoice::from_str(&name, false).unwrap_or_default())
}

/// A parser of a growth policy.
pub(crate) fn growth() -> impl TypedValueParser<Value = GrowthPolicy> {
    PossibleValuesParser::new(["balanced", "dense"]).map(|name| match &*name {
        "dense" => GrowthPolicy::Dense,
        _ => GrowthPolicy::Balanced,
    })
}

/// Reads how much free memory a pool keeps, such as `at-most=1GiB,unused-for-allocations=1000`.
pub(crate) fn retain(text: &str) -> Result<Retain, String> {
    text.split(',').try_fold(Retain::new(), |retain, rule| {
        let (name, value) = rule.split_once('=').unwrap_or((rule, ""));
        match name {
            "all" => Ok(retain.at_least(u64::MAX)),
            "unused-for-allocations" => {
                let allocations = at_least_one(value)?;
                Ok(retain.unused_for_allocations(allocations as u64))
            }
            "at-most" => Ok(retain.at_most(size(value)?.as_u64())),
            "percent-of-peak" => match value.parse() {
                Ok(percent) if percent >= 100 => Ok(retain.percent_of_peak(percent)),
                _ => Err("expected at least 100 percent, such as percent-of-peak=150".into()),
            },
            _ => Err(
                "expected all, unused-for-allocations=N, at-most=SIZE or percent-of-peak=PERCENT"
                    .into(),
            ),
        }
    })
}

pub(crate) fn ratio(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ratio) if ratio.is_finite() && ratio >= 1.0 => Ok(ratio),
        Ok(_) => Err("must be a number of at least 1".into()),
        Err(error) => Err(format!("{error}")),
    }
}

/// Reads a time with a unit.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let units = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let seconds = units.iter().find_map(|(unit, seconds)| {
        let number: f64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
        Some(number * seconds)
    });
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|time| !time.is_zero() && *time <= LONGEST)
        .ok_or_else(|| "expected a time of at most 10s, such as 2ms or 500us".to_owned())
}

/// Reads a size in bytes.
pub(crate) fn size(text: &str) -> Result<ByteSize, String> {
    let expected = |_| "expected a size, such as 12GiB, 512MiB or 1000000".to_owned();
    text.parse().map_err(expected)
}

/// A parser of the property that blocks are grouped by.
pub(crate) fn by() -> impl TypedValueParser<Value = By> {
    let names = PossibleValuesParser::new(By::ALL.map(By::name));
    names.try_map(|name| {
        let found = By::ALL.into_iter().find(|by| by.name() == name);
        found.ok_or("no such property")
    })
}

/// A parser of the name of a page: one with another ending would get something that its name does not say.
pub(crate) fn page_name() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        match path.extension().map(OsStr::to_string_lossy).as_deref() {
            None | Some("html" | "htm") => Ok(path),
            Some(_) => Err("expected a name that ends in .html"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit_and_an_end() {
        assert_eq!(time("2ms"), Ok(Duration::from_millis(2)));
        assert_eq!(time("0.5 us"), Ok(Duration::from_nanos(500)));
        assert_eq!(time("10s"), Ok(LONGEST));
        assert_eq!(time("800ns"), Ok(Duration::from_nanos(800)));
        for wrong in [
            "",
            "2",
            "ms",
            "0ms",
            "-1ms",
            "11s",
            "1e30s",
            "NaNs",
            "2 minutes",
        ] {
            assert!(time(wrong).unwrap_err().contains("such as 2ms"), "{wrong}");
        }
    }
}
