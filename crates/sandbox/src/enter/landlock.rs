//! Landlock: file system rights that the program gives up for good, in addition to what the mounts allow.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd,
    Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use rustix::fs::FileType;
use tribune_contract::{
    LaunchFailure, LaunchProfile, LaunchStage, LimitedBy, Mount, SandboxMode, WorkspaceSource,
};

use super::failure::failed;
use super::mount_plan::{RUN_FOLDER, SYSTEM_FOLDERS};
use crate::sys;

/// The Landlock ABI version that the kernel has and this program knows. Zero is none.
pub(crate) fn abi_version() -> u32 {
    sys::landlock_abi().min(u32::try_from(KNOWN_ABIS.len()).unwrap_or(u32::MAX))
}

const KNOWN_ABIS: [ABI; 9] =
    [ABI::V1, ABI::V2, ABI::V3, ABI::V4, ABI::V5, ABI::V6, ABI::V7, ABI::V8, ABI::V9];

/// A class of access rights below a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AccessClass {
    List,
    Read,
    Execute,
    Write,
    Device,
    Connect,
}

/// Fails if the kernel's Landlock is older than the profile requires.
pub(super) fn check_abi(profile: &LaunchProfile) -> Result<u32, LaunchFailure> {
    let found = abi_version();
    // Landlock mode needs the scopes, otherwise the program could signal processes of its user.
    let needed = match profile.mode {
        SandboxMode::Full => profile.landlock_abi,
        SandboxMode::Landlock => profile.landlock_abi.max(6),
    };
    if found >= needed {
        return Ok(found);
    }
    let cause = match found {
        0 => format!("this kernel has no Landlock, and version {needed} is needed"),
        found => format!("this kernel has version {found}, and version {needed} is needed"),
    };
    let remedy =
        "Use a kernel with a newer Landlock (Linux 6.12 has version 6), with `landlock` in its `lsm=` list";
    Err(failed(LaunchStage::Landlock, cause, remedy))
}

/// Restricts this process and its descendants. In Landlock mode they can neither connect nor bind by TCP; seccomp denies
/// the sockets themselves, because Landlock checks neither other protocols nor connections made by sending.
pub(super) fn restrict(
    profile: &LaunchProfile,
    limited_by: LimitedBy,
    version: u32,
) -> Result<(), LaunchFailure> {
    let abi = KNOWN_ABIS[usize::try_from(version).unwrap_or(1).clamp(1, KNOWN_ABIS.len()) - 1];
    let rules = match profile.mode {
        SandboxMode::Full => full_mode_rules(profile),
        SandboxMode::Landlock => landlock_mode_rules(profile, limited_by),
    };
    let confined = (|| {
        let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        ruleset = ruleset.handle_access(AccessFs::from_all(abi))?;
        if version >= 6 {
            ruleset = ruleset.scope(Scope::from_all(abi))?;
        }
        if profile.mode == SandboxMode::Landlock {
            ruleset = ruleset.handle_access(AccessNet::from_all(abi))?;
        }
        let mut created = ruleset.create()?;
        for (path, access) in &rules {
            // A path that does not exist on this system or in this profile needs no rule.
            let Ok(held) = PathFd::new(path) else { continue };
            let is_folder = rustix::fs::fstat(&held)
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
            let rights = access_rights(*access, abi);
            let rights = if is_folder { rights } else { rights & AccessFs::from_file(abi) };
            created = created.add_rule(PathBeneath::new(held, rights))?;
        }
        created.restrict_self()
    })();
    match confined {
        Ok(status) if status.ruleset == RulesetStatus::FullyEnforced => Ok(()),
        Ok(status) => {
            Err(not_enforced(&format!("only some of the rules are enforced ({:?})", status.ruleset)))
        }
        Err(error) => Err(not_enforced(&format!("the kernel rejected the rules ({error})"))),
    }
}

fn not_enforced(cause: &str) -> LaunchFailure {
    failed(LaunchStage::Landlock, cause, "Run `tribune doctor --sandbox` to see what this machine lacks")
}

fn access_rights(access: AccessClass, abi: ABI) -> BitFlags<AccessFs> {
    let unix = AccessFs::from_all(abi) & AccessFs::ResolveUnix;
    match access {
        AccessClass::List => AccessFs::ReadDir.into(),
        AccessClass::Read => AccessFs::ReadDir | AccessFs::ReadFile,
        AccessClass::Execute => AccessFs::from_read(abi),
        // All rights but creating device nodes, which nobody may; device ioctls, which files do not have; and
        // connecting to sockets from outside. Sockets created inside need no right.
        AccessClass::Write => {
            let not = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev | AccessFs::ResolveUnix;
            AccessFs::from_all(abi) & !not
        }
        AccessClass::Device => {
            AccessFs::from_all(abi)
                & (AccessFs::ReadDir
                    | AccessFs::ReadFile
                    | AccessFs::WriteFile
                    | AccessFs::Truncate
                    | AccessFs::IoctlDev)
        }
        AccessClass::Connect => AccessFs::ReadDir | AccessFs::ReadFile | AccessFs::WriteFile | unix,
    }
}

/// Full mode: repeats what the mounts allow, so that neither mechanism has to hold alone.
fn full_mode_rules(profile: &LaunchProfile) -> Vec<(PathBuf, AccessClass)> {
    // Everything in `/etc` and `/dev` was put there deliberately.
    let mut rules: Vec<(PathBuf, AccessClass)> = [
        ("/", AccessClass::List),
        ("/usr", AccessClass::Execute),
        ("/etc", AccessClass::Read),
        ("/proc", AccessClass::Read),
        ("/dev", AccessClass::Device),
        ("/dev/shm", AccessClass::Write),
        ("/tmp", AccessClass::Write),
        ("/var/tmp", AccessClass::Write),
    ]
    .map(|(path, access)| (path.into(), access))
    .into();
    // Symlinks lead into `/usr`.
    let is_link = |path: &PathBuf| std::fs::read_link(path).is_ok();
    let folders = SYSTEM_FOLDERS.map(|name| Path::new("/").join(name)).into_iter();
    rules.extend(folders.filter(|path| !is_link(path)).map(|path| (path, AccessClass::Execute)));
    rules.push((RUN_FOLDER.into(), AccessClass::Connect));
    rules.push((profile.home.clone(), AccessClass::Write));
    for mount in &profile.mounts {
        let access = match mount {
            Mount::ReadOnly { .. } => AccessClass::Execute,
            Mount::ReadWrite { .. } | Mount::Tmpfs { .. } => AccessClass::Write,
            Mount::Socket { .. } => AccessClass::Connect,
            Mount::Text { .. } => AccessClass::Read,
            Mount::Symlink { .. } => continue,
        };
        rules.push((mount.target().to_owned(), access));
    }
    for workspace in profile.workspaces() {
        let access = match workspace.source {
            WorkspaceSource::Overlay { .. } | WorkspaceSource::Direct { .. } => AccessClass::Write,
            WorkspaceSource::ReadOnly { .. } => AccessClass::Execute,
        };
        rules.push((workspace.target.clone(), access));
    }
    rules
}

/// Landlock mode: the paths that the profile names, where they are on the host.
fn landlock_mode_rules(profile: &LaunchProfile, limited_by: LimitedBy) -> Vec<(PathBuf, AccessClass)> {
    let mut rules = host_system_rules();
    // Mapped as shared memory it is counted by cgroups only.
    rules.retain(|(path, _)| limited_by != LimitedBy::Rlimits || path != Path::new("/dev/zero"));
    for path in ["/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/filesystems"] {
        rules.push((path.into(), AccessClass::Read));
    }
    for mount in &profile.mounts {
        let access = match mount {
            Mount::ReadOnly { .. } => AccessClass::Execute,
            Mount::ReadWrite { .. } => AccessClass::Write,
            Mount::Socket { .. } | Mount::Tmpfs { .. } | Mount::Text { .. } | Mount::Symlink { .. } => {
                continue;
            }
        };
        if let Some(source) = mount.source() {
            rules.push((source.to_owned(), access));
        }
    }
    for workspace in profile.workspaces() {
        match &workspace.source {
            WorkspaceSource::Direct { folder } => rules.push((folder.clone(), AccessClass::Write)),
            WorkspaceSource::ReadOnly { folder } => rules.push((folder.clone(), AccessClass::Execute)),
            WorkspaceSource::Overlay { .. } => {}
        }
    }
    rules
}

/// The parts of the host's system that may be used in place.
fn host_system_rules() -> Vec<(PathBuf, AccessClass)> {
    let run = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"]
        .map(|path| (path, AccessClass::Execute));
    let etc = [
        "/etc/alternatives",
        "/etc/ca-certificates",
        "/etc/ca-certificates.conf",
        "/etc/crypto-policies",
        "/etc/fonts",
        "/etc/group",
        "/etc/hosts",
        "/etc/hostname",
        "/etc/ld.so.cache",
        "/etc/ld.so.conf",
        "/etc/ld.so.conf.d",
        "/etc/localtime",
        "/etc/mime.types",
        "/etc/nsswitch.conf",
        "/etc/passwd",
        "/etc/pki",
        "/etc/protocols",
        "/etc/resolv.conf",
        "/etc/services",
        "/etc/ssl",
    ]
    .map(|path| (path, AccessClass::Read));
    let devices = ["null", "zero", "full", "random", "urandom", "tty", "pts", "ptmx"];
    let devices = devices.map(|name| (Path::new("/dev").join(name), AccessClass::Device));
    let fixed = run.into_iter().chain(etc).map(|(path, access)| (PathBuf::from(path), access));
    fixed.chain(devices).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_session_socket_folders_allow_connecting() {
        for access in [
            AccessClass::List,
            AccessClass::Read,
            AccessClass::Execute,
            AccessClass::Write,
            AccessClass::Device,
        ] {
            assert!(!access_rights(access, ABI::V9).contains(AccessFs::ResolveUnix), "{access:?}");
        }
        assert!(access_rights(AccessClass::Connect, ABI::V9).contains(AccessFs::ResolveUnix));
    }
}
