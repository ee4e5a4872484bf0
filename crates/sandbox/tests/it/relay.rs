//! The loopback inside, and where its ports lead.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;

use tribune_contract::{LaunchProfile, Mount, Relay};

use crate::support::{Test, profile, run};

pub(crate) const TESTS: &[Test] = &[
    ("a_port_leads_to_a_socket_of_the_host", a_port_leads_to_a_socket_of_the_host),
    ("many_connections_at_a_time", many_connections_at_a_time),
    ("the_socket_is_there_by_its_name_too", the_socket_is_there_by_its_name_too),
    ("without_a_host_a_connection_ends", without_a_host_a_connection_ends),
];

/// Bytes that are sent there and back; more than any buffer on the way.
const BYTES: usize = 3 * 1024 * 1024;

/// What runs inside.
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

/// Sends a lot while reading it back, and ends its half first.
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

/// A host that sends everything back.
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

/// A program of this test, inside, with a relay to `socket`.
pub(crate) fn inside(args: &[&str], socket: &std::path::Path) -> LaunchProfile {
    let mut profile = profile("/opt/program", args);
    profile.mounts = vec![Mount::ReadOnly {
        source: std::env::current_exe().unwrap(),
        target: "/opt/program".into(),
        hide: Vec::new(),
    }];
    profile.relays = vec![Relay { name: "echo".into(), port: 4000, socket: socket.to_owned(), token: None }];
    profile
}

fn a_port_leads_to_a_socket_of_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("echo.sock");
    echo(UnixListener::bind(&socket).unwrap());
    assert_eq!(run(&inside(&["talk", "4000"], &socket)).unwrap().ok(), "as sent\n");
}

fn many_connections_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("echo.sock");
    echo(UnixListener::bind(&socket).unwrap());
    assert_eq!(run(&inside(&["talk-often", "4000"], &socket)).unwrap().ok(), "40\n");
}

fn the_socket_is_there_by_its_name_too() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("echo.sock");
    echo(UnixListener::bind(&socket).unwrap());
    let profile = inside(&["talk-by-name", "/run/tribune/echo.sock"], &socket);
    assert_eq!(run(&profile).unwrap().ok(), "as sent\n");
}

fn without_a_host_a_connection_ends() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("echo.sock");
    // Bound, and nobody listens any more.
    drop(UnixListener::bind(&socket).unwrap());
    let said = run(&inside(&["try", "4000"], &socket)).unwrap().ok();
    assert!(said == "Ok(0)\n" || said.contains("ConnectionReset"), "{said}");
}
