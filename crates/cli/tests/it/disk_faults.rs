//! Full and failing disks: a clear error, no acknowledgement without durability, and a way to continue.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::fixture::{Place, in_own_mounts, workspace};

/// Builds a library that makes syncs fail while the second file exists. A program gets it by `LD_PRELOAD`, with the
/// file's name in `FAIL_SYNCS_WHILE`.
pub(crate) fn failing_disk(place: &Place) -> (PathBuf, PathBuf) {
    let (shim, flag) = (place.path("failing_disk.so"), place.path("failing"));
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&shim)
        .arg(workspace().join("e2e/failing_disk.c"))
        .arg("-ldl")
        .status();
    assert!(built.expect("cc compiles the failing disk").success());
    (shim, flag)
}

#[test]
fn a_full_disk_loses_nothing_and_work_goes_on_when_there_is_room() {
    let place = Place::new();
    let script = r#"
        mkdir "$PLACE/disk"
        mount -t tmpfs -o size=3m tmpfs "$PLACE/disk"
        export TRIBUNE_HOME="$PLACE/disk/home"
        code() { local c=0; "$@" || c=$?; echo "exit $c"; }
        write() { (seq -f "note %g of many, long enough to fill the disk" 100000 2>/dev/null || true) | "$TRIBUNE" ledger note --lines; }
        code write > "$PLACE/acks"
        tail -n 1 "$PLACE/acks"
        echo "-- full"
        code "$TRIBUNE" ledger note "no room"
        code "$TRIBUNE" ledger verify | grep -E 'integrity|exit'
        code "$TRIBUNE" ledger rebuild --check
        echo "-- room again"
        mount -o remount,size=64m "$PLACE/disk"
        code "$TRIBUNE" ledger note "room again" | tail -n 1
        code "$TRIBUNE" ledger verify | grep -E 'integrity|exit'
        code "$TRIBUNE" ledger rebuild --check
        "$TRIBUNE" ledger tail -n 100000 --json > "$PLACE/log"
        "#;
    let said = in_own_mounts(script, &place);
    let errors: Vec<&str> = said.err.lines().filter(|line| line.starts_with("error")).collect();
    assert!(
        !errors.is_empty()
            && errors.iter().all(|line| line
                .ends_with("is full, nothing of this was acknowledged: free some space and start again")),
        "{said:?}"
    );

    let read = |name: &str| std::fs::read_to_string(place.path(name)).unwrap();
    let acks = read("acks");
    let acks: Vec<&str> = acks.lines().filter(|line| !line.starts_with("exit")).collect();
    assert!(acks.len() > 1000, "{} notes fit on 3 MB", acks.len());
    let log: Vec<serde_json::Value> =
        read("log").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for ack in &acks {
        let (index, cid) = ack.split_once(' ').unwrap();
        assert_eq!(log[index.parse::<usize>().unwrap()]["entry"]["cid"], cid);
    }
    let all = log.len();
    assert_eq!(log[all - 1]["entry"]["payload"]["text"], "room again");
    // Records that were in the write-ahead log and had no space in the ledger are applied when there is space,
    // acknowledged or not. Until then `verify` reports them.
    let posted = said.out.split(" entries").next().and_then(|text| text.rsplit(' ').next()).unwrap();
    let posted: usize = posted.parse().unwrap();
    assert!(posted < all, "{posted} of {all}");
    let is_reported = said.err.contains(" records are in the write-ahead log and not in the ledger yet: ");
    assert!(
        is_reported || posted > acks.len(),
        "{posted} of {all}, {} acknowledged: {}",
        acks.len(),
        said.err
    );
    let expected = format!(
        "exit 1\n-- full\nexit 1\nintegrity: sound, {posted} entries are what was recorded\nexit 0\n\
         views: sound, they match all {posted} entries\nexit 0\n-- room again\nexit 0\n\
         integrity: sound, {all} entries are what was recorded\nexit 0\n\
         views: sound, they match all {all} entries\nexit 0\n"
    );
    assert_eq!(said.out, expected);
}

#[test]
fn a_disk_whose_syncs_fail_stops_the_store_until_it_is_opened_again() {
    let place = Place::new();
    let (shim, flag) = failing_disk(&place);
    place.ok(&["ledger", "note", "before"]);

    let mut command = place.command(&["ledger", "note", "--lines"]);
    command.env("LD_PRELOAD", &shim).env("FAIL_SYNCS_WHILE", &flag);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    writeln!(stdin, "while the disk is well").unwrap();
    let last = answers.next().unwrap().unwrap();
    assert!(last.starts_with("2 "), "{last}");

    std::fs::write(&flag, "").unwrap();
    writeln!(stdin, "while the disk is failing").unwrap();
    assert!(answers.next().is_none(), "nothing is acknowledged that was not synced");
    // The input is still open: the command must not wait for more.
    let said = crate::fixture::cli_output(child.wait_with_output().unwrap());
    assert_eq!(said.code, 1);
    assert!(
        said.err.contains(
            "failed (disk I/O error), nothing of this was acknowledged: check the disk and start again"
        ),
        "{}",
        said.err
    );
    drop(stdin);

    let still_failing = place
        .command(&["ledger", "note", "x"])
        .env("LD_PRELOAD", &shim)
        .env("FAIL_SYNCS_WHILE", &flag)
        .output()
        .unwrap();
    assert_eq!(still_failing.status.code(), Some(1));
    std::fs::remove_file(&flag).unwrap();
    assert!(place.ok(&["ledger", "verify"]).starts_with("integrity: sound"));
    let next = place.ok(&["ledger", "note", "after"]);
    assert!(
        next.starts_with("3 ") || next.starts_with("4 "),
        "the entry that was not acknowledged may have survived: {next}"
    );
    assert!(place.ok(&["ledger", "verify"]).starts_with("integrity: sound"));
    place.ok(&["ledger", "rebuild", "--check"]);
}
