//! An independent verifier: `e2e/verify_ledger.py` shares no code with Tribune.

use std::path::PathBuf;
use std::process::Command;

use crate::fixture::{CliOutput, Place, cli_output, workspace};

pub(crate) fn python() -> PathBuf {
    let python = std::env::var_os("TRIBUNE_E2E_PYTHON")
        .map_or_else(|| workspace().join("target/e2e-venv/bin/python"), PathBuf::from);
    assert!(
        python.exists(),
        "`scripts/test` sets up the Python packages this needs; {} is not there",
        python.display()
    );
    python
}

fn verify(place: &Place, args: &[&str]) -> CliOutput {
    let mut command = Command::new(python());
    command.arg(workspace().join("e2e/verify_ledger.py")).args(args).current_dir(place.folder.path());
    cli_output(command.output().unwrap())
}

/// An export with notes, a key change, kept checkpoints from before and after it, and proofs.
fn exported() -> Place {
    let place = Place::new();
    place.notes(300);
    std::fs::copy(place.home().join("keys/ledger.vkey"), place.path("first.vkey")).unwrap();
    place.ok(&["ledger", "checkpoint", "-o", "kept-early"]);
    place.ok(&["keys", "rotate"]);
    place.ok(&["ledger", "note", "naïve 😀 \"quotes\" \u{7f} \u{fb33} and \\ slashes"]);
    place.notes(400);
    place.ok(&["ledger", "checkpoint", "-o", "kept-late"]);
    place.ok(&["ledger", "prove", "17", "-o", "17.tlog-proof"]);
    place.ok(&["ledger", "prove", "302", "-o", "302.tlog-proof"]);
    place.ok(&["ledger", "prove", "--since", "301", "-o", "since-301"]);
    place.ok(&["ledger", "export", "out"]);
    place
}

#[test]
fn independent_verifier_accepts_an_export() {
    let place = exported();
    let everything = [
        "out",
        "--key",
        "first.vkey",
        "--checkpoint",
        "kept-early",
        "--checkpoint",
        "kept-late",
        "--proof",
        "17.tlog-proof",
        "--proof",
        "302.tlog-proof",
        "--consistency",
        "since-301",
    ];
    let said = verify(&place, &everything);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.contains("integrity: sound"), "{}", said.out);
    assert!(said.out.contains("completeness: shown up to 703 entries"), "{}", said.out);
    let ours = place.ok(&[
        "ledger",
        "verify",
        "out",
        "--key",
        "first.vkey",
        "--checkpoint",
        "kept-early",
        "--checkpoint",
        "kept-late",
    ]);
    assert!(ours.contains("integrity: sound, 703 entries"), "{ours}");
}

#[test]
fn independent_verifier_finds_tampering() {
    let place = exported();
    let edit = |file: &str, edit: &dyn Fn(&mut Vec<u8>)| {
        let path = place.path(file);
        let whole = std::fs::read(&path).unwrap();
        let mut edited = whole.clone();
        edit(&mut edited);
        assert_ne!(whole, edited);
        std::fs::write(&path, edited).unwrap();
        let theirs = verify(
            &place,
            &[
                "out",
                "--key",
                "first.vkey",
                "--checkpoint",
                "kept-late",
                "--proof",
                "17.tlog-proof",
                "--consistency",
                "since-301",
            ],
        );
        let ours =
            place.call(&["ledger", "verify", "out", "--key", "first.vkey", "--checkpoint", "kept-late"]);
        std::fs::write(&path, whole).unwrap();
        (theirs.code, ours.code)
    };
    let line = |bytes: &[u8], n: usize| {
        bytes.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(i, _)| i + 1).nth(n).unwrap()
    };
    assert_eq!(edit("out/entries.jsonl", &|bytes| bytes[5_000] ^= 1), (2, 2), "a flipped bit");
    assert_eq!(
        edit("out/entries.jsonl", &|bytes| drop(bytes.drain(line(bytes, 40)..line(bytes, 41)))),
        (2, 2),
        "a deleted entry"
    );
    assert_eq!(edit("out/entries.jsonl", &|bytes| bytes.truncate(line(bytes, 600))), (3, 3), "a cut log");
    assert_eq!(edit("out/checkpoint", &|bytes| bytes[30] ^= 1), (2, 2), "an edited checkpoint");
    assert_eq!(edit("out/tile/0/000", &|bytes| bytes[100] ^= 1), (2, 2), "an edited tile");
    assert_eq!(edit("out/tile/entries/001", &|bytes| bytes[100] ^= 1), (2, 2), "an edited bundle");
    assert_eq!(edit("kept-late", &|bytes| bytes[30] ^= 1), (3, 3), "a held checkpoint that proves nothing");
    assert_eq!(edit("17.tlog-proof", &|bytes| bytes[200] ^= 1).0, 2, "an edited proof");
    assert_eq!(edit("since-301", &|bytes| bytes[100] ^= 1).0, 2, "an edited consistency proof");

    let other = exported();
    let key = other.path("first.vkey").display().to_string();
    assert_eq!(verify(&place, &["out", "--key", &key]).code, 2, "another ledger's key");
    let kept = other.path("kept-late").display().to_string();
    assert_eq!(
        verify(&place, &["out", "--key", "first.vkey", "--checkpoint", &kept]).code,
        3,
        "another ledger's history"
    );
}
