//! The names of tags and call sites, and their numbers.

use std::{
    collections::HashMap,
    panic::Location,
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
};

/// The name that a number stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Name {
    Tag(String),
    Location(&'static Location<'static>),
    #[cfg(feature = "backtrace")]
    Stack(crate::track::stack::Stack),
}

/// All names of the process. They are few, and never removed.
#[derive(Debug, Default)]
struct Names {
    /// By number, from 1 on.
    all: Vec<Name>,
    numbers: HashMap<Name, u32>,
}

/// The standard library's mutex: `shuttle`'s must not outlive one test run, and threads hardly contend for this one.
static NAMES: LazyLock<Mutex<Names>> = LazyLock::new(Mutex::default);

fn names() -> MutexGuard<'static, Names> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn number_of(name: Name) -> u32 {
    let mut names = names();
    if let Some(number) = names.numbers.get(&name) {
        return *number;
    }
    names.all.push(name.clone());
    let number = u32::try_from(names.all.len()).unwrap_or(0);
    names.numbers.insert(name, number);
    number
}

pub(crate) fn number_of_tag(name: &str) -> u32 {
    let name = name.trim();
    let name = if name.is_empty() { "(no name)" } else { name };
    number_of(Name::Tag(name.replace(char::is_control, " ")))
}

/// Returns the name with this number; `None` for 0.
pub(crate) fn name_of(number: u32) -> Option<String> {
    let index = number.checked_sub(1)? as usize;
    let name = names().all.get(index).cloned()?;
    Some(match name {
        Name::Tag(name) => name,
        Name::Location(site) => site.to_string(),
        #[cfg(feature = "backtrace")]
        Name::Stack(stack) => stack.to_string(),
    })
}
