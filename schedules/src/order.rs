use crate::program::Program;
pub(crate) const PROGRAMS: &[Program] = &[];
