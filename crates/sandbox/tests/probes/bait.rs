//! What the host offers to the probes.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::probes::raw;

/// The host user of the probes.
pub(crate) const AGENT: u32 = 12_345;

/// The content of everything that must not be read.
pub(crate) const HUSH: &str = "hush-5a1e";

/// The metadata address of cloud providers, and one of a name server.
pub(crate) const METADATA: [u8; 4] = [169, 254, 169, 254];
pub(crate) const RESOLVER: [u8; 4] = [192, 0, 2, 53];

/// Where servers of the host listen: one outside of the visible folders, the others inside.
const SOCKETS: [&str; 4] =
    ["sockets/open.sock", "workspace/server.sock", "workspace/service/server.sock", "shelf/server.sock"];

/// FIFOs that a program of the host writes to: in the workspace, and in a folder mounted read-only.
const FIFOS: [&str; 3] = ["workspace/fifo", "workspace/service/fifo", "shelf/fifo"];

/// What a probe knows about the host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Bait {
    /// The folder with everything on the host.
    pub(crate) host: PathBuf,
    /// The workspace, at its path inside.
    pub(crate) workspace: PathBuf,
    /// A folder mounted read-only.
    pub(crate) shelf: PathBuf,
    pub(crate) tcp: u16,
    pub(crate) tcp6: u16,
    pub(crate) udp: u16,
    pub(crate) abstract_name: String,
    pub(crate) victim: i32,
    pub(crate) shm_key: i32,
    pub(crate) hostname: String,
}

impl Bait {
    /// A path of the host, and the same path in a control that keeps the host's root.
    pub(crate) fn on_host(&self, name: &str) -> [PathBuf; 2] {
        let path = self.host.join(name);
        let kept = Path::new("/host").join(path.strip_prefix("/").unwrap());
        [path, kept]
    }
}

/// The host's side: listeners and the victim process. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Laid {
    pub(crate) bait: Bait,
    pub(crate) victim: Child,
    shm: i32,
}

/// Creates the files, as root.
pub(crate) fn files(host: &Path) {
    let write = |name: &str, text: &str| std::fs::write(host.join(name), text).unwrap();
    let folder = |name: &str| std::fs::create_dir_all(host.join(name)).unwrap();
    std::fs::set_permissions(host, PermissionsExt::from_mode(0o755)).unwrap();
    write("secret", HUSH);
    write("open-to-all", "as it was");
    std::fs::set_permissions(host.join("open-to-all"), PermissionsExt::from_mode(0o666)).unwrap();
    folder("shelf/folder");
    write("shelf/book", "as it was");
    for name in [".git/hooks", "sub/.git", "secrets", ".vscode", "service"] {
        folder(&format!("workspace/{name}"));
    }
    for (name, text) in [
        (".env", HUSH),
        ("secrets/key", HUSH),
        ("Host.PEM", HUSH),
        (".git/config", "[core]\n"),
        (".git/hooks/pre-commit", "#!/bin/sh\n"),
        ("sub/.git/config", "[core]\n"),
        (".envrc", "as it was"),
        (".mcp.json", "{}"),
        ("plain", "as it was"),
    ] {
        write(&format!("workspace/{name}"), text);
    }
    std::fs::hard_link(host.join("workspace/.env"), host.join("workspace/notes")).unwrap();
    repositories(host);
    // The target of a hidden symlink.
    folder("workspace/kept");
    write("workspace/kept/token", HUSH);
    std::os::unix::fs::symlink("../kept/token", host.join("workspace/sub/token.pem")).unwrap();
    // Homes of other instances.
    for home in ["workspace/other-home", "shelf/other-home"] {
        folder(&format!("{home}/keys"));
        folder(&format!("{home}/run"));
        write(&format!("{home}/tribune.db"), "");
        write(&format!("{home}/keys/ledger.key"), HUSH);
        write(&format!("{home}/run/token"), HUSH);
    }
    std::fs::hard_link(host.join("workspace/other-home/run/token"), host.join("workspace/token")).unwrap();
    for name in FIFOS {
        let path = raw::path(host.join(name));
        let mode = (libc::S_IFIFO | 0o666) as usize;
        raw::call(libc::SYS_mknodat, &[libc::AT_FDCWD as usize, path.as_ptr() as usize, mode, 0]).unwrap();
        std::fs::set_permissions(host.join(name), PermissionsExt::from_mode(0o666)).unwrap();
    }
    std::fs::hard_link(host.join("workspace/fifo"), host.join("workspace/other-fifo")).unwrap();
    // A device that every user could use, if device nodes worked inside.
    let device = raw::path(host.join("workspace/device"));
    let mode = (libc::S_IFCHR | 0o666) as usize;
    raw::call(libc::SYS_mknodat, &[libc::AT_FDCWD as usize, device.as_ptr() as usize, mode, (1 << 8) | 5])
        .unwrap();
    std::fs::set_permissions(host.join("workspace/device"), PermissionsExt::from_mode(0o666)).unwrap();
    give(&host.join("shelf"), AGENT);
}

/// Repositories whose folders are not called `.git`, and hard links of read-only files.
fn repositories(host: &Path) {
    let workspace = host.join("workspace");
    let state = ["rebase-merge", "rebase-apply", "sequencer"].map(|name| format!(".git/{name}"));
    let others =
        [".git/modules/lib", ".git/worktrees/tree", "bare"].map(|name| format!("{name}/rebase-merge"));
    for name in state.iter().chain(&others) {
        std::fs::create_dir_all(workspace.join(name)).unwrap();
    }
    for name in [".git/modules/lib/objects", "bare/objects", "tree", "linked", "trees/tree"] {
        std::fs::create_dir_all(workspace.join(name)).unwrap();
    }
    for (name, text) in [
        (".git/modules/lib/HEAD", "ref: refs/heads/main\n"),
        (".git/modules/lib/config", "[core]\n"),
        ("bare/HEAD", "ref: refs/heads/main\n"),
        ("bare/config", "[core]\n"),
        ("tree/.git", "gitdir: ../trees/tree\n"),
        ("trees/tree/HEAD", "ref: refs/heads/main\n"),
        ("trees/tree/commondir", "../../.git\n"),
        ("shell-rc", "as it was"),
        (".git/rebase-merge/git-rebase-todo", "pick 0\n"),
    ] {
        std::fs::write(workspace.join(name), text).unwrap();
    }
    std::os::unix::fs::symlink("../bare", workspace.join("linked/.git")).unwrap();
    std::os::unix::fs::symlink("shell-rc", workspace.join(".bashrc")).unwrap();
    std::fs::hard_link(workspace.join(".git/hooks/pre-commit"), workspace.join("a-hook")).unwrap();
    std::fs::hard_link(workspace.join(".envrc"), workspace.join("an-envrc")).unwrap();
}

/// Changes the owner of a folder and its content.
pub(crate) fn give(folder: &Path, to: u32) {
    chown(folder, Some(to), Some(to)).unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            give(&path, to);
        } else {
            std::os::unix::fs::lchown(&path, Some(to), Some(to)).unwrap();
        }
    }
}

/// Starts the listeners and the victim, as the user who launches.
pub(crate) fn lay(host: &Path, exe: &Path) -> Laid {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let metadata =
        TcpListener::bind((std::net::Ipv4Addr::from(METADATA), tcp.local_addr().unwrap().port())).unwrap();
    let tcp6 = TcpListener::bind("[::1]:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let resolver =
        UdpSocket::bind((std::net::Ipv4Addr::from(RESOLVER), udp.local_addr().unwrap().port())).unwrap();
    let abstract_name = format!("tribune-probe-{}", std::process::id());
    let name = SocketAddr::from_abstract_name(&abstract_name).unwrap();
    let abstract_socket = UnixListener::bind_addr(&name).unwrap();
    let by_path = SOCKETS.map(|name| {
        let socket = UnixListener::bind(host.join(name)).unwrap();
        std::fs::set_permissions(host.join(name), PermissionsExt::from_mode(0o666)).unwrap();
        socket
    });
    std::fs::hard_link(host.join("workspace/server.sock"), host.join("workspace/other.sock")).unwrap();
    let datagrams = UnixDatagram::bind(host.join("workspace/service/datagrams.sock")).unwrap();
    let shm_key = std::process::id().cast_signed();
    let bait = Bait {
        host: host.to_owned(),
        workspace: "/workspace".into(),
        shelf: "/shelf".into(),
        tcp: tcp.local_addr().unwrap().port(),
        tcp6: tcp6.local_addr().unwrap().port(),
        udp: udp.local_addr().unwrap().port(),
        abstract_name,
        victim: 0,
        shm_key,
        hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
    };
    for listener in [tcp, metadata, tcp6] {
        std::thread::spawn(move || {
            while let Ok((mut peer, _)) = listener.accept() {
                let _ = peer.write_all(HUSH.as_bytes());
            }
        });
    }
    call_listeners([bait.tcp, bait.tcp6]);
    for listener in by_path.into_iter().chain([abstract_socket]) {
        std::thread::spawn(move || {
            while let Ok((mut peer, _)) = listener.accept() {
                let _ = peer.write_all(HUSH.as_bytes());
            }
        });
    }
    // It cannot answer the sender, so it records that it received something.
    let heard = host.join("workspace/heard");
    std::thread::spawn(move || {
        while datagrams.recv(&mut [0; 64]).is_ok() {
            let _ = std::fs::write(&heard, HUSH);
        }
    });
    for socket in [udp, resolver] {
        std::thread::spawn(move || {
            let mut packet = [0; 64];
            while let Ok((_, peer)) = socket.recv_from(&mut packet) {
                let _ = socket.send_to(HUSH.as_bytes(), peer);
            }
        });
    }
    for name in FIFOS {
        let fifo = host.join(name);
        std::thread::spawn(move || {
            // Opening waits for a reader.
            while let Ok(mut writer) = std::fs::File::options().write(true).open(&fifo) {
                let _ = writer.write_all(HUSH.as_bytes());
            }
        });
    }
    let shm = create_shared_memory(shm_key);
    add_session_key();
    let victim = start_victim(exe);
    let bait = Bait { victim: victim.id().cast_signed(), ..bait };
    Laid { bait, victim, shm }
}

/// Connects to every listener of the host's network but its own, as a machine of the network could.
fn call_listeners(own: [u16; 2]) {
    let listening = move || {
        let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap_or_default();
        let ports = table.lines().filter_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            let (address, state) = (words.next()?, words.nth(1)?);
            let port = u16::from_str_radix(address.split_once(':')?.1, 16).ok()?;
            (state == "0A" && !own.contains(&port)).then_some(port)
        });
        ports.collect::<Vec<u16>>()
    };
    std::thread::spawn(move || {
        // It ends with the process; the bound is only a second one.
        for _ in 0..6000 {
            for port in listening() {
                let called = std::net::TcpStream::connect((std::net::Ipv4Addr::LOCALHOST, port));
                let _ = called.and_then(|mut peer| peer.write_all(HUSH.as_bytes()));
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    });
}

/// Creates shared memory that every user may use.
fn create_shared_memory(key: i32) -> i32 {
    let flags = (libc::IPC_CREAT | libc::IPC_EXCL | 0o666) as usize;
    let id = raw::call(libc::SYS_shmget, &[key as usize, 4096, flags]).unwrap();
    i32::try_from(id).unwrap()
}

/// Adds a key to the session keyring that the agent's user may read.
fn add_session_key() {
    const SESSION_KEYRING: isize = -3;
    const CHOWN: usize = 4;
    let (kind, about) = (c"user", c"tribune-probe");
    let key = raw::call(
        libc::SYS_add_key,
        &[
            kind.as_ptr() as usize,
            about.as_ptr() as usize,
            HUSH.as_ptr() as usize,
            HUSH.len(),
            SESSION_KEYRING.cast_unsigned(),
        ],
    )
    .unwrap();
    if rustix::process::geteuid().is_root() {
        raw::call(libc::SYS_keyctl, &[CHOWN, key, AGENT as usize, AGENT as usize]).unwrap();
    }
}

/// Starts a process of the agent's user that does nothing.
fn start_victim(exe: &Path) -> Child {
    let mut victim = Command::new(exe);
    victim.arg("wait").stdin(Stdio::piped()).stdout(Stdio::null());
    if rustix::process::geteuid().is_root() {
        use std::os::unix::process::CommandExt as _;
        victim.uid(AGENT).gid(AGENT);
    }
    victim.spawn().unwrap()
}

impl Drop for Laid {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
        let _ = raw::call(libc::SYS_shmctl, &[self.shm as usize, libc::IPC_RMID as usize, 0]);
    }
}

/// Reads a little, to see whether the file is readable.
pub(crate) fn taste(path: impl AsRef<Path>) -> std::io::Result<String> {
    let mut bytes = [0; 256];
    let read = std::fs::File::open(path)?.read(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes[..read]).into_owned())
}
