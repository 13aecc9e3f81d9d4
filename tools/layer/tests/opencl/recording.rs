//! What a recording has.

use std::{collections::HashSet, fs, path::Path};

use binpool_trace::Line;

/// The lines of a file.
#[derive(Debug)]
pub(crate) struct Recording(String);

impl Recording {
    /// Reads a recording, whose lines are whole, and speak of what lines before have named.
    pub(crate) fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        assert!(text.ends_with('\n'), "the last line is whole");
        let (mut live, mut groups, mut stacks) = (HashSet::new(), HashSet::new(), HashSet::new());
        for line in text.lines() {
            let is_known = match Line::read(line).unwrap().unwrap() {
                Line::Group { group, .. } => groups.insert(group),
                Line::Frame { stack, .. } => {
                    stacks.insert(stack);
                    true
                }
                Line::Allocated { id, request } => {
                    let is_named = groups.contains(&request.group.unwrap());
                    live.insert(id) && is_named && stacks.contains(&request.stack.unwrap())
                }
                Line::Used { id, .. } => live.contains(&id),
                Line::Freed { id, .. } => live.remove(&id),
                _ => true,
            };
            assert!(is_known, "{line}");
        }
        Self(text)
    }

    /// The lines that begin like this, without that.
    pub(crate) fn of<'a>(&'a self, begin: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .lines()
            .filter_map(move |line| line.strip_prefix(begin))
    }

    pub(crate) fn count(&self, begin: &str) -> usize {
        self.of(begin).count()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.len()
    }

    /// The sizes of the blocks that were allocated.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        let sizes = self.of("a ").map(|line| line.split(' ').nth(1).unwrap());
        sizes.map(|bytes| bytes.parse().unwrap()).collect()
    }

    /// How often a function of the driver was called.
    pub(crate) fn calls(&self, name: &str) -> Option<u64> {
        let call = self.of("p call ").find(|call| call.contains(name))?;
        call.split(' ').next()?.parse().ok()
    }
}
