//! The choice of colours on the command line.

use std::ffi::OsString;

use anstream::ColorChoice;

/// Applies `--color` among `arguments`, or else the terminal and the variables `NO_COLOR`
/// and `CLICOLOR_FORCE`, to all later output. It is read before the command line is parsed, since the parser's own output has
/// colours, too; the parser reports a wrong value.
pub(crate) fn choose(arguments: impl Iterator<Item = OsString>) {
    choice(arguments).write_global();
}

fn choice(arguments: impl Iterator<Item = OsString>) -> ColorChoice {
    let mut arguments = arguments.map(|argument| argument.to_string_lossy().into_owned());
    let mut choice = ColorChoice::Auto;
    while let Some(argument) = arguments.next() {
        let value = match argument.as_str() {
            "--" => break,
            "--color" => arguments.next(),
            argument => argument.strip_prefix("--color=").map(str::to_owned),
        };
        choice = match value.as_deref() {
            Some("always") => ColorChoice::Always,
            Some("never") => ColorChoice::Never,
            Some("auto") => ColorChoice::Auto,
            _ => choice,
        };
    }
    choice
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_is_found_wherever_it_stands() {
        let of = |line: &str| choice(line.split(' ').map(OsString::from));
        assert_eq!(of("replay --color always x"), ColorChoice::Always);
        assert_eq!(of("--color=never replay x"), ColorChoice::Never);
        assert_eq!(of("replay -- --color always"), ColorChoice::Auto);
        assert_eq!(of("replay --color"), ColorChoice::Auto);
    }
}
