//! Set-id bits and device nodes, which grant rights to every user who reaches them.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::PathBuf;

use tribune_sandbox::Isolation::{Capabilities, Landlock, MountFlags, NoNewPrivileges, Seccomp};

use crate::probes::bait::Bait;
use crate::probes::probe::{Outcome, Probe};
use crate::probes::raw;

const GROUP: &str = "Set-id bits and devices";

pub(crate) const PROBES: &[Probe] = &[
    Probe::new(GROUP, "setuid_chmod", "set the set-user-id bit (chmod)", &[Seccomp], setuid_chmod),
    Probe::new(GROUP, "setgid_chmod", "set the set-group-id bit (chmod)", &[Seccomp], setgid_chmod),
    Probe::new(GROUP, "setuid_fchmod", "set the bit of an open file (fchmod)", &[Seccomp], setuid_fchmod),
    Probe::new(GROUP, "setuid_fchmodat", "set the bit from a folder (fchmodat)", &[Seccomp], setuid_fchmodat),
    Probe::new(GROUP, "setuid_fchmodat2", "set the bit with fchmodat2", &[Seccomp], setuid_fchmodat2),
    Probe::new(GROUP, "setuid_open", "create a file with the bit (open)", &[Seccomp], setuid_open),
    Probe::new(GROUP, "setuid_openat", "create a file with the bit (openat)", &[Seccomp], setuid_openat),
    Probe::new(GROUP, "setuid_openat2", "create a file with the bit (openat2)", &[Seccomp], setuid_openat2),
    Probe::new(GROUP, "setuid_creat", "create a file with the bit (creat)", &[Seccomp], setuid_creat),
    Probe::new(GROUP, "setuid_mknod", "create a file with the bit (mknod)", &[Seccomp], setuid_mknod),
    Probe::new(GROUP, "setuid_mknodat", "create a file with the bit (mknodat)", &[Seccomp], setuid_mknodat),
    Probe::new(
        GROUP,
        "setuid_tmpfile",
        "create an unnamed file with the bit and link it",
        &[Seccomp],
        setuid_tmpfile,
    ),
    Probe::new(
        GROUP,
        "whiteout_node",
        "create an overlay whiteout device",
        &[Seccomp, Landlock],
        whiteout_node,
    ),
    Probe::new(GROUP, "use_device", "use a device node in the workspace", &[MountFlags], use_device),
    Probe::as_root(GROUP, "char_node", "create a character device", char_node),
    Probe::as_root(GROUP, "block_node", "create a block device", block_node),
    Probe::new(
        GROUP,
        "new_privileges",
        "run programs that gain privileges",
        &[NoNewPrivileges, Landlock, Seccomp],
        new_privileges,
    ),
    Probe::new(GROUP, "bounding_set", "have capabilities in the bounding set", &[Capabilities], bounding_set),
];

const HERE: usize = libc::AT_FDCWD as usize;
const SETUID: u32 = 0o4755;

fn fresh(bait: &Bait) -> PathBuf {
    let path = bait.workspace.join("fresh");
    std::fs::write(&path, "").unwrap();
    path
}

/// Open if the file has the bit now.
fn has(path: &PathBuf, bit: u32, done: std::io::Result<usize>) -> Outcome {
    let has_bit = std::fs::metadata(path).is_ok_and(|metadata| metadata.mode() & bit != 0);
    Outcome::when(has_bit, format!("{done:?}"))
}

fn setuid_chmod(bait: &Bait) -> Outcome {
    let path = fresh(bait);
    let done = raw::call(libc::SYS_chmod, &[raw::path(&path).as_ptr() as usize, SETUID as usize]);
    has(&path, libc::S_ISUID, done)
}

fn setgid_chmod(bait: &Bait) -> Outcome {
    let path = fresh(bait);
    let _ = std::fs::set_permissions(&path, PermissionsExt::from_mode(0o2755));
    has(&path, libc::S_ISGID, Ok(0))
}

fn setuid_fchmod(bait: &Bait) -> Outcome {
    let path = fresh(bait);
    let file = std::fs::File::open(&path).unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&file) as usize;
    has(&path, libc::S_ISUID, raw::call(libc::SYS_fchmod, &[fd, SETUID as usize]))
}

fn setuid_fchmodat(bait: &Bait) -> Outcome {
    let path = fresh(bait);
    let name = raw::path(&path);
    has(&path, libc::S_ISUID, raw::call(libc::SYS_fchmodat, &[HERE, name.as_ptr() as usize, SETUID as usize]))
}

fn setuid_fchmodat2(bait: &Bait) -> Outcome {
    const FCHMODAT2: libc::c_long = 452;
    let path = fresh(bait);
    let name = raw::path(&path);
    has(&path, libc::S_ISUID, raw::call(FCHMODAT2, &[HERE, name.as_ptr() as usize, SETUID as usize, 0]))
}

const MAKE: usize = (libc::O_CREAT | libc::O_WRONLY) as usize;

fn setuid_open(bait: &Bait) -> Outcome {
    let path = bait.workspace.join("made");
    let name = raw::path(&path);
    has(&path, libc::S_ISUID, raw::call(libc::SYS_open, &[name.as_ptr() as usize, MAKE, SETUID as usize]))
}

fn setuid_openat(bait: &Bait) -> Outcome {
    let path = bait.workspace.join("made");
    let name = raw::path(&path);
    has(
        &path,
        libc::S_ISUID,
        raw::call(libc::SYS_openat, &[HERE, name.as_ptr() as usize, MAKE, SETUID as usize]),
    )
}

fn setuid_openat2(bait: &Bait) -> Outcome {
    let path = bait.workspace.join("made");
    let name = raw::path(&path);
    let how = [MAKE as u64, u64::from(SETUID), 0];
    let args = [HERE, name.as_ptr() as usize, raw::address(&how), size_of_val(&how)];
    has(&path, libc::S_ISUID, raw::call(libc::SYS_openat2, &args))
}

fn setuid_creat(bait: &Bait) -> Outcome {
    let path = bait.workspace.join("made");
    let name = raw::path(&path);
    has(&path, libc::S_ISUID, raw::call(libc::SYS_creat, &[name.as_ptr() as usize, SETUID as usize]))
}

fn setuid_mknod(bait: &Bait) -> Outcome {
    let path = bait.workspace.join("made");
    let name = raw::path(&path);
    let mode = (libc::S_IFREG | SETUID) as usize;
    has(&path, libc::S_ISUID, raw::call(libc::SYS_mknod, &[name.as_ptr() as usize, mode, 0]))
}

fn setuid_mknodat(bait: &Bait) -> Outcome {
    let path = bait.workspace.join("made");
    let name = raw::path(&path);
    let mode = (libc::S_IFREG | SETUID) as usize;
    has(&path, libc::S_ISUID, raw::call(libc::SYS_mknodat, &[HERE, name.as_ptr() as usize, mode, 0]))
}

fn setuid_tmpfile(bait: &Bait) -> Outcome {
    let path = bait.workspace.join("made");
    let (folder, name) = (raw::path(&bait.workspace), raw::path(&path));
    let flags = (libc::O_TMPFILE | libc::O_WRONLY) as usize;
    let done = raw::call(libc::SYS_openat, &[HERE, folder.as_ptr() as usize, flags, SETUID as usize])
        .and_then(|fd| {
            let from = raw::path(format!("/proc/self/fd/{fd}"));
            let args = [
                HERE,
                from.as_ptr() as usize,
                HERE,
                name.as_ptr() as usize,
                libc::AT_SYMLINK_FOLLOW as usize,
            ];
            raw::call(libc::SYS_linkat, &args)
        });
    has(&path, libc::S_ISUID, done)
}

fn node(bait: &Bait, kind: u32, device: usize) -> Outcome {
    let name = raw::path(bait.workspace.join("node"));
    let mode = (kind | 0o666) as usize;
    Outcome::of(raw::call(libc::SYS_mknodat, &[HERE, name.as_ptr() as usize, mode, device]))
}

fn whiteout_node(bait: &Bait) -> Outcome {
    node(bait, libc::S_IFCHR, 0)
}

fn char_node(bait: &Bait) -> Outcome {
    node(bait, libc::S_IFCHR, (1 << 8) | 3)
}

fn block_node(bait: &Bait) -> Outcome {
    node(bait, libc::S_IFBLK, 7 << 8)
}

/// A zero device, which reads as zeros.
fn use_device(bait: &Bait) -> Outcome {
    use std::io::Read as _;
    let mut bytes = [1; 4];
    let read = std::fs::File::open(bait.workspace.join("device")).and_then(|mut file| file.read(&mut bytes));
    Outcome::when(read.is_ok() && bytes == [0; 4], format!("{read:?}"))
}

fn new_privileges(_: &Bait) -> Outcome {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    Outcome::when(status.contains("NoNewPrivs:\t0"), "read the state of the process")
}

fn bounding_set(_: &Bait) -> Outcome {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let sets: Vec<&str> = status.lines().filter(|line| line.starts_with("Cap")).collect();
    let is_empty = |set: &&str| set.ends_with("\t0000000000000000");
    Outcome::when(!sets.iter().all(is_empty), sets.join(", "))
}
