//! The socket directory: its place, its permissions, its lifetime, and its limits.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tribune_egress::Limits;
use tribune_testkit::{TempHome, assert_sound};

use super::{House, Plan, Server, connect, hello};

/// A copy of the home as it is on disk now, as a kill would leave it.
pub(super) fn copy_of(home: &TempHome) -> TempHome {
    let copy = TempHome::new();
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .arg(home.home.root())
        .arg(copy.home.root())
        .status()
        .unwrap();
    assert!(copied.success());
    copy
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// An allowlist entry for an echo server.
async fn echoing(limits: Limits) -> (House, Server) {
    let server = Server::echo().await;
    let egress = "agents: { main: [{ host: 'a.example', scheme: 'tcp', port: 443 }] }".to_owned();
    let house = House::with(Plan { egress, limits, ..Plan::default() }).await;
    house.map.name("a.example", &["93.184.216.34"]);
    house.map.route("93.184.216.34:443", server.address);
    (house, server)
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_are_private_to_their_owner_and_silent() {
    let house = House::open("").await;
    let dir = house.sockets.dir().to_owned();
    assert_eq!((mode(&dir), mode(dir.parent().unwrap())), (0o700, 0o700));
    for socket in [house.sockets.egress(), house.sockets.model()] {
        assert_eq!(mode(&socket), 0o600, "{}", socket.display());
        assert!(std::fs::metadata(&socket).unwrap().file_type().is_socket());
        assert_eq!(socket.parent().unwrap(), dir);
    }
    let name = dir.file_name().unwrap().to_str().unwrap();
    assert!(name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
    // A privileged process can give the sockets to another user; every process can give them to itself.
    let own = std::fs::metadata(&dir).unwrap();
    let user = if own.uid() == 0 { 65_534 } else { own.uid() };
    house.sockets.give_to(user, own.gid()).unwrap();
    for path in [&dir, &house.sockets.egress(), &house.sockets.model()] {
        assert_eq!(std::fs::metadata(path).unwrap().uid(), user);
    }
    assert_eq!((mode(&dir), mode(&house.sockets.egress())), (0o700, 0o600));
    // Each open has its own directory, which is removed at its end.
    let other = house.daemon.daemon.brokers().open(&super::key(super::KEY)).unwrap();
    let second = other.dir().to_owned();
    assert_ne!(second, dir);
    drop(other);
    assert!(!second.exists() && dir.exists());
    house.close().await;
    assert!(!dir.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_a_session_ends_its_connections() {
    let (house, _server) = echoing(Limits::default()).await;
    let sockets = house.daemon.daemon.brokers().open(&super::key(super::KEY)).unwrap();
    let mut tunnel = tokio::net::UnixStream::connect(sockets.egress()).await.unwrap();
    tunnel.write_all(connect("a.example:443").as_bytes()).await.unwrap();
    super::established(&mut tunnel).await;
    drop(sockets);
    assert_eq!(super::rest_of(&mut tunnel).await, "");
    assert_eq!(
        house.ended(1).await,
        [json!({ "event": "ended", "outcome": "stopped", "sent": 0, "received": 0 })]
    );
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn l2_restart_after_a_kill_removes_sockets_and_records_interrupted_connections() {
    let (house, _server) = echoing(Limits::default()).await;
    let mut tunnel = house.tunnel("a.example:443").await;
    tunnel.write_all(b"x").await.unwrap();
    tunnel.read_exact(&mut [0]).await.unwrap();
    let copy = copy_of(&house.daemon.home);
    let left = copy.home.root().join("run/s");
    assert_eq!(std::fs::read_dir(&left).unwrap().count(), 1);
    house.close().await;

    let house = House::on(copy, &Plan::default()).await;
    assert_eq!(house.daemon.daemon.recovered().calls, 1);
    // Only the directory of the session that was opened since.
    assert_eq!(std::fs::read_dir(&left).unwrap().count(), 1);
    let ended = house.ended(1).await;
    assert_eq!(ended, [json!({ "event": "ended", "outcome": "interrupted", "sent": 0, "received": 0 })]);
    let home = house.close().await;
    assert_eq!(std::fs::read_dir(&left).unwrap().count(), 0);
    assert_sound(&home.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn home_with_a_long_path_has_sockets() {
    let folder = tempfile::tempdir().unwrap();
    let long = folder.path().join("x".repeat(120));
    let home = TempHome { home: tribune_storage::home::Home::at(long.join("home")), folder };
    home.write("mandates/box.md", super::MANDATE);
    home.write("data/agent-roster.jsonl", super::ROSTER);
    let house = House::on(home, &Plan::default()).await;
    let socket = house.sockets.egress();
    assert!(socket.as_os_str().len() > 108);
    assert_eq!(mode(&socket), 0o600);
    let folder = std::fs::File::open(house.sockets.dir()).unwrap();
    let short = format!("/proc/self/fd/{}/egress.sock", std::os::fd::AsRawFd::as_raw_fd(&folder));
    let mut stream = tokio::net::UnixStream::connect(short).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert_eq!(super::parse(&super::rest_of(&mut stream).await).0, 400);
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn l9_connections_are_limited_in_number_bytes_and_idle_time() {
    let few = Limits { connections: 2, ..Limits::default() };
    let (house, _server) = echoing(few).await;
    let first = house.tunnel("a.example:443").await;
    let _second = house.tunnel("a.example:443").await;
    assert_eq!(house.refused(connect("a.example:443")).await, (503, "too_many_connections".to_owned()));
    drop(first);
    house.ended(1).await;
    // The connection slot is released right after the end is recorded.
    let mut status = [0; 12];
    for _ in 0..1_000 {
        let mut third = house.connect().await;
        third.write_all(connect("a.example:443").as_bytes()).await.unwrap();
        third.read_exact(&mut status).await.unwrap();
        if &status == b"HTTP/1.1 200" {
            break;
        }
    }
    assert_eq!(&status, b"HTTP/1.1 200");
    house.close().await;

    let little = Limits { bytes: 1_000, ..Limits::default() };
    let (house, server) = echoing(little).await;
    let mut tunnel = house.tunnel("a.example:443").await;
    let _ = tunnel.write_all(&[b'x'; 100_000]).await;
    super::rest_of(&mut tunnel).await;
    let ended = house.ended(1).await;
    assert_eq!((&ended[0]["outcome"], &ended[0]["code"]), (&json!("limit"), &json!("too_much")));
    assert!(server.heard().len() <= 1_000);
    house.close().await;

    for (limits, code) in [
        (Limits { idle: Duration::from_millis(30), ..Limits::default() }, "idle"),
        (Limits { whole: Duration::from_millis(30), ..Limits::default() }, "too_long"),
    ] {
        let (house, _server) = echoing(limits).await;
        let mut tunnel = house.tunnel("a.example:443").await;
        assert_eq!(super::rest_of(&mut tunnel).await, "");
        let ended = house.ended(1).await;
        assert_eq!((&ended[0]["outcome"], &ended[0]["code"]), (&json!("limit"), &json!(code)));
        house.close().await;
    }

    let hurried = Limits { head: Duration::from_millis(50), ..Limits::default() };
    let (house, _server) = echoing(hurried).await;
    assert_eq!(house.refused("CONNECT a.example:443 HTTP/1.1\r\nhost:").await, (408, "timed_out".to_owned()));
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn incomplete_client_hello_times_out() {
    let server = Server::echo().await;
    let limits = Limits { head: Duration::from_millis(200), ..Limits::default() };
    let egress = "agents: { main: [{ host: 'a.example' }] }".to_owned();
    let house = House::with(Plan { egress, limits, ..Plan::default() }).await;
    house.map.name("a.example", &["93.184.216.34"]);
    house.map.route("93.184.216.34:443", server.address);
    let mut tunnel = house.tunnel("a.example:443").await;
    let words = hello(Some("a.example"));
    tunnel.write_all(&words[..words.len() - 1]).await.unwrap();
    super::rest_of(&mut tunnel).await;
    assert_eq!(house.ended(1).await[0]["code"], "wrong_tls");
    assert_eq!(server.heard(), "");
    house.close().await;
}
