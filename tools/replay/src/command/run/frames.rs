//! The names of native functions, from the files that their code is in.

use std::{borrow::Cow, collections::HashMap};

use addr2line::{Loader, demangle_auto};
use binpool_trace::cut;

/// The most characters of the name of a function. Those of templates may have thousands.
const LONGEST_FUNCTION: usize = 400;

/// Turns frames of the form `/path/to/lib.so+0x1a2b`, which a program records since it takes no time, into the names of functions.
#[derive(Default)]
pub(super) struct Symbols {
    /// The files that frames are in; `None` for those that could not be read.
    files: HashMap<String, Option<Loader>>,
    /// What each frame was turned into.
    known: HashMap<String, Vec<String>>,
}

impl Symbols {
    /// Returns the frames that a frame stands for, innermost first: of several, all but the last are inlined. One that is not of this
    /// form, or whose file says nothing of it, stays as it is.
    pub(super) fn frames_of(&mut self, frame: &str) -> &[String] {
        // Not `entry`, which would need a copy of each frame.
        if !self.known.contains_key(frame) {
            let frames = self.look_up(frame).unwrap_or_default();
            let frames = if frames.is_empty() {
                vec![frame.to_owned()]
            } else {
                frames
            };
            self.known.insert(frame.to_owned(), frames);
        }
        &self.known[frame]
    }

    fn look_up(&mut self, frame: &str) -> Option<Vec<String>> {
        let (path, address) = place_of(frame)?;
        let files = &mut self.files;
        if !files.contains_key(path) {
            files.insert(path.to_owned(), Loader::new(path).ok());
        }
        let loader = files[path].as_ref()?;
        let symbol = loader.find_symbol(address);
        let symbol = symbol.map(|name| demangle_auto(Cow::from(name), None).into_owned());
        let mut found = functions_at(loader, address);
        // The innermost functions are inlined into the last one, which has the symbol. Debug information of lines alone has names without
        // their modules, or none.
        match (found.last_mut(), symbol) {
            (Some((name, _)), Some(symbol)) if symbol.ends_with(&**name) => *name = symbol,
            (None, Some(symbol)) => found.push((symbol, None)),
            _ => {}
        }
        found.retain(|(name, _)| !name.is_empty());
        let frames = found.into_iter().map(|(function, line)| {
            let function = cut(&function, LONGEST_FUNCTION);
            match line {
                Some(line) => format!("{function} at {line}"),
                None => format!("{function} in {path}"),
            }
        });
        Some(frames.collect())
    }
}

/// Returns the functions at an address by the debug information, innermost first: the name of each, which may be empty, with its file and line.
fn functions_at(loader: &Loader, address: u64) -> Vec<(String, Option<String>)> {
    let mut functions = Vec::new();
    // A failure is debug information that is damaged.
    let Ok(mut found) = loader.find_frames(address) else {
        return functions;
    };
    while let Ok(Some(frame)) = found.next() {
        let name = frame.function.as_ref().and_then(|it| it.demangle().ok());
        let line = frame.location.and_then(|location| {
            let (file, line) = (location.file?, location.line?);
            Some(format!("{file}:{line}"))
        });
        if name.is_some() || line.is_some() {
            functions.push((name.unwrap_or_default().into_owned(), line));
        }
    }
    functions
}

/// Returns the file of a frame and the address in it.
fn place_of(frame: &str) -> Option<(&str, u64)> {
    let (path, address) = frame.rsplit_once("+0x")?;
    let address = u64::from_str_radix(address, 16).ok()?;
    path.starts_with('/').then_some((path, address))
}
