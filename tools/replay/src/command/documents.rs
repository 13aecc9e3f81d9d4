//! `binpool completions`, `binpool man` and `binpool record`: the tool's own documentation.

use std::{error::Error, fs, io, path::Path};

use clap::CommandFactory;
use clap_mangen::Man;

use crate::command::{
    cli::{Cli, Completions, ManPages},
    output::print,
    whole_file::NotWritten,
};

/// How to record a program.
const RECIPE: &str = include_str!("record.txt");

/// Prints the completions of a shell.
pub(crate) fn print_completions(options: &Completions) -> Result<bool, Box<dyn Error>> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut Cli::command(), "binpool", &mut script);
    print(String::from_utf8(script)?.trim_end())?;
    Ok(true)
}

/// Prints the manual page of the command, or writes those of all commands to a folder.
pub(crate) fn write_man_pages(options: &ManPages) -> Result<bool, Box<dyn Error>> {
    let command = Cli::command();
    let Some(folder) = &options.output else {
        let mut page = Vec::new();
        Man::new(command).render(&mut page)?;
        print(String::from_utf8(page)?.trim_end())?;
        return Ok(true);
    };
    write_pages(command, folder).map_err(|source| NotWritten {
        path: folder.clone(),
        source,
    })?;
    Ok(true)
}

/// Writes all pages to temporary files in the folder and then renames them, so that no page is half written.
fn write_pages(command: clap::Command, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let beside = tempfile::tempdir_in(folder)?;
    clap_mangen::generate_to(command, beside.path())?;
    for page in fs::read_dir(beside.path())? {
        let page = page?;
        fs::rename(page.path(), folder.join(page.file_name()))?;
    }
    Ok(())
}

/// Prints how to record a program.
pub(crate) fn print_recipe() -> Result<bool, Box<dyn Error>> {
    print(RECIPE.trim_end())?;
    Ok(true)
}
