//! Recordings of other tools, written by a model of an allocator, and what a trace says of them.
//!
//! A format that is read gets a [`Recorder`] beside these: what it writes of a [`History`], and what of that it can tell.

mod allocator;
mod pytorch;
mod rmm;
mod told;

pub(crate) use allocator::{History, What, histories, history};
pub(crate) use pytorch::{Form, PyTorch};
pub(crate) use rmm::Rmm;
pub(crate) use told::{Lives, Told};

/// What a recording can tell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tells {
    /// The place of each block, what the allocator had from the device, and which blocks wait for other streams.
    pub(crate) places: bool,
    /// Whether the places are exact: it says when blocks were free, and whether segments grow.
    pub(crate) is_exact: bool,
    /// A free ends a block when all streams are done with it, instead of when the program frees it.
    pub(crate) completions: bool,
    /// The blocks that are live at the end, also those from before the recording.
    pub(crate) ends: bool,
    /// Whether it has any entry of the device. Of several devices, those without are not asked for.
    pub(crate) entries: bool,
    pub(crate) stacks: bool,
    /// Whether entries have their threads, by which blocks are grouped.
    pub(crate) threads: bool,
    pub(crate) times: bool,
}

/// The writer of a format.
pub(crate) trait Recorder {
    /// How many of these devices a recording has.
    fn devices(&self, of: usize) -> usize;

    /// What it tells of a device.
    fn tells(&self, history: &History) -> Tells;

    /// The recording of these devices. What comes before [`History::lost`] is missing in it.
    fn write(&self, histories: &[History]) -> Vec<u8>;
}
