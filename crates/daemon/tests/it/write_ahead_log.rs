//! The book of first entry: what was promised survives whatever happens to the databases, nothing of it is posted twice,
//! and what was forgotten is not in it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tribune_client::Client;
use tribune_daemon::daemon::Daemon;
use tribune_ledger::Cid;
use tribune_storage::home::Home;
use tribune_storage::store;
use tribune_storage::store::LedgerWriter;
use tribune_storage::store::Reader;
use tribune_storage::store::StoreError;
use tribune_storage::store::{Readers, Store};
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

/// A home as a power cut leaves it: the book as it is now, and of the databases what was there when `earlier` was copied.
fn cut(home: &Path, earlier: &Path, to: &Path) -> Home {
    copy_all(home, to);
    for name in DATABASES.iter().chain(&["tribune.db-shm", "vault.db-shm"]) {
        let _ = std::fs::remove_file(to.join(name));
    }
    copy(earlier, &DATABASES, to);
    Home::at(to)
}

/// A daemon over a home that somebody else left, and an operator at its door.
async fn wake(home: &Home) -> (Daemon, Client) {
    let daemon = Daemon::start(home, &config(), Arc::new(tribune_storage::clock::SystemClock)).await.unwrap();
    let token = std::fs::read_to_string(daemon.token_path()).unwrap();
    let client = Client::connect(&daemon.address().to_string(), Some(token.trim())).await.unwrap();
    (daemon, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn l2_what_was_promised_is_there_though_the_databases_lost_it() {
    let daemon = TestDaemon::start().await;
    let home = daemon.home.home.root().to_owned();
    let mut client = daemon.operator().await;
    client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
    turn(&mut client, KEY, "!say before").await.unwrap();
    history(&mut client).await;
    let elsewhere = tempfile::tempdir().unwrap();
    let earlier = elsewhere.path().join("earlier");
    copy(&home, &DATABASES, &earlier);

    for n in 0..20 {
        turn(&mut client, KEY, &format!("!say words {n}\n!call read {{\"path\":\"x\"}}")).await.unwrap();
    }
    let told = history(&mut client).await;
    let cut = cut(&home, &earlier, &elsewhere.path().join("cut"));
    drop(client);
    let entries = assert_sound(&daemon.stop().await.home);

    // Whoever reads the log alone finds it whole already.
    let size = Reader::open(&cut).unwrap().size().unwrap();
    assert!(size > 80 && size <= entries, "{size} of {entries}");
    let (daemon, mut client) = wake(&cut).await;
    assert_eq!(history(&mut client).await, told, "every word, in its place, once");
    client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
    turn(&mut client, KEY, "!say after").await.unwrap();
    drop(client);
    daemon.stop(std::future::pending()).await;
    assert_sound(&cut);
}

/// From the first start on, and again behind each cut, with clean ends in between.
#[tokio::test(flavor = "multi_thread")]
async fn l2_cut_after_cut_nothing_promised_is_lost() {
    let elsewhere = tempfile::tempdir().unwrap();
    let mut home = Home::at(elsewhere.path().join("home-0"));
    let mut said = 0;
    for round in 1..=6 {
        let (daemon, mut client) = wake(&home).await;
        let earlier = elsewhere.path().join(format!("earlier-{round}"));
        copy(home.root(), &DATABASES, &earlier);
        client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
        for _ in 0..=round % 3 {
            said += 1;
            turn(&mut client, KEY, &format!("!say words {said}")).await.unwrap();
        }
        let told = history(&mut client).await;
        assert_eq!(told.len(), 2 * said, "round {round}");
        let after = cut(home.root(), &earlier, &elsewhere.path().join(format!("home-{round}")));
        drop(client);
        daemon.stop(std::future::pending()).await;
        let (daemon, mut client) = wake(&after).await;
        assert_eq!(history(&mut client).await, told, "round {round}");
        drop(client);
        daemon.stop(std::future::pending()).await;
        assert_sound(&after);
        home = after;
    }
}

/// Bytes of a frame in the write-ahead log of the ledger: its header and a page.
const FRAME: u64 = 24 + 8192;

/// A forgetting takes a number that no database has.
#[tokio::test(flavor = "multi_thread")]
async fn l2_a_cut_behind_a_forgetting_loses_nothing() {
    let daemon = TestDaemon::start().await;
    let mut client = daemon.operator().await;
    client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
    turn(&mut client, KEY, "!say unforgettable").await.unwrap();
    let forgotten = client.call("session.forget", &json!({ "session_key": KEY })).await.unwrap();
    history(&mut client).await;
    let elsewhere = tempfile::tempdir().unwrap();
    let cut = Home::at(elsewhere.path().join("cut"));
    copy_all(daemon.home.home.root(), cut.root());
    // The last commit, which nobody has synced.
    let log = std::fs::OpenOptions::new().write(true).open(cut.root().join("tribune.db-wal")).unwrap();
    log.set_len(log.metadata().unwrap().len() - FRAME).unwrap();
    drop((client, log));
    let entries = assert_sound(&daemon.stop().await.home);
    let cid: Cid = forgotten["cid"].as_str().unwrap().parse().unwrap();
    assert!(Reader::open(&cut).unwrap().find(&cid).unwrap().is_some());
    assert!(assert_sound(&cut) >= entries - 1, "a daemon that ends writes an entry more");
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
        let cut = cut(&home, &earlier, &elsewhere.path().join(format!("cut-{n}")));
        let mut torn = book.clone();
        torn[cut_at..].fill(0);
        std::fs::write(cut.root().join("daybook"), &torn).unwrap();
        sizes.push(assert_sound(&cut));
    }
    assert!(sizes.is_sorted(), "{sizes:?}");
    assert!(sizes.first() < sizes.last(), "{sizes:?}");
    drop(client);
    daemon.stop().await;
}

/// A home with `n` entries behind its first, as a kill leaves it, somewhere else.
fn killed(n: u64, elsewhere: &Path) -> Home {
    let home = TempHome::new();
    let store = home.store();
    for n in 0..n {
        store.writer().unwrap().append_blocking(&draft("a", n)).unwrap();
    }
    // Whoever reads waits until everything is posted: files are copied one after the other, and nothing may move meanwhile.
    assert_eq!(store.readers().unwrap().now(Reader::size).unwrap(), n + 1);
    copy_all(home.home.root(), elsewhere);
    store.close();
    Home::at(elsewhere)
}

fn refusal(home: &Home) -> String {
    let refused = Store::open(home, &Stopped).unwrap_err();
    assert!(matches!(refused, StoreError::Daybook { .. }), "{refused}");
    refused.to_string()
}

#[test]
fn a_book_that_does_not_fit_is_refused_and_kept() {
    let elsewhere = tempfile::tempdir().unwrap();
    let (one, other) = (killed(5, &elsewhere.path().join("one")), killed(3, &elsewhere.path().join("other")));
    let book = std::fs::read(other.root().join("daybook")).unwrap();
    std::fs::write(one.root().join("daybook"), &book).unwrap();
    assert!(refusal(&one).contains("another log"));
    assert_eq!(Reader::open(&one).unwrap().size().unwrap(), 6, "it can be read all the same");

    let peaceful = TempHome::with(5);
    std::fs::write(peaceful.home.root().join("daybook"), &book).unwrap();
    assert!(refusal(&peaceful.home).contains("this log never had"));

    let fresh = TempHome::new();
    std::fs::create_dir_all(fresh.home.root()).unwrap();
    std::fs::write(fresh.home.root().join("daybook"), &book).unwrap();
    assert!(refusal(&fresh.home).contains("this log never had"));

    std::fs::write(one.root().join("daybook"), b"tribday1 as an earlier version wrote it").unwrap();
    assert!(refusal(&one).contains("another version"));
    for home in [&peaceful.home, &fresh.home] {
        assert_eq!(std::fs::read(home.root().join("daybook")).unwrap(), book, "nothing was written over");
    }
}

#[test]
fn a_killed_house_needs_its_book_and_a_peaceful_one_does_not() {
    let elsewhere = tempfile::tempdir().unwrap();
    let home = killed(5, &elsewhere.path().join("home"));
    for missing in [true, false] {
        if missing {
            std::fs::remove_file(home.root().join("daybook")).unwrap();
        } else {
            std::fs::write(home.root().join("daybook"), b"").unwrap();
        }
        assert!(refusal(&home).contains("it is missing"), "{missing}");
    }
    // The way out, for whoever has no other copy.
    let (entries, aside) = store::rebuild_without_daybook(&home, &mut |_| ()).unwrap();
    assert_eq!(entries, 6);
    assert!(aside.unwrap().ends_with("daybook.aside-1"));
    Store::open(&home, &Stopped).unwrap().close();
    assert_eq!(assert_sound(&home), 6);

    std::fs::remove_file(home.root().join("daybook")).unwrap();
    Store::open(&home, &Stopped).unwrap().close();
    assert_eq!(assert_sound(&home), 6);
}

#[test]
fn a_sheet_that_went_bad_does_not_hide_the_ones_behind_it() {
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
    let book = std::fs::read(cut.root().join("daybook")).unwrap();
    for sheet in 0..9 {
        let mut bad = book.clone();
        bad[sheet * 4096 + 200] ^= 1;
        std::fs::write(cut.root().join("daybook"), &bad).unwrap();
        assert!(refusal(&cut).contains("cannot be read, and newer frames follow it"), "sheet {sheet}");
    }
    std::fs::write(cut.root().join("daybook"), &book).unwrap();
    assert_eq!(assert_sound(&cut), 11);
}

#[test]
fn a_log_that_is_gone_is_noticed_before_its_book_is_touched() {
    let elsewhere = tempfile::tempdir().unwrap();
    let home = killed(5, &elsewhere.path().join("home"));
    let book = std::fs::read(home.root().join("daybook")).unwrap();
    for name in ["tribune.db", "tribune.db-wal", "tribune.db-shm"] {
        std::fs::remove_file(home.root().join(name)).unwrap();
    }
    let refused = Store::open(&home, &Stopped).unwrap_err();
    assert!(matches!(refused, StoreError::LogIsGone { .. }), "{refused}");
    assert_eq!(std::fs::read(home.root().join("daybook")).unwrap(), book);
    assert!(!home.database().exists());
}

/// What a session promised and the log cannot take: only a fault of ours, or of the disk, does that.
#[tokio::test(flavor = "multi_thread")]
async fn a_promise_that_does_not_fit_is_named_and_can_be_put_aside() {
    let daemon = TestDaemon::start().await;
    let mut client = daemon.operator().await;
    client.call("session.init", &json!({ "session_key": KEY })).await.unwrap();
    turn(&mut client, KEY, "!say words").await.unwrap();
    history(&mut client).await;
    let elsewhere = tempfile::tempdir().unwrap();
    let home = Home::at(elsewhere.path().join("home"));
    copy_all(daemon.home.home.root(), home.root());
    drop(client);
    daemon.stop().await;
    #[expect(clippy::disallowed_methods, reason = "the test tampers with the log on purpose")]
    let log = rusqlite::Connection::open(home.database()).unwrap();
    log.execute_batch("UPDATE checkpoint SET posted = posted - 1").unwrap();
    drop(log);
    let book = std::fs::read(home.root().join("daybook")).unwrap();
    let size = Reader::open(&home).unwrap().size().unwrap();
    let said = tokio::task::spawn_blocking(move || {
        let said = refusal(&home);
        assert_eq!(std::fs::read(home.root().join("daybook")).unwrap(), book, "it is kept");
        store::rebuild_without_daybook(&home, &mut |_| ()).unwrap();
        Store::open(&home, &Stopped).unwrap().close();
        assert_eq!(assert_sound(&home), size);
        said
    });
    let said = said.await.unwrap();
    assert!(said.contains("does not fit"), "{said}");
    assert!(said.contains("tribune ledger rebuild --without-daybook"), "{said}");
}

#[test]
fn nothing_is_taken_once_the_book_is_closed() {
    let home = TempHome::new();
    let store = home.store();
    let writer = store.writer().unwrap();
    store.close();
    let refused = writer.append_blocking(&draft("a", 0)).unwrap_err();
    assert!(matches!(refused, StoreError::Closed), "{refused}");
    assert!(matches!(writer.submit(&draft("a", 0)), Err(StoreError::Closed)));
    assert_eq!(assert_sound(&home.home), 1);
}

/// A program that opens the database and closes it again must find somebody there, or it tidies the log away.
#[test]
fn the_locks_on_the_database_are_held_whoever_reads() {
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
fn what_is_posted_already_is_not_posted_again() {
    let elsewhere = tempfile::tempdir().unwrap();
    let home = killed(10, &elsewhere.path().join("home"));
    for round in 0..3 {
        let again = Home::at(elsewhere.path().join(format!("home-{round}")));
        copy_all(home.root(), again.root());
        Store::open(&again, &Stopped).unwrap().close();
        assert_eq!(assert_sound(&again), 11);
    }
}

/// A caller is told its place before the database has it. Callers of many histories, some of whom are refused.
#[test]
fn l2_entries_are_found_where_their_callers_were_told_though_the_database_lost_them() {
    let home = TempHome::new();
    let store = home.store();
    let elsewhere = tempfile::tempdir().unwrap();
    let earlier = elsewhere.path().join("earlier");
    copy(home.home.root(), &DATABASES, &earlier);
    let stranger = Cid::from_bytes([7; 32]);
    let append = |thread: u64| {
        let writer = store.writer().unwrap();
        let mut told = Vec::new();
        let mut under_way = std::collections::VecDeque::new();
        for n in 0..60 {
            let mut drafts = vec![draft(&format!("a-{thread}"), n), draft("all", n)];
            if n % 7 == thread {
                drafts[1].parents.push(stranger);
            }
            under_way.push_back(writer.submit_blocking(&drafts).unwrap());
            if under_way.len() > 3 {
                told.push(writer.wait_blocking(under_way.pop_front().unwrap()));
            }
        }
        told.extend(under_way.into_iter().map(|receipt| writer.wait_blocking(receipt)));
        told
    };
    let told: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || append(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let refused = told.iter().filter(|told| matches!(told, Err(StoreError::NoSuchParent(_)))).count();
    let told: Vec<_> = told.into_iter().filter_map(Result::ok).flatten().collect();
    assert_eq!((refused, told.len()), (36, 2 * (240 - 36)));

    let cut = cut(home.home.root(), &earlier, &elsewhere.path().join("cut"));
    store.close();
    for home in [&home.home, &cut] {
        Store::open(home, &Stopped).unwrap().close();
        assert_eq!(assert_sound(home), 1 + told.len() as u64);
        let reader = Reader::open(home).unwrap();
        for told in &told {
            let found = reader.entry(told.index).unwrap().unwrap().entry;
            assert_eq!((found.cid, found.seq), (told.cid, told.seq));
        }
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
