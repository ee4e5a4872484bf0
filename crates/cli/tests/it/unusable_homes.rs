//! Homes that cannot be used: each has its own error with a next step, and nothing is lost.

use std::fs;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::PermissionsExt as _;

use rusqlite::Connection;

use crate::fixture::{Place, binary, cli_output, in_own_mounts};

#[test]
fn a_home_that_is_a_file() {
    let place = Place::new();
    fs::write(place.home(), "not a folder").unwrap();
    for args in [
        &["ledger", "note", "x"][..],
        &["ledger", "tail"],
        &["ledger", "verify"],
        &["keys", "init"],
        &["up"],
        &["up", "--detach"],
        &["down"],
        &["status"],
        &["chat", "hello"],
        &["sessions", "list"],
    ] {
        let error = place.refused(args);
        assert!(
            error.ends_with("is a file, not a folder: name another home with --home or TRIBUNE_HOME"),
            "{error}"
        );
    }
    assert_eq!(fs::read_to_string(place.home()).unwrap(), "not a folder");
}

#[test]
fn a_home_that_this_user_may_not_write() {
    let place = Place::new();
    let copy = place.path("tribune");
    fs::copy(binary(), &copy).unwrap();
    fs::set_permissions(place.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(place.home()).unwrap();
    fs::set_permissions(place.home(), fs::Permissions::from_mode(0o555)).unwrap();
    // Root may write anywhere, so root becomes another user first.
    let root = rustix::process::geteuid().is_root();
    let mut command = if root {
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy);
        command
    } else {
        std::process::Command::new(&copy)
    };
    command.args(["ledger", "note", "x"]).env("TRIBUNE_HOME", place.home()).current_dir("/");
    let said = cli_output(command.output().unwrap());
    assert_eq!(said.code, 1, "{said:?}");
    let expected =
        "cannot be written by this user: change its owner or mode, or name another home with --home\n";
    assert!(said.err.ends_with(expected), "{}", said.err);
}

#[test]
fn a_home_on_a_read_only_disk_is_read_but_not_written() {
    let place = Place::new();
    place.notes(5);
    let script = r#"
        export TRIBUNE_HOME="$PLACE/home"
        mount --bind "$TRIBUNE_HOME" "$TRIBUNE_HOME"
        mount -o remount,ro,bind "$TRIBUNE_HOME"
        "$TRIBUNE" ledger verify | head -1
        "$TRIBUNE" ledger tail -n 1 | grep -o '^ *5 '
        "$TRIBUNE" ledger note "x" && echo written
        "#;
    let said = in_own_mounts(script, &place);
    assert_eq!(said.out, "integrity: sound, 6 entries are what was recorded\n      5 \n", "{}", said.err);
    let expected = "is on a read-only disk: remount it for writing, or name another home with --home (reading and `tribune ledger verify` still work)\n";
    assert!(said.err.ends_with(expected), "{}", said.err);
}

#[test]
fn a_home_held_by_another_process() {
    let place = Place::new();
    let mut holder = place.command(&["ledger", "note", "--lines"]);
    let mut holder =
        holder.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut stdin = holder.stdin.take().unwrap();
    writeln!(stdin, "mine").unwrap();
    // Its answer shows that it holds the home.
    let mut answer = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(holder.stdout.take().unwrap()), &mut answer)
        .unwrap();
    for args in [&["ledger", "note", "x"][..], &["keys", "init"], &["keys", "rotate"], &["ledger", "rebuild"]]
    {
        let error = place.refused(args);
        let expected = format!(
            "is held by another process (pid {}): stop that one first, or name another home with --home",
            holder.id()
        );
        assert!(error.ends_with(&expected), "{error}");
    }
    assert!(place.ok(&["ledger", "verify"]).starts_with("integrity: sound, 2 entries"), "reading goes on");
    drop(stdin);
    assert!(holder.wait().unwrap().success());
    place.ok(&["ledger", "note", "x"]);
}

#[test]
fn a_home_from_a_newer_version_or_another_program() {
    let place = Place::new();
    place.notes(1);
    sql(&place, "PRAGMA user_version = 99");
    for args in [&["ledger", "note", "x"][..], &["ledger", "verify"], &["ledger", "rebuild", "--check"]] {
        let error = place.refused(args);
        assert!(
            error.ends_with("was written by a newer version (format 99; this one knows 7): update tribune"),
            "{error}"
        );
    }
    sql(&place, "PRAGMA user_version = 4");
    place.ok(&["ledger", "verify"]);
    sql(&place, "PRAGMA application_id = 7");
    for args in [&["ledger", "note", "x"][..], &["ledger", "verify"]] {
        let error = place.refused(args);
        assert!(error.ends_with("is not a Tribune database: name another home with --home"), "{error}");
    }
}

fn sql(place: &Place, statement: &str) {
    #[expect(clippy::disallowed_methods, reason = "the test goes behind the store's back on purpose")]
    let connection = Connection::open(place.home().join("tribune.db")).unwrap();
    connection.execute_batch(statement).unwrap();
}

#[test]
fn a_database_with_a_torn_last_page() {
    type Damage = fn(&mut fs::File, u64);
    let damages: [(&str, Damage); 4] = [
        ("cut within its last page", |file, size| file.set_len(size - 3000).unwrap()),
        ("cut before its last page", |file, size| file.set_len(size - 8192).unwrap()),
        ("half of its last page zero", |file, size| overwrite(file, size - 4096, &[0; 4096])),
        ("all of its last page noise", |file, size| overwrite(file, size - 8192, &[0xA5; 8192])),
    ];
    for (what, damage) in damages {
        let place = Place::new();
        place.notes(300);
        // A clean end has copied everything into the database itself.
        let path = place.home().join("tribune.db");
        let mut file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        let size = file.metadata().unwrap().len();
        damage(&mut file, size);
        drop(file);
        let damaged = fs::read(&path).unwrap();
        let said = place.call(&["ledger", "verify"]);
        assert!(said.code == 2 && said.out.starts_with("integrity: BROKEN\n"), "{what}: {said:?}");
        let error = place.refused(&["ledger", "note", "x"]);
        assert!(
            error.contains("is damaged (")
                && error.contains("copy the folder away, restore the last good copy"),
            "{what}: {error}"
        );
        assert!(fs::read(&path).unwrap() == damaged, "{what}: looking and refusing changed the file");
    }
}

fn overwrite(file: &mut fs::File, at: u64, bytes: &[u8]) {
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(bytes).unwrap();
}

#[test]
fn a_database_that_is_something_else_entirely() {
    let place = Place::new();
    place.notes(1);
    let path = place.home().join("tribune.db");
    for content in ["hello".repeat(5000), "x".to_owned()] {
        fs::write(&path, content).unwrap();
        let error = place.refused(&["ledger", "note", "x"]);
        assert!(error.contains("is damaged (file is not a database)"), "{error}");
        let said = place.call(&["ledger", "verify"]);
        assert_eq!(said.out, "integrity: BROKEN\n  tribune.db: file is not a database\n");
        assert_eq!(said.code, 2);
    }
}

#[test]
fn a_home_whose_log_is_gone() {
    for act in ["remove", "empty"] {
        let place = Place::new();
        place.notes(3);
        let path = place.home().join("tribune.db");
        match act {
            "remove" => fs::remove_file(&path).unwrap(),
            _ => fs::write(&path, "").unwrap(),
        }
        let error = place.refused(&["ledger", "note", "x"]);
        let expected = "has signed one: restore the database from a backup, or move the keys folder away to begin another log";
        assert!(error.ends_with(expected), "{error}");
        fs::rename(place.home().join("keys"), place.path("old-keys")).unwrap();
        place.ok(&["ledger", "note", "x"]);
    }
}
