//! `write` and `edit`, called by an agent that tries to write elsewhere.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use rustix::fs::{CWD, Mode};
use serde_json::json;
use tribune_records::outcome::{Access, Resource, ToolErrorCode};

use crate::attacks::Fixture;

fn file(path: &str) -> Resource {
    Resource::File(path.to_owned())
}

/// All files outside the workspace, to check that they stay as they are.
pub(super) fn outside(fixture: &Fixture) -> Vec<(String, u64, Vec<u8>)> {
    let root = fixture.folder.path();
    let mut all = Vec::new();
    for folder in ["", "agents", "agents/main", "agents/scout/workspace"] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let found = (path.metadata().unwrap().ino(), fs::read(&path).unwrap());
                all.push((path.display().to_string(), found.0, found.1));
            }
        }
    }
    all.sort();
    all
}

#[tokio::test]
async fn a_file_is_made_and_replaced() {
    let fixture = Fixture::new();
    let done = fixture.done("write", json!({"path": "./a/x/../b/c.txt", "content": "eins\n"})).await;
    assert_eq!(done.outcome.content, "made `./a/x/../b/c.txt`, 5 bytes");
    assert_eq!(done.touched, [Access::Wrote(file("a/b/c.txt"))]);
    let path = fixture.inside("a/b/c.txt");
    assert_eq!(fs::read_to_string(&path).unwrap(), "eins\n");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(fixture.inside("a/b").metadata().unwrap().permissions().mode() & 0o777, 0o700);
    assert!(!fixture.inside("a/x").exists());
    // A mode is kept without its set-id bits.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
    assert_eq!(
        fixture.good("write", json!({"path": "a/b/c.txt", "content": ""})).await,
        "replaced `a/b/c.txt`, 0 bytes"
    );
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o755);
    assert_eq!(fs::read_dir(fixture.inside("a/b")).unwrap().count(), 1, "nothing is left behind");
}

#[tokio::test]
async fn an_edit_changes_only_its_text() {
    let fixture = Fixture::new();
    fixture.write("a.txt", "one two two\nthree\n");
    let edit = |old: &str, new: &str, count: Option<u64>| json!({"path": "a.txt", "old": old, "new": new, "count": count});
    let done = fixture.done("edit", edit("two\nthree", "2\n3", None)).await;
    assert_eq!(done.outcome.content, "changed one place in `a.txt`, 12 bytes");
    assert_eq!(done.touched, [Access::Read(file("a.txt")), Access::Wrote(file("a.txt"))]);
    assert_eq!(fs::read_to_string(fixture.inside("a.txt")).unwrap(), "one two 2\n3\n");
    fixture.write("a.txt", "x x x\n");
    for (old, count, sentence) in [
        ("y", None, "`old` does not stand in `a.txt`: read the file and copy the text exactly"),
        (
            "x",
            None,
            "`old` stands 3 times in `a.txt`, not 1: give more of what is around it, or set `count` to 3",
        ),
        (
            "x",
            Some(2),
            "`old` stands 3 times in `a.txt`, not 2: give more of what is around it, or set `count` to 3",
        ),
    ] {
        let done = fixture.done("edit", edit(old, "z", count)).await;
        assert_eq!((done.outcome.content.as_str(), done.code), (sentence, Some(ToolErrorCode::Conflict)));
        // Whether the file contains a text is information, so the call counts as a read.
        assert_eq!(done.touched, [Access::Read(file("a.txt"))]);
    }
    assert_eq!(fs::read_to_string(fixture.inside("a.txt")).unwrap(), "x x x\n");
    fixture.good("edit", edit("x", "", Some(3))).await;
    assert_eq!(fs::read_to_string(fixture.inside("a.txt")).unwrap(), "  \n");
    for input in [
        edit("", "a", None),
        edit("a", "a", None),
        edit("a", "b", Some(0)),
        edit("a", "b", Some(10_001)),
        json!({"path": "a.txt", "old": "a"}),
    ] {
        assert_eq!(fixture.done("edit", input).await.code, Some(ToolErrorCode::InvalidInput));
    }
    let missing = fixture.done("edit", json!({"path": "no/a.txt", "old": "a", "new": "b"})).await;
    assert_eq!(missing.code, Some(ToolErrorCode::NotFound));
    assert!(!fixture.inside("no").exists());
    fixture.write("a.txt", b"\xff x");
    assert_eq!(fixture.done("edit", edit("x", "y", None)).await.code, Some(ToolErrorCode::Refused));
    fixture.write("a.txt", "y".repeat(4 * 1024 * 1024 - 1) + "x");
    assert_eq!(fixture.done("edit", edit("x", "zz", None)).await.code, Some(ToolErrorCode::TooLarge));
    fixture.write("a.txt", "y".repeat(4 * 1024 * 1024) + "x");
    assert_eq!(fixture.done("edit", edit("x", "z", None)).await.code, Some(ToolErrorCode::TooLarge));
}

#[tokio::test]
async fn nothing_is_written_outside() {
    let fixture = Fixture::new();
    let root = fixture.folder.path();
    fixture.write("inner/file.txt", "the old\n");
    for (link, target) in [
        ("up", ".."),
        ("neighbour", "../../scout/workspace"),
        ("secret", "../secret.txt"),
        ("proc", "/proc/self/root"),
        ("descriptor", "/proc/self/fd/1"),
        ("cwd", "/proc/self/cwd"),
        ("dangling", "../made.txt"),
        ("absolute", root.join("secret.txt").to_str().unwrap()),
        ("alias", "inner"),
        ("inner/again", "file.txt"),
        ("loop", "loop"),
    ] {
        symlink(target, fixture.inside(link)).unwrap();
    }
    fs::hard_link(root.join("secret.txt"), fixture.inside("linked")).unwrap();
    rustix::fs::mkfifoat(CWD, fixture.inside("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(fixture.inside("socket")).unwrap();
    let before = outside(&fixture);
    for path in [
        "../secret.txt",
        "../made.txt",
        "../../secret.txt",
        "../../scout/workspace/secret.txt",
        "inner/../../secret.txt",
        "inner/../../../made.txt",
        "/etc/made",
        "/made",
        "/proc/self/root/made",
        "/proc/self/fd/1",
        "/dev/null",
        "up/secret.txt",
        "up/made.txt",
        "neighbour/secret.txt",
        "secret",
        "proc/tmp/made",
        "descriptor",
        "cwd/made",
        "dangling",
        "absolute",
        "alias/file.txt",
        "alias/new.txt",
        "inner/again",
        "loop",
        "loop/x",
        "linked",
        "pipe",
        "socket",
        "pipe/x",
        "inner",
        ".",
        "..",
        "inner/",
        "inner/.",
    ] {
        for (tool, input) in [
            ("write", json!({"path": path, "content": "the new\n"})),
            ("edit", json!({"path": path, "old": "the", "new": "no"})),
        ] {
            let done = fixture.done(tool, input).await;
            assert!(done.outcome.is_error, "{tool} {path}: {}", done.outcome.content);
            assert!(!done.touched.iter().any(|touched| matches!(touched, Access::Wrote(_))), "{tool} {path}");
        }
    }
    assert_eq!(outside(&fixture), before);
    assert_eq!(fs::read_to_string(fixture.inside("inner/file.txt")).unwrap(), "the old\n");
    assert!(fixture.inside("linked").metadata().unwrap().nlink() == 2);
    for link in ["secret", "dangling", "inner/again"] {
        assert!(fixture.inside(link).symlink_metadata().unwrap().is_symlink(), "{link}");
    }
}

#[tokio::test]
async fn oversized_content_and_invalid_paths_are_refused() {
    let fixture = Fixture::new();
    for (input, code) in [
        (json!({"path": "", "content": ""}), ToolErrorCode::InvalidInput),
        (json!({"path": "a\0b", "content": ""}), ToolErrorCode::InvalidInput),
        (json!({"path": "x".repeat(300), "content": ""}), ToolErrorCode::InvalidInput),
        (json!({"path": "x/".repeat(40) + "y", "content": ""}), ToolErrorCode::InvalidInput),
        (json!({"path": "a", "content": "x".repeat(1_000_001)}), ToolErrorCode::InvalidInput),
        (json!({"path": "a"}), ToolErrorCode::InvalidInput),
        (json!({"path": "a", "content": 7}), ToolErrorCode::InvalidInput),
    ] {
        assert_eq!(fixture.done("write", input).await.code, Some(code));
    }
    fixture.good("write", json!({"path": "a", "content": "x".repeat(1_000_000)})).await;
    assert_eq!(
        fixture.done("write", json!({"path": "a/b", "content": ""})).await.code,
        Some(ToolErrorCode::NotFound)
    );
    assert_eq!(fs::read_dir(fixture.inside("")).unwrap().count(), 1);
}
