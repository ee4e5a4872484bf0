//! Relayed ports of the sandbox's loopback.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;

use tribune_contract::{LaunchProfile, Mount, PortRelay};

use crate::support::{Test, profile, run};

pub(crate) const TESTS: &[Test] = &[
    ("port_is_forwarded_to_a_host_socket", port_is_forwarded_to_a_host_socket),
    ("concurrent_connections_are_relayed", concurrent_connections_are_relayed),
    ("socket_is_reachable_by_path", socket_is_reachable_by_path),
    ("connection_ends_without_a_listener", connection_ends_without_a_listener),
];

/// Sent in both directions; more than any buffer on the way.
const BYTES: usize = 3 * 1024 * 1024;

/// The programs that run inside.
pub(crate) fn program(words: &[&str]) -> Option<ExitCode> {
    match words {
        ["talk", port] => {
            let stream = TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap();
            println!("{}", talk(&stream, |stream| stream.shutdown(Shutdown::Write)));
        }
        ["talk-often", port] => {
            let talks = (0..40).map(|_| {
                let stream = TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap();
                std::thread::spawn(move || talk(&stream, |stream| stream.shutdown(Shutdown::Write)))
            });
            let talks: Vec<_> = talks.collect();
            let right =
                talks.into_iter().map(|talk| talk.join().unwrap()).filter(|said| said == "as sent").count();
            println!("{right}");
        }
        ["talk-by-name", path] => {
            let stream = UnixStream::connect(path).unwrap();
            println!("{}", talk(&stream, |stream| stream.shutdown(Shutdown::Write)));
        }
        ["try", port] => {
            let mut said = String::new();
            let tried = TcpStream::connect(("127.0.0.1", port.parse().unwrap()))
                .and_then(|mut stream| stream.read_to_string(&mut said));
            println!("{tried:?}");
        }
        _ => return None,
    }
    Some(ExitCode::SUCCESS)
}

/// Sends a lot while reading it back, and closes its half first.
fn talk<S>(stream: &S, end: impl FnOnce(&S) -> std::io::Result<()> + Send) -> String
where
    S: Sync,
    for<'a> &'a S: std::io::Read + std::io::Write,
{
    let sent: Vec<u8> = (0..BYTES).map(|index| (index % 251) as u8).collect();
    let mut got = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (&mut &*stream).write_all(&sent).unwrap();
            end(stream).unwrap();
        });
        (&mut &*stream).read_to_end(&mut got).unwrap();
    });
    if got == sent { "as sent".to_owned() } else { format!("{} bytes of {}", got.len(), sent.len()) }
}

/// A server that echoes everything.
fn echo(listener: UnixListener) {
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut &stream, &mut &stream);
                let _ = stream.shutdown(Shutdown::Write);
            });
        }
    });
}

/// A profile that runs a program of this test inside, with a relay to `socket`.
pub(crate) fn inside(args: &[&str], socket: &std::path::Path) -> LaunchProfile {
    let mut profile = profile("/opt/program", args);
    profile.mounts = vec![Mount::ReadOnly {
        source: std::env::current_exe().unwrap(),
        target: "/opt/program".into(),
        hide: Vec::new(),
    }];
    profile.relays = vec![PortRelay { name: "echo".into(), port: 4000, socket: socket.to_owned() }];
    profile
}

fn port_is_forwarded_to_a_host_socket() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("echo.sock");
    echo(UnixListener::bind(&socket).unwrap());
    assert_eq!(run(&inside(&["talk", "4000"], &socket)).unwrap().ok(), "as sent\n");
}

fn concurrent_connections_are_relayed() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("echo.sock");
    echo(UnixListener::bind(&socket).unwrap());
    assert_eq!(run(&inside(&["talk-often", "4000"], &socket)).unwrap().ok(), "40\n");
}

fn socket_is_reachable_by_path() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("echo.sock");
    echo(UnixListener::bind(&socket).unwrap());
    let profile = inside(&["talk-by-name", "/run/tribune/echo.sock"], &socket);
    assert_eq!(run(&profile).unwrap().ok(), "as sent\n");
}

fn connection_ends_without_a_listener() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("echo.sock");
    // Bound, but with no listener any more.
    drop(UnixListener::bind(&socket).unwrap());
    let said = run(&inside(&["try", "4000"], &socket)).unwrap().ok();
    assert!(said == "Ok(0)\n" || said.contains("ConnectionReset"), "{said}");
}
