//! The mount plan: what is mounted where, in mount order. Nothing is opened here.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tribune_contract::{LaunchProfile, Mount, WorkspaceSource};

/// The user and group id inside. Many images have this one, and it is not root, so that programs do not assume root's
/// rights.
pub(super) const INSIDE_ID: u32 = 1000;

/// The folder of the session sockets inside.
pub(super) const RUN_FOLDER: &str = "/run/tribune";

/// Entries of the host's `/etc` that programs need and that reveal nothing about the host's users.
const ETC: [&str; 14] = [
    "alternatives",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "fonts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "pki",
    "protocols",
    "services",
    "ssl",
];

/// Folders that are symlinks into `/usr` on most systems.
pub(super) const SYSTEM_FOLDERS: [&str; 6] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// Devices that store nothing and reveal nothing.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Where the new root is attached until it becomes the root. Every system has this folder, and nothing below it is ever
/// mounted: the paths of a profile are resolved when the new root covers it already.
pub(super) const ATTACH_POINT: &str = "/sys";

/// One thing to mount or create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MountStep {
    pub(super) target: PathBuf,
    pub(super) kind: MountKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MountKind {
    Bind(BindSource),
    Overlay { lower: BindSource, layers: BindSource },
    Tmpfs { bytes: u64, inodes: u64, mode: u32 },
    Text(String),
    Symlink(OsString),
    Proc,
    Pts,
}

/// A path of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BindSource {
    pub(super) source: PathBuf,
    pub(super) access: BindAccess,
    /// Whether a missing path is an error.
    pub(super) required: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BindAccess {
    /// Readable and executable, with the permissions of the host.
    Read,
    /// Read-only, with the owner mapped to the sandbox's user.
    ReadAsOwner,
    /// Writable, with the owner mapped to the sandbox's user.
    Write,
    /// A usable device node.
    Device,
}

/// The mounts that a profile requests, parents before children, to be made after the [base](base_steps).
pub(super) fn profile_steps(profile: &LaunchProfile) -> Vec<MountStep> {
    let limits = &profile.limits;
    let tmpfs = |target: &Path, size: tribune_contract::Tmpfs, mode| MountStep {
        target: target.to_owned(),
        kind: MountKind::Tmpfs { bytes: size.bytes, inodes: size.inodes, mode },
    };
    let (id, home) = (INSIDE_ID, profile.home.display());
    let users = format!("agent:x:{id}:{id}:agent:{home}:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n");
    let mut steps = vec![
        text("/etc/passwd", users),
        tmpfs("/dev/shm".as_ref(), limits.shm, 0o1777),
        tmpfs("/tmp".as_ref(), limits.tmp, 0o1777),
        tmpfs("/var/tmp".as_ref(), limits.tmp, 0o1777),
        tmpfs(&profile.home, limits.home, 0o700),
    ];
    let mut profile_mounts: Vec<MountStep> = profile.mounts.iter().map(mount).collect();
    for relay in &profile.relays {
        let target = Path::new(RUN_FOLDER).join(format!("{}.sock", relay.name));
        profile_mounts
            .push(MountStep { target, kind: MountKind::Bind(bind(&relay.socket, BindAccess::Write)) });
    }
    for workspace in profile.workspaces() {
        let kind = match &workspace.source {
            WorkspaceSource::Overlay { lower, layers } => MountKind::Overlay {
                lower: bind(lower, BindAccess::ReadAsOwner),
                layers: bind(layers, BindAccess::Write),
            },
            WorkspaceSource::Direct { folder } => MountKind::Bind(bind(folder, BindAccess::Write)),
            WorkspaceSource::ReadOnly { folder } => MountKind::Bind(bind(folder, BindAccess::ReadAsOwner)),
        };
        profile_mounts.push(MountStep { target: workspace.target.clone(), kind });
    }
    profile_mounts.sort_by_key(|step| step.target.components().count());
    steps.extend(profile_mounts);
    steps
}

fn bind(source: &Path, access: BindAccess) -> BindSource {
    BindSource { source: source.to_owned(), access, required: true }
}

fn mount(mount: &Mount) -> MountStep {
    let kind = match mount {
        Mount::ReadOnly { source, .. } => MountKind::Bind(bind(source, BindAccess::Read)),
        Mount::ReadWrite { source, .. } | Mount::Socket { source, .. } => {
            MountKind::Bind(bind(source, BindAccess::Write))
        }
        Mount::Tmpfs { bytes, inodes, .. } => {
            MountKind::Tmpfs { bytes: *bytes, inodes: *inodes, mode: 0o755 }
        }
        Mount::Text { text, .. } => MountKind::Text(text.clone()),
        Mount::Symlink { to, .. } => MountKind::Symlink(to.clone().into_os_string()),
    };
    MountStep { target: mount.target().to_owned(), kind }
}

fn text(target: &str, text: impl Into<String>) -> MountStep {
    MountStep { target: target.into(), kind: MountKind::Text(text.into()) }
}

/// The mounts of every sandbox, parents before children.
pub(super) fn base_steps() -> Vec<MountStep> {
    let optional = |path: PathBuf, access| {
        let kind = MountKind::Bind(BindSource { source: path.clone(), access, required: false });
        MountStep { target: path, kind }
    };
    let mut steps = vec![MountStep {
        target: "/usr".into(),
        kind: MountKind::Bind(bind("/usr".as_ref(), BindAccess::Read)),
    }];
    for name in SYSTEM_FOLDERS {
        let path = Path::new("/").join(name);
        steps.push(match std::fs::read_link(&path) {
            Ok(to) => MountStep { target: path, kind: MountKind::Symlink(to.into_os_string()) },
            Err(_) => optional(path, BindAccess::Read),
        });
    }
    steps.extend(ETC.map(|name| optional(Path::new("/etc").join(name), BindAccess::Read)));
    steps.extend([
        text("/etc/group", format!("agent:x:{INSIDE_ID}:\nnogroup:x:65534:\n")),
        text("/etc/hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n"),
        text("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
        text("/etc/resolv.conf", "options attempts:1 timeout:1\n"),
        text("/etc/hostname", "sandbox\n"),
        MountStep { target: "/proc".into(), kind: MountKind::Proc },
    ]);
    steps.extend(DEVICES.map(|name| {
        let mut step = optional(Path::new("/dev").join(name), BindAccess::Device);
        if let MountKind::Bind(device) = &mut step.kind {
            device.required = true;
        }
        step
    }));
    steps.extend([
        MountStep { target: "/dev/pts".into(), kind: MountKind::Pts },
        MountStep { target: "/dev/ptmx".into(), kind: MountKind::Symlink("pts/ptmx".into()) },
        MountStep { target: "/dev/fd".into(), kind: MountKind::Symlink("/proc/self/fd".into()) },
        MountStep { target: "/dev/stdin".into(), kind: MountKind::Symlink("/proc/self/fd/0".into()) },
        MountStep { target: "/dev/stdout".into(), kind: MountKind::Symlink("/proc/self/fd/1".into()) },
        MountStep { target: "/dev/stderr".into(), kind: MountKind::Symlink("/proc/self/fd/2".into()) },
    ]);
    steps
}
