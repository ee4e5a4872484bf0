//! What is mounted where, as a list in the order of mounting. Nothing is opened here.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tribune_contract::{LaunchProfile, Mount, WorkspaceSource};

/// The user and group inside. One that many images have, and not root, so that nothing believes it could do what it cannot.
pub(super) const INSIDE_ID: u32 = 1000;

/// Where the brokers' sockets are inside.
pub(super) const RUN_FOLDER: &str = "/run/tribune";

/// What of the host's `/etc` programs need and that tells nothing about the host's people.
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

/// Folders that are links into `/usr` on most systems.
pub(super) const SYSTEM_FOLDERS: [&str; 6] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// Devices that keep nothing and reveal nothing.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// One thing to be mounted or made, from the root down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) target: PathBuf,
    pub(super) what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    Bind(Bind),
    Overlay { lower: Bind, layers: Bind },
    Tmpfs { bytes: u64, inodes: u64, mode: u32 },
    Text(String),
    Symlink(OsString),
    Proc,
    Pts,
}

/// Something of the host's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bind {
    pub(super) source: PathBuf,
    pub(super) access: Access,
    /// Whether it is a failure that it is not there.
    pub(super) required: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Read and run, by whoever may on the host.
    Read,
    /// Read, by its owner as whom the sandbox counts.
    ReadAsOwner,
    /// Change, by its owner as whom the sandbox counts.
    Write,
    /// A device, usable as such.
    Device,
}

/// What a profile asks for, parents before children, behind what [every sandbox has](system).
pub(super) fn asked(profile: &LaunchProfile) -> Vec<Step> {
    let limits = &profile.limits;
    let tmpfs = |target: &Path, size: tribune_contract::Tmpfs, mode| Step {
        target: target.to_owned(),
        what: What::Tmpfs { bytes: size.bytes, inodes: size.inodes, mode },
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
    let mut asked: Vec<Step> = profile.mounts.iter().map(mount).collect();
    for relay in &profile.relays {
        let target = Path::new(RUN_FOLDER).join(format!("{}.sock", relay.name));
        asked.push(Step { target, what: What::Bind(bind(&relay.socket, Access::Write)) });
    }
    for workspace in profile.workspaces() {
        let what = match &workspace.source {
            WorkspaceSource::Overlay { lower, layers } => {
                What::Overlay { lower: bind(lower, Access::ReadAsOwner), layers: bind(layers, Access::Write) }
            }
            WorkspaceSource::Direct { folder } => What::Bind(bind(folder, Access::Write)),
            WorkspaceSource::ReadOnly { folder } => What::Bind(bind(folder, Access::ReadAsOwner)),
        };
        asked.push(Step { target: workspace.target.clone(), what });
    }
    asked.sort_by_key(|step| step.target.components().count());
    steps.extend(asked);
    steps
}

fn bind(source: &Path, access: Access) -> Bind {
    Bind { source: source.to_owned(), access, required: true }
}

fn mount(mount: &Mount) -> Step {
    let what = match mount {
        Mount::ReadOnly { source, .. } => What::Bind(bind(source, Access::Read)),
        Mount::ReadWrite { source, .. } | Mount::Socket { source, .. } => {
            What::Bind(bind(source, Access::Write))
        }
        Mount::Tmpfs { bytes, inodes, .. } => What::Tmpfs { bytes: *bytes, inodes: *inodes, mode: 0o755 },
        Mount::Text { text, .. } => What::Text(text.clone()),
        Mount::Symlink { to, .. } => What::Symlink(to.clone().into_os_string()),
    };
    Step { target: mount.target().to_owned(), what }
}

fn text(target: &str, text: impl Into<String>) -> Step {
    Step { target: target.into(), what: What::Text(text.into()) }
}

/// What every sandbox has, whatever its profile, parents before children.
pub(super) fn system() -> Vec<Step> {
    let optional = |path: PathBuf, access| {
        let what = What::Bind(Bind { source: path.clone(), access, required: false });
        Step { target: path, what }
    };
    let mut steps =
        vec![Step { target: "/usr".into(), what: What::Bind(bind("/usr".as_ref(), Access::Read)) }];
    for name in SYSTEM_FOLDERS {
        let path = Path::new("/").join(name);
        steps.push(match std::fs::read_link(&path) {
            Ok(to) => Step { target: path, what: What::Symlink(to.into_os_string()) },
            Err(_) => optional(path, Access::Read),
        });
    }
    steps.extend(ETC.map(|name| optional(Path::new("/etc").join(name), Access::Read)));
    steps.extend([
        text("/etc/group", format!("agent:x:{INSIDE_ID}:\nnogroup:x:65534:\n")),
        text("/etc/hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n"),
        text("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
        text("/etc/resolv.conf", "options attempts:1 timeout:1\n"),
        text("/etc/hostname", "sandbox\n"),
        Step { target: "/proc".into(), what: What::Proc },
    ]);
    steps.extend(DEVICES.map(|name| {
        let mut step = optional(Path::new("/dev").join(name), Access::Device);
        if let What::Bind(device) = &mut step.what {
            device.required = true;
        }
        step
    }));
    steps.extend([
        Step { target: "/dev/pts".into(), what: What::Pts },
        Step { target: "/dev/ptmx".into(), what: What::Symlink("pts/ptmx".into()) },
        Step { target: "/dev/fd".into(), what: What::Symlink("/proc/self/fd".into()) },
        Step { target: "/dev/stdin".into(), what: What::Symlink("/proc/self/fd/0".into()) },
        Step { target: "/dev/stdout".into(), what: What::Symlink("/proc/self/fd/1".into()) },
        Step { target: "/dev/stderr".into(), what: What::Symlink("/proc/self/fd/2".into()) },
    ]);
    steps
}
