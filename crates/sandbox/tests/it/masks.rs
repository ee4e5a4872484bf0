//! What somebody inside does to a workspace never stops the next command, and never lifts a protection.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use tempfile::TempDir;
use tribune_contract::{HOST_TRAPS, Workspace, WorkspaceSource};
use tribune_sandbox::Streams;

use crate::stage::{Ran, Test, finish, launcher, shell};

pub(crate) const TESTS: &[Test] = &[
    ("links_with_frozen_names_stop_nothing", links_with_frozen_names_stop_nothing),
    ("too_many_names_make_their_folder_read_only", too_many_names_make_their_folder_read_only),
    (
        "too_many_names_at_the_top_make_all_of_it_read_only",
        too_many_names_at_the_top_make_all_of_it_read_only,
    ),
    ("folders_too_deep_to_look_into_are_read_only", folders_too_deep_to_look_into_are_read_only),
    ("names_that_are_no_text_are_protected", names_that_are_no_text_are_protected),
    ("folders_above_what_is_hidden_stay", folders_above_what_is_hidden_stay),
    ("sockets_of_its_own_work", sockets_of_its_own_work),
    ("a_socket_is_shown_as_nothing_else", a_socket_is_shown_as_nothing_else),
];

/// Runs a line in a folder that changes at once. What it said, and which folders were read-only.
fn direct(folder: &Path, line: &str) -> (Ran, Vec<String>) {
    direct_without(folder, &[], line)
}

/// The same, where some names are hidden.
fn direct_without(folder: &Path, hide: &[&str], line: &str) -> (Ran, Vec<String>) {
    let house = tempfile::tempdir().unwrap();
    let mut profile = shell(line);
    profile.cwd = "/workspace".into();
    profile.workspace = Some(Workspace {
        target: "/workspace".into(),
        source: WorkspaceSource::Direct { folder: folder.to_owned() },
        hide: hide.iter().map(|&name| name.to_owned()).collect(),
        freeze: HOST_TRAPS.map(str::to_owned).into(),
    });
    let child = launcher(house.path()).launch(&profile, Streams::captured()).unwrap();
    let read_only = child.started().read_only.clone();
    (finish(child), read_only)
}

fn workspace() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn folders_above_what_is_hidden_stay() {
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
    let (moved, _) = direct_without(
        folder.path(),
        &hide,
        "mv config c2; mv sub s2; ls; cat sub/.env; echo made > plain; cat plain",
    );
    assert_eq!(moved.stdout, "config\nsub\nmade\n", "{}", moved.stderr);
    let (found, _) = direct_without(folder.path(), &hide, "find . -type f -exec cat {} +");
    assert_eq!(found.stdout, "made\n", "{}", found.stderr);
}

fn links_with_frozen_names_stop_nothing() {
    let folder = workspace();
    let planted = direct(
        folder.path(),
        "mkdir d; echo a > rc; ln -s rc .bashrc; ln -s /nowhere .profile; ln -s d .vscode; ln -s .zshrc .zshrc",
    );
    assert_eq!(planted.0.ok(), "");
    let (ran, read_only) = direct(
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
    let (ran, read_only) = direct(
        folder.path(),
        "echo evil > many/7/.envrc; echo evil > .envrc; mv many other; echo made > plain; cat plain",
    );
    assert_eq!((ran.stdout.as_str(), read_only), ("made\n", vec!["many".to_owned()]));
    for name in [".envrc", "many/7/.envrc"] {
        assert_eq!(std::fs::read_to_string(folder.path().join(name)).unwrap(), "as it was", "{name}");
    }
}

fn too_many_names_at_the_top_make_all_of_it_read_only() {
    let folder = workspace();
    // Upper and lower case are the same to a pattern, so one name has many spellings.
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
    let (ran, read_only) = direct(folder.path(), "echo evil > .bash_profile; echo made > plain; echo ran");
    assert_eq!((ran.stdout.as_str(), read_only), ("ran\n", vec![".".to_owned()]));
    assert_eq!(std::fs::read_to_string(folder.path().join(".bash_profile")).unwrap(), "as it was");
    assert!(!folder.path().join("plain").exists());
}

fn folders_too_deep_to_look_into_are_read_only() {
    let folder = workspace();
    let dig = "name=$(printf 'd%.0s' $(seq 200)); for i in $(seq 40); do mkdir $name && cd -P $name || exit 1; done";
    let planted = direct(folder.path(), &format!("{dig}; echo as it was > .envrc; cat .envrc"));
    assert_eq!(planted.0.ok(), "as it was\n");
    let enter = dig.replace("mkdir $name && ", "");
    let (ran, _) = direct(
        folder.path(),
        &format!("echo made > plain; {enter}; echo evil > .envrc; echo evil > new; cat .envrc; ls -A"),
    );
    assert_eq!(ran.stdout, "as it was\n.envrc\n", "{}", ran.stderr);
    assert_eq!(std::fs::read_to_string(folder.path().join("plain")).unwrap(), "made\n");
}

fn names_that_are_no_text_are_protected() {
    let folder = workspace();
    let config = folder.path().join(OsStr::from_bytes(b"\xffproj")).join(".git/config");
    std::fs::create_dir_all(config.parent().unwrap()).unwrap();
    std::fs::write(&config, "[core]\n").unwrap();
    let (ran, _) = direct(folder.path(), "echo evil >> ./?proj/.git/config; mv ./?proj other; echo ran");
    assert_eq!(ran.stdout, "ran\n");
    assert_eq!(std::fs::read_to_string(&config).unwrap(), "[core]\n");
}

/// Listens at a socket in the workspace and connects to it, whatever was left there.
const TALK: &str = "
import os, socket
for path in ['left.sock', 'new.sock', '/tmp/new.sock']:
    if os.path.exists(path): os.unlink(path)
    server = socket.socket(socket.AF_UNIX); server.bind(path); server.listen()
    client = socket.socket(socket.AF_UNIX); client.connect(path)
    server.accept()[0].send(b'x'); print(client.recv(1).decode(), end='')
";

fn sockets_of_its_own_work() {
    let folder = workspace();
    for expected in ["xxx", "xxx"] {
        // The second time all of them were left behind by the first.
        drop(std::os::unix::net::UnixListener::bind(folder.path().join("left.sock")));
        let (ran, _) = direct(folder.path(), &format!("python3 -c \"{TALK}\""));
        assert_eq!(ran.ok(), expected);
    }
}

fn a_socket_is_shown_as_nothing_else() {
    let folder = workspace();
    let socket = folder.path().join("server.sock");
    let _server = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let mut profile = shell("true");
    profile.mounts = vec![tribune_contract::Mount::ReadOnly { source: socket, target: "/opt/x".into() }];
    let refused = launcher(folder.path()).launch(&profile, Streams::captured()).unwrap_err().to_string();
    assert!(refused.contains("`/opt/x` is a socket"), "{refused}");
}
