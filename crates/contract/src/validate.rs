//! Validation of a launch profile: size limits and combinations that make no sense.

use std::path::{Component, Path};

use crate::mount::is_system_path;
use crate::{LaunchProfile, Mount, PROFILE_VERSION, RunsAs, SandboxMode, WorkspaceMount, WorkspaceSource};

/// Maximum size of a profile as JSON. Long command lines are most of it.
pub const MAX_PROFILE_BYTES: usize = 4 * 1024 * 1024;

/// Maximum number of arguments; the kernel limits their bytes itself.
const MAX_ARGS: usize = 16_384;

/// Maximum number of environment variables.
const MAX_ENV_VARIABLES: usize = 1024;

/// Maximum number of mounts besides those of the system.
const MAX_MOUNTS: usize = 256;

/// Maximum number of additional directories. Each is scanned before a start.
pub const MAX_ADDITIONAL_DIRECTORIES: usize = 8;

/// Maximum number of relayed ports.
const MAX_RELAYS: usize = 16;

/// Maximum number of patterns for hidden names, and for read-only names.
const MAX_PATTERNS: usize = 512;

/// Maximum length of a path in bytes, as in the kernel.
const MAX_PATH_BYTES: usize = 4095;

/// Maximum size of a text file in the profile.
const MAX_TEXT_BYTES: usize = 256 * 1024;

/// Why a profile is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    #[error("`{0}` cannot name a sandbox: use 1 to 96 lowercase letters, digits and dashes")]
    Session(String),
    #[error(
        "the launch profile has version {0}, and this program knows {PROFILE_VERSION}: run one version of Tribune"
    )]
    Version(u32),
    #[error("the launch profile has too many {what}: {found}, and at most {most} are allowed")]
    TooMany { what: &'static str, found: usize, most: usize },
    #[error(
        "`{path}` is not a valid path for {what}: give an absolute path without `..`, of at most 4095 bytes"
    )]
    Path { what: &'static str, path: String },
    #[error("{0} contains a NUL byte or an invalid variable name: remove it")]
    Text(&'static str),
    #[error("a sandbox never runs as root: choose a user id other than 0, for `gid` too")]
    Root,
    #[error("the limit `{0}` is 0, so nothing can run: raise it")]
    ZeroLimit(&'static str),
    #[error(
        "the relay `{0}` needs a name of lowercase letters, digits and dashes, and a port of its own above 1023"
    )]
    Relay(String),
    #[error("landlock mode has no network of its own, so it does not support the relay `{0}`: use full mode")]
    NeedsNetwork(String),
    #[error("Landlock version {0} does not exist: use 1 to 9")]
    Abi(u32),
    #[error("`{0}` belongs to the running system, which a sandbox does not share: mount another folder")]
    SystemPath(String),
    #[error("two mounts have the target `{0}`: keep one")]
    DuplicateTarget(String),
    #[error("`{0}` is inside another workspace folder or contains one: remove one of them")]
    Nested(String),
    #[error("the additional directory `{0}` cannot be an overlay: mount it directly or read-only")]
    OverlayNotAllowed(String),
    #[error("landlock mode has no mounts, so it does not support {0}: remove it, or use full mode")]
    NeedsMounts(&'static str),
}

pub(crate) fn check(profile: &LaunchProfile) -> Result<(), ProfileError> {
    if profile.version != PROFILE_VERSION {
        return Err(ProfileError::Version(profile.version));
    }
    check_count("arguments", profile.args.len(), MAX_ARGS)?;
    check_count("variables", profile.env.len(), MAX_ENV_VARIABLES)?;
    check_count("mounts", profile.mounts.len(), MAX_MOUNTS)?;
    check_count("additional directories", profile.additional_directories.len(), MAX_ADDITIONAL_DIRECTORIES)?;
    check_count("relays", profile.relays.len(), MAX_RELAYS)?;
    check_path("the program", &profile.program)?;
    check_path("the working folder", &profile.cwd)?;
    check_path("the home folder", &profile.home)?;
    if profile.args.iter().any(|arg| arg.contains('\0')) {
        return Err(ProfileError::Text("an argument"));
    }
    let is_variable = |(name, value): (&String, &String)| {
        !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
    };
    if !profile.env.iter().all(is_variable) {
        return Err(ProfileError::Text("the environment"));
    }
    if let RunsAs::User { uid, gid } = profile.runs_as
        && (uid == 0 || gid == 0 || uid == u32::MAX || gid == u32::MAX)
    {
        return Err(ProfileError::Root);
    }
    if !(1..=9).contains(&profile.landlock_abi) {
        return Err(ProfileError::Abi(profile.landlock_abi));
    }
    check_limits(profile)?;
    check_mounts(profile)?;
    if profile.mode == SandboxMode::Landlock {
        check_landlock_mode(profile)?;
    }
    check_relays(profile)
}

/// Rejects what needs mounts in a mode that has none, instead of ignoring it.
fn check_landlock_mode(profile: &LaunchProfile) -> Result<(), ProfileError> {
    for mount in &profile.mounts {
        match mount {
            Mount::ReadOnly { hide, .. } if !hide.is_empty() => {
                return Err(ProfileError::NeedsMounts("hidden or read-only names"));
            }
            Mount::ReadOnly { source, target, .. } | Mount::ReadWrite { source, target }
                if source == target => {}
            Mount::ReadOnly { .. } | Mount::ReadWrite { .. } => {
                return Err(ProfileError::NeedsMounts("a folder under another name"));
            }
            Mount::Socket { .. } => return Err(ProfileError::NeedsMounts("a socket")),
            Mount::Tmpfs { .. } => return Err(ProfileError::NeedsMounts("a folder in memory")),
            Mount::Text { .. } | Mount::Symlink { .. } => {
                return Err(ProfileError::NeedsMounts("files of its own"));
            }
        }
    }
    profile.workspaces().try_for_each(check_landlock_mode_workspace)
}

fn check_landlock_mode_workspace(workspace: &WorkspaceMount) -> Result<(), ProfileError> {
    if !workspace.hide.is_empty() || !workspace.read_only.is_empty() {
        return Err(ProfileError::NeedsMounts("hidden or read-only names"));
    }
    match &workspace.source {
        WorkspaceSource::Overlay { .. } => Err(ProfileError::NeedsMounts("an overlay workspace")),
        WorkspaceSource::Direct { folder } | WorkspaceSource::ReadOnly { folder }
            if *folder != workspace.target =>
        {
            Err(ProfileError::NeedsMounts("a workspace under another name"))
        }
        WorkspaceSource::Direct { .. } | WorkspaceSource::ReadOnly { .. } => Ok(()),
    }
}

fn check_limits(profile: &LaunchProfile) -> Result<(), ProfileError> {
    let limits = &profile.limits;
    let all = [
        ("memoryBytes", limits.memory_bytes),
        ("processes", limits.processes.into()),
        ("cpuPercent", limits.cpu_percent.into()),
        ("fileBytes", limits.file_bytes),
        ("openFiles", limits.open_files),
        ("wallMs", limits.wall_ms.unwrap_or(1)),
        ("tmp", limits.tmp.bytes.min(limits.tmp.inodes)),
        ("shm", limits.shm.bytes.min(limits.shm.inodes)),
        ("home", limits.home.bytes.min(limits.home.inodes)),
    ];
    match all.into_iter().find(|(_, limit)| *limit == 0) {
        Some((name, _)) => Err(ProfileError::ZeroLimit(name)),
        None => Ok(()),
    }
}

fn check_mounts(profile: &LaunchProfile) -> Result<(), ProfileError> {
    let mut targets: Vec<&Path> = profile.mounts.iter().map(Mount::target).collect();
    for mount in &profile.mounts {
        if let Mount::ReadOnly { hide, .. } = mount {
            check_count("patterns of hidden names", hide.len(), MAX_PATTERNS)?;
        }
        check_path("a mount", mount.target())?;
        if let Some(source) = mount.source() {
            check_path("what is mounted", source)?;
        }
        match mount {
            Mount::Text { text, .. } => check_count("bytes in one text", text.len(), MAX_TEXT_BYTES)?,
            Mount::Tmpfs { bytes, inodes, .. } if (*bytes).min(*inodes) == 0 => {
                return Err(ProfileError::ZeroLimit("tmpfs"));
            }
            Mount::Symlink { to, .. } if to.as_os_str().is_empty() => {
                return Err(ProfileError::Path { what: "the end of a link", path: String::new() });
            }
            Mount::ReadOnly { source, target, .. } | Mount::ReadWrite { source, target } => {
                if let Some(path) = [source, target].into_iter().find(|path| is_system_path(path)) {
                    return Err(ProfileError::SystemPath(path.display().to_string()));
                }
            }
            Mount::Socket { .. } | Mount::Tmpfs { .. } | Mount::Symlink { .. } => {}
        }
    }
    for workspace in profile.workspaces() {
        check_path("the workspace", &workspace.target)?;
        targets.push(&workspace.target);
        check_count("patterns of hidden names", workspace.hide.len(), MAX_PATTERNS)?;
        check_count("patterns of read-only names", workspace.read_only.len(), MAX_PATTERNS)?;
        let folders: &[&Path] = match &workspace.source {
            WorkspaceSource::Overlay { lower, layers } => &[lower, layers],
            WorkspaceSource::Direct { folder } | WorkspaceSource::ReadOnly { folder } => &[folder],
        };
        folders.iter().try_for_each(|folder| check_path("a layer of the workspace", folder))?;
    }
    check_additional_directories(profile)?;
    targets.sort_unstable();
    match targets.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(ProfileError::DuplicateTarget(pair[0].display().to_string())),
        None => Ok(()),
    }
}

/// Checks that workspace folders do not overlap, so that every path belongs to exactly one of them.
fn check_additional_directories(profile: &LaunchProfile) -> Result<(), ProfileError> {
    let is_nested = |a: &Path, b: &Path| a.starts_with(b) || b.starts_with(a);
    for (index, one) in profile.additional_directories.iter().enumerate() {
        let (target, source) = (one.target.as_path(), host_folder(one));
        if let Some(path) = [target, source].into_iter().find(|path| is_system_path(path)) {
            return Err(ProfileError::SystemPath(path.display().to_string()));
        }
        if matches!(one.source, WorkspaceSource::Overlay { .. }) {
            return Err(ProfileError::OverlayNotAllowed(target.display().to_string()));
        }
        let mut before = profile.workspace.iter().chain(&profile.additional_directories[..index]);
        if before.any(|other| is_nested(&other.target, target) || is_nested(host_folder(other), source)) {
            return Err(ProfileError::Nested(target.display().to_string()));
        }
    }
    Ok(())
}

/// The folder of a workspace on the host.
fn host_folder(workspace: &WorkspaceMount) -> &Path {
    match &workspace.source {
        WorkspaceSource::Overlay { lower: folder, .. }
        | WorkspaceSource::Direct { folder }
        | WorkspaceSource::ReadOnly { folder } => folder,
    }
}

fn check_relays(profile: &LaunchProfile) -> Result<(), ProfileError> {
    for (index, relay) in profile.relays.iter().enumerate() {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_name = (1..=32).contains(&relay.name.len()) && relay.name.bytes().all(is_plain);
        let others = &profile.relays[..index];
        if !is_name
            || relay.port < 1024
            || others.iter().any(|other| other.name == relay.name || other.port == relay.port)
        {
            return Err(ProfileError::Relay(relay.name.clone()));
        }
        check_path("a relay's socket", &relay.socket)?;
        // Landlock rules name ports and not addresses: the port of a relay would be open on every host.
        if profile.mode == SandboxMode::Landlock {
            return Err(ProfileError::NeedsNetwork(relay.name.clone()));
        }
    }
    Ok(())
}

fn check_count(what: &'static str, found: usize, most: usize) -> Result<(), ProfileError> {
    if found > most {
        return Err(ProfileError::TooMany { what, found, most });
    }
    Ok(())
}

fn check_path(what: &'static str, path: &Path) -> Result<(), ProfileError> {
    let bytes = path.as_os_str().as_encoded_bytes();
    let is_plain = path.is_absolute()
        && bytes.len() <= MAX_PATH_BYTES
        && !bytes.contains(&0)
        && !path.components().any(|part| matches!(part, Component::ParentDir));
    if is_plain { Ok(()) } else { Err(ProfileError::Path { what, path: path.display().to_string() }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PortRelay, SandboxName};

    fn profile() -> LaunchProfile {
        LaunchProfile::new(SandboxName::new("a").unwrap(), "/bin/true")
    }

    #[test]
    fn profile_survives_a_json_round_trip() {
        let mut profile = profile();
        profile.mounts = vec![
            Mount::ReadOnly { source: "/opt".into(), target: "/opt".into(), hide: Vec::new() },
            Mount::Text { target: "/etc/x".into(), text: "x".to_owned() },
        ];
        profile.runs_as = RunsAs::User { uid: 1, gid: 1 };
        assert_eq!(profile.check(), Ok(()));
        let text = serde_json::to_string(&profile).unwrap();
        assert_eq!(serde_json::from_str::<LaunchProfile>(&text).unwrap(), profile);
    }

    fn read_only(source: &str, target: &str) -> Mount {
        Mount::ReadOnly { source: source.into(), target: target.into(), hide: Vec::new() }
    }

    fn direct(folder: &str) -> WorkspaceMount {
        let source = WorkspaceSource::Direct { folder: folder.into() };
        WorkspaceMount { target: folder.into(), source, hide: Vec::new(), read_only: Vec::new() }
    }

    #[test]
    fn profile_with_unknown_members_or_values_is_rejected() {
        let text = serde_json::to_string(&profile()).unwrap();
        for (from, to) in [
            ("\"version\":1", "\"version\":1,\"more\":1"),
            ("\"session\":\"a\"", "\"session\":\"../a\""),
            ("\"mode\":\"full\"", "\"mode\":\"off\""),
            ("\"memoryBytes\":", "\"memory\":"),
        ] {
            let other = text.replacen(from, to, 1);
            assert_ne!(other, text);
            assert!(serde_json::from_str::<LaunchProfile>(&other).is_err(), "{other}");
        }
    }

    #[test]
    fn invalid_profile_is_rejected_with_its_cause() {
        type Change = fn(&mut LaunchProfile);
        let cases: [(Change, ProfileError); 18] = [
            (|p| p.version = 2, ProfileError::Version(2)),
            (|p| p.runs_as = RunsAs::User { uid: 0, gid: 5 }, ProfileError::Root),
            (|p| p.runs_as = RunsAs::User { uid: 5, gid: 0 }, ProfileError::Root),
            (|p| p.cwd = "a".into(), ProfileError::Path { what: "the working folder", path: "a".to_owned() }),
            (
                |p| p.program = "/a/../b".into(),
                ProfileError::Path { what: "the program", path: "/a/../b".to_owned() },
            ),
            (|p| p.limits.processes = 0, ProfileError::ZeroLimit("processes")),
            (|p| p.mounts = vec![read_only("/proc", "/x")], ProfileError::SystemPath("/proc".to_owned())),
            (
                |p| p.mounts = vec![Mount::ReadWrite { source: "/x".into(), target: "/dev/shm".into() }],
                ProfileError::SystemPath("/dev/shm".to_owned()),
            ),
            (|p| p.landlock_abi = 10, ProfileError::Abi(10)),
            (|p| drop(p.env.insert("A=B".to_owned(), String::new())), ProfileError::Text("the environment")),
            (
                |p| {
                    p.mounts = ["/x", "/x"]
                        .map(|target| Mount::Symlink { target: target.into(), to: "y".into() })
                        .into();
                },
                ProfileError::DuplicateTarget("/x".to_owned()),
            ),
            (
                |p| {
                    p.relays = vec![PortRelay { name: "a".to_owned(), port: 80, socket: "/s".into() }];
                },
                ProfileError::Relay("a".to_owned()),
            ),
            (
                |p| {
                    p.mode = SandboxMode::Landlock;
                    p.relays = vec![PortRelay { name: "a".to_owned(), port: 4000, socket: "/s".into() }];
                },
                ProfileError::NeedsNetwork("a".to_owned()),
            ),
            (
                |p| {
                    p.mode = SandboxMode::Landlock;
                    p.workspace = Some(WorkspaceMount {
                        target: "/w".into(),
                        source: WorkspaceSource::Direct { folder: "/w".into() },
                        hide: vec![".env".to_owned()],
                        read_only: Vec::new(),
                    });
                },
                ProfileError::NeedsMounts("hidden or read-only names"),
            ),
            (
                |p| p.additional_directories = vec![direct("/dev/x")],
                ProfileError::SystemPath("/dev/x".to_owned()),
            ),
            (
                |p| {
                    p.workspace = Some(WorkspaceMount { target: "/w".into(), ..direct("/srv/a") });
                    p.additional_directories = vec![direct("/srv/a/b")];
                },
                ProfileError::Nested("/srv/a/b".to_owned()),
            ),
            (
                |p| p.additional_directories = vec![direct("/srv/a/b"), direct("/srv/c"), direct("/srv/a")],
                ProfileError::Nested("/srv/a".to_owned()),
            ),
            (
                |p| {
                    let source = WorkspaceSource::Overlay { lower: "/srv/a".into(), layers: "/l".into() };
                    p.additional_directories = vec![WorkspaceMount { source, ..direct("/srv/a") }];
                },
                ProfileError::OverlayNotAllowed("/srv/a".to_owned()),
            ),
        ];
        for (change, error) in cases {
            let mut profile = profile();
            change(&mut profile);
            assert_eq!(profile.check(), Err(error));
        }
    }
}
