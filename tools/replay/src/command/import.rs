//! `binpool import`: makes traces of other tools' recordings.

use std::{
    error::Error,
    io::{self, BufWriter, Write},
    path::Path,
};

use binpool_recordings::Trace;
use binpool_replay::report::{import_json, import_summary};
use binpool_trace::shown;
use flate2::{Compression, write::GzEncoder};

use crate::command::{
    cli::Import,
    output::{open_trace_beyond, print},
    whole_file::{NotWritten, keep_inputs, write_with},
};

/// Writes a recording as a trace. Returns `true`: failures are errors.
pub(crate) fn import_one(options: &Import) -> Result<bool, Box<dyn Error>> {
    if let Some(output) = &options.output {
        keep_inputs(output, [&*options.file])?;
    }
    let trace = open_trace_beyond(&options.file, options.device, &options.beyond)?;
    let Some(path) = &options.output else {
        let mut output = BufWriter::new(io::stdout().lock());
        return match write_to(&trace, &mut output).and_then(|()| output.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(true),
            written => Ok(written.map(|()| true)?),
        };
    };
    write_trace(&trace, path)?;
    if options.json {
        print(&import_json(&trace))?;
    } else {
        let path = shown(path.display());
        print(&format!("{path}: {}", import_summary(&trace)))?;
    }
    Ok(true)
}

fn write_trace(trace: &Trace, path: &Path) -> Result<(), NotWritten> {
    write_with(path, |file| {
        if path.extension().is_some_and(|extension| extension == "gz") {
            let mut encoder = GzEncoder::new(file, Compression::default());
            write_to(trace, &mut encoder)?;
            encoder.finish().map(drop)
        } else {
            write_to(trace, file)
        }
    })
}

/// Writes a trace, which says that the program has a pool.
fn write_to(trace: &Trace, to: &mut dyn Write) -> io::Result<()> {
    if trace.header().is_empty() && trace.is_of_pool() {
        to.write_all(b"h version 2\nh pooled yes\n")?;
    }
    write!(to, "{trace}")
}
