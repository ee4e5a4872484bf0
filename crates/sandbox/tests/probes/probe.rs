//! The description of a probe, and the list of all.

use serde::{Deserialize, Serialize};
use tribune_sandbox::Isolation;

use crate::probes::attacks;
use crate::probes::bait::Bait;

/// One attack.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probe {
    pub(crate) group: &'static str,
    pub(crate) name: &'static str,
    /// What it tries, for the documentation.
    pub(crate) tries: &'static str,
    pub(crate) control: Control,
    pub(crate) act: fn(&Bait) -> Outcome,
    pub(crate) sign: Sign,
}

/// Where the probe must succeed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Control {
    /// In a sandbox without these mechanisms, each of which stops it.
    Without(&'static [Isolation]),
    /// Without a sandbox, as root. For what no unprivileged user can do anywhere.
    AsRoot,
}

/// Where the effect is observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    /// By the probe itself.
    Inside,
    /// By the probe itself, or it is killed for the attempt.
    InsideOrKilled,
    /// On the host: the victim process is gone.
    VictimGone,
    /// On the host: a process of the sandbox is still running.
    Survivor,
}

/// The result of a probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Open(String),
    Shut(String),
}

impl Outcome {
    /// Open if the call succeeded.
    pub(crate) fn of<T: std::fmt::Debug, E: std::fmt::Display>(result: Result<T, E>) -> Self {
        match result {
            Ok(value) => Self::Open(format!("{value:?}").chars().take(200).collect()),
            Err(error) => Self::Shut(error.to_string()),
        }
    }

    /// Open if the effect occurred.
    pub(crate) fn when(is_open: bool, detail: impl Into<String>) -> Self {
        if is_open { Self::Open(detail.into()) } else { Self::Shut(detail.into()) }
    }
}

impl Probe {
    pub(crate) const fn new(
        group: &'static str,
        name: &'static str,
        tries: &'static str,
        without: &'static [Isolation],
        act: fn(&Bait) -> Outcome,
    ) -> Self {
        Self { group, name, tries, control: Control::Without(without), act, sign: Sign::Inside }
    }

    pub(crate) const fn as_root(
        group: &'static str,
        name: &'static str,
        tries: &'static str,
        act: fn(&Bait) -> Outcome,
    ) -> Self {
        Self { group, name, tries, control: Control::AsRoot, act, sign: Sign::Inside }
    }

    pub(crate) const fn seen_by(mut self, sign: Sign) -> Self {
        self.sign = sign;
        self
    }
}

pub(crate) fn all() -> impl Iterator<Item = &'static Probe> {
    attacks::ALL.iter().copied().flatten()
}

pub(crate) fn named(name: &str) -> &'static Probe {
    all().find(|probe| probe.name == name).unwrap_or_else(|| panic!("no probe is called {name}"))
}
