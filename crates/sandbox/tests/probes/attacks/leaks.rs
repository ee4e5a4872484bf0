//! What could be inherited from the host by accident.

use tribune_sandbox::Isolation::{Descriptors, Seccomp};

use crate::probes::bait::Bait;
use crate::probes::probe::{Outcome, Probe};
use crate::probes::raw;

const GROUP: &str = "Leaks and terminals";

pub(crate) const PROBES: &[Probe] = &[
    Probe::new(GROUP, "descriptors", "find a descriptor of the launcher", &[Descriptors], descriptors),
    Probe::new(GROUP, "terminal_input", "type into a terminal (TIOCSTI)", &[Seccomp], terminal_input),
    Probe::new(
        GROUP,
        "terminal_discipline",
        "change the line discipline of a terminal (TIOCSETD)",
        &[Seccomp],
        terminal_discipline,
    ),
];

fn descriptors(_: &Bait) -> Outcome {
    let links = (3..64).filter_map(|fd| std::fs::read_link(format!("/proc/self/fd/{fd}")).ok());
    let found: Vec<_> = links.collect();
    Outcome::when(found.iter().any(|path| path.ends_with("full")), format!("{found:?}"))
}

/// A new terminal, which is the controlling one of a child.
fn on_terminal(control: usize, argument: usize) -> Outcome {
    let code = raw::in_child(|| {
        // The hangup of the terminal would kill the child before it can report.
        raw::ignore(libc::SIGHUP);
        let opened = std::fs::File::options().read(true).write(true).open("/dev/ptmx");
        let Ok(master) = opened else { return 10 };
        let fd = |file: &std::fs::File| std::os::fd::AsRawFd::as_raw_fd(file) as usize;
        let mut number = 0_u32;
        let unlock = 0_u32;
        let ioctl = |file: usize, request: usize, argument: usize| {
            raw::call(libc::SYS_ioctl, &[file, request, argument]).is_ok()
        };
        if !ioctl(fd(&master), libc::TIOCSPTLCK as usize, raw::address(&unlock))
            || !ioctl(fd(&master), libc::TIOCGPTN as usize, (&raw mut number) as usize)
        {
            return 11;
        }
        let Ok(slave) = std::fs::File::options().read(true).write(true).open(format!("/dev/pts/{number}"))
        else {
            return 12;
        };
        let _ = rustix::process::setsid();
        if !ioctl(fd(&slave), libc::TIOCSCTTY as usize, 0) {
            return 13;
        }
        i32::from(!ioctl(fd(&slave), control, argument))
    });
    // Only the call itself may fail; without a terminal the probe would prove nothing.
    assert!(code.as_ref().is_ok_and(|code| *code < 10), "no terminal: {code:?}");
    Outcome::when(code.as_ref().is_ok_and(|code| *code == 0), format!("{code:?}"))
}

fn terminal_input(_: &Bait) -> Outcome {
    on_terminal(libc::TIOCSTI as usize, raw::address(&b'x'))
}

fn terminal_discipline(_: &Bait) -> Outcome {
    on_terminal(libc::TIOCSETD as usize, raw::address(&0_u32))
}
