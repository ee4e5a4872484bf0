//! The socket directory: its place, its permissions, its lifetime, and its limits.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tribune_egress::SocketLimits;
use tribune_testkit::{TempHome, assert_sound};

use super::{EgressOptions, Server, Setup, connect, hello};

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
async fn start_echo(limits: SocketLimits) -> (Setup, Server) {
    let server = Server::echo().await;
    let egress = "agents: { main: [{ host: 'a.example', scheme: 'tcp', port: 443 }] }".to_owned();
    let setup = Setup::with(EgressOptions { egress, limits, ..EgressOptions::default() }).await;
    setup.network.name("a.example", &["93.184.216.34"]);
    setup.network.route("93.184.216.34:443", server.address);
    (setup, server)
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_are_private_to_their_owner_and_silent() {
    let setup = Setup::open("").await;
    let dir = setup.sockets.dir().to_owned();
    assert_eq!((mode(&dir), mode(dir.parent().unwrap())), (0o700, 0o700));
    for socket in [setup.sockets.egress(), setup.sockets.model()] {
        assert_eq!(mode(&socket), 0o600, "{}", socket.display());
        assert!(std::fs::metadata(&socket).unwrap().file_type().is_socket());
        assert_eq!(socket.parent().unwrap(), dir);
    }
    let name = dir.file_name().unwrap().to_str().unwrap();
    assert!(name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
    // A privileged process can give the sockets to another user; every process can give them to itself.
    let own = std::fs::metadata(&dir).unwrap();
    let user = if own.uid() == 0 { 65_534 } else { own.uid() };
    setup.sockets.give_to(user, own.gid()).unwrap();
    for path in [&dir, &setup.sockets.egress(), &setup.sockets.model()] {
        assert_eq!(std::fs::metadata(path).unwrap().uid(), user);
    }
    assert_eq!((mode(&dir), mode(&setup.sockets.egress())), (0o700, 0o600));
    // Each open has its own directory, which is removed at its end.
    let other = setup.daemon.daemon.socket_service().open(&super::key(super::KEY)).unwrap();
    let second = other.dir().to_owned();
    assert_ne!(second, dir);
    drop(other);
    assert!(!second.exists() && dir.exists());
    setup.close().await;
    assert!(!dir.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_a_session_ends_its_connections() {
    let (setup, _server) = start_echo(SocketLimits::default()).await;
    let sockets = setup.daemon.daemon.socket_service().open(&super::key(super::KEY)).unwrap();
    let mut tunnel = tokio::net::UnixStream::connect(sockets.egress()).await.unwrap();
    tunnel.write_all(connect("a.example:443").as_bytes()).await.unwrap();
    super::established(&mut tunnel).await;
    drop(sockets);
    assert_eq!(super::rest_of(&mut tunnel).await, "");
    assert_eq!(
        setup.ended(1).await,
        [json!({ "event": "ended", "outcome": "stopped", "sent": 0, "received": 0 })]
    );
    setup.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn l2_restart_after_a_kill_removes_sockets_and_records_interrupted_connections() {
    let (setup, _server) = start_echo(SocketLimits::default()).await;
    let mut tunnel = setup.tunnel("a.example:443").await;
    tunnel.write_all(b"x").await.unwrap();
    tunnel.read_exact(&mut [0]).await.unwrap();
    let copy = copy_of(&setup.daemon.home);
    let left = copy.home.root().join("run/s");
    assert_eq!(std::fs::read_dir(&left).unwrap().count(), 1);
    setup.close().await;

    let setup = Setup::on(copy, &EgressOptions::default()).await;
    assert_eq!(setup.daemon.daemon.recovered().calls, 1);
    // Only the directory of the session that was opened since.
    assert_eq!(std::fs::read_dir(&left).unwrap().count(), 1);
    let ended = setup.ended(1).await;
    assert_eq!(ended, [json!({ "event": "ended", "outcome": "interrupted", "sent": 0, "received": 0 })]);
    let home = setup.close().await;
    assert_eq!(std::fs::read_dir(&left).unwrap().count(), 0);
    assert_sound(&home.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn home_with_a_long_path_has_sockets() {
    let folder = tempfile::tempdir().unwrap();
    let long = folder.path().join("x".repeat(120));
    let home = TempHome { home: tribune_storage::home::Home::at(long.join("home")), folder };
    home.write("mandates/sandboxed.md", super::MANDATE);
    home.write("data/agent-roster.jsonl", super::ROSTER);
    let setup = Setup::on(home, &EgressOptions::default()).await;
    let socket = setup.sockets.egress();
    assert!(socket.as_os_str().len() > 108);
    assert_eq!(mode(&socket), 0o600);
    let folder = std::fs::File::open(setup.sockets.dir()).unwrap();
    let short = format!("/proc/self/fd/{}/egress.sock", std::os::fd::AsRawFd::as_raw_fd(&folder));
    let mut stream = tokio::net::UnixStream::connect(short).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert_eq!(super::parse(&super::rest_of(&mut stream).await).0, 400);
    setup.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn l9_connections_are_limited_in_number_bytes_and_idle_time() {
    let few = SocketLimits { connections: 2, ..SocketLimits::default() };
    let (setup, _server) = start_echo(few).await;
    let first = setup.tunnel("a.example:443").await;
    let _second = setup.tunnel("a.example:443").await;
    assert_eq!(setup.refused(connect("a.example:443")).await, (503, "too_many_connections".to_owned()));
    drop(first);
    setup.ended(1).await;
    // The connection slot is released right after the end is recorded.
    let mut status = [0; 12];
    for _ in 0..1_000 {
        let mut third = setup.connect().await;
        third.write_all(connect("a.example:443").as_bytes()).await.unwrap();
        third.read_exact(&mut status).await.unwrap();
        if &status == b"HTTP/1.1 200" {
            break;
        }
    }
    assert_eq!(&status, b"HTTP/1.1 200");
    setup.close().await;

    let little = SocketLimits { bytes: 1_000, ..SocketLimits::default() };
    let (setup, server) = start_echo(little).await;
    let mut tunnel = setup.tunnel("a.example:443").await;
    let _ = tunnel.write_all(&[b'x'; 100_000]).await;
    super::rest_of(&mut tunnel).await;
    let ended = setup.ended(1).await;
    assert_eq!((&ended[0]["outcome"], &ended[0]["code"]), (&json!("limit"), &json!("too_much")));
    assert!(server.received().len() <= 1_000);
    setup.close().await;

    for (limits, code) in [
        (SocketLimits { idle: Duration::from_millis(30), ..SocketLimits::default() }, "idle"),
        (SocketLimits { whole: Duration::from_millis(30), ..SocketLimits::default() }, "too_long"),
    ] {
        let (setup, _server) = start_echo(limits).await;
        let mut tunnel = setup.tunnel("a.example:443").await;
        assert_eq!(super::rest_of(&mut tunnel).await, "");
        let ended = setup.ended(1).await;
        assert_eq!((&ended[0]["outcome"], &ended[0]["code"]), (&json!("limit"), &json!(code)));
        setup.close().await;
    }

    let hurried = SocketLimits { head: Duration::from_millis(50), ..SocketLimits::default() };
    let (setup, _server) = start_echo(hurried).await;
    assert_eq!(setup.refused("CONNECT a.example:443 HTTP/1.1\r\nhost:").await, (408, "timed_out".to_owned()));
    setup.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn incomplete_client_hello_times_out() {
    let server = Server::echo().await;
    let limits = SocketLimits { head: Duration::from_millis(200), ..SocketLimits::default() };
    let egress = "agents: { main: [{ host: 'a.example' }] }".to_owned();
    let setup = Setup::with(EgressOptions { egress, limits, ..EgressOptions::default() }).await;
    setup.network.name("a.example", &["93.184.216.34"]);
    setup.network.route("93.184.216.34:443", server.address);
    let mut tunnel = setup.tunnel("a.example:443").await;
    let words = hello(Some("a.example"));
    tunnel.write_all(&words[..words.len() - 1]).await.unwrap();
    super::rest_of(&mut tunnel).await;
    assert_eq!(setup.ended(1).await[0]["code"], "wrong_tls");
    assert_eq!(server.received(), "");
    setup.close().await;
}
