//! The description of a probe, and the list of all.

use serde::{Deserialize, Serialize};
use tribune_contract::SandboxMode;
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
    /// Where it must succeed, in full mode.
    pub(crate) control: Control,
    /// Where it must succeed in Landlock mode, if it is tried there.
    pub(crate) landlock_control: Option<Control>,
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
        let control = Control::Without(without);
        Self { group, name, tries, control, landlock_control: None, act, sign: Sign::Inside }
    }

    pub(crate) const fn as_root(
        group: &'static str,
        name: &'static str,
        tries: &'static str,
        act: fn(&Bait) -> Outcome,
    ) -> Self {
        let landlock_control = None;
        Self { group, name, tries, control: Control::AsRoot, landlock_control, act, sign: Sign::Inside }
    }

    /// The probe is also tried in Landlock mode, where these mechanisms stop it.
    pub(crate) const fn in_landlock_mode(mut self, without: &'static [Isolation]) -> Self {
        self.landlock_control = Some(Control::Without(without));
        self
    }

    /// The probe is also tried in Landlock mode; its control has no sandbox.
    pub(crate) const fn in_landlock_mode_as_root(mut self) -> Self {
        self.landlock_control = Some(Control::AsRoot);
        self
    }

    /// Where it must succeed, if it is tried in this mode.
    pub(crate) const fn control_in(&self, mode: SandboxMode) -> Option<Control> {
        match mode {
            SandboxMode::Full => Some(self.control),
            SandboxMode::Landlock => self.landlock_control,
        }
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
