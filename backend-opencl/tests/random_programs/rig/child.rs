//! A child: runs programs, and tells its parent which.

use std::{io::Write, ops::Range, panic, process};

use super::{
    process::{DONE, FAILED, MARK, PROGRAM},
    program::{self, Device},
    settings::Settings,
};

fn tell(line: &str) {
    let mut output = std::io::stdout().lock();
    let written = writeln!(output, "{MARK}{line}").and_then(|()| output.flush());
    if written.is_err() {
        // The parent is gone.
        process::exit(1);
    }
}

pub(crate) fn run(settings: &Settings, seeds: Range<u64>) {
    // The first panic of any thread is what went wrong. To unwind might hang, or crash, and hide it.
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        report(info);
        let payload = info.payload();
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let payload = text.unwrap_or("a panic");
        let place = info.location().map(ToString::to_string);
        let place = place.unwrap_or_default();
        tell(&format!("{FAILED}{} ({place})", payload.replace('\n', " ")));
        process::exit(101);
    }));
    let device = Device::open();
    for seed in seeds {
        tell(&format!("{PROGRAM}{seed}"));
        let counts = program::run(&device, settings, seed);
        tell(&format!("{DONE}{}", counts.line()));
    }
}
