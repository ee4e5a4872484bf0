//! Nothing that an agent does to a workspace makes the next start fail or removes a mask.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use tempfile::TempDir;
use tribune_contract::{AUTORUN_PATHS, LaunchProfile, Mount, WorkspaceMount, WorkspaceSource};
use tribune_sandbox::workspace::OverlayDirs;
use tribune_sandbox::{Child, ProgramStreams};

use crate::support::{Ran, Test, finish, launcher, shell};

pub(crate) const TESTS: &[Test] = &[
    ("concurrent_sandbox_cannot_move_masked_folders", concurrent_sandbox_cannot_move_masked_folders),
    ("files_moved_during_a_start_are_hidden", files_moved_during_a_start_are_hidden),
    ("symlinks_with_read_only_names_do_not_fail_a_start", symlinks_with_read_only_names_do_not_fail_a_start),
    ("too_many_names_make_their_folder_read_only", too_many_names_make_their_folder_read_only),
    (
        "too_many_names_at_the_top_make_everything_read_only",
        too_many_names_at_the_top_make_everything_read_only,
    ),
    ("folders_beyond_the_depth_limit_are_read_only", folders_beyond_the_depth_limit_are_read_only),
    ("non_utf8_names_are_masked", non_utf8_names_are_masked),
    ("parents_of_hidden_names_cannot_be_moved", parents_of_hidden_names_cannot_be_moved),
    ("hidden_symlinks_are_pinned", hidden_symlinks_are_pinned),
    ("hidden_symlinks_are_pinned_in_an_overlay", hidden_symlinks_are_pinned_in_an_overlay),
    ("patterns_match_through_symlinks_to_folders", patterns_match_through_symlinks_to_folders),
    ("read_only_symlinks_are_pinned", read_only_symlinks_are_pinned),
    ("symlinks_by_host_path_are_resolved", symlinks_by_host_path_are_resolved),
    ("hidden_symlinks_resolve_as_in_the_kernel", hidden_symlinks_resolve_as_in_the_kernel),
    ("symlink_loops_do_not_fail_a_start", symlink_loops_do_not_fail_a_start),
    ("too_many_hidden_names_hide_their_folder", too_many_hidden_names_hide_their_folder),
    ("too_many_hidden_names_at_the_top_hide_everything", too_many_hidden_names_at_the_top_hide_everything),
    ("names_are_hidden_in_read_only_mounts", names_are_hidden_in_read_only_mounts),
    ("additional_directories_are_masked", additional_directories_are_masked),
    ("links_between_folders_are_masked_at_their_target", links_between_folders_are_masked_at_their_target),
    ("proc_reveals_nothing_of_the_host", proc_reveals_nothing_of_the_host),
    ("own_sockets_work", own_sockets_work),
    ("socket_as_a_mount_source_is_rejected", socket_as_a_mount_source_is_rejected),
];

/// Runs a line in a folder that is mounted directly. Returns the result and the folders that are read-only as a whole.
fn run_direct(folder: &Path, line: &str) -> (Ran, Vec<String>) {
    run_direct_hiding(folder, &[], line)
}

/// The same with hidden names.
fn run_direct_hiding(folder: &Path, hide: &[&str], line: &str) -> (Ran, Vec<String>) {
    let child = start_hiding(folder, hide, line);
    let read_only = child.started().read_only.clone();
    (finish(child), read_only)
}

fn start_hiding(folder: &Path, hide: &[&str], line: &str) -> Child {
    let state_dir = tempfile::tempdir().unwrap();
    launcher(state_dir.path())
        .launch(&direct_profile(folder, hide, line), ProgramStreams::captured())
        .unwrap()
}

fn direct_profile(folder: &Path, hide: &[&str], line: &str) -> LaunchProfile {
    let mut profile = shell(line);
    profile.cwd = "/workspace".into();
    profile.workspace = Some(WorkspaceMount {
        target: "/workspace".into(),
        source: WorkspaceSource::Direct { folder: folder.to_owned() },
        hide: hide.iter().map(|&name| name.to_owned()).collect(),
        read_only: AUTORUN_PATHS.map(str::to_owned).into(),
    });
    profile
}

fn workspace() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// For the program inside it makes no difference whether a file is masked or readable by root only.
fn proc_reveals_nothing_of_the_host() {
    let folder = workspace();
    let line = "for f in cmdline interrupts kallsyms kcore key-users keys kmsg latency_stats locks sched_debug slabinfo \
                sysrq-trigger timer_list vmallocinfo; do \
                if [ -r /proc/$f ] && [ -n \"$(timeout 1 head -c 1 /proc/$f | tr '\\0' x)\" ]; then echo tells $f; fi; \
                if [ -w /proc/$f ]; then echo takes $f; fi; done; head -c 3 /proc/version";
    let (ran, _) = run_direct(folder.path(), line);
    assert_eq!(ran.ok(), "Lin");
}

fn parents_of_hidden_names_cannot_be_moved() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = workspace();
    let hidden = folder.path().join("config/deep/secrets");
    std::fs::create_dir_all(&hidden).unwrap();
    std::fs::write(hidden.join("s"), "hidden-words").unwrap();
    std::fs::create_dir_all(folder.path().join("sub")).unwrap();
    std::fs::write(folder.path().join("sub/.env"), "hidden-words").unwrap();
    for path in ["", "config", "config/deep", "config/deep/secrets", "sub"] {
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(folder.path().join(path), open).unwrap();
    }
    let hide = ["config/deep/secrets", ".env"];
    let (moved, _) = run_direct_hiding(
        folder.path(),
        &hide,
        "mv config c2; mv sub s2; ls; cat sub/.env; echo made > plain; cat plain",
    );
    assert_eq!(moved.stdout, "config\nsub\nmade\n", "{}", moved.stderr);
    let (found, _) = run_direct_hiding(folder.path(), &hide, "find . -type f -exec cat {} +");
    assert_eq!(found.stdout, "made\n", "{}", found.stderr);
}

/// Reads every file under every name.
const READ_ALL: &str = "find . -type f -exec cat {} + ; find . -type l -exec cat {} + 2>/dev/null";

/// Makes everything writable for every user.
fn open_up(folder: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(folder, open).unwrap();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            open_up(&entry.path());
        }
    }
}

/// Hidden symlinks: direct, in a chain, through a symlink to a folder and through `..`, each with its target.
fn with_hidden_links() -> TempDir {
    let folder = workspace();
    let at = |name: &str| folder.path().join(name);
    for name in ["conf", "sub", "real", "over/deep"] {
        std::fs::create_dir_all(at(name)).unwrap();
    }
    for name in ["conf/straight", "conf/chained", "real/through", "over/up"] {
        std::fs::write(at(name), "hidden-words\n").unwrap();
    }
    std::fs::hard_link(at("conf/straight"), at("other-name")).unwrap();
    for (to, name) in [
        ("conf/straight", ".env"),
        ("../first", "sub/.env"),
        ("second", "first"),
        ("/workspace/conf/chained", "second"),
        ("../by/through", "real/.env"),
        ("real", "by"),
        ("deep/../up", "over/.env"),
    ] {
        std::os::unix::fs::symlink(to, at(name)).unwrap();
    }
    open_up(folder.path());
    folder
}

/// Tries to redirect each of them.
const LEAD_ASTRAY: &str = "for name in .env sub/.env first second real/.env by over/.env; do \
    rm -f $name; mv $name moved; ln -sfn plain $name; done 2>/dev/null; \
    rmdir over/deep; mv over/deep moved; mv conf moved; mv real moved; mv sub moved; mv over moved; echo made > plain; cat plain";

fn hidden_symlinks_are_pinned() {
    let folder = with_hidden_links();
    let (first, _) = run_direct_hiding(folder.path(), &[".env"], READ_ALL);
    assert_eq!(first.stdout, "", "{}", first.stderr);
    let (ran, _) = run_direct_hiding(folder.path(), &[".env"], LEAD_ASTRAY);
    assert_eq!(ran.stdout, "made\n");
    let (found, _) = run_direct_hiding(folder.path(), &[".env"], READ_ALL);
    assert_eq!(found.stdout, "made\n", "{}", found.stderr);
}

fn hidden_symlinks_are_pinned_in_an_overlay() {
    let folder = with_hidden_links();
    let state_dir = tempfile::tempdir().unwrap();
    let layers = OverlayDirs::create(state_dir.path().join("layers"), folder.path()).unwrap();
    let run = |line: &str| {
        let mut profile = shell(line);
        profile.cwd = "/workspace".into();
        profile.workspace = Some(WorkspaceMount {
            target: "/workspace".into(),
            source: WorkspaceSource::Overlay {
                lower: folder.path().to_owned(),
                layers: layers.folder().to_owned(),
            },
            hide: vec![".env".to_owned()],
            read_only: Vec::new(),
        });
        finish(launcher(state_dir.path()).launch(&profile, ProgramStreams::captured()).unwrap()).stdout
    };
    assert_eq!([LEAD_ASTRAY, READ_ALL].map(run), ["made\n", "made\n"]);
}

fn patterns_match_through_symlinks_to_folders() {
    let folder = workspace();
    let at = |name: &str| folder.path().join(name);
    for name in ["elsewhere/secrets", "elsewhere/plain", "deep/er/keys/private"] {
        std::fs::create_dir_all(at(name)).unwrap();
        std::fs::write(at(name).join("file"), format!("{name}\n")).unwrap();
    }
    std::fs::hard_link(at("elsewhere/secrets/file"), at("other-name")).unwrap();
    for (to, name) in
        [("elsewhere", "config"), ("../er/keys", "deep/er/k"), ("deep/er", "way"), ("..", "deep/er/up")]
    {
        std::os::unix::fs::symlink(to, at(name)).unwrap();
    }
    open_up(folder.path());
    let hide = ["config/secrets", "way/**/k/private"];
    let (ran, _) = run_direct_hiding(
        folder.path(),
        &hide,
        "find . -type f -exec cat {} + ; rm -f config way deep/er/k 2>/dev/null; mv elsewhere/secrets moved; mv deep moved; echo made > plain",
    );
    assert_eq!(ran.stdout, "elsewhere/plain\n", "{}", ran.stderr);
    let (found, _) =
        run_direct_hiding(folder.path(), &hide, "cat plain; cat elsewhere/*/file deep/er/keys/private/file");
    assert_eq!(found.stdout, "made\nelsewhere/plain\n");
}

fn read_only_symlinks_are_pinned() {
    let folder = workspace();
    let at = |name: &str| folder.path().join(name);
    for name in ["dots", "machine"] {
        std::fs::create_dir(at(name)).unwrap();
    }
    for name in ["dots/rc", "machine/config.toml"] {
        std::fs::write(at(name), "as it was").unwrap();
    }
    std::fs::hard_link(at("dots/rc"), at("other-name")).unwrap();
    for (to, name) in [("a", ".bashrc"), ("d/rc", "a"), ("dots", "d"), ("machine", ".cargo")] {
        std::os::unix::fs::symlink(to, at(name)).unwrap();
    }
    open_up(folder.path());
    let (ran, _) = run_direct(
        folder.path(),
        "mkdir evil; echo evil > evil/rc; echo evil > evil/config.toml; for name in a d .cargo; do rm -f $name; ln -sfn evil $name; done \
         2>/dev/null; rm -f a; ln -s evil/rc a; echo evil > machine/config.toml; echo evil > other-name; mv dots moved; echo ran",
    );
    assert_eq!(ran.stdout, "ran\n");
    for name in [".bashrc", ".cargo/config.toml", "other-name"] {
        assert_eq!(std::fs::read_to_string(at(name)).unwrap(), "as it was", "{name}");
    }
}

fn symlinks_by_host_path_are_resolved() {
    let folder = workspace();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("rc"), "as it was").unwrap();
    std::fs::write(at("key"), "hidden-words").unwrap();
    std::os::unix::fs::symlink(at("rc"), at(".bashrc")).unwrap();
    std::os::unix::fs::symlink(
        format!("../{}/key", folder.path().file_name().unwrap().to_str().unwrap()),
        at(".env"),
    )
    .unwrap();
    open_up(folder.path());
    let (ran, _) = run_direct_hiding(folder.path(), &[".env"], "echo evil > rc; cat key; echo ran");
    assert_eq!(ran.stdout, "ran\n");
    assert_eq!(std::fs::read_to_string(at("rc")).unwrap(), "as it was");
}

/// `..` behind a symlink to a folder leads up from its target, whatever the text of the path says. A path that leaves
/// the workspace can come back through another path of it.
fn hidden_symlinks_resolve_as_in_the_kernel() {
    for way in ["x/../vault", "P/x/../vault", "../P/x/../vault", "/workspace/x/../vault", "alias/deep/vault"]
    {
        let machine = workspace();
        let folder = machine.path().join("P");
        std::fs::create_dir_all(folder.join("deep/y")).unwrap();
        std::fs::write(folder.join("deep/vault"), "hidden-words\n").unwrap();
        std::fs::write(folder.join("vault"), "innocent\n").unwrap();
        let to = match way.split('/').next() {
            Some("P" | "alias") => machine.path().join(way),
            _ => way.into(),
        };
        let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, machine.path().join(name)).unwrap();
        link(Path::new("deep/y"), "P/x");
        link(&folder, "alias");
        link(&to, "P/hl");
        open_up(machine.path());
        let line = "cat hl deep/vault vault; rm -f x; ln -s /tmp x; rm -f hl; mv deep moved";
        for _ in 0..2 {
            let (ran, _) = run_direct_hiding(&folder, &["hl"], line);
            assert_eq!(ran.stdout, "innocent\n", "{way}: {}", ran.stderr);
        }
    }
}

fn symlink_loops_do_not_fail_a_start() {
    let folder = workspace();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(at("a/b")).unwrap();
    for (to, name) in
        [("..", "a/b/up"), (".", "a/self"), ("../..", "a/b/x"), (".env", ".env"), ("b", "a/b/b")]
    {
        std::os::unix::fs::symlink(to, at(name)).unwrap();
    }
    std::fs::write(at("a/b/key"), "hidden-words").unwrap();
    let (ran, _) = run_direct_hiding(folder.path(), &["a/**/x/**/key", ".env"], "cat a/b/key; echo ran");
    assert_eq!(ran.stdout, "ran\n");
}

fn too_many_hidden_names_hide_their_folder() {
    let folder = workspace();
    std::fs::create_dir_all(folder.path().join("keys/many")).unwrap();
    for number in 0..2100 {
        std::fs::write(folder.path().join(format!("keys/many/{number}.pem")), "hidden-words").unwrap();
    }
    for name in ["keys/plain", "one.pem"] {
        std::fs::write(folder.path().join(name), name).unwrap();
    }
    open_up(folder.path());
    let child =
        start_hiding(folder.path(), &["*.pem"], "cat keys/plain; ls keys/many; cat one.pem; mv keys moved");
    assert_eq!(child.started().emptied, ["keys/many"]);
    assert_eq!(finish(child).stdout, "keys/plain");
    assert!(folder.path().join("keys/many/7.pem").exists());
}

fn too_many_hidden_names_at_the_top_hide_everything() {
    let folder = workspace();
    for number in 0..2100 {
        std::fs::write(folder.path().join(format!("{number}.pem")), "hidden-words").unwrap();
    }
    let child = start_hiding(folder.path(), &["*.pem"], "ls -A; cat 7.pem; echo made > plain; echo ran");
    assert_eq!(child.started().emptied, ["."]);
    assert_eq!(finish(child).stdout, "ran\n");
}

/// A process of the host keeps moving a folder with hidden files.
fn files_moved_during_a_start_are_hidden() {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    let folder = workspace();
    let (here, there) = (folder.path().join("here"), folder.path().join("there"));
    let others = folder.path().join("before");
    for made in [&here, &others] {
        std::fs::create_dir(made).unwrap();
    }
    std::fs::write(here.join("key.pem"), "hidden-words\n").unwrap();
    // Masked first, which takes some time.
    for number in 0..1000 {
        std::fs::write(others.join(format!("{number}.pem")), "").unwrap();
    }
    open_up(folder.path());
    let (is_over, moves) = (AtomicBool::new(false), AtomicUsize::new(0));
    let leaked = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for (from, to) in [(&here, &there), (&there, &here)] {
                    std::fs::rename(from, to).unwrap();
                    moves.fetch_add(1, Ordering::Relaxed);
                    // Long enough to be found by a scan.
                    std::thread::sleep(std::time::Duration::from_millis(20));
                }
            }
        });
        let (mut starts, mut leaked) = (0, Vec::new());
        while starts < STARTS && leaked.is_empty() {
            let before = moves.load(Ordering::Relaxed);
            let state_dir = tempfile::tempdir().unwrap();
            let profile =
                direct_profile(folder.path(), &["*.pem"], "cat here/* there/* 2>/dev/null; echo ran");
            // If it moves too often, the start fails and shows nothing.
            let Ok(child) = launcher(state_dir.path()).launch(&profile, ProgramStreams::captured()) else {
                continue;
            };
            starts += usize::from(moves.load(Ordering::Relaxed) != before);
            leaked.extend(Some(finish(child).stdout).filter(|leaked| leaked != "ran\n"));
        }
        is_over.store(true, Ordering::Relaxed);
        leaked
    });
    assert_eq!(leaked, Vec::<String>::new());
}

/// Tries to move folders above hidden files and counts its attempts, until a file tells it to stop.
const MOVE: &str = "
import os
tries = 0
while not os.path.exists('stop'):
    for one, other in [('config', 'c2'), ('config/deep', 'd2'), ('sub', 's2')]:
        for before, after in [(one, other), (other, one)]:
            try: os.rename(before, after)
            except OSError: continue
            print('moved', before)
    tries += 1
    open('tries.new', 'w').write(str(tries)); os.rename('tries.new', 'tries')
";

/// How many sandboxes start while another one tries to move what they mask.
const STARTS: usize = 10;

fn concurrent_sandbox_cannot_move_masked_folders() {
    let folder = workspace();
    for (name, file) in [("config/deep/secrets", "s"), ("sub", ".env")] {
        std::fs::create_dir_all(folder.path().join(name)).unwrap();
        std::fs::write(folder.path().join(name).join(file), "hidden-words\n").unwrap();
    }
    open_up(folder.path());
    let hide = ["config/deep/secrets", ".env"];
    let mover = start_hiding(folder.path(), &hide, &format!("python3 -c \"{MOVE}\""));
    let tries = || std::fs::read_to_string(folder.path().join("tries")).unwrap_or_default();
    let mut starts = 0;
    while starts < STARTS {
        let before = tries();
        let (ran, _) =
            run_direct_hiding(folder.path(), &hide, "find . \\( -name s -o -name .env \\) -exec cat {} +");
        assert_eq!(ran.stdout, "", "{}", ran.stderr);
        starts += usize::from(!before.is_empty() && tries() != before);
    }
    std::fs::write(folder.path().join("stop"), "").unwrap();
    assert_eq!(finish(mover).ok(), "");
}

fn symlinks_with_read_only_names_do_not_fail_a_start() {
    let folder = workspace();
    let planted = run_direct(
        folder.path(),
        "mkdir d; echo a > rc; ln -s rc .bashrc; ln -s /nowhere .profile; ln -s d .vscode; ln -s .zshrc .zshrc",
    );
    assert_eq!(planted.0.ok(), "");
    let (ran, read_only) = run_direct(
        folder.path(),
        "cat .bashrc; for name in .bashrc .profile .vscode .zshrc; do rm -f $name; echo evil > $name; done 2>/dev/null; \
         echo evil > rc; echo evil > d/tasks.json; echo made > plain; cat plain",
    );
    assert_eq!((ran.stdout.as_str(), read_only), ("a\nmade\n", Vec::new()));
    for (name, to) in [(".bashrc", "rc"), (".profile", "/nowhere"), (".vscode", "d"), (".zshrc", ".zshrc")] {
        assert_eq!(std::fs::read_link(folder.path().join(name)).unwrap(), Path::new(to));
    }
    assert_eq!(std::fs::read_to_string(folder.path().join("rc")).unwrap(), "a\n");
    assert!(!folder.path().join("d/tasks.json").exists());
}

fn too_many_names_make_their_folder_read_only() {
    let folder = workspace();
    for number in 0..1100 {
        let inner = folder.path().join(format!("many/{number}"));
        std::fs::create_dir_all(&inner).unwrap();
        std::fs::write(inner.join(".envrc"), "as it was").unwrap();
    }
    std::fs::write(folder.path().join(".envrc"), "as it was").unwrap();
    let (ran, read_only) = run_direct(
        folder.path(),
        "echo evil > many/7/.envrc; echo evil > .envrc; mv many other; echo made > plain; cat plain",
    );
    assert_eq!((ran.stdout.as_str(), read_only), ("made\n", vec!["many".to_owned()]));
    for name in [".envrc", "many/7/.envrc"] {
        assert_eq!(std::fs::read_to_string(folder.path().join(name)).unwrap(), "as it was", "{name}");
    }
}

fn too_many_names_at_the_top_make_everything_read_only() {
    let folder = workspace();
    // Patterns ignore case, so one name has many spellings.
    for name in [".bash_profile", ".envrc"] {
        for number in 0..1_u32 << name.len() {
            let spelt = |(at, letter): (usize, char)| match number >> at & 1 {
                1 => letter.to_ascii_uppercase(),
                _ => letter,
            };
            let spelling: String = name.chars().enumerate().map(spelt).collect();
            std::fs::write(folder.path().join(spelling), "as it was").unwrap();
        }
    }
    let (ran, read_only) =
        run_direct(folder.path(), "echo evil > .bash_profile; echo made > plain; echo ran");
    assert_eq!((ran.stdout.as_str(), read_only), ("ran\n", vec![".".to_owned()]));
    assert_eq!(std::fs::read_to_string(folder.path().join(".bash_profile")).unwrap(), "as it was");
    assert!(!folder.path().join("plain").exists());
}

fn folders_beyond_the_depth_limit_are_read_only() {
    let folder = workspace();
    let dig = "name=$(printf 'd%.0s' $(seq 200)); for i in $(seq 40); do mkdir $name && cd -P $name || exit 1; done";
    let planted = run_direct(folder.path(), &format!("{dig}; echo as it was > .envrc; cat .envrc"));
    assert_eq!(planted.0.ok(), "as it was\n");
    let enter = dig.replace("mkdir $name && ", "");
    let (ran, _) = run_direct(
        folder.path(),
        &format!("echo made > plain; {enter}; echo evil > .envrc; echo evil > new; cat .envrc; ls -A"),
    );
    assert_eq!(ran.stdout, "as it was\n.envrc\n", "{}", ran.stderr);
    assert_eq!(std::fs::read_to_string(folder.path().join("plain")).unwrap(), "made\n");
}

fn non_utf8_names_are_masked() {
    let folder = workspace();
    let config = folder.path().join(OsStr::from_bytes(b"\xffproj")).join(".git/config");
    std::fs::create_dir_all(config.parent().unwrap()).unwrap();
    std::fs::write(&config, "[core]\n").unwrap();
    let (ran, _) = run_direct(folder.path(), "echo evil >> ./?proj/.git/config; mv ./?proj other; echo ran");
    assert_eq!(ran.stdout, "ran\n");
    assert_eq!(std::fs::read_to_string(&config).unwrap(), "[core]\n");
}

fn names_are_hidden_in_read_only_mounts() {
    let folder = with_hidden_links();
    std::fs::write(folder.path().join("plain"), "plain\n").unwrap();
    let mut profile = shell(&format!("cd /opt/shown; ({READ_ALL}; cat /opt/file) | sort"));
    let hide = vec![".env".to_owned()];
    let shown = |name: &str, target: &str| Mount::ReadOnly {
        source: folder.path().join(name),
        target: target.into(),
        hide: hide.clone(),
    };
    profile.mounts = vec![shown("", "/opt/shown"), shown("plain", "/opt/file")];
    let child = launcher(folder.path()).launch(&profile, ProgramStreams::captured()).unwrap();
    // At its path in this sandbox `/workspace/conf/chained` does not exist.
    assert_eq!(finish(child).ok(), "hidden-words\nplain\nplain\n");
}

/// Listens on a socket in the workspace and connects to it, after removing a stale one.
const TALK: &str = "
import os, socket
for path in ['left.sock', 'new.sock', '/tmp/new.sock']:
    if os.path.exists(path): os.unlink(path)
    server = socket.socket(socket.AF_UNIX); server.bind(path); server.listen()
    client = socket.socket(socket.AF_UNIX); client.connect(path)
    server.accept()[0].send(b'x'); print(client.recv(1).decode(), end='')
";

fn own_sockets_work() {
    let folder = workspace();
    for expected in ["xxx", "xxx"] {
        // The second time all of them are stale.
        drop(std::os::unix::net::UnixListener::bind(folder.path().join("left.sock")));
        let (ran, _) = run_direct(folder.path(), &format!("python3 -c \"{TALK}\""));
        assert_eq!(ran.ok(), expected);
    }
}

fn socket_as_a_mount_source_is_rejected() {
    let folder = workspace();
    let socket = folder.path().join("server.sock");
    let _server = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let mut profile = shell("true");
    profile.mounts = vec![Mount::ReadOnly { source: socket, target: "/opt/x".into(), hide: Vec::new() }];
    let refused =
        launcher(folder.path()).launch(&profile, ProgramStreams::captured()).unwrap_err().to_string();
    assert!(refused.contains("`/opt/x` is a socket"), "{refused}");
}

/// Runs a line in a sandbox with a workspace and an additional directory at its host path.
fn run_with_additional(folder: &Path, additional: &Path, hide: &[&str], line: &str) -> (Ran, Vec<String>) {
    let mut profile = direct_profile(folder, hide, line);
    profile.additional_directories = profile
        .workspace
        .iter()
        .map(|workspace| WorkspaceMount {
            target: additional.to_owned(),
            source: WorkspaceSource::Direct { folder: additional.to_owned() },
            ..workspace.clone()
        })
        .collect();
    let state_dir = tempfile::tempdir().unwrap();
    let child = launcher(state_dir.path()).launch(&profile, ProgramStreams::captured()).unwrap();
    let read_only = child.started().read_only.clone();
    (finish(child), read_only)
}

fn additional_directories_are_masked() {
    let (folder, additional) = (workspace(), workspace());
    std::fs::create_dir_all(additional.path().join("sub/.git/hooks")).unwrap();
    for (name, content) in [("plain", "plain\n"), (".env", "hidden-words\n"), (".envrc", "rc\n")] {
        std::fs::write(additional.path().join(name), content).unwrap();
    }
    std::fs::write(additional.path().join("sub/.git/hooks/pre-commit"), "hook\n").unwrap();
    open_up(folder.path());
    open_up(additional.path());
    let line = "cd \"$0\"; cat plain .env .envrc; echo changed > plain; echo made > sub/made; echo x > .envrc; \
                rm -f .envrc .env; mv sub moved; echo x > sub/.git/hooks/pre-commit; echo x > sub/.git/hooks/post-commit";
    let at = additional.path().to_str().unwrap();
    let (ran, read_only) =
        run_with_additional(folder.path(), additional.path(), &[".env"], &line.replace("$0", at));
    assert_eq!((ran.stdout.as_str(), read_only), ("plain\nrc\n", Vec::new()), "{}", ran.stderr);
    let now = |name: &str| std::fs::read_to_string(additional.path().join(name)).unwrap_or_default();
    assert_eq!([now("plain"), now("sub/made")], ["changed\n", "made\n"]);
    assert_eq!([now(".env"), now(".envrc")], ["hidden-words\n", "rc\n"]);
    assert_eq!([now("sub/.git/hooks/pre-commit"), now("sub/.git/hooks/post-commit")], ["hook\n", ""]);
}

/// Programs of the host and readers follow a symlink from one folder to the other: what is masked at its start is
/// masked at its end, and under every hard link.
fn links_between_folders_are_masked_at_their_target() {
    let both = workspace();
    let (folder, additional) = (both.path().join("app"), both.path().join("lib"));
    for name in ["app/.git", "app/.vscode", "lib/hooks", "lib/config", "lib/deep"] {
        std::fs::create_dir_all(both.path().join(name)).unwrap();
    }
    for (name, content) in [
        ("app/.bashrc", "named\n"),
        ("lib/hooks/pre-commit", "hook\n"),
        ("lib/config/tasks.json", "tasks\n"),
        ("lib/rc", "rc\n"),
        ("lib/deep/production", "hidden-words\n"),
        ("lib/free", "free\n"),
    ] {
        std::fs::write(both.path().join(name), content).unwrap();
    }
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, both.path().join(name)).unwrap();
    link(additional.join("hooks").to_str().unwrap(), "app/.git/hooks");
    link("../../lib/by/tasks.json", "app/.vscode/tasks.json");
    link("config", "lib/by");
    link("../lib/rc", "app/.envrc");
    link(additional.join("deep/production").to_str().unwrap(), "app/.env");
    std::fs::hard_link(folder.join(".bashrc"), additional.join("another-name")).unwrap();
    open_up(both.path());
    let line = "cd \"$0\"; cat deep/production; for f in hooks/pre-commit hooks/new config/tasks.json rc another-name deep/production free; \
                do echo changed > $f; done; rm -rf hooks by deep; mkdir by; mv config moved; mkdir config; echo x > config/tasks.json";
    let line = line.replace("$0", additional.to_str().unwrap());
    let (ran, _) = run_with_additional(&folder, &additional, &[".env"], &line);
    assert_eq!(ran.stdout, "", "{}", ran.stderr);
    let now = |name: &str| std::fs::read_to_string(both.path().join(name)).unwrap_or_default();
    assert_eq!(now("lib/free"), "changed\n", "{}", ran.stderr);
    for (name, content) in [
        ("app/.git/hooks/pre-commit", "hook\n"),
        ("app/.git/hooks/new", ""),
        ("app/.vscode/tasks.json", "tasks\n"),
        ("app/.envrc", "rc\n"),
        ("app/.bashrc", "named\n"),
        ("app/.env", "hidden-words\n"),
    ] {
        assert_eq!(now(name), content, "{name}");
    }
}
