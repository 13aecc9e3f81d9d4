//! Comparing what the device gave with what the model says.

use super::{
    cells::{Cell, Source, Sources},
    commands::{Commands, Ended},
};

/// How a comparison came out.
#[derive(Debug, Default)]
pub(crate) struct Compared {
    /// How many bytes were known, and right.
    pub(crate) bytes: usize,
    /// What is wrong with the first byte that is.
    pub(crate) wrong: Option<String>,
}

/// Compares bytes that a command has brought, which has completed. Where `failing`, commands whose events were dropped
/// may have failed.
pub(crate) fn compare(
    actual: &[u8],
    expected: &[Cell],
    (commands, sources): (&Commands, &Sources),
    failing: bool,
) -> Compared {
    let mut compared = Compared::default();
    let mut last = (Source::UNKNOWN, false);
    for (index, (&byte, cell)) in actual.iter().zip(expected).enumerate() {
        if cell.source != last.0 {
            let known = is_known(cell.source, (commands, sources), failing);
            match known {
                Ok(known) => last = (cell.source, known),
                Err(pending) => {
                    compared.wrong = Some(format!("byte {index}: {pending}"));
                    return compared;
                }
            }
        }
        if !last.1 {
            continue;
        }
        if byte != cell.value {
            let value = cell.value;
            let of = sources.commands(cell.source);
            compared.wrong = Some(format!(
                "byte {index} of {} is {byte}, not {value} (of {of:?})",
                actual.len()
            ));
            return compared;
        }
        compared.bytes += 1;
    }
    compared
}

/// Returns whether all commands of the source have completed. An error where one is pending: what came after it has completed.
fn is_known(
    source: Source,
    (commands, sources): (&Commands, &Sources),
    failing: bool,
) -> Result<bool, String> {
    if source == Source::UNKNOWN {
        return Ok(false);
    }
    for &id in sources.commands(source) {
        commands.wait_for_status(id);
        match commands.ended(id) {
            Some(Ended::Failed) => return Ok(false),
            None if commands.is_pending(id) => {
                return Err(format!(
                    "{id:?}, which it comes from, is still pending, and what came after it has completed"
                ));
            }
            None if failing => return Ok(false),
            Some(Ended::Complete) | None => {}
        }
    }
    Ok(true)
}
