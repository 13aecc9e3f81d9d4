//! What the pools under a program did.

use std::{fs, path::Path};

use binpool_allocators::words::bytes;
use binpool_layer::PoolFigures;
use binpool_trace::{Line, shown};

use crate::command::output::remark;

/// The file that a process with a pool makes. That with its figures is beside it, and named `pooled.python3-1234`.
pub(super) const SIGN: &str = "pooled";

/// The pools of all processes.
#[derive(Debug)]
pub(super) struct Pools {
    pub(super) has_any: bool,
    /// What those did that got requests, after the name of the program and the number of the process.
    figures: Vec<(String, PoolFigures)>,
}

impl Pools {
    /// Reads what processes left in this folder.
    pub(super) fn in_folder(folder: &Path) -> Self {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut figures: Vec<_> = entries
            .filter_map(|entry| {
                let process = entry.file_name().into_string().ok()?;
                let process = process.strip_prefix(SIGN)?.strip_prefix('.')?.to_owned();
                let figures = PoolFigures::read(&entry.path()).ok()?;
                (figures.requests > 0).then_some((process, figures))
            })
            .collect();
        figures.sort_by_key(|(process, _)| process.clone());
        Self {
            has_any: folder.join(SIGN).exists(),
            figures,
        }
    }

    /// Says what each pool did, with this limit.
    pub(super) fn tell(&self, limit: Option<u64>) {
        for (process, figures) in &self.figures {
            let of = match (&*self.figures, process.rsplit_once('-')) {
                ([_, _, ..], Some((program, number))) => {
                    format!(" of {} (process {number})", shown(program))
                }
                _ => String::new(),
            };
            let refused = match (figures.refused_by_limit, limit) {
                (1.., Some(limit)) => format!(
                    "; the limit of {} refused {}",
                    bytes(limit),
                    figures.refused_by_limit
                ),
                _ => String::new(),
            };
            remark(&format!(
                "the pool{of} served {} of {} requests and reserved {} at most, {} of that free for reuse then{refused}",
                figures.served,
                figures.requests,
                bytes(figures.most_reserved),
                bytes(figures.held_then),
            ));
        }
    }

    /// Appends what the pool of a process did to the header of its recording.
    pub(super) fn push_header(&self, program: &str, process: u32, header: &mut Vec<u8>) {
        let name = format!("{}-{process}", program.replace('/', "_"));
        let Some((_, figures)) = self.figures.iter().find(|(process, _)| *process == name) else {
            return;
        };
        for (key, value) in [
            ("requests", figures.requests),
            ("served", figures.served),
            ("refused_by_limit", figures.refused_by_limit),
            ("most_reserved", figures.most_reserved),
            ("held_then", figures.held_then),
        ] {
            let value = &value.to_string();
            Line::Header { key, value }.write(header);
        }
    }
}
