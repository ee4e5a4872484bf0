//! The signing key of the ledger, on disk.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tribune_ledger::NoteSigner as _;
use tribune_ledger::verify::Integrity;
use tribune_storage::keys::KeyFileError;
use tribune_storage::store::{Store, StoreError};
use tribune_storage::{audit, keys};

use crate::fixture::{FixedClock, TempHome, draft};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn secret_files_are_private_to_their_owner() {
    let home = TempHome::with(1);
    let root = home.home.root();
    assert_eq!(mode(&root.join("keys/ledger.key")), 0o600);
    for folder in ["", "keys", "run"] {
        assert_eq!(mode(&root.join(folder)), 0o700, "{folder}");
    }
    assert_eq!(mode(&home.home.database()), 0o600);
}

#[test]
fn key_readable_by_others_is_refused() {
    let home = TempHome::with(1);
    for (path, wide, right) in
        [("keys/ledger.key", 0o640, 0o600), ("keys/ledger.key", 0o604, 0o600), ("keys", 0o750, 0o700)]
    {
        let path = home.home.root().join(path);
        chmod(&path, wide);
        let error = Store::open(&home.home, &FixedClock).unwrap_err();
        assert!(matches!(&error, StoreError::Key(KeyFileError::TooOpen { .. })), "{error}");
        assert!(error.to_string().contains(&format!("run `chmod {right:o} ")), "{error}");
        chmod(&path, right);
        home.store();
    }
}

#[test]
fn lost_or_foreign_key_stops_appends_and_is_not_replaced() {
    let home = TempHome::with(1);
    let path = keys::secret_path(&home.home);
    let kept = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let error = Store::open(&home.home, &FixedClock).unwrap_err().to_string();
    assert!(
        error.starts_with("the log is signed by tribune/") && error.ends_with("from a backup"),
        "{error}"
    );
    assert!(!path.exists());

    let foreign = keys::generate(Some("other")).unwrap();
    fs::write(&path, &*foreign.to_secret_text()).unwrap();
    chmod(&path, 0o600);
    assert!(matches!(
        Store::open(&home.home, &FixedClock),
        Err(StoreError::Key(KeyFileError::NotInForce { .. }))
    ));
    fs::write(&path, "nonsense").unwrap();
    assert!(matches!(
        Store::open(&home.home, &FixedClock),
        Err(StoreError::Key(KeyFileError::Unreadable { .. }))
    ));
    fs::write(&path, kept).unwrap();
    home.store();
}

#[test]
fn rotated_ledger_verifies_with_the_old_and_the_new_key() {
    let home = TempHome::with(3);
    let old = home.reader().key_in_force().unwrap();
    let store = home.store();
    let (new, appended) = store.rotate_key(&FixedClock).unwrap();
    assert_eq!((appended.index, appended.seq), (4, 1));
    assert_ne!(old, new);
    assert_eq!(old.name(), new.name());
    store.writer().unwrap().append_blocking(&draft("a", 9)).unwrap();
    store.rotate_key(&FixedClock).unwrap();
    store.close();
    home.store();
    let reader = home.reader();
    for key in [old, new, reader.key_in_force().unwrap()] {
        let report = audit::verify_home(&reader, &key, Vec::new(), &mut |_| {}).unwrap();
        assert_eq!(report.integrity, Integrity::Sound);
    }
    let unrelated = keys::generate(Some("other")).unwrap();
    let report = audit::verify_home(&reader, unrelated.verifier_key(), Vec::new(), &mut |_| {}).unwrap();
    assert_ne!(report.integrity, Integrity::Sound);
}

#[test]
fn interrupted_rotation_is_completed_or_rolled_back() {
    // Before the ledger recorded the rotation: the next key exists and is not in force.
    let home = TempHome::with(1);
    let before = home.reader().key_in_force().unwrap();
    let unused = keys::generate(Some(before.name())).unwrap();
    keys::prepare_next(&home.home, &unused).unwrap();
    home.store().close();
    assert_eq!(home.reader().key_in_force().unwrap(), before);

    // After the ledger recorded the rotation: the files still hold the old key as current and the new one as next.
    let (secret, next) = (keys::secret_path(&home.home), home.home.keys().join("ledger.key.next"));
    let old_secret = fs::read(&secret).unwrap();
    let store = home.store();
    let (new, _) = store.rotate_key(&FixedClock).unwrap();
    store.close();
    fs::rename(&secret, &next).unwrap();
    fs::write(&secret, old_secret).unwrap();
    chmod(&secret, 0o600);
    home.store().close();
    assert_eq!(keys::load(&home.home).unwrap().verifier_key(), &new);
    assert!(!next.exists());
    assert_eq!(fs::read_to_string(keys::public_path(&home.home)).unwrap(), format!("{new}\n"));
}

#[test]
fn ledger_is_never_created_twice_under_one_key() {
    for lost in [&["tribune.db"][..], &["tribune.db", "keys/ledger.vkey"]] {
        let home = TempHome::with(3);
        lost.iter().for_each(|name| fs::remove_file(home.home.root().join(name)).unwrap());
        let error = Store::open(&home.home, &FixedClock).unwrap_err();
        assert!(matches!(error, StoreError::LogIsGone { .. }), "{lost:?}: {error}");
        assert!(matches!(
            tribune_storage::store::Reader::open(&home.home),
            Err(StoreError::LogIsGone { .. })
        ));
    }
}

#[test]
fn interrupted_ledger_creation_starts_again() {
    let home = TempHome::new();
    home.home.prepare().unwrap();
    keys::prepare_next(&home.home, &keys::generate(None).unwrap()).unwrap();
    let stray = home.home.keys().join("ledger.key.next.4711.new");
    fs::write(&stray, "half a secret").unwrap();
    home.store().close();
    assert!(!stray.exists(), "half-written secrets do not stay");
    assert_eq!(keys::load(&home.home).unwrap().verifier_key(), &home.reader().key_in_force().unwrap());
}
