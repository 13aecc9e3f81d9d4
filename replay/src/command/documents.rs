//! `binpool completions`, `binpool man` and `binpool record`: what the tool says of itself.

use std::{error::Error, fs};

use clap::CommandFactory;
use clap_mangen::Man;

use crate::command::{
    cli::{Cli, Completions, ManPages},
    output::{NotWritten, print},
};

/// How a program is recorded.
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
    let written =
        fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command, folder));
    written.map_err(|source| NotWritten {
        path: folder.clone(),
        source,
    })?;
    Ok(true)
}

/// Prints how a program is recorded.
pub(crate) fn print_recipe() -> Result<bool, Box<dyn Error>> {
    print(RECIPE.trim_end())?;
    Ok(true)
}
