//! Files of the host, and read-only mounts.

use std::os::unix::fs::{PermissionsExt, symlink};

use tribune_sandbox::Isolation::{Landlock, ProcMasks, ReadOnlyMounts, Root, Seccomp};

use crate::probes::bait::{Bait, HUSH, taste};
use crate::probes::probe::{Outcome, Probe};
use crate::probes::raw;

const GROUP: &str = "Files of the host";

pub(crate) const PROBES: &[Probe] = &[
    Probe::new(GROUP, "read_secret", "read a file of the host by its path", &[Root, Landlock], read_secret),
    Probe::new(GROUP, "stat_secret", "read the size of a file of the host", &[Root], stat_secret),
    Probe::new(GROUP, "list_folder", "list a folder of the host", &[Root, Landlock], list_folder),
    Probe::new(
        GROUP,
        "write_file",
        "write a file of the host that everyone may write",
        &[Root, Landlock],
        write_file,
    ),
    Probe::new(GROUP, "read_accounts", "read the host's list of accounts", &[Root, Landlock], read_accounts),
    Probe::new(GROUP, "list_var", "list /var of the host", &[Root, Landlock], list_var),
    Probe::new(
        GROUP,
        "through_symlink",
        "follow a symlink from the workspace to a file of the host",
        &[Root, Landlock],
        through_symlink,
    ),
    Probe::new(
        GROUP,
        "through_proc_root",
        "go through /proc/self/root",
        &[Root, Landlock],
        through_proc_root,
    ),
    Probe::new(GROUP, "climb_out", "climb out of the working folder with `..`", &[Root, Landlock], climb_out),
    Probe::new(GROUP, "cgroup_files", "read the host's cgroups", &[Root, Landlock], cgroup_files),
    Probe::new(GROUP, "sys_files", "read the host's devices in /sys", &[Root, Landlock], sys_files),
    Probe::new(GROUP, "host_devices", "list the host's /dev", &[Root, Landlock], host_devices),
    Probe::new(
        GROUP,
        "shelf_create",
        "create a file in a folder mounted read-only",
        &[ReadOnlyMounts, Landlock],
        shelf_create,
    ),
    Probe::new(
        GROUP,
        "shelf_write",
        "write a file mounted read-only",
        &[ReadOnlyMounts, Landlock],
        shelf_write,
    ),
    Probe::new(
        GROUP,
        "shelf_truncate",
        "truncate a file mounted read-only",
        &[ReadOnlyMounts, Landlock],
        shelf_truncate,
    ),
    Probe::new(
        GROUP,
        "shelf_remove",
        "remove a file mounted read-only",
        &[ReadOnlyMounts, Landlock],
        shelf_remove,
    ),
    Probe::new(
        GROUP,
        "shelf_rename",
        "rename a file mounted read-only",
        &[ReadOnlyMounts, Landlock],
        shelf_rename,
    ),
    Probe::new(
        GROUP,
        "shelf_chmod",
        "change the mode of a file mounted read-only",
        &[ReadOnlyMounts],
        shelf_chmod,
    ),
    Probe::new(
        GROUP,
        "shelf_times",
        "change the times of a file mounted read-only",
        &[ReadOnlyMounts],
        shelf_times,
    ),
    Probe::new(
        GROUP,
        "shelf_attribute",
        "set an attribute of a file mounted read-only",
        &[ReadOnlyMounts],
        shelf_attribute,
    ),
    Probe::new(GROUP, "root_folder", "create a folder in the root", &[ReadOnlyMounts, Landlock], root_folder),
    Probe::new(
        GROUP,
        "accounts_inside",
        "change the list of accounts inside",
        &[ReadOnlyMounts, Landlock],
        accounts_inside,
    ),
    Probe::new(GROUP, "file_handles", "get a file handle (name_to_handle_at)", &[Seccomp], file_handles),
    Probe::new(GROUP, "kernel_symbols", "read /proc/kallsyms", &[ProcMasks], kernel_symbols),
    Probe::new(GROUP, "boot_line", "read the boot command line", &[ProcMasks], boot_line),
    Probe::new(
        GROUP,
        "host_interrupts",
        "read the interrupt counts of the host",
        &[ProcMasks],
        host_interrupts,
    ),
    Probe::as_root(
        GROUP,
        "write_core_pattern",
        "open /proc/sys/kernel/core_pattern for writing",
        write_core_pattern,
    ),
    Probe::as_root(GROUP, "write_swappiness", "open /proc/sys/vm/swappiness for writing", write_swappiness),
    Probe::as_root(
        GROUP,
        "write_overcommit",
        "open /proc/sys/vm/overcommit_memory for writing",
        write_overcommit,
    ),
    Probe::as_root(GROUP, "kernel_messages", "open /dev/kmsg", kernel_messages),
];

/// Reads the first path that exists.
fn read(paths: &[std::path::PathBuf]) -> Outcome {
    let mut why = String::new();
    for path in paths {
        match taste(path) {
            Ok(text) if text.contains(HUSH) => return Outcome::Open(format!("read {}", path.display())),
            Ok(text) => why = format!("read something else: {text}"),
            Err(error) => why = error.to_string(),
        }
    }
    Outcome::Shut(why)
}

fn read_secret(bait: &Bait) -> Outcome {
    read(&bait.on_host("secret"))
}

fn stat_secret(bait: &Bait) -> Outcome {
    let found = bait.on_host("secret").iter().find_map(|path| std::fs::metadata(path).ok());
    Outcome::when(found.as_ref().is_some_and(|found| found.len() == HUSH.len() as u64), format!("{found:?}"))
}

fn list(paths: &[std::path::PathBuf], known: &str) -> Outcome {
    let names = paths.iter().filter_map(|path| std::fs::read_dir(path).ok()).flatten();
    let found = names.filter_map(Result::ok).any(|entry| entry.file_name().to_str() == Some(known));
    Outcome::when(found, format!("looked for {known}"))
}

fn list_folder(bait: &Bait) -> Outcome {
    list(&bait.on_host("."), "secret")
}

fn write_file(bait: &Bait) -> Outcome {
    for path in bait.on_host("open-to-all") {
        if std::fs::write(&path, HUSH).is_ok() && taste(&path).is_ok_and(|text| text == HUSH) {
            return Outcome::Open(format!("wrote {}", path.display()));
        }
    }
    Outcome::Shut("not written".to_owned())
}

fn read_accounts(_: &Bait) -> Outcome {
    let found =
        ["/etc/passwd", "/host/etc/passwd"].iter().any(|path| taste(path).is_ok_and(|t| t.contains("root:")));
    Outcome::when(found, "looked for root")
}

fn list_var(_: &Bait) -> Outcome {
    list(&["/var".into(), "/host/var".into()], "lib")
}

fn through_symlink(bait: &Bait) -> Outcome {
    let links = bait.on_host("secret").map(|to| {
        let link = bait.workspace.join(format!("link-{}", to.starts_with("/host")));
        let _ = symlink(&to, &link);
        link
    });
    read(&links)
}

fn through_proc_root(bait: &Bait) -> Outcome {
    let paths = bait.on_host("secret");
    read(&paths.map(|path| std::path::Path::new("/proc/self/root").join(path.strip_prefix("/").unwrap())))
}

fn climb_out(bait: &Bait) -> Outcome {
    let up = "../".repeat(64);
    read(
        &bait
            .on_host("secret")
            .map(|path| format!("{up}{}", path.strip_prefix("/").unwrap().display()).into()),
    )
}

fn cgroup_files(_: &Bait) -> Outcome {
    let paths = ["/sys/fs/cgroup", "/host/sys/fs/cgroup"];
    let found = paths.iter().any(|path| std::fs::read_dir(path).is_ok_and(|entries| entries.count() > 0));
    Outcome::when(found, "looked for cgroups")
}

fn sys_files(_: &Bait) -> Outcome {
    list(&["/sys/class".into(), "/host/sys/class".into()], "net")
}

fn host_devices(_: &Bait) -> Outcome {
    list(&["/dev".into(), "/host/dev".into()], "kmsg")
}

fn shelf_create(bait: &Bait) -> Outcome {
    Outcome::of(std::fs::write(bait.shelf.join("new"), HUSH).and_then(|()| taste(bait.shelf.join("new"))))
}

fn shelf_write(bait: &Bait) -> Outcome {
    let path = bait.shelf.join("book");
    let _ = std::fs::write(&path, HUSH);
    Outcome::when(taste(&path).unwrap() == HUSH, "looked at the file")
}

fn shelf_truncate(bait: &Bait) -> Outcome {
    let path = raw::path(bait.shelf.join("book"));
    let done = raw::call(libc::SYS_truncate, &[path.as_ptr() as usize, 0]);
    Outcome::when(taste(bait.shelf.join("book")).unwrap().is_empty(), format!("{done:?}"))
}

fn shelf_remove(bait: &Bait) -> Outcome {
    let done = std::fs::remove_file(bait.shelf.join("book"));
    Outcome::when(!bait.shelf.join("book").exists(), format!("{done:?}"))
}

fn shelf_rename(bait: &Bait) -> Outcome {
    let done = std::fs::rename(bait.shelf.join("book"), bait.shelf.join("folder/book"));
    Outcome::when(!bait.shelf.join("book").exists(), format!("{done:?}"))
}

fn shelf_chmod(bait: &Bait) -> Outcome {
    let path = bait.shelf.join("book");
    let done = std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600));
    Outcome::when(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777 == 0o600,
        format!("{done:?}"),
    )
}

fn shelf_times(bait: &Bait) -> Outcome {
    let path = raw::path(bait.shelf.join("book"));
    let times = [[1_usize, 0], [1, 0]];
    let args = [libc::AT_FDCWD as usize, path.as_ptr() as usize, raw::address(&times), 0];
    let done = raw::call(libc::SYS_utimensat, &args);
    let modified = std::fs::metadata(bait.shelf.join("book")).unwrap().modified().unwrap();
    let age = modified.duration_since(std::time::UNIX_EPOCH).unwrap();
    Outcome::when(age.as_secs() == 1, format!("{done:?}"))
}

fn shelf_attribute(bait: &Bait) -> Outcome {
    let path = bait.shelf.join("book");
    let done = rustix::fs::setxattr(&path, "user.probe", b"1", rustix::fs::XattrFlags::empty());
    let mut value = [0; 8];
    Outcome::when(rustix::fs::getxattr(&path, "user.probe", &mut value) == Ok(1), format!("{done:?}"))
}

fn root_folder(_: &Bait) -> Outcome {
    Outcome::of(std::fs::create_dir("/new").and_then(|()| std::fs::metadata("/new")))
}

fn accounts_inside(_: &Bait) -> Outcome {
    let path = "/etc/passwd";
    let changed = std::fs::set_permissions(path, PermissionsExt::from_mode(0o644))
        .and_then(|()| std::fs::write(path, HUSH))
        .and_then(|()| taste(path));
    Outcome::when(changed.as_ref().is_ok_and(|text| text == HUSH), format!("{changed:?}"))
}

fn file_handles(_: &Bait) -> Outcome {
    let mut handle = [128_u32; 64];
    let mut mount = 0_i32;
    let path = c"/usr";
    let args = [
        libc::AT_FDCWD as usize,
        path.as_ptr() as usize,
        (&raw mut handle) as usize,
        (&raw mut mount) as usize,
        0,
    ];
    Outcome::of(raw::call(libc::SYS_name_to_handle_at, &args))
}

/// Open if the file has content.
fn speaks(path: &str) -> Outcome {
    let text = taste(path);
    Outcome::when(
        text.as_ref().is_ok_and(|text| !text.is_empty()),
        format!("{:?}", text.map(|text| text.len())),
    )
}

fn kernel_symbols(_: &Bait) -> Outcome {
    speaks("/proc/kallsyms")
}

fn boot_line(_: &Bait) -> Outcome {
    speaks("/proc/cmdline")
}

fn host_interrupts(_: &Bait) -> Outcome {
    speaks("/proc/interrupts")
}

/// Opens a file for writing, but writes nothing.
fn open_to_write(path: &str) -> Outcome {
    Outcome::of(std::fs::File::options().write(true).open(path))
}

fn write_core_pattern(_: &Bait) -> Outcome {
    open_to_write("/proc/sys/kernel/core_pattern")
}

fn write_swappiness(_: &Bait) -> Outcome {
    open_to_write("/proc/sys/vm/swappiness")
}

fn write_overcommit(_: &Bait) -> Outcome {
    open_to_write("/proc/sys/vm/overcommit_memory")
}

fn kernel_messages(_: &Bait) -> Outcome {
    Outcome::of(std::fs::File::open("/dev/kmsg"))
}
