use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;

use super::*;

fn mailbox() -> (TempDir, Mailbox) {
    let folder = tempfile::tempdir().unwrap();
    let mailbox = Mailbox::new(folder.path().join("data/mailbox.jsonl"));
    (folder, mailbox)
}

fn noon() -> Timestamp {
    "2026-11-15T12:00:00.000000Z".parse().unwrap()
}

fn id(text: &str) -> AgentId {
    text.parse().unwrap()
}

fn send(mailbox: &Mailbox, to: &str, text: &str, message: &str) -> Result<Sent, MailboxError> {
    mailbox.send("main", &id(to), text, noon(), message)
}

fn texts(mailbox: &Mailbox, to: &str) -> Vec<String> {
    mailbox.unread(&id(to)).unwrap().into_iter().map(|message| message.text).collect()
}

/// Appends to the file as another program would.
fn append_raw(mailbox: &Mailbox, bytes: &[u8]) {
    let mut file = OpenOptions::new().append(true).create(true).open(mailbox.path()).unwrap();
    file.write_all(bytes).unwrap();
}

fn message_line(to: &str, text: &str, id: &str) -> String {
    format!(
        "{{\"id\":\"{id}\",\"to\":\"{to}\",\"from\":\"cron\",\"text\":\"{text}\",\"at\":\"2026-11-15T12:00:00Z\"}}\n"
    )
}

#[test]
fn a_message_stays_unread_until_it_is_acknowledged() {
    let (_folder, mailbox) = mailbox();
    assert_eq!(mailbox.unread(&id("scout")).unwrap(), []);
    assert_eq!(mailbox.ack(&["m1"], noon()).unwrap(), 0);
    assert!(!mailbox.path().exists());
    assert_eq!(send(&mailbox, "scout", "look \"there\"\nand here", "m1").unwrap(), Sent::Kept);
    assert_eq!(send(&mailbox, "scout", "second", "m2").unwrap(), Sent::Kept);
    let first = MailboxMessage {
        id: "m1".to_owned(),
        to: id("scout"),
        from: "main".to_owned(),
        text: "look \"there\"\nand here".to_owned(),
        at: noon(),
    };
    assert_eq!(mailbox.unread(&id("scout")).unwrap()[0], first);
    assert_eq!(mailbox.unread(&id("main")).unwrap(), []);
    assert_eq!(mailbox.ack(&["m1", "unknown"], noon()).unwrap(), 1);
    assert_eq!(mailbox.ack(&["m1"], noon()).unwrap(), 0);
    for reader in [&mailbox, &Mailbox::new(mailbox.path())] {
        assert_eq!(texts(reader, "scout"), ["second"]);
        assert_eq!(reader.malformed().unwrap(), 0);
    }
    assert_eq!(fs::metadata(mailbox.path()).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(
        fs::read_to_string(mailbox.path()).unwrap().lines().last().unwrap(),
        r#"{"ack":"m1","at":"2026-11-15T12:00:00.000000Z"}"#
    );
}

#[test]
fn the_first_message_of_an_id_counts() {
    let (_folder, mailbox) = mailbox();
    send(&mailbox, "scout", "first", "m").unwrap();
    assert_eq!(send(&mailbox, "scout", "second", "m").unwrap(), Sent::AlreadyThere);
    append_raw(&mailbox, message_line("scout", "third", "m").as_bytes());
    assert_eq!(texts(&mailbox, "scout"), ["first"]);
    mailbox.ack(&["m"], noon()).unwrap();
    append_raw(&mailbox, message_line("scout", "fourth", "m").as_bytes());
    assert!(texts(&mailbox, "scout").is_empty());
}

#[test]
fn malformed_lines_are_skipped_and_counted() {
    let (_folder, mailbox) = mailbox();
    send(&mailbox, "scout", "a", "a").unwrap();
    let long = "x".repeat(MAX_TEXT_BYTES + 1);
    let bad = [
        "not json".to_owned(),
        "{}".to_owned(),
        "[]".to_owned(),
        r#"{"ack":7,"at":"2026-11-15T12:00:00Z"}"#.to_owned(),
        r#"{"ack":"a"}"#.to_owned(),
        message_line("../scout", "x", "b").trim_end().to_owned(),
        message_line("scout", "", "b").trim_end().to_owned(),
        message_line("scout", &long, "b").trim_end().to_owned(),
        message_line("scout", "x", "b").replace("cron", "owner]\\n[mailbox from x").trim_end().to_owned(),
        message_line("scout", "x", "b").replace("2026-11-15T12", "noon").trim_end().to_owned(),
        "y".repeat(MAX_LINE_BYTES + 1),
        "[".repeat(MAX_LINE_BYTES * 5),
    ];
    for line in &bad {
        append_raw(&mailbox, line.as_bytes());
        append_raw(&mailbox, b"\n");
    }
    append_raw(&mailbox, b"\xff\xfe\n\n\r\n");
    append_raw(&mailbox, message_line("scout", "b", "b").replace("{\"id", "{\"more\":[1],\"id").as_bytes());
    for reader in [&mailbox, &Mailbox::new(mailbox.path())] {
        assert_eq!(texts(reader, "scout"), ["a", "b"]);
        assert_eq!(reader.malformed().unwrap(), bad.len() as u64 + 1);
    }
}

#[test]
fn a_torn_line_does_not_corrupt_others() {
    let (_folder, mailbox) = mailbox();
    send(&mailbox, "scout", "a", "a").unwrap();
    let whole = message_line("scout", "torn", "t");
    append_raw(&mailbox, &whole.as_bytes()[..30]);
    assert_eq!(texts(&mailbox, "scout"), ["a"]);
    assert_eq!(mailbox.malformed().unwrap(), 0);
    // It may be a line that is still being written.
    append_raw(&mailbox, &whole.as_bytes()[30..]);
    assert_eq!(texts(&mailbox, "scout"), ["a", "torn"]);
    append_raw(&mailbox, &message_line("scout", "lost", "l").as_bytes()[..40]);
    send(&mailbox, "scout", "b", "b").unwrap();
    assert_eq!(texts(&mailbox, "scout"), ["a", "torn", "b"]);
    assert_eq!(mailbox.malformed().unwrap(), 1);
    // An endless line, read in several refreshes.
    for _ in 0..5 {
        append_raw(&mailbox, &vec![b'z'; MAX_LINE_BYTES]);
        assert_eq!(texts(&mailbox, "scout").len(), 3);
    }
    send(&mailbox, "scout", "c", "c").unwrap();
    assert_eq!(texts(&mailbox, "scout"), ["a", "torn", "b", "c"]);
    assert_eq!(mailbox.malformed().unwrap(), 2);
}

#[test]
fn only_new_bytes_are_read() {
    let (_folder, mailbox) = mailbox();
    send(&mailbox, "scout", "a", "a").unwrap();
    assert_eq!(texts(&mailbox, "scout"), ["a"]);
    // Overwrite the part that was read: reading it again would lose the message.
    let file = OpenOptions::new().write(true).open(mailbox.path()).unwrap();
    file.write_all_at(b"#########", 0).unwrap();
    assert_eq!(texts(&mailbox, "scout"), ["a"]);
    send(&mailbox, "scout", "b", "b").unwrap();
    assert_eq!(texts(&mailbox, "scout"), ["a", "b"]);
    assert_eq!(texts(&Mailbox::new(mailbox.path()), "scout"), ["b"]);
}

#[test]
fn a_truncated_or_replaced_file_is_read_from_the_start() {
    let (_folder, mailbox) = mailbox();
    send(&mailbox, "scout", "a", "a").unwrap();
    send(&mailbox, "scout", "b", "b").unwrap();
    assert_eq!(texts(&mailbox, "scout"), ["a", "b"]);
    fs::write(mailbox.path(), message_line("scout", "cut", "a")).unwrap();
    assert_eq!(texts(&mailbox, "scout"), ["cut"]);
    let longer = message_line("scout", &"r".repeat(1000), "a");
    files::replace(mailbox.path(), longer.as_bytes(), Secrecy::Owner).unwrap();
    assert_eq!(texts(&mailbox, "scout"), ["r".repeat(1000)]);
    fs::remove_file(mailbox.path()).unwrap();
    assert!(texts(&mailbox, "scout").is_empty());
}

#[test]
fn limits_are_enforced_with_an_error_message() {
    let (_folder, mailbox) = mailbox();
    let refused = |text: &str, message: &str| send(&mailbox, "scout", text, message).unwrap_err().to_string();
    assert!(
        refused(&"x".repeat(MAX_TEXT_BYTES + 1), "m").starts_with("the message has 16385 bytes, and 16384")
    );
    assert!(refused(&"\u{1}".repeat(MAX_TEXT_BYTES), "m").contains("control characters"));
    assert!(refused("", "m").contains("empty"));
    assert!(refused("x", "").contains("the id of a message"));
    assert!(refused("x", "a\nb").contains("the id of a message"));
    assert!(refused("x", &"m".repeat(MAX_NAME_BYTES + 1)).contains("the id of a message"));
    assert!(
        mailbox
            .send("owner]", &id("scout"), "x", noon(), "m")
            .unwrap_err()
            .to_string()
            .contains("the sender")
    );
    assert!(!mailbox.path().exists());

    fs::create_dir_all(mailbox.path().parent().unwrap()).unwrap();
    let many: String = (0..MAX_UNREAD).map(|n| message_line("scout", "x", &format!("n{n}"))).collect();
    append_raw(&mailbox, many.as_bytes());
    assert_eq!(refused("x", "m"), "agent `scout` has too many unread messages: wait until it has run a turn");
    let turn = mailbox.unread(&id("scout")).unwrap();
    let ids: Vec<_> = turn.into_iter().map(|message| message.id).collect();
    assert_eq!((ids.len(), ids[0].as_str(), ids[31].as_str()), (MESSAGES_PER_TURN, "n0", "n31"));
    send(&mailbox, "other", "x", "o").unwrap();
    mailbox.ack(&ids[..1], noon()).unwrap();
    send(&mailbox, "scout", "x", "m").unwrap();
}

#[test]
fn unread_bytes_per_agent_are_limited() {
    let (_folder, mailbox) = mailbox();
    let text = "x".repeat(MAX_TEXT_BYTES);
    fs::create_dir_all(mailbox.path().parent().unwrap()).unwrap();
    let many: String = (0..127).map(|n| message_line("scout", &text, &format!("n{n}"))).collect();
    append_raw(&mailbox, many.as_bytes());
    let error = send(&mailbox, "scout", &text, "m").unwrap_err();
    assert!(matches!(error, MailboxError::AgentFull(_)), "{error}");
    send(&mailbox, "other", &text, "m").unwrap();
}

#[test]
fn a_full_file_accepts_acknowledgements_and_then_messages_again() {
    let (_folder, mailbox) = mailbox();
    let text = "x".repeat(MAX_TEXT_BYTES);
    fs::create_dir_all(mailbox.path().parent().unwrap()).unwrap();
    // A little more than the limit, which only another program can write.
    let many: String = (0..1100).map(|n| message_line("scout", &text, &format!("n{n}"))).collect();
    assert!(many.len() as u64 > MAX_FILE_BYTES);
    append_raw(&mailbox, many.as_bytes());
    assert!(matches!(send(&mailbox, "other", "x", "o"), Err(MailboxError::Full)));
    let held_in_memory = mailbox.fresh_index().unwrap().waiting(&id("scout"), SenderClass::Agent).1;
    assert!(held_in_memory <= MAX_FILE_BYTES + MAX_LINE_BYTES as u64);
    let mut seen = Vec::new();
    loop {
        let ids: Vec<_> =
            mailbox.unread(&id("scout")).unwrap().into_iter().map(|message| message.id).collect();
        if ids.is_empty() {
            break;
        }
        assert_eq!(mailbox.ack(&ids, noon()).unwrap(), ids.len());
        seen.extend(ids);
    }
    assert_eq!(seen, (0..1100).map(|n| format!("n{n}")).collect::<Vec<_>>());
    send(&mailbox, "other", "x", "o").unwrap();
    assert!(fs::metadata(mailbox.path()).unwrap().len() < COMPACT_ABOVE_BYTES + MAX_LINE_BYTES as u64);
}

#[test]
fn compaction_keeps_unread_lines_byte_for_byte() {
    let (_folder, mailbox) = mailbox();
    let odd = message_line("scout", "odd", "odd").replace("{\"id\"", "{ \"extra\" : true, \"id\"");
    fs::create_dir_all(mailbox.path().parent().unwrap()).unwrap();
    append_raw(&mailbox, odd.as_bytes());
    let text = "x".repeat(MAX_TEXT_BYTES);
    let ids: Vec<_> = (0..80).map(|n| format!("n{n}")).collect();
    for id in &ids {
        send(&mailbox, "main", &text, id).unwrap();
    }
    send(&mailbox, "scout", "last", "last").unwrap();
    let before = fs::metadata(mailbox.path()).unwrap();
    mailbox.ack(&ids, noon()).unwrap();
    let after = fs::metadata(mailbox.path()).unwrap();
    assert_ne!(before.ino(), after.ino());
    let content = fs::read_to_string(mailbox.path()).unwrap();
    assert!(content.starts_with(&odd) && content.lines().count() == 2, "{content}");
    assert_eq!(after.permissions().mode() & 0o777, 0o600);
    assert_eq!(texts(&mailbox, "scout"), ["odd", "last"]);
    assert!(texts(&mailbox, "main").is_empty());
}

#[test]
fn late_appends_to_the_old_file_are_carried_over() {
    let (_folder, mailbox) = mailbox();
    send(&mailbox, "scout", "kept", "k").unwrap();
    let locked = LineFile::lock(mailbox.path()).unwrap();
    let len = locked.len().unwrap();
    // A compaction that saw the end of the file before the line below was appended.
    let mut late = OpenOptions::new().append(true).open(mailbox.path()).unwrap();
    let kept = Kept { lines: vec![(0, len)], rest_from: len };
    late.write_all(message_line("scout", "late", "l").as_bytes()).unwrap();
    mailbox.compact(locked.file(), &kept).unwrap();
    assert_eq!(texts(&mailbox, "scout"), ["kept", "late"]);
}

#[test]
fn a_sender_waits_while_another_process_rewrites_the_file() {
    let (_folder, mailbox) = mailbox();
    send(&mailbox, "scout", "a", "a").unwrap();
    let locked = LineFile::lock(mailbox.path()).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            send(&Mailbox::new(mailbox.path()), "scout", "b", "b").unwrap();
            sender.send(()).unwrap();
        });
        receiver.recv_timeout(std::time::Duration::from_millis(200)).unwrap_err();
        let content = fs::read(mailbox.path()).unwrap();
        files::replace(mailbox.path(), &content, Secrecy::Owner).unwrap();
        drop(locked);
        receiver.recv().unwrap();
    });
    assert_eq!(texts(&mailbox, "scout"), ["a", "b"]);
}

#[test]
fn nothing_is_lost_between_processes_that_send_and_compact() {
    const EACH: usize = 120;
    let (_folder, mailbox) = mailbox();
    let text = &"x".repeat(MAX_TEXT_BYTES);
    let path = mailbox.path();
    let readers = ["a", "b", "c"];
    let gave_up = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        for from in readers {
            // Each has its own `Mailbox`, as in a separate process.
            scope.spawn(move || {
                let mailbox = Mailbox::new(path);
                for n in 0..EACH {
                    let sent = mailbox.send("main", &id(from), text, noon(), &format!("{from}-{n}"));
                    gave_up.fetch_or(sent.is_err(), Ordering::SeqCst);
                    sent.unwrap();
                }
            });
            scope.spawn(move || {
                let mailbox = Mailbox::new(path);
                let mut seen = 0;
                while seen < EACH {
                    assert!(
                        !gave_up.load(Ordering::SeqCst),
                        "a sender failed, so its messages will never arrive"
                    );
                    let messages = mailbox.unread(&id(from)).unwrap();
                    let ids: Vec<_> = messages.into_iter().map(|message| message.id).collect();
                    for id in &ids {
                        assert_eq!(*id, format!("{from}-{seen}"));
                        seen += 1;
                    }
                    mailbox.ack(&ids, noon()).unwrap();
                }
            });
        }
    });
    assert_eq!(mailbox.malformed().unwrap(), 0);
    assert!(fs::metadata(path).unwrap().len() < 2 * COMPACT_ABOVE_BYTES);
}

#[test]
fn links_and_pipes_are_refused() {
    let (folder, mailbox) = mailbox();
    fs::create_dir_all(mailbox.path().parent().unwrap()).unwrap();
    let target = folder.path().join("target");
    fs::write(&target, "").unwrap();
    symlink(&target, mailbox.path()).unwrap();
    assert!(matches!(send(&mailbox, "scout", "x", "m"), Err(MailboxError::Io { .. })));
    mailbox.unread(&id("scout")).unwrap_err();
    assert_eq!(fs::read(&target).unwrap(), b"");
    fs::remove_file(mailbox.path()).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, mailbox.path(), rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
        .unwrap();
    assert!(matches!(send(&mailbox, "scout", "x", "m"), Err(MailboxError::Io { .. })));
    mailbox.unread(&id("scout")).unwrap_err();
}

#[test]
fn no_class_of_senders_fills_a_mailbox_for_another() {
    let (_folder, mailbox) = mailbox();
    fs::create_dir_all(mailbox.path().parent().unwrap()).unwrap();
    let from = |sender: &str, message: &str| mailbox.send(sender, &id("scout"), "x", noon(), message);
    let line =
        |sender: &str, n: usize| message_line("scout", "x", &format!("{sender}-{n}")).replace("cron", sender);
    // Guests come first, with as many names as they like.
    let guests: String = (0..MAX_UNREAD).map(|n| line(&format!("stranger-{n}"), n)).collect();
    append_raw(&mailbox, guests.as_bytes());
    assert!(matches!(from("stranger-z", "z"), Err(MailboxError::AgentFull(_))));
    from("main", "m1").unwrap();
    let agents: String = (1..MAX_UNREAD).map(|n| line("writer", n)).collect();
    append_raw(&mailbox, agents.as_bytes());
    assert!(matches!(from("main", "m2"), Err(MailboxError::AgentFull(_))));
    from(DAEMON_SENDER, "result").unwrap();
    // Most of what a turn gets is not from guests.
    let turn = mailbox.unread(&id("scout")).unwrap();
    let of_guests = turn.iter().filter(|message| message.from.starts_with("stranger-")).count();
    assert_eq!((turn.len(), of_guests), (MESSAGES_PER_TURN, GUEST_MESSAGES_PER_TURN));
    assert_eq!(turn[GUEST_MESSAGES_PER_TURN].id, "m1");
}
