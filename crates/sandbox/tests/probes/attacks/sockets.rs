//! Sockets of host servers in folders that the sandbox sees.

use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::time::Duration;

use tribune_sandbox::Isolation::{Landlock, WorkspaceMasks};

use crate::probes::attacks::network::{hush, said};
use crate::probes::bait::{Bait, HUSH, taste};
use crate::probes::probe::{Outcome, Probe};

const GROUP: &str = "Sockets in shown folders";

pub(crate) const PROBES: &[Probe] = &[
    Probe::new(
        GROUP,
        "workspace_socket",
        "connect to a server of the host in the workspace",
        &[WorkspaceMasks, Landlock],
        workspace_socket,
    ),
    Probe::new(
        GROUP,
        "workspace_socket_by_other_name",
        "connect to it through a hard link",
        &[WorkspaceMasks, Landlock],
        workspace_socket_by_other_name,
    ),
    Probe::new(
        GROUP,
        "workspace_socket_by_link",
        "connect to it through a symlink",
        &[WorkspaceMasks, Landlock],
        workspace_socket_by_link,
    ),
    Probe::new(
        GROUP,
        "workspace_socket_renamed",
        "rename its socket and connect",
        &[WorkspaceMasks, Landlock],
        workspace_socket_renamed,
    ),
    Probe::new(
        GROUP,
        "socket_folder_renamed",
        "rename the folder of a socket and connect",
        &[WorkspaceMasks, Landlock],
        socket_folder_renamed,
    ),
    Probe::new(
        GROUP,
        "datagram_socket",
        "send a datagram to a server of the host in the workspace",
        &[WorkspaceMasks, Landlock],
        datagram_socket,
    ),
    Probe::new(
        GROUP,
        "shelf_socket",
        "connect to a server of the host in a folder mounted read-only",
        &[WorkspaceMasks, Landlock],
        shelf_socket,
    ),
    fifo("workspace_fifo", "read from a FIFO that a program of the host writes to", workspace_fifo),
    fifo("workspace_fifo_by_other_name", "read from it through a hard link", workspace_fifo_by_other_name),
    fifo("workspace_fifo_renamed", "rename it and read from it", workspace_fifo_renamed),
    fifo("fifo_folder_renamed", "rename the folder of a FIFO and read from it", fifo_folder_renamed),
    fifo("shelf_fifo", "read from a FIFO in a folder mounted read-only", shelf_fifo),
];

const fn fifo(name: &'static str, tries: &'static str, act: fn(&Bait) -> Outcome) -> Probe {
    Probe::new(GROUP, name, tries, &[WorkspaceMasks], act)
}

/// Reads without waiting for the writer to open it.
fn read_fifo(path: &Path) -> Outcome {
    use std::io::Read as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let opened = std::fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let mut text = String::new();
    let heard = opened.and_then(|mut fifo| {
        for _ in 0..200 {
            let mut bytes = [0; 64];
            match fifo.read(&mut bytes) {
                Ok(0) => std::thread::sleep(Duration::from_millis(10)),
                Ok(length) => {
                    text.push_str(&String::from_utf8_lossy(&bytes[..length]));
                    break;
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    });
    Outcome::when(text.starts_with(HUSH), format!("{heard:?} {text:?}"))
}

fn workspace_fifo(bait: &Bait) -> Outcome {
    read_fifo(&bait.workspace.join("fifo"))
}

fn workspace_fifo_by_other_name(bait: &Bait) -> Outcome {
    read_fifo(&bait.workspace.join("other-fifo"))
}

fn workspace_fifo_renamed(bait: &Bait) -> Outcome {
    let to = bait.workspace.join("renamed-fifo");
    let _ = std::fs::rename(bait.workspace.join("fifo"), &to);
    read_fifo(&to)
}

fn fifo_folder_renamed(bait: &Bait) -> Outcome {
    let to = bait.workspace.join("renamed");
    let _ = std::fs::rename(bait.workspace.join("service"), &to);
    read_fifo(&to.join("fifo"))
}

fn shelf_fifo(bait: &Bait) -> Outcome {
    read_fifo(&bait.shelf.join("fifo"))
}

fn connect(path: &Path) -> Outcome {
    said(&UnixStream::connect(path).and_then(hush))
}

fn workspace_socket(bait: &Bait) -> Outcome {
    connect(&bait.workspace.join("server.sock"))
}

fn workspace_socket_by_other_name(bait: &Bait) -> Outcome {
    connect(&bait.workspace.join("other.sock"))
}

fn workspace_socket_by_link(bait: &Bait) -> Outcome {
    let link = bait.workspace.join("link.sock");
    std::os::unix::fs::symlink("server.sock", &link).unwrap();
    connect(&link)
}

fn workspace_socket_renamed(bait: &Bait) -> Outcome {
    let to = bait.workspace.join("renamed.sock");
    let _ = std::fs::rename(bait.workspace.join("server.sock"), &to);
    connect(&to)
}

fn socket_folder_renamed(bait: &Bait) -> Outcome {
    let to = bait.workspace.join("renamed");
    let _ = std::fs::rename(bait.workspace.join("service"), &to);
    connect(&to.join("server.sock"))
}

fn datagram_socket(bait: &Bait) -> Outcome {
    let to = bait.workspace.join("service/datagrams.sock");
    let sent = UnixDatagram::unbound().and_then(|socket| socket.send_to(b"?", to));
    let mut heard = taste(bait.workspace.join("heard"));
    for _ in 0..200 {
        if sent.is_err() || heard.is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
        heard = taste(bait.workspace.join("heard"));
    }
    Outcome::when(heard.is_ok(), format!("{sent:?}"))
}

fn shelf_socket(bait: &Bait) -> Outcome {
    connect(&bait.shelf.join("server.sock"))
}
