//! Prints a program as a test that can be pasted.

use std::fmt;

use crate::model::operation::{Operation, Setting};

/// A program, and what it runs on. With `{:?}` and `{}` it is a test, in Rust.
#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) setting: Setting,
    pub(crate) operations: Vec<Operation>,
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting {
            source,
            segments,
            reuse,
            threshold,
            completion,
            failures,
            watched,
        } = self.setting;
        writeln!(f, "#[test]")?;
        writeln!(f, "fn found_by_the_model() {{")?;
        writeln!(f, "    let setting = Setting {{")?;
        writeln!(f, "        source: {source:?},")?;
        writeln!(f, "        segments: {segments},")?;
        writeln!(f, "        reuse: {reuse:?},")?;
        writeln!(f, "        threshold: {threshold:?},")?;
        writeln!(f, "        completion: {completion:?},")?;
        writeln!(f, "        failures: {failures:?},")?;
        writeln!(f, "        watched: {watched},")?;
        writeln!(f, "    }};")?;
        writeln!(f, "    let operations = [")?;
        for operation in &self.operations {
            writeln!(f, "        {operation:?},")?;
        }
        writeln!(f, "    ];")?;
        writeln!(f, "    run(setting, &operations);")?;
        writeln!(f, "}}")
    }
}

/// What `proptest` prints of the shortest program that fails.
impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\n\n{self}\n")
    }
}

/// What `pasted.rs` calls where it is not run, but compared with what is printed of it.
pub(crate) fn is_printed_again(setting: Setting, operations: &[Operation]) {
    let program = Program {
        setting,
        operations: operations.to_vec(),
    };
    assert_eq!(program.to_string(), include_str!("pasted.rs"));
}
