//! What is prepared once and shared by all launches.

use super::seccomp::Filters;
use crate::isolation::IsolationSet;

/// The isolation mechanisms in force, and the compiled seccomp filters.
#[derive(Debug, Clone, Copy)]
pub(super) struct SharedSetup<'a> {
    pub(super) isolation: &'a IsolationSet,
    pub(super) filters: &'a Filters,
}
