//! The isolation mechanisms of a sandbox, by name.

/// A mechanism that a test can leave out to show what it stops. A profile cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isolation {
    /// A new session keyring.
    Keyring,
    Cgroup,
    Rlimits,
    NetworkNamespace,
    PidNamespace,
    IpcNamespace,
    UtsNamespace,
    CgroupNamespace,
    /// The sysctl limit that forbids user namespaces inside.
    NestedNamespaces,
    /// A root file system with only what was requested.
    Root,
    /// Read-only and empty files in `/proc`.
    ProcMasks,
    WorkspaceMasks,
    /// `nosuid` and `nodev`.
    MountFlags,
    ReadOnlyMounts,
    TmpfsLimits,
    /// Process 1 is not dumpable, so nothing inside can read its memory.
    NonDumpable,
    NoNewPrivileges,
    Capabilities,
    Descriptors,
    Environment,
    Landlock,
    Seccomp,
}

impl Isolation {
    pub const ALL: [Self; 22] = [
        Self::Keyring,
        Self::Cgroup,
        Self::Rlimits,
        Self::NetworkNamespace,
        Self::PidNamespace,
        Self::IpcNamespace,
        Self::UtsNamespace,
        Self::CgroupNamespace,
        Self::NestedNamespaces,
        Self::Root,
        Self::ProcMasks,
        Self::WorkspaceMasks,
        Self::MountFlags,
        Self::ReadOnlyMounts,
        Self::TmpfsLimits,
        Self::NonDumpable,
        Self::NoNewPrivileges,
        Self::Capabilities,
        Self::Descriptors,
        Self::Environment,
        Self::Landlock,
        Self::Seccomp,
    ];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Keyring => "keyring",
            Self::Cgroup => "cgroup",
            Self::Rlimits => "rlimits",
            Self::NetworkNamespace => "network namespace",
            Self::PidNamespace => "pid namespace",
            Self::IpcNamespace => "ipc namespace",
            Self::UtsNamespace => "uts namespace",
            Self::CgroupNamespace => "cgroup namespace",
            Self::NestedNamespaces => "no nested namespaces",
            Self::Root => "own root",
            Self::ProcMasks => "/proc masks",
            Self::WorkspaceMasks => "workspace masks",
            Self::MountFlags => "nosuid, nodev",
            Self::ReadOnlyMounts => "read-only mounts",
            Self::TmpfsLimits => "tmpfs sizes",
            Self::NonDumpable => "non-dumpable pid 1",
            Self::NoNewPrivileges => "no_new_privs",
            Self::Capabilities => "no capabilities",
            Self::Descriptors => "no descriptors",
            Self::Environment => "no environment",
            Self::Landlock => "Landlock",
            Self::Seccomp => "seccomp",
        }
    }
}

/// The mechanisms in force: all of them, except in the control of a test.
#[derive(Debug, Clone, Default)]
pub(crate) struct IsolationSet {
    off: Vec<Isolation>,
}

impl IsolationSet {
    #[cfg(feature = "controls")]
    pub(crate) fn without(off: &[Isolation]) -> Self {
        Self { off: off.to_vec() }
    }

    pub(crate) fn has(&self, layer: Isolation) -> bool {
        !self.off.contains(&layer)
    }
}
