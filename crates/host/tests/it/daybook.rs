//! The book of first entry: what was promised survives whatever happens to the databases, nothing of it is posted twice,
//! and what was forgotten is not in it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tribune_client::Client;
use tribune_host::store::Readers;
use tribune_host::{Home, LedgerWriter, Reader, Store, StoreError};
use tribune_ledger::Cid;
use tribune_testkit::{TestDaemon, assert_sound, config, turn};

use crate::fixture::{Stopped, TempHome, draft};

const KEY: &str = "agent:main:cli:local:dm:operator";

/// The databases of a home, with their logs. The daybook is not among them.
const DATABASES: [&str; 4] = ["tribune.db", "tribune.db-wal", "vault.db", "vault.db-wal"];

fn copy(from: &Path, names: &[&str], to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for name in names.iter().filter(|name| from.join(name).exists()) {
        std::fs::copy(from.join(name), to.join(name)).unwrap();
    }
}

/// Copies a whole home, whose folders are nobody else's.
fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    std::fs::set_permissions(to, std::fs::metadata(from).unwrap().permissions()).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => copy_all(&entry.path(), &to.join(entry.file_name())),
            kind if kind.is_file() => drop(std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
            _ => {}
        }
    }
}

async fn history(client: &mut Client) -> Vec<Value> {
    let history = client.call("session.history", &json!({ "session_key": KEY })).await.unwrap();
    history["messages"].as_array().unwrap().clone()
}

/// As after a power cut: the book is on disk, and of the databases only what was there some time before.
#[tokio::test(flavor = "multi_thread")]
async fn l2_what_was_promised_is_there_though_the_databases_lost_it() {
    let daemon = TestDaemon::start().await;
    let home = daemon.home.home.root().to_owned();
    let mut client = daemon.operator().await;
    client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
    turn(&mut client, KEY, "!say before").await.unwrap();
    history(&mut client).await;
    let elsewhere = tempfile::tempdir().unwrap();
    let (earlier, cut) = (elsewhere.path().join("earlier"), elsewhere.path().join("cut"));
    copy(&home, &DATABASES, &earlier);

    for n in 0..20 {
        turn(&mut client, KEY, &format!("!say words {n}\n!call read {{\"path\":\"x\"}}")).await.unwrap();
    }
    let told = history(&mut client).await;
    copy_all(&home, &cut);
    for name in DATABASES.iter().chain(&["tribune.db-shm", "vault.db-shm"]) {
        let _ = std::fs::remove_file(cut.join(name));
    }
    copy(&earlier, &DATABASES, &cut);
    drop(client);
    let entries = assert_sound(&daemon.stop().await.home);

    // Whoever reads the log alone finds it whole already.
    let cut = Home::at(cut);
    let size = Reader::open(&cut).unwrap().size().unwrap();
    assert!(size > 80 && size <= entries, "{size} of {entries}");
    let (config, clock) = (config(), Arc::new(tribune_host::SystemClock));
    let daemon = tribune_host::daemon::Daemon::start(&cut, &config, clock).await.unwrap();
    let token = std::fs::read_to_string(daemon.token_path()).unwrap();
    let mut client = Client::connect(&daemon.address().to_string(), Some(token.trim())).await.unwrap();
    let found = history(&mut client).await;
    assert_eq!(found, told, "every word, in its place, once");
    client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
    turn(&mut client, KEY, "!say after").await.unwrap();
    drop(client);
    daemon.stop(std::future::pending()).await;
    assert_sound(&cut);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_book_that_ends_in_the_middle_of_a_sheet_is_read_up_to_there() {
    let daemon = TestDaemon::start().await;
    let home = daemon.home.home.root().to_owned();
    let mut client = daemon.operator().await;
    client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
    turn(&mut client, KEY, "!say before").await.unwrap();
    history(&mut client).await;
    let elsewhere = tempfile::tempdir().unwrap();
    let earlier = elsewhere.path().join("earlier");
    copy(&home, &DATABASES, &earlier);
    for n in 0..5 {
        turn(&mut client, KEY, &format!("!say words {n}")).await.unwrap();
    }
    history(&mut client).await;
    let book = std::fs::read(home.join("daybook")).unwrap();
    let used = book.iter().rposition(|byte| *byte != 0).unwrap();
    let mut sizes = Vec::new();
    for (n, cut_at) in (0..=used).step_by(used / 12).enumerate() {
        let cut = elsewhere.path().join(format!("cut-{n}"));
        copy_all(&home, &cut);
        for name in DATABASES.iter().chain(&["tribune.db-shm", "vault.db-shm"]) {
            let _ = std::fs::remove_file(cut.join(name));
        }
        copy(&earlier, &DATABASES, &cut);
        let mut torn = book.clone();
        torn[cut_at..].fill(0);
        std::fs::write(cut.join("daybook"), &torn).unwrap();
        let cut = Home::at(cut);
        sizes.push(assert_sound(&cut));
    }
    assert!(sizes.is_sorted(), "{sizes:?}");
    assert!(sizes.first() < sizes.last(), "{sizes:?}");
    drop(client);
    daemon.stop().await;
}

#[test]
fn a_book_of_another_log_is_refused_and_a_log_that_is_begun_anew_has_a_new_one() {
    let (one, other) = (TempHome::with(5), TempHome::new());
    let store = other.store();
    store.writer().unwrap().append_blocking(&draft("a", 0)).unwrap();
    // As a kill leaves it: not closed.
    let book = std::fs::read(other.home.root().join("daybook")).unwrap();
    store.close();
    let closed = std::fs::read(other.home.root().join("daybook")).unwrap();
    assert_ne!(book, closed);

    std::fs::write(one.home.root().join("daybook"), &book).unwrap();
    let refused = Store::open(&one.home, &Stopped).unwrap_err();
    assert!(matches!(refused, StoreError::Damaged { .. }), "{refused}");
    assert!(refused.to_string().contains("another log"), "{refused}");
    assert_eq!(one.reader().size().unwrap(), 6, "it can be read all the same");

    // Without a log there is nobody whose book it could be.
    let fresh = TempHome::new();
    std::fs::create_dir_all(fresh.home.root()).unwrap();
    std::fs::write(fresh.home.root().join("daybook"), &book).unwrap();
    fresh.store().close();
    assert_eq!(assert_sound(&fresh.home), 1);
}

#[test]
fn what_is_posted_already_is_not_posted_again() {
    let home = TempHome::new();
    let store = home.store();
    for n in 0..10 {
        store.writer().unwrap().append_blocking(&draft("a", n)).unwrap();
    }
    let book = std::fs::read(home.home.root().join("daybook")).unwrap();
    store.close();
    for _ in 0..3 {
        std::fs::write(home.home.root().join("daybook"), &book).unwrap();
        let store = home.store();
        store.close();
        assert_eq!(assert_sound(&home.home), 11);
    }
}

/// Appends entries, a third of the callers without patience. Returns those that were answered.
async fn append(task: u64, writer: LedgerWriter, readers: Readers) -> Vec<Cid> {
    let mut kept = Vec::new();
    for n in 0..150_u64 {
        let mut large = draft(&format!("task-{task}"), n);
        large.payload.insert("fill".to_owned(), json!("x".repeat(8_000)));
        let append = writer.append(&large);
        if task.is_multiple_of(3) {
            let soon = Duration::from_micros(n * 7 % 300);
            if let Ok(appended) = tokio::time::timeout(soon, append).await {
                kept.push(appended.unwrap().cid);
            }
        } else {
            kept.push(append.await.unwrap().cid);
        }
        // What was answered can be read at once.
        if let Some(last) = kept.last().copied() {
            assert!(readers.now(|reader| reader.find(&last)).unwrap().is_some());
        }
    }
    kept
}

/// Sixteen callers of every kind at once, some of whom leave before they are answered, through a book that is begun again
/// several times.
#[test]
fn nobody_waits_for_ever_and_nothing_is_lost_whoever_leaves() {
    let home = TempHome::new();
    let store = home.store();
    let mut answered = Vec::new();
    let readers = store.readers().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let writer = store.writer().unwrap();
            scope.spawn(move || {
                for n in 0..150 {
                    writer.append_blocking(&draft(&format!("thread-{thread}"), n)).unwrap();
                }
            });
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.unwrap().block_on(async {
            let tasks: Vec<_> = (0..12)
                .map(|task| tokio::spawn(append(task, store.writer().unwrap(), readers.clone())))
                .collect();
            for task in tasks {
                answered.extend(task.await.unwrap());
            }
        });
    });
    store.close();
    let reader = home.reader();
    for cid in &answered {
        assert!(reader.find(cid).unwrap().is_some(), "{cid}");
    }
    assert!(assert_sound(&home.home) > 600 + answered.len() as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_forgotten_is_not_in_the_book() {
    let daemon = TestDaemon::start().await;
    let mut client = daemon.operator().await;
    client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
    turn(&mut client, KEY, "!say unforgettable").await.unwrap();
    let path = daemon.home.home.root().join("daybook");
    let book = std::fs::read(&path).unwrap();
    let plain = |word: &str| book.windows(word.len()).any(|window| window == word.as_bytes());
    assert!(plain(KEY), "the entries are there");
    assert!(!plain("unforgettable"), "and no words");
    client.call("session.forget", &json!({ "session_key": KEY })).await.unwrap();
    let after = std::fs::read(&path).unwrap();
    assert_eq!(after.len(), book.len());
    // What was written since, the entry that tells of the forgetting, is all there is.
    let used = after.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    assert!(used <= 2 * 4096, "{used} bytes");
    drop(client);
    let home = daemon.stop().await;
    assert_sound(&home.home);
    let closed = std::fs::read(home.home.root().join("daybook")).unwrap();
    assert!(closed[..4096].iter().all(|byte| *byte == 0), "a daemon that left in peace leaves an empty book");
}
