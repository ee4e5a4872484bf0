//! Landings that are obstructed or interrupted.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};
use std::path::PathBuf;

use tribune_sandbox::workspace::{
    LandRecovery, LandRefusal, NotLanded, Selection, diff, land, recover_landing,
};

use crate::support::{OverlayWorkspace, Test, shell};

pub(crate) const TESTS: &[Test] = &[
    ("inaccessible_folders_land_with_their_modes", inaccessible_folders_land_with_their_modes),
    ("failure_of_one_change_does_not_stop_others", failure_of_one_change_does_not_stop_others),
    ("files_removed_meanwhile_are_conflicts", files_removed_meanwhile_are_conflicts),
    ("moved_file_is_not_a_conflict", moved_file_is_not_a_conflict),
    ("non_utf8_names_land", non_utf8_names_land),
    ("modification_times_land", modification_times_land),
    ("interrupted_landing_is_recovered", interrupted_landing_is_recovered),
];

fn all(overlay: &OverlayWorkspace) -> (Vec<String>, Vec<NotLanded>) {
    let done = land(&overlay.lower(), &overlay.layers, &Selection::All).unwrap();
    (done.landed.iter().map(|path| path.display().to_string()).collect(), done.not_landed)
}

fn mode(overlay: &OverlayWorkspace, name: &str) -> u32 {
    std::fs::metadata(overlay.lower().join(name)).unwrap().mode() & 0o777
}

/// Also as an ordinary user, for whom they are inaccessible.
pub(crate) fn inaccessible_folders_land_with_their_modes() {
    let overlay = OverlayWorkspace::with(&[("other", "a")]);
    overlay
        .run(shell(
            "mkdir -p a/b; echo x > a/b/c; echo y > f; chmod 000 f a/b/c a/b; chmod 100 a; echo b > other",
        ))
        .ok();
    // Before they are opened they are listed as inaccessible, and the diff succeeds.
    let changes = diff(&overlay.lower(), &overlay.layers).unwrap().changes;
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!((changes[0].path.as_path(), changes[0].is_inaccessible), ("a".as_ref(), !is_root));
    overlay.layers.open_up().unwrap();
    overlay.layers.open_up().unwrap();
    assert_eq!(all(&overlay), (["a", "a/b", "a/b/c", "f", "other"].map(str::to_owned).to_vec(), Vec::new()));
    assert_eq!((mode(&overlay, "a"), mode(&overlay, "f"), overlay.read("other").as_str()), (0o100, 0, "b\n"));
    std::fs::set_permissions(overlay.lower().join("a"), PermissionsExt::from_mode(0o700)).unwrap();
    assert_eq!(mode(&overlay, "a/b"), 0);
    std::fs::set_permissions(overlay.lower().join("a/b"), PermissionsExt::from_mode(0o700)).unwrap();
    assert_eq!(mode(&overlay, "a/b/c"), 0);
}

/// Also as an ordinary user, whom the permissions stop.
pub(crate) fn failure_of_one_change_does_not_stop_others() {
    let overlay = OverlayWorkspace::with(&[("shut/old", "a")]);
    std::fs::set_permissions(overlay.lower().join("shut"), PermissionsExt::from_mode(0o555)).unwrap();
    let line = "mkdir gomod; echo 1 > gomod/1; chmod 555 gomod; echo z > zlast; \
                chmod 755 shut; echo x > shut/new; chmod 555 shut";
    overlay.run(shell(line)).ok();
    let (landed, left) = all(&overlay);
    assert_eq!(mode(&overlay, "gomod"), 0o555);
    if rustix::process::geteuid().is_root() {
        assert_eq!(left, []);
        return;
    }
    assert_eq!(landed, ["gomod", "gomod/1", "zlast"]);
    assert_eq!(left.len(), 1);
    assert!(
        matches!(&left[0].reason, LandRefusal::Failed(why) if why.contains("cannot be written")),
        "{left:?}"
    );
}

fn files_removed_meanwhile_are_conflicts() {
    let overlay =
        OverlayWorkspace::with(&[("gone", "a"), ("folder/in", "a"), ("folder/too", "a"), ("kept", "a")]);
    overlay.run(shell("echo b >> gone; echo b >> folder/in; echo b > kept; echo new > new")).ok();
    std::fs::remove_file(overlay.lower().join("gone")).unwrap();
    std::fs::remove_dir_all(overlay.lower().join("folder")).unwrap();
    for _ in 0..2 {
        let (_, left) = all(&overlay);
        let expected = [
            ("folder", LandRefusal::Conflict),
            ("folder/in", LandRefusal::ParentNotLanded),
            ("gone", LandRefusal::Conflict),
        ];
        assert_eq!(left, expected.map(|(path, why)| NotLanded { path: path.into(), reason: why }));
    }
    assert_eq!((overlay.read("kept").as_str(), overlay.read("new").as_str()), ("b\n", "new\n"));
    assert!(!overlay.lower().join("gone").exists());
}

fn moved_file_is_not_a_conflict() {
    let overlay = OverlayWorkspace::with(&[("a", "1"), ("b", "1")]);
    overlay.run(shell("mv a c; echo 2 > b; mkdir new; mv b new/b")).ok();
    let some = Selection::Paths(vec!["new".into()]);
    land(&overlay.lower(), &overlay.layers, &some).unwrap();
    assert_eq!(all(&overlay).1, []);
    assert_eq!((overlay.read("c").as_str(), overlay.read("new/b").as_str()), ("1", "2\n"));
    assert_eq!(diff(&overlay.lower(), &overlay.layers).unwrap().changes, []);
}

fn non_utf8_names_land() {
    use std::os::unix::ffi::OsStringExt as _;
    let overlay = OverlayWorkspace::with(&[]);
    overlay.run(shell("printf x > \"$(printf 'a\\377 b')\"")).ok();
    let name = PathBuf::from(std::ffi::OsString::from_vec(b"a\xff b".to_vec()));
    let done = land(&overlay.lower(), &overlay.layers, &Selection::All).unwrap();
    assert_eq!((done.landed, done.not_landed), (vec![name.clone()], Vec::new()));
    assert_eq!(std::fs::read_to_string(overlay.lower().join(name)).unwrap(), "x");
}

fn modification_times_land() {
    let overlay = OverlayWorkspace::with(&[("a", "1")]);
    overlay.run(shell("echo 2 > a; touch -d '2001-02-03 04:05:06 UTC' a")).ok();
    all(&overlay);
    assert_eq!(std::fs::metadata(overlay.lower().join("a")).unwrap().mtime(), 981_173_106);
}

/// The state that a landing leaves when it is killed at each of its steps.
fn interrupted_landing_is_recovered() {
    let overlay =
        OverlayWorkspace::with(&[("a", "mine"), ("b", "mine"), ("c", "mine"), ("d", "mine"), ("e", "mine")]);
    overlay.run(shell("for name in a b c d e f; do echo agent > $name; done")).ok();
    let path = |name: &str| overlay.lower().join(name);
    let inode = |name: &str| std::fs::symlink_metadata(path(name)).unwrap().ino();
    let recovered = |lines: String| {
        std::fs::write(overlay.layers.folder().join("journal"), lines).unwrap();
        let recovered = recover_landing(&overlay.lower(), &overlay.layers).unwrap();
        assert!(!overlay.layers.folder().join("journal").exists());
        recovered
    };
    let nothing = LandRecovery::default();
    assert_eq!(recover_landing(&overlay.lower(), &overlay.layers).unwrap(), nothing);

    // Before the file was complete, and before it was renamed.
    std::fs::write(path(".tmp"), "ag").unwrap();
    assert_eq!(recovered("make .tmp a\n".to_owned()), nothing);
    assert!(!path(".tmp").exists() && overlay.read("a") == "mine");
    std::fs::write(path(".tmp"), "agent").unwrap();
    assert_eq!(recovered(format!("make .tmp a\nmade {}\n", inode(".tmp"))), nothing);
    assert!(!path(".tmp").exists() && overlay.read("a") == "mine");

    // Between the exchange and the removal of the old version: the old version is restored.
    std::fs::rename(path("b"), path(".tmp")).unwrap();
    std::fs::write(path("b"), "agent").unwrap();
    assert_eq!(recovered(format!("make .tmp b\nmade {}\n", inode("b"))), nothing);
    assert!(!path(".tmp").exists() && overlay.read("b") == "mine");

    // The same, but the file was changed again: nothing is lost.
    std::fs::rename(path("c"), path(".tmp")).unwrap();
    std::fs::write(path("c"), "agent").unwrap();
    let made = inode("c");
    symlink("a", path("third")).unwrap();
    std::fs::rename(path("third"), path("c")).unwrap();
    let came = recovered(format!("make .tmp c\nmade {made}\n"));
    assert_eq!(came, LandRecovery { landed: Vec::new(), moved_aside: vec![".tmp".into()] });
    assert_eq!(overlay.read(".tmp"), "mine");

    // At the end, with and without the last line.
    std::fs::write(
        path("d.new"),
        "agent
",
    )
    .unwrap();
    std::fs::rename(path("d.new"), path("d")).unwrap();
    std::fs::write(
        path("e.new"),
        "agent
",
    )
    .unwrap();
    std::fs::rename(path("e.new"), path("e")).unwrap();
    let lines = format!("make .t1 d\nmade {}\ndone d\nmake .t2 e\nmade {}\n", inode("d"), inode("e"));
    assert_eq!(recovered(lines).landed, ["d", "e"].map(PathBuf::from));

    // What was recovered counts as landed, and the rest lands.
    let (landed, left) = all(&overlay);
    assert_eq!(landed, ["a", "f"], "{left:?}");
    let conflicts = ["b", "c"].map(|name| NotLanded { path: name.into(), reason: LandRefusal::Conflict });
    assert_eq!(left, conflicts);
}
