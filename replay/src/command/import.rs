//! `binpool import`.

use std::{
    error::Error,
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
};

use binpool_replay::{Trace, import_json, import_summary};
use flate2::{Compression, write::GzEncoder};

use crate::command::{
    cli::Import,
    output::{NotWritten, open_trace, print},
};

/// Writes a recording as a trace. Always `true`: what fails is an error.
pub(crate) fn import_one(options: &Import) -> Result<bool, Box<dyn Error>> {
    let trace = open_trace(&options.file, options.device)?;
    let Some(path) = &options.output else {
        return match write!(BufWriter::new(io::stdout().lock()), "{trace}") {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(true),
            written => Ok(written.map(|()| true)?),
        };
    };
    write_trace(&trace, path).map_err(|source| NotWritten {
        path: path.clone(),
        source,
    })?;
    if options.json {
        print(&import_json(&trace)?)?;
    } else {
        print(&format!("{}: {}", path.display(), import_summary(&trace)))?;
    }
    Ok(true)
}

fn write_trace(trace: &Trace, path: &Path) -> io::Result<()> {
    let file = BufWriter::new(File::create(path)?);
    if path.extension().is_some_and(|extension| extension == "gz") {
        let mut encoder = GzEncoder::new(file, Compression::default());
        write!(encoder, "{trace}")?;
        encoder.finish()?.flush()
    } else {
        let mut file = file;
        write!(file, "{trace}")?;
        file.flush()
    }
}
