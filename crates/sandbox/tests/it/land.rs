//! Changes of an overlay workspace, from the agent to the folder.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tribune_contract::{AUTORUN_PATHS, WorkspaceMount, WorkspaceSource};
use tribune_sandbox::workspace::{
    Change, ChangeKind, LandRefusal, LandReport, NotLanded, Selection, diff, discard, land,
};

use crate::support::{OverlayWorkspace, Test, as_user, run, shell};

pub(crate) const TESTS: &[Test] = &[
    ("diff_reports_every_kind_of_change", diff_reports_every_kind_of_change),
    ("folder_is_unchanged_until_landing", folder_is_unchanged_until_landing),
    ("landing_selected_paths", landing_selected_paths),
    ("conflicts_keep_both_versions", conflicts_keep_both_versions),
    ("landing_again_after_more_work", landing_again_after_more_work),
    (
        "autorun_files_escaping_links_and_pipes_are_not_landed",
        autorun_files_escaping_links_and_pipes_are_not_landed,
    ),
    ("set_id_bits_do_not_land", set_id_bits_do_not_land),
    ("replaced_folder_lands", replaced_folder_lands),
    ("discarding", discarding),
    ("inaccessible_folders_are_removed", inaccessible_folders_are_removed),
    ("content_follows_no_symlink", content_follows_no_symlink),
    ("disk_usage_is_counted", disk_usage_is_counted),
    ("landing_never_leaves_the_folder_during_a_race", landing_never_leaves_the_folder_during_a_race),
    ("landing_follows_no_symlink", landing_follows_no_symlink),
    ("hard_links_to_outside_are_replaced", hard_links_to_outside_are_replaced),
    ("invalid_paths_land_and_discard_nothing", invalid_paths_land_and_discard_nothing),
    ("owners_are_preserved", owners_are_preserved),
    ("ordinary_user_works_and_lands", ordinary_user_works_and_lands),
    ("masks_apply_in_an_overlay", masks_apply_in_an_overlay),
];

/// The part that runs as an ordinary user.
pub(crate) fn program(words: &[&str]) -> Option<ExitCode> {
    if words != ["work-and-land"] {
        return None;
    }
    folder_is_unchanged_until_landing();
    diff_reports_every_kind_of_change();
    inaccessible_folders_are_removed();
    disk_usage_is_counted();
    crate::land_recovery::inaccessible_folders_land_with_their_modes();
    crate::land_recovery::failure_of_one_change_does_not_stop_others();
    println!("landed");
    Some(ExitCode::SUCCESS)
}

fn kinds(changes: &[Change]) -> Vec<(String, ChangeKind)> {
    changes.iter().map(|change| (change.path.display().to_string(), change.kind())).collect()
}

fn changes(overlay: &OverlayWorkspace) -> Vec<Change> {
    diff(&overlay.lower(), &overlay.layers).unwrap().changes
}

fn landed(paths: &[&str]) -> LandReport {
    LandReport { landed: paths.iter().map(PathBuf::from).collect(), not_landed: Vec::new() }
}

fn paths(paths: &[&str]) -> Selection {
    Selection::Paths(paths.iter().map(PathBuf::from).collect())
}

fn diff_reports_every_kind_of_change() {
    let overlay = OverlayWorkspace::with(&[
        ("kept", "a"),
        ("changed", "a"),
        ("mode", "a"),
        ("gone", "a"),
        ("folder/in", "a"),
        ("touched", "a"),
    ]);
    overlay
        .run(shell(
            "echo b > changed; chmod 755 mode; rm gone; rm -r folder; mkdir -p new/deep; echo c > new/deep/file; \
             ln -s kept link; touch touched; mkfifo pipe",
        ))
        .ok();
    let all = diff(&overlay.lower(), &overlay.layers).unwrap();
    let expected = [
        ("changed", ChangeKind::Changed),
        ("folder", ChangeKind::Removed),
        ("gone", ChangeKind::Removed),
        ("link", ChangeKind::Added),
        ("mode", ChangeKind::Mode),
        ("new", ChangeKind::Added),
        ("new/deep", ChangeKind::Added),
        ("new/deep/file", ChangeKind::Added),
        ("pipe", ChangeKind::Added),
    ];
    assert_eq!(kinds(&all.changes), expected.map(|(path, kind)| (path.to_owned(), kind)));
    assert_eq!(all.bytes, 5);
}

fn folder_is_unchanged_until_landing() {
    let overlay = OverlayWorkspace::with(&[("file", "a"), ("gone", "a"), ("folder/in", "a")]);
    overlay
        .run(shell("echo b > file; rm -r gone folder; mkdir -m 700 new; echo c > new/file; ln -s file link"))
        .ok();
    assert_eq!((overlay.read("file").as_str(), overlay.read("folder/in").as_str()), ("a", "a"));
    let done = land(&overlay.lower(), &overlay.layers, &Selection::All).unwrap();
    assert_eq!(done, landed(&["file", "folder", "gone", "link", "new", "new/file"]));
    assert_eq!((overlay.read("file").as_str(), overlay.read("new/file").as_str()), ("b\n", "c\n"));
    assert!(!overlay.lower().join("gone").exists() && !overlay.lower().join("folder").exists());
    assert_eq!(std::fs::read_link(overlay.lower().join("link")).unwrap(), PathBuf::from("file"));
    assert_eq!(std::fs::metadata(overlay.lower().join("new")).unwrap().mode() & 0o7777, 0o700);
    assert_eq!(changes(&overlay), []);
    assert_eq!(std::fs::read_dir(overlay.lower()).unwrap().count(), 3);
}

fn landing_selected_paths() {
    let overlay = OverlayWorkspace::with(&[("a", "1"), ("b", "1")]);
    overlay.run(shell("echo 2 > a; echo 2 > b; mkdir -p x/y; echo 2 > x/y/c; echo 2 > x/d")).ok();
    let done = land(&overlay.lower(), &overlay.layers, &paths(&["a", "x/y/c"])).unwrap();
    assert_eq!(done, landed(&["a", "x", "x/y", "x/y/c"]));
    assert_eq!((overlay.read("a").as_str(), overlay.read("b").as_str()), ("2\n", "1"));
    assert_eq!(
        kinds(&changes(&overlay)),
        [("b".to_owned(), ChangeKind::Changed), ("x/d".to_owned(), ChangeKind::Added)]
    );
}

fn conflicts_keep_both_versions() {
    let overlay = OverlayWorkspace::with(&[("a", "1"), ("b", "1"), ("c", "1"), ("folder/in", "1")]);
    overlay.run(shell("echo ours > a; echo ours > b; rm c; echo ours > new; rm -r folder")).ok();
    std::fs::write(overlay.lower().join("a"), "theirs").unwrap();
    std::fs::write(overlay.lower().join("c"), "theirs").unwrap();
    std::fs::write(overlay.lower().join("new"), "theirs").unwrap();
    std::fs::write(overlay.lower().join("folder/in"), "theirs").unwrap();
    let done = land(&overlay.lower(), &overlay.layers, &Selection::All).unwrap();
    assert_eq!(done.landed, [PathBuf::from("b")]);
    let conflict = |path: &str| NotLanded { path: path.into(), reason: LandRefusal::Conflict };
    assert_eq!(done.not_landed, [conflict("a"), conflict("c"), conflict("folder"), conflict("new")]);
    for name in ["a", "c", "new", "folder/in"] {
        assert_eq!(overlay.read(name), "theirs");
    }
    assert_eq!(std::fs::read_to_string(overlay.layers.upper().join("a")).unwrap(), "ours\n");
}

fn landing_again_after_more_work() {
    let overlay = OverlayWorkspace::with(&[("a", "1")]);
    overlay.run(shell("echo 2 > a; echo 2 > b")).ok();
    land(&overlay.lower(), &overlay.layers, &Selection::All).unwrap();
    overlay.run(shell("echo 3 > a; rm b")).ok();
    assert_eq!(land(&overlay.lower(), &overlay.layers, &Selection::All).unwrap(), landed(&["a", "b"]));
    assert_eq!(overlay.read("a"), "3\n");
    assert!(!overlay.lower().join("b").exists());
}

fn autorun_files_escaping_links_and_pipes_are_not_landed() {
    let overlay = OverlayWorkspace::with(&[(".git/config", "[core]\n"), ("plain", "a")]);
    overlay
        .run(shell(
            "echo evil > .git/config; mkdir .git/hooks; echo evil > .git/hooks/pre-commit; echo evil > .envrc; \
             ln -s /etc/passwd out; ln -s ../../up up; mkfifo pipe; echo b > plain; mkdir sub; ln -s ../plain sub/in",
        ))
        .ok();
    let done = land(&overlay.lower(), &overlay.layers, &Selection::All).unwrap();
    assert_eq!(done.landed, ["plain", "sub", "sub/in"].map(PathBuf::from));
    let unlanded: Vec<(String, LandRefusal)> =
        done.not_landed.into_iter().map(|left| (left.path.display().to_string(), left.reason)).collect();
    assert_eq!(
        unlanded,
        [
            (".envrc", LandRefusal::Autorun),
            (".git/config", LandRefusal::Autorun),
            (".git/hooks", LandRefusal::Autorun),
            (".git/hooks/pre-commit", LandRefusal::Autorun),
            ("out", LandRefusal::EscapingSymlink),
            ("pipe", LandRefusal::UnsupportedType),
            ("up", LandRefusal::EscapingSymlink),
        ]
        .map(|(path, why)| (path.to_owned(), why))
    );
    assert_eq!(overlay.read(".git/config"), "[core]\n");
    // Named explicitly, so a user has reviewed it.
    assert_eq!(land(&overlay.lower(), &overlay.layers, &paths(&[".envrc"])).unwrap(), landed(&[".envrc"]));
    let all = land(&overlay.lower(), &overlay.layers, &Selection::Everything).unwrap();
    assert_eq!(all.landed, [".git/config", ".git/hooks", ".git/hooks/pre-commit"].map(PathBuf::from));
    assert_eq!(all.not_landed.len(), 3, "what leaves and what is no file stays where it is");
}

fn set_id_bits_do_not_land() {
    let overlay = OverlayWorkspace::with(&[]);
    let upper = overlay.layers.upper().join("program");
    std::fs::write(&upper, "x").unwrap();
    std::fs::set_permissions(&upper, PermissionsExt::from_mode(0o6755)).unwrap();
    assert!(changes(&overlay)[0].sets_id);
    assert_eq!(land(&overlay.lower(), &overlay.layers, &Selection::All).unwrap(), landed(&["program"]));
    assert_eq!(std::fs::metadata(overlay.lower().join("program")).unwrap().mode() & 0o7777, 0o755);
}

fn replaced_folder_lands() {
    let overlay = OverlayWorkspace::with(&[("folder/old", "a"), ("file", "a"), ("other/x", "a")]);
    overlay.run(shell("rm -r folder; mkdir folder; echo b > folder/new; rm file; mkdir file; rm -r other; echo c > other")).ok();
    land(&overlay.lower(), &overlay.layers, &Selection::All).unwrap();
    assert_eq!((overlay.read("folder/new").as_str(), overlay.read("other").as_str()), ("b\n", "c\n"));
    assert!(!overlay.lower().join("folder/old").exists() && overlay.lower().join("file").is_dir());
    assert_eq!(changes(&overlay), []);
}

/// Also as an ordinary user, who cannot enter inaccessible folders.
fn inaccessible_folders_are_removed() {
    let overlay = OverlayWorkspace::with(&[]);
    let make = "mkdir -p a/b/c b; echo x > a/b/c/d; ln -s / b/root; chmod 000 a/b/c a/b a b";
    overlay.run(shell(make)).ok();
    discard(&overlay.layers, &paths(&["b"])).unwrap();
    assert!(!overlay.layers.upper().join("b").exists());
    let folder = overlay.layers.folder().to_owned();
    overlay.layers.clone().remove().unwrap();
    assert!(!folder.exists());
}

fn content_follows_no_symlink() {
    let overlay = OverlayWorkspace::with(&[("file", "1234")]);
    let read = |path: &str, most| tribune_sandbox::workspace::content(&overlay.lower(), path.as_ref(), most);
    assert_eq!(read("file", 4).unwrap().as_deref(), Some(&b"1234"[..]));
    assert_eq!(read("file", 3).unwrap(), None);
    symlink("file", overlay.lower().join("link")).unwrap();
    symlink("/etc", overlay.lower().join("etc")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, overlay.lower().join("pipe"), rustix::fs::Mode::RWXU).unwrap();
    for path in ["link", "etc/passwd", "pipe", ".", "../lower/file", "/etc/passwd", "nothing"] {
        assert!(read(path, 100).is_err(), "{path}");
    }
}

fn discarding() {
    let overlay = OverlayWorkspace::with(&[("a", "1")]);
    overlay.run(shell("echo 2 > a; mkdir -p x/y; echo 2 > x/y/z; rm -f nothing")).ok();
    discard(&overlay.layers, &paths(&["x"])).unwrap();
    assert_eq!(kinds(&changes(&overlay)), [("a".to_owned(), ChangeKind::Changed)]);
    discard(&overlay.layers, &Selection::All).unwrap();
    assert_eq!(changes(&overlay), []);
    assert!(discard(&overlay.layers, &paths(&["../upper"])).is_err());
    // The session can continue.
    assert_eq!(overlay.run(shell("cat a")).ok(), "1");
}

fn disk_usage_is_counted() {
    let overlay = OverlayWorkspace::with(&[]);
    let before = overlay.layers.usage().unwrap();
    overlay.run(shell("head -c 1000000 /dev/zero > zeros; mkdir -p a/b; touch a/b/c; chmod 000 a/b a")).ok();
    let used = overlay.layers.usage().unwrap();
    assert!(used.bytes - before.bytes >= 1_000_000 && used.names == 4, "{used:?}");
    // Counting restores the modes of inaccessible folders.
    assert_eq!(std::fs::metadata(overlay.layers.upper().join("a")).unwrap().mode() & 0o777, 0);
}

/// How many landings must overlap with a swap of the folder.
const RACES: usize = 300;

/// How long this may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A process keeps swapping a folder of the workspace with a symlink to another one.
fn landing_never_leaves_the_folder_during_a_race() {
    let overlay = OverlayWorkspace::with(&[("folder/file", "a")]);
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("file"), "outside").unwrap();
    symlink(outside.path(), overlay.lower().join("link")).unwrap();
    let (folder, link) = (overlay.lower().join("folder"), overlay.lower().join("link"));
    let (is_over, swaps) = (AtomicBool::new(false), AtomicUsize::new(0));
    let swap = || {
        while !is_over.load(Ordering::Relaxed) {
            let flags = rustix::fs::RenameFlags::EXCHANGE;
            rustix::fs::renameat_with(rustix::fs::CWD, &folder, rustix::fs::CWD, &link, flags).unwrap();
            swaps.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let swapping = scope.spawn(swap);
        let began = Instant::now();
        let (mut tries, mut races, mut landed, mut left) = (0, 0, 0, 0);
        // Until enough landings overlapped with a swap, and both results occurred.
        while races < RACES || landed == 0 || left == 0 {
            if began.elapsed() > PATIENCE || swapping.is_finished() {
                is_over.store(true, Ordering::Relaxed);
                panic!("there was no race: {tries} tries, {races} races, {landed} landed, {left} left");
            }
            let upper = overlay.layers.upper().join("folder");
            std::fs::create_dir_all(&upper).unwrap();
            std::fs::write(upper.join("file"), format!("evil {tries}")).unwrap();
            std::fs::write(upper.join(format!("new-{tries}")), "evil").unwrap();
            let before = swaps.load(Ordering::Relaxed);
            // Whatever the result, nothing outside changes.
            let done = land(
                &overlay.lower(),
                &overlay.layers,
                &paths(&["folder/file", &format!("folder/new-{tries}")]),
            );
            races += usize::from(swaps.load(Ordering::Relaxed) != before);
            match done {
                Ok(done) => (landed, left) = (landed + done.landed.len(), left + done.not_landed.len()),
                Err(_) => left += 1,
            }
            std::fs::remove_dir_all(&upper).unwrap();
            tries += 1;
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(std::fs::read_to_string(outside.path().join("file")).unwrap(), "outside");
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
}

/// The content of a host folder, to check that it does not change.
fn content(folder: &std::path::Path) -> Vec<(PathBuf, String)> {
    let mut all: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), std::fs::read_to_string(path).unwrap()))
        .collect();
    all.sort();
    all
}

fn landing_follows_no_symlink() {
    let overlay = OverlayWorkspace::with(&[("real/file", "a")]);
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("file"), "outside").unwrap();
    let before = content(outside.path());
    for (name, to) in [
        ("absolute", outside.path().to_str().unwrap()),
        ("up", "../.."),
        ("proc", "/proc/self/root"),
        ("loop", "loop"),
    ] {
        symlink(to, overlay.lower().join(name)).unwrap();
        // As if the agent had replaced the symlink by a folder.
        let folder = overlay.layers.upper().join(name);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("file"), "evil").unwrap();
    }
    // A folder is replaced by a symlink after the session began.
    let moved = overlay.layers.upper().join("real");
    std::fs::create_dir(&moved).unwrap();
    std::fs::write(moved.join("file"), "evil").unwrap();
    std::fs::rename(overlay.lower().join("real"), overlay.lower().join("elsewhere")).unwrap();
    symlink(outside.path(), overlay.lower().join("real")).unwrap();

    let done = land(&overlay.lower(), &overlay.layers, &Selection::All).unwrap();
    assert!(done.landed.is_empty(), "symlinks made since the session began do not belong to it: {done:?}");
    assert_eq!(content(outside.path()), before);
    assert!(!overlay.lower().parent().unwrap().join("file").exists());
}

fn hard_links_to_outside_are_replaced() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("file"), "outside").unwrap();
    let overlay = OverlayWorkspace::with(&[]);
    std::fs::hard_link(outside.path().join("file"), overlay.lower().join("file")).unwrap();
    let layers = tribune_sandbox::workspace::OverlayDirs::create(
        overlay.layers.folder().with_extension("2"),
        &overlay.lower(),
    )
    .unwrap();
    let overlay = OverlayWorkspace { layers, ..overlay };
    overlay.run(shell("echo changed > file")).ok();
    assert_eq!(land(&overlay.lower(), &overlay.layers, &Selection::All).unwrap(), landed(&["file"]));
    assert_eq!(overlay.read("file"), "changed\n");
    assert_eq!(std::fs::read_to_string(outside.path().join("file")).unwrap(), "outside");
}

fn invalid_paths_land_and_discard_nothing() {
    let overlay = OverlayWorkspace::with(&[("file", "a")]);
    let outside = overlay.lower().parent().unwrap().join("outside");
    std::fs::write(&outside, "outside").unwrap();
    overlay.run(shell("echo b > file; mkdir d; ln -s /proc/self/root d/root")).ok();
    let long = "x".repeat(6000);
    let absolute = outside.to_str().unwrap();
    for path in [
        "..",
        "../outside",
        "d/../../outside",
        absolute,
        "/proc/self/root",
        "d/root/etc",
        "/",
        "",
        "file\0",
        &long,
        "FILE",
        "%2e%2e/outside",
        "..\\outside",
        "d/./../..",
    ] {
        let done = land(&overlay.lower(), &overlay.layers, &paths(&[path]));
        let is_nothing = match &done {
            Ok(done) => done.landed.is_empty(),
            Err(_) => true,
        };
        // An empty path is the whole workspace; the others name nothing that was changed.
        assert!(is_nothing || path.is_empty(), "{path:?} {done:?}");
        if !path.is_empty() {
            assert!(discard(&overlay.layers, &paths(&[path])).is_err(), "{path:?} was discarded");
        }
    }
    assert_eq!(std::fs::read_to_string(outside).unwrap(), "outside");
}

fn owners_are_preserved() {
    let overlay = OverlayWorkspace::with(&[("a", "1")]);
    for path in [overlay.lower(), overlay.lower().join("a")] {
        std::os::unix::fs::chown(path, Some(4321), Some(4321)).unwrap();
    }
    // The change of owner does not belong to this session.
    let layers = tribune_sandbox::workspace::OverlayDirs::create(
        overlay.layers.folder().with_extension("2"),
        &overlay.lower(),
    )
    .unwrap();
    let overlay = OverlayWorkspace { layers, ..overlay };
    overlay.run(shell("echo 2 > a; echo 2 > b")).ok();
    assert_eq!(land(&overlay.lower(), &overlay.layers, &Selection::All).unwrap(), landed(&["a", "b"]));
    for name in ["a", "b"] {
        let metadata = std::fs::metadata(overlay.lower().join(name)).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (4321, 4321));
    }
}

fn ordinary_user_works_and_lands() {
    let folder = tempfile::tempdir().unwrap();
    let output = as_user(folder.path(), &["work-and-land"]);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "landed\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn masks_apply_in_an_overlay() {
    let overlay = OverlayWorkspace::with(&[(".env", "hush"), (".git/config", "[core]\n"), ("plain", "a")]);
    let mut profile =
        shell("cat .env; echo evil > .git/config; mv .git away; rm .env; echo b > plain; echo done");
    profile.cwd = "/workspace".into();
    profile.workspace = Some(WorkspaceMount {
        target: "/workspace".into(),
        source: WorkspaceSource::Overlay {
            lower: overlay.lower(),
            layers: overlay.layers.folder().to_owned(),
        },
        hide: vec![".env".to_owned()],
        read_only: AUTORUN_PATHS.map(str::to_owned).into(),
    });
    assert_eq!(run(&profile).unwrap().ok(), "done\n");
    assert_eq!(kinds(&changes(&overlay)), [("plain".to_owned(), ChangeKind::Changed)]);
}
