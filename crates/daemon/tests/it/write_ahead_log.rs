//! The write-ahead log: acknowledged records survive the loss of the databases, none is applied twice, and it holds no
//! forgotten words.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tribune_client::RpcClient;
use tribune_daemon::daemon::Daemon;
use tribune_ledger::Cid;
use tribune_storage::home::Home;
use tribune_storage::store;
use tribune_storage::store::LedgerWriter;
use tribune_storage::store::Reader;
use tribune_storage::store::StoreError;
use tribune_storage::store::{Readers, Store};
use tribune_testkit::{TestDaemon, assert_sound, config, run_turn};

use crate::fixture::{FixedClock, TempHome, draft};

const KEY: &str = "agent:main:cli:local:dm:operator";

/// The databases of a home, with their SQLite logs. The write-ahead log of Tribune is not among them.
const DATABASES: [&str; 4] = ["tribune.db", "tribune.db-wal", "vault.db", "vault.db-wal"];

fn copy(from: &Path, names: &[&str], to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for name in names.iter().filter(|name| from.join(name).exists()) {
        std::fs::copy(from.join(name), to.join(name)).unwrap();
    }
}

/// Copies a whole home; its folders are private to their owner.
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

async fn history(client: &mut RpcClient) -> Vec<Value> {
    let history = client.call("session.history", &json!({ "session_key": KEY })).await.unwrap();
    history["messages"].as_array().unwrap().clone()
}

/// A home after a power cut: the current write-ahead log, and the databases as they were in the copy `earlier`.
fn cut(home: &Path, earlier: &Path, to: &Path) -> Home {
    copy_all(home, to);
    for name in DATABASES.iter().chain(&["tribune.db-shm", "vault.db-shm"]) {
        let _ = std::fs::remove_file(to.join(name));
    }
    copy(earlier, &DATABASES, to);
    Home::at(to)
}

/// A daemon on a home that another daemon left, and an operator's connection.
async fn start_on(home: &Home) -> (Daemon, RpcClient) {
    let daemon = Daemon::start(home, &config(), Arc::new(tribune_storage::clock::SystemClock)).await.unwrap();
    let token = std::fs::read_to_string(daemon.token_path()).unwrap();
    let client = RpcClient::connect(&daemon.address().to_string(), Some(token.trim())).await.unwrap();
    (daemon, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn l2_acknowledged_entries_survive_lost_databases() {
    let daemon = TestDaemon::start().await;
    let home = daemon.home.home.root().to_owned();
    let mut client = daemon.operator().await;
    client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
    run_turn(&mut client, KEY, "!say before").await.unwrap();
    history(&mut client).await;
    let elsewhere = tempfile::tempdir().unwrap();
    let earlier = elsewhere.path().join("earlier");
    copy(&home, &DATABASES, &earlier);

    for n in 0..20 {
        run_turn(&mut client, KEY, &format!("!say words {n}\n!call read {{\"path\":\"x\"}}")).await.unwrap();
    }
    let acknowledged = history(&mut client).await;
    let cut = cut(&home, &earlier, &elsewhere.path().join("cut"));
    drop(client);
    let entries = assert_sound(&daemon.stop().await.home);

    // A reader of the ledger alone finds it complete already.
    let size = Reader::open(&cut).unwrap().size().unwrap();
    assert!(size > 80 && size <= entries, "{size} of {entries}");
    let (daemon, mut client) = start_on(&cut).await;
    assert_eq!(history(&mut client).await, acknowledged, "every word at its position, once");
    client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
    run_turn(&mut client, KEY, "!say after").await.unwrap();
    drop(client);
    daemon.stop(std::future::pending()).await;
    assert_sound(&cut);
}

/// From the first start on, and again after each power cut, with clean shutdowns in between.
#[tokio::test(flavor = "multi_thread")]
async fn l2_acknowledged_entries_survive_repeated_power_cuts() {
    let elsewhere = tempfile::tempdir().unwrap();
    let mut home = Home::at(elsewhere.path().join("home-0"));
    let mut count = 0;
    for round in 1..=6 {
        let (daemon, mut client) = start_on(&home).await;
        let earlier = elsewhere.path().join(format!("earlier-{round}"));
        copy(home.root(), &DATABASES, &earlier);
        client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
        for _ in 0..=round % 3 {
            count += 1;
            run_turn(&mut client, KEY, &format!("!say words {count}")).await.unwrap();
        }
        let acknowledged = history(&mut client).await;
        assert_eq!(acknowledged.len(), 2 * count, "round {round}");
        let after = cut(home.root(), &earlier, &elsewhere.path().join(format!("home-{round}")));
        drop(client);
        daemon.stop(std::future::pending()).await;
        let (daemon, mut client) = start_on(&after).await;
        assert_eq!(history(&mut client).await, acknowledged, "round {round}");
        drop(client);
        daemon.stop(std::future::pending()).await;
        assert_sound(&after);
        home = after;
    }
}

/// Bytes of a frame in SQLite's write-ahead log of the ledger: its header and a page.
const FRAME: u64 = 24 + 8192;

/// A forgetting takes a number that no database has.
#[tokio::test(flavor = "multi_thread")]
async fn l2_power_cut_after_forgetting_loses_nothing() {
    let daemon = TestDaemon::start().await;
    let mut client = daemon.operator().await;
    client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
    run_turn(&mut client, KEY, "!say unforgettable").await.unwrap();
    let forgotten = client.call("session.forget", &json!({ "session_key": KEY })).await.unwrap();
    history(&mut client).await;
    let elsewhere = tempfile::tempdir().unwrap();
    let cut = Home::at(elsewhere.path().join("cut"));
    copy_all(daemon.home.home.root(), cut.root());
    // The last commit, which was not synced.
    let log = std::fs::OpenOptions::new().write(true).open(cut.root().join("tribune.db-wal")).unwrap();
    log.set_len(log.metadata().unwrap().len() - FRAME).unwrap();
    drop((client, log));
    let entries = assert_sound(&daemon.stop().await.home);
    let cid: Cid = forgotten["cid"].as_str().unwrap().parse().unwrap();
    assert!(Reader::open(&cut).unwrap().find(&cid).unwrap().is_some());
    assert!(assert_sound(&cut) >= entries - 1, "a daemon that stops writes one more entry");
}

#[tokio::test(flavor = "multi_thread")]
async fn wal_with_a_torn_last_frame_is_replayed_up_to_it() {
    let daemon = TestDaemon::start().await;
    let home = daemon.home.home.root().to_owned();
    let mut client = daemon.operator().await;
    client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
    run_turn(&mut client, KEY, "!say before").await.unwrap();
    history(&mut client).await;
    let elsewhere = tempfile::tempdir().unwrap();
    let earlier = elsewhere.path().join("earlier");
    copy(&home, &DATABASES, &earlier);
    for n in 0..5 {
        run_turn(&mut client, KEY, &format!("!say words {n}")).await.unwrap();
    }
    history(&mut client).await;
    let wal = std::fs::read(home.join("daybook")).unwrap();
    let used = wal.iter().rposition(|byte| *byte != 0).unwrap();
    let mut sizes = Vec::new();
    for (n, torn_at) in (0..=used).step_by(used / 12).enumerate() {
        let cut = cut(&home, &earlier, &elsewhere.path().join(format!("cut-{n}")));
        let mut torn = wal.clone();
        torn[torn_at..].fill(0);
        std::fs::write(cut.root().join("daybook"), &torn).unwrap();
        sizes.push(assert_sound(&cut));
    }
    assert!(sizes.is_sorted(), "{sizes:?}");
    assert!(sizes.first() < sizes.last(), "{sizes:?}");
    drop(client);
    daemon.stop().await;
}

/// A copy of a home with `n` entries after its first, as a kill leaves it.
fn home_after_kill(n: u64, elsewhere: &Path) -> Home {
    let home = TempHome::new();
    let store = home.store();
    for n in 0..n {
        store.writer().unwrap().append_blocking(&draft("a", n)).unwrap();
    }
    // The reader waits until everything is applied: files are copied one after the other, and none may change
    // meanwhile.
    assert_eq!(store.readers().unwrap().now(Reader::size).unwrap(), n + 1);
    copy_all(home.home.root(), elsewhere);
    store.close();
    Home::at(elsewhere)
}

fn refusal(home: &Home) -> String {
    let refused = Store::open(home, &FixedClock).unwrap_err();
    assert!(matches!(refused, StoreError::WriteAheadLog { .. }), "{refused}");
    refused.to_string()
}

#[test]
fn wal_of_another_database_is_refused_and_kept() {
    let elsewhere = tempfile::tempdir().unwrap();
    let (one, other) = (
        home_after_kill(5, &elsewhere.path().join("one")),
        home_after_kill(3, &elsewhere.path().join("other")),
    );
    let wal = std::fs::read(other.root().join("daybook")).unwrap();
    std::fs::write(one.root().join("daybook"), &wal).unwrap();
    assert!(refusal(&one).contains("another log"));
    assert_eq!(Reader::open(&one).unwrap().size().unwrap(), 6, "it can still be read");

    let clean = TempHome::with(5);
    std::fs::write(clean.home.root().join("daybook"), &wal).unwrap();
    assert!(refusal(&clean.home).contains("this log never had"));

    let fresh = TempHome::new();
    std::fs::create_dir_all(fresh.home.root()).unwrap();
    std::fs::write(fresh.home.root().join("daybook"), &wal).unwrap();
    assert!(refusal(&fresh.home).contains("this log never had"));

    std::fs::write(one.root().join("daybook"), b"tribday1 as an earlier version wrote it").unwrap();
    assert!(refusal(&one).contains("another version"));
    for home in [&clean.home, &fresh.home] {
        assert_eq!(std::fs::read(home.root().join("daybook")).unwrap(), wal, "nothing was overwritten");
    }
}

#[test]
fn wal_is_required_after_a_kill_and_not_after_a_clean_shutdown() {
    let elsewhere = tempfile::tempdir().unwrap();
    let home = home_after_kill(5, &elsewhere.path().join("home"));
    for missing in [true, false] {
        if missing {
            std::fs::remove_file(home.root().join("daybook")).unwrap();
        } else {
            std::fs::write(home.root().join("daybook"), b"").unwrap();
        }
        assert!(refusal(&home).contains("it is missing"), "{missing}");
    }
    // The recovery for a home without another copy.
    let (entries, aside) = store::rebuild_without_wal(&home, &mut |_| ()).unwrap();
    assert_eq!(entries, 6);
    assert!(aside.unwrap().ends_with("daybook.aside-1"));
    Store::open(&home, &FixedClock).unwrap().close();
    assert_eq!(assert_sound(&home), 6);

    std::fs::remove_file(home.root().join("daybook")).unwrap();
    Store::open(&home, &FixedClock).unwrap().close();
    assert_eq!(assert_sound(&home), 6);
}

#[test]
fn corrupt_frame_does_not_hide_later_frames() {
    let elsewhere = tempfile::tempdir().unwrap();
    let home = TempHome::new();
    let store = home.store();
    let earlier = elsewhere.path().join("earlier");
    copy(home.home.root(), &DATABASES, &earlier);
    for n in 0..10 {
        store.writer().unwrap().append_blocking(&draft("a", n)).unwrap();
    }
    let cut = cut(home.home.root(), &earlier, &elsewhere.path().join("cut"));
    store.close();
    let wal = std::fs::read(cut.root().join("daybook")).unwrap();
    for frame in 0..9 {
        let mut bad = wal.clone();
        bad[frame * 4096 + 200] ^= 1;
        std::fs::write(cut.root().join("daybook"), &bad).unwrap();
        assert!(refusal(&cut).contains("cannot be read, and newer frames follow it"), "sheet {frame}");
    }
    std::fs::write(cut.root().join("daybook"), &wal).unwrap();
    assert_eq!(assert_sound(&cut), 11);
}

#[test]
fn missing_database_is_detected_before_the_wal_is_changed() {
    let elsewhere = tempfile::tempdir().unwrap();
    let home = home_after_kill(5, &elsewhere.path().join("home"));
    let wal = std::fs::read(home.root().join("daybook")).unwrap();
    for name in ["tribune.db", "tribune.db-wal", "tribune.db-shm"] {
        std::fs::remove_file(home.root().join(name)).unwrap();
    }
    let refused = Store::open(&home, &FixedClock).unwrap_err();
    assert!(matches!(refused, StoreError::LogIsGone { .. }), "{refused}");
    assert_eq!(std::fs::read(home.root().join("daybook")).unwrap(), wal);
    assert!(!home.database().exists());
}

/// An acknowledged record of a session that the ledger cannot take: only a bug or a disk fault causes this.
#[tokio::test(flavor = "multi_thread")]
async fn record_that_cannot_be_applied_is_named_and_can_be_quarantined() {
    let daemon = TestDaemon::start().await;
    let mut client = daemon.operator().await;
    client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
    run_turn(&mut client, KEY, "!say words").await.unwrap();
    history(&mut client).await;
    let elsewhere = tempfile::tempdir().unwrap();
    let home = Home::at(elsewhere.path().join("home"));
    copy_all(daemon.home.home.root(), home.root());
    drop(client);
    daemon.stop().await;
    #[expect(clippy::disallowed_methods, reason = "the test changes the database directly")]
    let log = rusqlite::Connection::open(home.database()).unwrap();
    log.execute_batch("UPDATE checkpoint SET posted = posted - 1").unwrap();
    drop(log);
    let wal = std::fs::read(home.root().join("daybook")).unwrap();
    let size = Reader::open(&home).unwrap().size().unwrap();
    let message = tokio::task::spawn_blocking(move || {
        let message = refusal(&home);
        assert_eq!(std::fs::read(home.root().join("daybook")).unwrap(), wal, "it is kept");
        store::rebuild_without_wal(&home, &mut |_| ()).unwrap();
        Store::open(&home, &FixedClock).unwrap().close();
        assert_eq!(assert_sound(&home), size);
        message
    });
    let message = message.await.unwrap();
    assert!(message.contains("does not fit"), "{message}");
    assert!(message.contains("tribune ledger rebuild --without-daybook"), "{message}");
}

#[test]
fn writes_are_refused_after_the_wal_is_closed() {
    let home = TempHome::new();
    let store = home.store();
    let writer = store.writer().unwrap();
    store.close();
    let refused = writer.append_blocking(&draft("a", 0)).unwrap_err();
    assert!(matches!(refused, StoreError::Closed), "{refused}");
    assert!(matches!(writer.submit(&draft("a", 0)), Err(StoreError::Closed)));
    assert_eq!(assert_sound(&home.home), 1);
}

/// Another program that opens and closes the database must find it in use, or SQLite deletes its log.
#[test]
fn database_locks_are_held_while_others_read() {
    let home = TempHome::new();
    let store = home.store();
    let readers = store.readers().unwrap();
    for n in 0..20 {
        store.writer().unwrap().append_blocking(&draft("a", n)).unwrap();
        readers.now(Reader::size).unwrap();
        home.reader().size().unwrap();
    }
    let inode = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(home.home.database()).unwrap());
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    let own = |line: &str| {
        line.split_whitespace().nth(4) == Some(&std::process::id().to_string())
            && line.split_whitespace().nth(5).is_some_and(|file| file.ends_with(&format!(":{inode}")))
    };
    assert!(locks.lines().any(own), "{inode} in\n{locks}");
    store.close();
}

#[test]
fn applied_records_are_not_applied_again() {
    let elsewhere = tempfile::tempdir().unwrap();
    let home = home_after_kill(10, &elsewhere.path().join("home"));
    for round in 0..3 {
        let again = Home::at(elsewhere.path().join(format!("home-{round}")));
        copy_all(home.root(), again.root());
        Store::open(&again, &FixedClock).unwrap().close();
        assert_eq!(assert_sound(&again), 11);
    }
}

/// A caller receives the position of its entry before the database has it. Callers of many histories, some of whom are
/// refused.
#[test]
fn l2_replayed_entries_keep_their_acknowledged_positions() {
    let home = TempHome::new();
    let store = home.store();
    let elsewhere = tempfile::tempdir().unwrap();
    let earlier = elsewhere.path().join("earlier");
    copy(home.home.root(), &DATABASES, &earlier);
    let missing_parent = Cid::from_bytes([7; 32]);
    let append = |thread: u64| {
        let writer = store.writer().unwrap();
        let mut acknowledged = Vec::new();
        let mut in_flight = std::collections::VecDeque::new();
        for n in 0..60 {
            let mut drafts = vec![draft(&format!("a-{thread}"), n), draft("all", n)];
            if n % 7 == thread {
                drafts[1].parents.push(missing_parent);
            }
            in_flight.push_back(writer.submit_blocking(&drafts).unwrap());
            if in_flight.len() > 3 {
                acknowledged.push(writer.wait_blocking(in_flight.pop_front().unwrap()));
            }
        }
        acknowledged.extend(in_flight.into_iter().map(|receipt| writer.wait_blocking(receipt)));
        acknowledged
    };
    let acknowledged: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || append(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let refused = acknowledged
        .iter()
        .filter(|acknowledged| matches!(acknowledged, Err(StoreError::NoSuchParent(_))))
        .count();
    let acknowledged: Vec<_> = acknowledged.into_iter().filter_map(Result::ok).flatten().collect();
    assert_eq!((refused, acknowledged.len()), (36, 2 * (240 - 36)));

    let cut = cut(home.home.root(), &earlier, &elsewhere.path().join("cut"));
    store.close();
    for home in [&home.home, &cut] {
        Store::open(home, &FixedClock).unwrap().close();
        assert_eq!(assert_sound(home), 1 + acknowledged.len() as u64);
        let reader = Reader::open(home).unwrap();
        for acknowledged in &acknowledged {
            let found = reader.entry(acknowledged.index).unwrap().unwrap().entry;
            assert_eq!((found.cid, found.seq), (acknowledged.cid, acknowledged.seq));
        }
    }
}

/// Appends entries; a third of the callers cancel early. Returns the acknowledged entries.
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
        // An acknowledged entry can be read at once.
        if let Some(last) = kept.last().copied() {
            assert!(readers.now(|reader| reader.find(&last)).unwrap().is_some());
        }
    }
    kept
}

/// Sixteen callers of every kind at once, some of which cancel before the acknowledgement, over a write-ahead log that
/// is rewound several times.
#[test]
fn concurrent_callers_finish_and_lose_nothing_when_some_cancel() {
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
async fn forgotten_words_are_not_in_the_wal() {
    let daemon = TestDaemon::start().await;
    let mut client = daemon.operator().await;
    client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
    run_turn(&mut client, KEY, "!say unforgettable").await.unwrap();
    let path = daemon.home.home.root().join("daybook");
    let wal = std::fs::read(&path).unwrap();
    let plain = |word: &str| wal.windows(word.len()).any(|window| window == word.as_bytes());
    assert!(plain(KEY), "the entries exist");
    assert!(!plain("unforgettable"), "and no words");
    client.call("session.forget", &json!({ "session_key": KEY })).await.unwrap();
    let after = std::fs::read(&path).unwrap();
    assert_eq!(after.len(), wal.len());
    // The log holds only the later records: the entry that records the forgetting.
    let used = after.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    assert!(used <= 2 * 4096, "{used} bytes");
    drop(client);
    let home = daemon.stop().await;
    assert_sound(&home.home);
    let closed = std::fs::read(home.home.root().join("daybook")).unwrap();
    assert!(closed[..4096].iter().all(|byte| *byte == 0), "a clean shutdown leaves an empty log");
}
