//! Ways to reach a server of the host other than `connect` on an ordinary socket: protocols that build on TCP or stand
//! beside it, connections made by sending, and being connected to.

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use tribune_sandbox::Isolation::{Landlock, NetworkNamespace, Seccomp};

use crate::probes::attacks::network::{GROUP, PATIENCE, said, socket};
use crate::probes::bait::Bait;
use crate::probes::probe::{Outcome, Probe};
use crate::probes::raw;

pub(crate) const PROBES: &[Probe] = &[
    reaches("explicit_tcp", "name the protocol (IPPROTO_TCP)", explicit_tcp)
        .in_landlock_mode(&[Landlock, Seccomp]),
    reaches("unspecified_tcp", "connect to the address 0.0.0.0", unspecified_tcp)
        .in_landlock_mode(&[Landlock, Seccomp]),
    reaches("waiting_tcp", "connect without waiting (SOCK_NONBLOCK)", waiting_tcp)
        .in_landlock_mode(&[Landlock, Seccomp]),
    reaches("reset_tcp", "connect after disconnecting (AF_UNSPEC)", reset_tcp)
        .in_landlock_mode(&[Landlock, Seccomp]),
    reaches("mptcp", "connect by multipath TCP", mptcp).in_landlock_mode(&[Seccomp]),
    reaches("mptcp6", "connect by multipath TCP over IPv6", mptcp6).in_landlock_mode(&[Seccomp]),
    reaches("fast_open_sendto", "connect by sending (sendto, MSG_FASTOPEN)", fast_open_sendto)
        .in_landlock_mode(&[Seccomp]),
    reaches("fast_open_sendto6", "connect by sending over IPv6", fast_open_sendto6)
        .in_landlock_mode(&[Seccomp]),
    reaches("fast_open_sendmsg", "connect by sending (sendmsg, MSG_FASTOPEN)", fast_open_sendmsg)
        .in_landlock_mode(&[Seccomp]),
    reaches("fast_open_sendmmsg", "connect by sending (sendmmsg, MSG_FASTOPEN)", fast_open_sendmmsg)
        .in_landlock_mode(&[Seccomp]),
    reaches("fast_open_mptcp", "connect by sending over multipath TCP", fast_open_mptcp)
        .in_landlock_mode(&[Seccomp]),
    reaches("fast_open_option", "connect at the first write (TCP_FASTOPEN_CONNECT)", fast_open_option)
        .in_landlock_mode(&[Landlock, Seccomp]),
    reaches("connected_udp", "connect a datagram socket", connected_udp).in_landlock_mode(&[Seccomp]),
    reaches("udp_sendmsg", "send a datagram (sendmsg)", udp_sendmsg).in_landlock_mode(&[Seccomp]),
    reaches("udp_sendmmsg", "send a datagram (sendmmsg)", udp_sendmmsg).in_landlock_mode(&[Seccomp]),
    reaches("called", "listen without binding, and be connected to", called).in_landlock_mode(&[Seccomp]),
    reaches("called_by_mptcp", "listen by multipath TCP, and be connected to", called_by_mptcp)
        .in_landlock_mode(&[Seccomp]),
    Probe::new(
        GROUP,
        "ping_socket",
        "open an ICMP socket without privileges",
        &[NetworkNamespace, Seccomp],
        ping_socket,
    )
    .in_landlock_mode(&[Seccomp]),
    asks("udplite", "open a UDP-Lite socket", udplite),
    asks("sctp", "open an SCTP socket", sctp),
    asks("sctp_packets", "open an SCTP socket of sequenced packets", sctp_packets),
    asks("default_packets", "open the kernel's default for sequenced packets, SCTP", default_packets),
    asks("dccp", "open a DCCP socket", dccp),
    asks("default_dccp", "open the kernel's default for DCCP", default_dccp),
    asks("reliable_datagrams", "open the kernel's default for reliable datagrams", reliable_datagrams),
    asks("l2tp", "open an L2TP socket", l2tp),
    asks("smc", "open an SMC socket by its protocol", smc),
    asks("smc_family", "open an SMC socket by its family", smc_family),
    asks("tipc", "open a TIPC socket", tipc),
    asks("rds", "open an RDS socket", rds),
    asks("vsock_packets", "open a socket to the hypervisor for sequenced packets", vsock_packets),
    asks("bluetooth", "open a Bluetooth socket", bluetooth),
    asks("ring_connect", "set up io_uring, which connects without a call", ring_connect),
];

/// A way to reach a server of the host, stopped by the network namespace in full mode.
const fn reaches(name: &'static str, tries: &'static str, act: fn(&Bait) -> Outcome) -> Probe {
    Probe::new(GROUP, name, tries, &[NetworkNamespace], act)
}

/// A protocol that the filter denies in both modes. Not every kernel has it: the probe succeeds if the kernel was asked.
const fn asks(name: &'static str, tries: &'static str, act: fn(&Bait) -> Outcome) -> Probe {
    Probe::new(GROUP, name, tries, &[Seccomp], act).in_landlock_mode(&[Seccomp])
}

const LOOPBACK: [u8; 4] = [127, 0, 0, 1];

/// A socket with its time limits.
fn open(family: i32, kind: i32, protocol: i32) -> std::io::Result<OwnedFd> {
    let kind = kind | libc::SOCK_CLOEXEC;
    let fd = raw::call(libc::SYS_socket, &[family as usize, kind as usize, protocol as usize])?;
    // SAFETY: the call has just made this descriptor, and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    for limit in [rustix::net::sockopt::Timeout::Recv, rustix::net::sockopt::Timeout::Send] {
        rustix::net::sockopt::set_socket_timeout(&socket, limit, Some(PATIENCE))?;
    }
    Ok(socket)
}

fn inet(address: [u8; 4], port: u16) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address) },
        sin_zero: [0; 8],
    }
}

fn inet6(port: u16) -> libc::sockaddr_in6 {
    libc::sockaddr_in6 {
        sin6_family: libc::AF_INET6 as u16,
        sin6_port: port.to_be(),
        sin6_flowinfo: 0,
        sin6_addr: libc::in6_addr { s6_addr: std::net::Ipv6Addr::LOCALHOST.octets() },
        sin6_scope_id: 0,
    }
}

fn connect<A>(socket: &OwnedFd, to: &A) -> std::io::Result<usize> {
    raw::call(libc::SYS_connect, &[socket.as_raw_fd() as usize, raw::address(to), size_of::<A>()])
}

/// What the server says on a connection, in one piece. The end of the connection may be a reset, because the server reads
/// nothing.
fn answer(socket: OwnedFd) -> std::io::Result<String> {
    let mut bytes = [0; 64];
    let length = rustix::io::read(&socket, &mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

fn wait_readable(socket: &OwnedFd) -> std::io::Result<()> {
    let mut polled = [rustix::event::PollFd::new(socket, rustix::event::PollFlags::IN)];
    match rustix::event::poll(&mut polled, Some(&PATIENCE.try_into().unwrap()))? {
        0 => Err(std::io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

fn connected<A>(family: i32, protocol: i32, to: &A) -> Outcome {
    said(&open(family, libc::SOCK_STREAM, protocol).and_then(|socket| {
        connect(&socket, to)?;
        answer(socket)
    }))
}

fn explicit_tcp(bait: &Bait) -> Outcome {
    connected(libc::AF_INET, libc::IPPROTO_TCP, &inet(LOOPBACK, bait.tcp))
}

fn unspecified_tcp(bait: &Bait) -> Outcome {
    connected(libc::AF_INET, 0, &inet([0; 4], bait.tcp))
}

fn mptcp(bait: &Bait) -> Outcome {
    connected(libc::AF_INET, libc::IPPROTO_MPTCP, &inet(LOOPBACK, bait.tcp))
}

fn mptcp6(bait: &Bait) -> Outcome {
    connected(libc::AF_INET6, libc::IPPROTO_MPTCP, &inet6(bait.tcp6))
}

fn waiting_tcp(bait: &Bait) -> Outcome {
    said(&open(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0).and_then(|socket| {
        match connect(&socket, &inet(LOOPBACK, bait.tcp)) {
            Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
            Ok(_) | Err(_) => {}
        }
        wait_readable(&socket)?;
        rustix::io::ioctl_fionbio(&socket, false)?;
        answer(socket)
    }))
}

fn reset_tcp(bait: &Bait) -> Outcome {
    said(&open(libc::AF_INET, libc::SOCK_STREAM, 0).and_then(|socket| {
        let nowhere = libc::sockaddr_in { sin_family: libc::AF_UNSPEC as u16, ..inet([0; 4], 0) };
        connect(&socket, &nowhere)?;
        connect(&socket, &inet(LOOPBACK, bait.tcp))?;
        answer(socket)
    }))
}

/// How something is sent to an address.
#[derive(Debug, Clone, Copy)]
enum SendCall {
    To,
    Message,
    Messages,
}

fn send<A>(socket: &OwnedFd, to: &A, how: SendCall, flags: i32) -> std::io::Result<usize> {
    let text = *b"?";
    let fd = socket.as_raw_fd() as usize;
    let part = libc::iovec { iov_base: raw::address(&text) as *mut libc::c_void, iov_len: 1 };
    // SAFETY: all zeros is a valid header.
    let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
    message.msg_hdr.msg_name = raw::address(to) as *mut libc::c_void;
    message.msg_hdr.msg_namelen = size_of::<A>() as u32;
    message.msg_hdr.msg_iov = (&raw const part).cast_mut();
    message.msg_hdr.msg_iovlen = 1;
    let flags = flags as usize;
    match how {
        SendCall::To => {
            let args = [fd, raw::address(&text), 1, flags, raw::address(to), size_of::<A>()];
            raw::call(libc::SYS_sendto, &args)
        }
        SendCall::Message => raw::call(libc::SYS_sendmsg, &[fd, raw::address(&message.msg_hdr), flags]),
        SendCall::Messages => raw::call(libc::SYS_sendmmsg, &[fd, (&raw mut message) as usize, 1, flags]),
    }
}

fn fast_open<A>(family: i32, protocol: i32, to: &A, how: SendCall) -> Outcome {
    said(&open(family, libc::SOCK_STREAM, protocol).and_then(|socket| {
        send(&socket, to, how, libc::MSG_FASTOPEN)?;
        answer(socket)
    }))
}

fn fast_open_sendto(bait: &Bait) -> Outcome {
    fast_open(libc::AF_INET, 0, &inet(LOOPBACK, bait.tcp), SendCall::To)
}

fn fast_open_sendto6(bait: &Bait) -> Outcome {
    fast_open(libc::AF_INET6, 0, &inet6(bait.tcp6), SendCall::To)
}

fn fast_open_sendmsg(bait: &Bait) -> Outcome {
    fast_open(libc::AF_INET, 0, &inet(LOOPBACK, bait.tcp), SendCall::Message)
}

fn fast_open_sendmmsg(bait: &Bait) -> Outcome {
    fast_open(libc::AF_INET, 0, &inet(LOOPBACK, bait.tcp), SendCall::Messages)
}

fn fast_open_mptcp(bait: &Bait) -> Outcome {
    fast_open(libc::AF_INET, libc::IPPROTO_MPTCP, &inet(LOOPBACK, bait.tcp), SendCall::To)
}

fn fast_open_option(bait: &Bait) -> Outcome {
    said(&open(libc::AF_INET, libc::SOCK_STREAM, 0).and_then(|socket| {
        let (fd, on) = (socket.as_raw_fd() as usize, 1_i32);
        let option = [libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT].map(|number| number as usize);
        raw::call(libc::SYS_setsockopt, &[fd, option[0], option[1], raw::address(&on), size_of::<i32>()])?;
        connect(&socket, &inet(LOOPBACK, bait.tcp))?;
        rustix::io::write(&socket, b"?")?;
        answer(socket)
    }))
}

/// Sends a datagram and reads the answer.
fn datagram(act: impl FnOnce(&OwnedFd) -> std::io::Result<usize>) -> Outcome {
    said(&open(libc::AF_INET, libc::SOCK_DGRAM, 0).and_then(|socket| {
        act(&socket)?;
        answer(socket)
    }))
}

fn connected_udp(bait: &Bait) -> Outcome {
    datagram(|socket| {
        connect(socket, &inet(LOOPBACK, bait.udp))?;
        Ok(rustix::io::write(socket, b"?")?)
    })
}

fn udp_sendmsg(bait: &Bait) -> Outcome {
    datagram(|socket| send(socket, &inet(LOOPBACK, bait.udp), SendCall::Message, 0))
}

fn udp_sendmmsg(bait: &Bait) -> Outcome {
    datagram(|socket| send(socket, &inet(LOOPBACK, bait.udp), SendCall::Messages, 0))
}

/// Listens on a port that the kernel chooses. The host connects to every listener that it can see.
fn listening(protocol: i32) -> Outcome {
    said(&open(libc::AF_INET, libc::SOCK_STREAM, protocol).and_then(|socket| {
        let fd = socket.as_raw_fd() as usize;
        raw::call(libc::SYS_listen, &[fd, 8])?;
        // Multipath TCP does not heed the time limit of the socket here.
        wait_readable(&socket)?;
        let caller = raw::call(libc::SYS_accept4, &[fd, 0, 0, libc::SOCK_CLOEXEC as usize])?;
        // SAFETY: the call has just made this descriptor, and nothing else owns it.
        answer(unsafe { OwnedFd::from_raw_fd(caller as i32) })
    }))
}

fn called(_: &Bait) -> Outcome {
    listening(0)
}

fn called_by_mptcp(_: &Bait) -> Outcome {
    listening(libc::IPPROTO_MPTCP)
}

fn ping_socket(_: &Bait) -> Outcome {
    socket(libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_ICMP)
}

/// Whether the filter lets the call through to the kernel, which may lack the protocol.
fn asked(family: i32, kind: i32, protocol: i32) -> Outcome {
    match open(family, kind, protocol) {
        Ok(_) => Outcome::Open("the kernel has it".to_owned()),
        Err(error) => {
            let lacks = [libc::EPROTONOSUPPORT, libc::ESOCKTNOSUPPORT, libc::EAFNOSUPPORT];
            Outcome::when(error.raw_os_error().is_some_and(|code| lacks.contains(&code)), error.to_string())
        }
    }
}

fn udplite(_: &Bait) -> Outcome {
    asked(libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_UDPLITE)
}

fn sctp(_: &Bait) -> Outcome {
    asked(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_SCTP)
}

fn sctp_packets(_: &Bait) -> Outcome {
    asked(libc::AF_INET6, libc::SOCK_SEQPACKET, libc::IPPROTO_SCTP)
}

fn default_packets(_: &Bait) -> Outcome {
    asked(libc::AF_INET, libc::SOCK_SEQPACKET, 0)
}

fn dccp(_: &Bait) -> Outcome {
    asked(libc::AF_INET, libc::SOCK_DCCP, libc::IPPROTO_DCCP)
}

fn default_dccp(_: &Bait) -> Outcome {
    asked(libc::AF_INET, libc::SOCK_DCCP, 0)
}

fn reliable_datagrams(_: &Bait) -> Outcome {
    asked(libc::AF_INET, libc::SOCK_RDM, 0)
}

fn l2tp(_: &Bait) -> Outcome {
    const IPPROTO_L2TP: i32 = 115;
    asked(libc::AF_INET, libc::SOCK_DGRAM, IPPROTO_L2TP)
}

fn smc(_: &Bait) -> Outcome {
    const IPPROTO_SMC: i32 = 256;
    asked(libc::AF_INET, libc::SOCK_STREAM, IPPROTO_SMC)
}

fn smc_family(_: &Bait) -> Outcome {
    const AF_SMC: i32 = 43;
    asked(AF_SMC, libc::SOCK_STREAM, 0)
}

fn tipc(_: &Bait) -> Outcome {
    asked(libc::AF_TIPC, libc::SOCK_STREAM, 0)
}

fn rds(_: &Bait) -> Outcome {
    asked(libc::AF_RDS, libc::SOCK_SEQPACKET, 0)
}

fn vsock_packets(_: &Bait) -> Outcome {
    asked(libc::AF_VSOCK, libc::SOCK_SEQPACKET, 0)
}

fn bluetooth(_: &Bait) -> Outcome {
    asked(libc::AF_BLUETOOTH, libc::SOCK_SEQPACKET, 0)
}

fn ring_connect(_: &Bait) -> Outcome {
    let mut params = [0_u8; 120];
    Outcome::of(raw::call(libc::SYS_io_uring_setup, &[4, (&raw mut params) as usize]))
}
