//! Names for display: limited in length, and without characters that a terminal obeys.

use std::{borrow::Cow, fmt};

/// The most characters of a group's name. Every row of a report may repeat it, so a small file with one long name could make
/// a report of gigabytes.
pub const LONGEST_NAME: usize = 512;

/// The first `longest` characters of `text`, the last of them replaced by `…` where there are more.
#[must_use]
pub fn cut(text: &str, longest: usize) -> Cow<'_, str> {
    if text.char_indices().nth(longest).is_none() {
        return Cow::Borrowed(text);
    }
    let kept = text.chars().take(longest.saturating_sub(1));
    Cow::Owned(kept.chain(['…']).collect())
}

/// Returns a name in one line for display. Control characters, and those that change the order of the text, are replaced by
/// their escapes, since a terminal would obey them.
///
/// ```
/// use binpool_trace::shown;
///
/// assert_eq!(shown("it's a\\b"), "it's a\\b");
/// assert_eq!(shown("\u{1b}[31mred\n"), "\\u{1b}[31mred\\n");
/// ```
#[must_use]
pub fn shown(name: impl fmt::Display) -> String {
    let mut shown = String::new();
    for letter in name.to_string().chars() {
        if is_obeyed(letter) {
            shown.extend(letter.escape_debug());
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// Returns whether a terminal obeys this character instead of showing it.
fn is_obeyed(letter: char) -> bool {
    let changes_order = matches!(
        letter,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    letter.is_control() || changes_order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_cut_once() {
        assert_eq!(cut("weights", 7), "weights");
        assert_eq!(cut("weights!", 7), "weight…");
        assert_eq!(cut("weight…", 7), "weight…");
        assert_eq!(cut("äöü", 3), "äöü");
    }

    #[test]
    fn what_a_terminal_obeys_is_seen() {
        assert_eq!(shown("a\u{9b}31mb\u{7f}"), "a\\u{9b}31mb\\u{7f}");
        assert_eq!(shown("a\u{202e}b"), "a\\u{202e}b");
        assert_eq!(shown("e\u{301} – 日本"), "e\u{301} – 日本");
        let escaped = shown("\u{1b}");
        assert_eq!(shown(&escaped), escaped, "escapes are not escaped again");
    }
}
