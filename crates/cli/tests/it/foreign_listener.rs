//! `--address`: an approver's token is not sent to what only listens there.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tribune_testkit::TempHome;

use crate::fixture::cli_output;
use crate::in_process_daemon::{InProcessDaemon, command};

/// What the listener does with a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listens {
    /// Answers nothing.
    Silently,
    /// Lets the daemon answer the handshake, and claims to be the daemon.
    Falsely,
    /// Passes everything on to the daemon and back.
    AsRelay,
}

/// A listener that keeps what its clients send.
struct ForeignListener {
    address: SocketAddr,
    received: Arc<Mutex<Vec<u8>>>,
}

impl ForeignListener {
    fn start(how: Listens, daemon: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let (kept, daemon) = (Arc::clone(&received), daemon.to_owned());
        // The daemon refuses requests for another host.
        let hosts = [address.to_string(), daemon.clone()];
        thread::spawn(move || {
            let (client, _) = listener.accept().unwrap();
            client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            match how {
                Listens::Silently => pass(client, None, &hosts, &kept),
                Listens::Falsely => lie(client, TcpStream::connect(daemon).unwrap(), &hosts, &kept),
                Listens::AsRelay => {
                    let behind = TcpStream::connect(daemon).unwrap();
                    let (mut back, mut answers) = (client.try_clone().unwrap(), behind.try_clone().unwrap());
                    thread::spawn(move || drop(std::io::copy(&mut answers, &mut back)));
                    pass(client, Some(behind), &hosts, &kept);
                }
            }
        });
        Self { address, received }
    }

    /// What was sent as it is, and the payloads of WebSocket frames.
    fn text(&self) -> String {
        let received = self.received.lock().unwrap().clone();
        let head = received.windows(4).position(|end| end == b"\r\n\r\n").map_or(received.len(), |at| at + 4);
        let mut text = String::from_utf8_lossy(&received).into_owned();
        let mut rest = &received[head..];
        while let [_, length, tail @ ..] = rest {
            let (length, tail) = match (length & 0x7F, tail) {
                (126, [high, low, tail @ ..]) => (usize::from(u16::from_be_bytes([*high, *low])), tail),
                (length, tail) => (usize::from(length), tail),
            };
            let Some((mask, tail)) = tail.split_first_chunk::<4>() else { break };
            let (payload, tail) = tail.split_at(length.min(tail.len()));
            let plain: Vec<u8> =
                payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
            text.push_str(&String::from_utf8_lossy(&plain));
            rest = tail;
        }
        text
    }
}

/// The request of a client, for the daemon instead of the listener.
fn for_daemon(part: &[u8], [listener, daemon]: &[String; 2]) -> Vec<u8> {
    match std::str::from_utf8(part) {
        Ok(head) => head.replace(listener, daemon).into_bytes(),
        Err(_) => part.to_vec(),
    }
}

/// Keeps what a client sends, and passes it on.
fn pass(mut client: TcpStream, mut behind: Option<TcpStream>, hosts: &[String; 2], kept: &Mutex<Vec<u8>>) {
    let mut part = [0; 4096];
    while let Ok(count @ 1..) = client.read(&mut part) {
        kept.lock().unwrap().extend_from_slice(&part[..count]);
        if let Some(behind) = &mut behind {
            let _ = behind.write_all(&for_daemon(&part[..count], hosts));
        }
    }
}

/// Answers every request with a made-up proof, which is also a principal.
fn lie(mut client: TcpStream, mut daemon: TcpStream, hosts: &[String; 2], kept: &Mutex<Vec<u8>>) {
    let mut part = [0; 4096];
    let mut id = 0;
    while let Ok(count @ 1..) = client.read(&mut part) {
        kept.lock().unwrap().extend_from_slice(&part[..count]);
        if id == 0 {
            daemon.write_all(&for_daemon(&part[..count], hosts)).unwrap();
            let mut answer = Vec::new();
            while !answer.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                daemon.read_exact(&mut byte).unwrap();
                answer.push(byte[0]);
            }
            client.write_all(&answer).unwrap();
        } else {
            let result = json!({ "proof": "00".repeat(32), "principal": "approver", "approvals": [] });
            let answer = json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string();
            let mut frame = vec![0x81, 126];
            frame.extend_from_slice(&(answer.len() as u16).to_be_bytes());
            frame.extend_from_slice(answer.as_bytes());
            let _ = client.write_all(&frame);
        }
        id += 1;
    }
}

#[test]
fn approvers_token_is_not_sent_to_a_foreign_listener() {
    let daemon = InProcessDaemon::new();
    let added: Value = serde_json::from_str(&daemon.ok(&["--json", "approvers", "add", "ada"])).unwrap();
    let token = added["token"].as_str().unwrap();
    let file = daemon.home().folder.path().join("ada.token");
    std::fs::write(&file, token).unwrap();
    let away = TempHome::new();
    let at = |address: &str, words: &[&str]| {
        let mut all = words.to_vec();
        all.extend(["--token", file.to_str().unwrap(), "--address", address]);
        cli_output(command(&away, &all).output().unwrap())
    };
    for how in [Listens::Silently, Listens::Falsely, Listens::AsRelay] {
        for words in [&["approvals", "list"][..], &["stop-all"]] {
            let foreign = ForeignListener::start(how, &daemon.address());
            let end = at(&foreign.address.to_string(), words);
            assert_ne!(end.code, 0, "{how:?}: {end:?}");
            let received = foreign.text();
            assert!(!received.is_empty() && !received.contains(token), "{how:?}: {received:?}");
            if how != Listens::Silently {
                assert!(end.err.contains("the token was not sent"), "{how:?}: {end:?}");
            }
        }
    }
    assert!(!daemon.ok(&["status"]).contains("STOPPED"));
    // The daemon itself proves that it knows the token; one that does not know it gets none.
    assert_eq!(at(&daemon.address(), &["approvals", "list"]).code, 0);
    daemon.ok(&["approvers", "remove", "ada"]);
    let removed = at(&daemon.address(), &["approvals", "list"]);
    assert!(removed.code != 0 && removed.err.contains("the token was not sent"), "{removed:?}");
}
