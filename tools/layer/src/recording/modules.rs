//! Which file the code at an address is from.

use std::{
    ffi::{CStr, OsStr, c_int, c_void},
    ops::Range,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
};

/// A part of a file that has code.
#[derive(Debug)]
struct Module {
    /// Where it is in memory.
    addresses: Range<usize>,
    /// The load address: what is added to an address of the file.
    base: usize,
    path: String,
}

/// Returns the frames of a stack as `FILE+0xADDRESS`, by the numbering of the file, without the innermost ones, which are the layer's.
pub(super) fn frames(addresses: &[usize]) -> Vec<String> {
    // They are listed each time, since the program loads and unloads files. A stack is new only once.
    let modules = loaded();
    let find = |address| {
        modules
            .iter()
            .find(|module| module.addresses.contains(&address))
    };
    let own = find(frames as *const () as usize).map(|own| &own.addresses);
    let is_own = |address: &&usize| own.is_some_and(|own| own.contains(address));
    let inside = addresses.iter().take_while(is_own).count();
    // In a test, all are of one file.
    let first = if inside == addresses.len() { 0 } else { inside };
    let texts = addresses[first..].iter().map(|address| {
        // A return address is that of the next instruction, which may be of another line.
        let address = address.saturating_sub(1);
        match find(address) {
            Some(module) => format!("{}+{:#x}", module.path, address - module.base),
            None => format!("{address:#x}"),
        }
    });
    texts.collect()
}

/// Returns the paths of the files that are loaded now.
pub(crate) fn loaded_files() -> Vec<PathBuf> {
    let mut paths: Vec<_> = loaded().into_iter().map(|module| module.path).collect();
    // A file has several parts, one after another.
    paths.dedup();
    paths.into_iter().map(PathBuf::from).collect()
}

/// Returns the files that are loaded now.
fn loaded() -> Vec<Module> {
    let mut modules: Vec<Module> = Vec::new();
    // SAFETY: `add` gets what is passed here, and keeps nothing of it.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut modules).cast()) };
    modules
}

/// Adds the parts of a file that have code.
///
/// # Safety
///
/// The loader calls this, with the list that `loaded` passes.
unsafe extern "C" fn add(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    modules: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes a description, for this call.
    let info = unsafe { &*info };
    // SAFETY: this is the list of `loaded`.
    let modules = unsafe { &mut *modules.cast::<Vec<Module>>() };
    // SAFETY: the description has this table.
    let headers =
        unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    // SAFETY: the description has this name.
    let name = unsafe { CStr::from_ptr(info.dlpi_name) };
    let path = match name.to_bytes() {
        // The program itself comes without a name.
        b"" => std::env::current_exe().unwrap_or_default(),
        name => OsStr::from_bytes(name).into(),
    };
    #[allow(clippy::cast_possible_truncation)] // Of this process.
    let address = |number: u64| number as usize;
    let segments = headers.iter().filter(|it| it.p_type == libc::PT_LOAD);
    modules.extend(segments.map(|segment| {
        let begin = address(info.dlpi_addr + segment.p_vaddr);
        Module {
            addresses: begin..begin + address(segment.p_memsz),
            base: address(info.dlpi_addr),
            path: path.to_string_lossy().into_owned(),
        }
    }));
    0
}
