//! Sockets of the host, and socket types that no tool needs. The host is the network namespace of the case.

use std::io::Read as _;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use tribune_sandbox::Isolation::{Landlock, NetworkNamespace, Root, Seccomp};

use crate::probes::bait::{Bait, HUSH, METADATA, RESOLVER};
use crate::probes::probe::{Outcome, Probe};
use crate::probes::raw;

pub(super) const GROUP: &str = "Network";

/// How long an answer may take. It comes at once or never.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) const PROBES: &[Probe] = &[
    Probe::new(
        GROUP,
        "loopback_tcp",
        "connect to a port of the host's loopback",
        &[NetworkNamespace],
        loopback_tcp,
    )
    .in_landlock_mode(&[Landlock, Seccomp]),
    Probe::new(
        GROUP,
        "loopback_tcp6",
        "connect to a port of the host's IPv6 loopback",
        &[NetworkNamespace],
        loopback_tcp6,
    )
    .in_landlock_mode(&[Landlock, Seccomp]),
    Probe::new(
        GROUP,
        "mapped_tcp",
        "the same by an IPv4-mapped IPv6 address",
        &[NetworkNamespace],
        mapped_tcp,
    )
    .in_landlock_mode(&[Landlock, Seccomp]),
    Probe::new(
        GROUP,
        "loopback_udp",
        "exchange datagrams with the host's loopback",
        &[NetworkNamespace],
        loopback_udp,
    )
    .in_landlock_mode(&[Seccomp]),
    Probe::new(
        GROUP,
        "metadata",
        "connect to the metadata address of cloud providers",
        &[NetworkNamespace],
        metadata,
    )
    .in_landlock_mode(&[Landlock, Seccomp]),
    Probe::new(GROUP, "resolver", "query a name server", &[NetworkNamespace], resolver)
        .in_landlock_mode(&[Seccomp]),
    Probe::new(
        GROUP,
        "abstract_socket",
        "connect to an abstract socket of the host",
        &[NetworkNamespace, Landlock],
        abstract_socket,
    )
    .in_landlock_mode(&[Landlock, Seccomp]),
    Probe::new(
        GROUP,
        "path_socket",
        "connect to a socket of the host by its path",
        &[Root, Landlock],
        path_socket,
    )
    .in_landlock_mode(&[Landlock, Seccomp]),
    Probe::new(GROUP, "interfaces", "see the host's addresses", &[NetworkNamespace], interfaces),
    Probe::new(
        GROUP,
        "connections",
        "see the host's connections in /proc/net",
        &[NetworkNamespace],
        connections,
    ),
    Probe::new(GROUP, "vsock", "open a socket to the hypervisor (AF_VSOCK)", &[Seccomp], vsock)
        .in_landlock_mode(&[Seccomp]),
    Probe::new(GROUP, "netlink_uevent", "listen to kernel device events", &[Seccomp], netlink_uevent)
        .in_landlock_mode(&[Seccomp]),
    Probe::new(GROUP, "netlink_generic", "open a generic netlink socket", &[Seccomp], netlink_generic)
        .in_landlock_mode(&[Seccomp]),
    Probe::new(GROUP, "netlink_audit", "open an audit netlink socket", &[Seccomp], netlink_audit)
        .in_landlock_mode(&[Seccomp]),
    Probe::new(GROUP, "netlink_diag", "list sockets through sock_diag", &[Seccomp], netlink_diag)
        .in_landlock_mode(&[Seccomp]),
    Probe::as_root(GROUP, "raw_socket", "open a raw socket", raw_socket).in_landlock_mode_as_root(),
    Probe::as_root(GROUP, "raw_socket6", "open a raw IPv6 socket", raw_socket6).in_landlock_mode_as_root(),
    Probe::as_root(GROUP, "packet_socket", "open a packet socket", packet_socket).in_landlock_mode_as_root(),
    Probe::as_root(GROUP, "xdp_socket", "open a socket to the network driver (AF_XDP)", xdp_socket)
        .in_landlock_mode_as_root(),
];

pub(super) fn hush(mut stream: impl std::io::Read) -> std::io::Result<String> {
    let mut text = String::new();
    stream.by_ref().take(64).read_to_string(&mut text)?;
    Ok(text)
}

pub(super) fn said(text: &std::io::Result<String>) -> Outcome {
    Outcome::when(text.as_ref().is_ok_and(|text| text == HUSH), format!("{text:?}"))
}

fn tcp(address: SocketAddr) -> Outcome {
    said(&TcpStream::connect_timeout(&address, PATIENCE).and_then(hush))
}

fn loopback_tcp(bait: &Bait) -> Outcome {
    tcp((Ipv4Addr::LOCALHOST, bait.tcp).into())
}

fn loopback_tcp6(bait: &Bait) -> Outcome {
    tcp((Ipv6Addr::LOCALHOST, bait.tcp6).into())
}

fn mapped_tcp(bait: &Bait) -> Outcome {
    tcp((Ipv4Addr::LOCALHOST.to_ipv6_mapped(), bait.tcp).into())
}

fn metadata(bait: &Bait) -> Outcome {
    tcp((Ipv4Addr::from(METADATA), bait.tcp).into())
}

fn udp(address: Ipv4Addr, port: u16) -> Outcome {
    let answer = (|| {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.send_to(b"?", (address, port))?;
        let mut packet = [0; 64];
        let (length, _) = socket.recv_from(&mut packet)?;
        Ok(String::from_utf8_lossy(&packet[..length]).into_owned())
    })();
    said(&answer)
}

fn loopback_udp(bait: &Bait) -> Outcome {
    udp(Ipv4Addr::LOCALHOST, bait.udp)
}

fn resolver(bait: &Bait) -> Outcome {
    udp(Ipv4Addr::from(RESOLVER), bait.udp)
}

fn abstract_socket(bait: &Bait) -> Outcome {
    let name = std::os::unix::net::SocketAddr::from_abstract_name(&bait.abstract_name).unwrap();
    said(&UnixStream::connect_addr(&name).and_then(hush))
}

fn path_socket(bait: &Bait) -> Outcome {
    let answers =
        bait.on_host("sockets/open.sock").map(|path| said(&UnixStream::connect(path).and_then(hush)));
    let [first, second] = answers;
    if matches!(first, Outcome::Open(_)) { first } else { second }
}

fn interfaces(_: &Bait) -> Outcome {
    let text = std::fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    Outcome::when(text.contains("169.254.169.254"), format!("{} bytes", text.len()))
}

fn connections(bait: &Bait) -> Outcome {
    let text = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let port = format!(":{:04X} ", bait.tcp);
    Outcome::when(text.contains(&port), text)
}

pub(super) fn socket(family: i32, kind: i32, protocol: i32) -> Outcome {
    let kind = kind | libc::SOCK_CLOEXEC;
    Outcome::of(raw::call(libc::SYS_socket, &[family as usize, kind as usize, protocol as usize]))
}

fn vsock(_: &Bait) -> Outcome {
    socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0)
}

fn netlink_uevent(_: &Bait) -> Outcome {
    socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_KOBJECT_UEVENT)
}

fn netlink_generic(_: &Bait) -> Outcome {
    socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_GENERIC)
}

fn netlink_audit(_: &Bait) -> Outcome {
    socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_AUDIT)
}

fn netlink_diag(_: &Bait) -> Outcome {
    socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_SOCK_DIAG)
}

fn raw_socket(_: &Bait) -> Outcome {
    socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP)
}

fn raw_socket6(_: &Bait) -> Outcome {
    socket(libc::AF_INET6, libc::SOCK_RAW, libc::IPPROTO_ICMPV6)
}

fn packet_socket(_: &Bait) -> Outcome {
    socket(libc::AF_PACKET, libc::SOCK_RAW, 0)
}

fn xdp_socket(_: &Bait) -> Outcome {
    socket(libc::AF_XDP, libc::SOCK_RAW, 0)
}
