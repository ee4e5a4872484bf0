//! A run at a terminal.

use std::io::Write as _;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use super::{Site, session, within};
use crate::in_process_daemon::RunningCall;
use crate::sandboxed_commands::{mark, sleeping};
use crate::terminal::Terminal;

#[test]
fn a_shell_has_a_terminal_of_its_own_with_job_control() {
    let site = Site::new();
    let mut command = site.command(&["run", "--name", "interactive", "--", "bash", "--norc", "-i"]);
    command.env("TERM", "xterm");
    let mut terminal = Terminal::start(command);
    terminal.screen.until("answer its questions in another terminal");
    terminal.keyboard.write_all(b"echo size $(stty size) flags $-\r").unwrap();
    terminal.screen.until("size 40 120 flags ");
    terminal.keyboard.write_all(b"case $- in *m*) echo job-$((40+2));; esac\r").unwrap();
    terminal.screen.until("job-42");
    // Ctrl-C ends the foreground program, and not the shell.
    terminal.keyboard.write_all(b"echo go-$((5+5)); cat\r").unwrap();
    terminal.screen.until("go-10");
    terminal.keyboard.write_all(b"mark\r").unwrap();
    terminal.screen.until("mark");
    // After the terminal's own echo, this is the output of the foreground program.
    terminal.screen.until("mark");
    terminal.keyboard.write_all(b"\x03").unwrap();
    // Text that is typed before the shell is back goes to the program.
    terminal.screen.until("$ ");
    terminal.keyboard.write_all(b"echo still-$((1+1)); echo x > made.txt\r").unwrap();
    terminal.screen.until("still-2");
    terminal.keyboard.write_all(b"exit 5\r").unwrap();
    terminal.screen.until("the folder is as it was");
    assert_eq!(terminal.child.wait().unwrap().code(), Some(5));
    assert!(terminal.is_ordinary(), "the terminal is as it was");
    assert_eq!(site.read("made.txt"), None);
    site.daemon.ok(&["workspace", "land", "interactive", "--all"]);
    assert_eq!(site.read("made.txt").as_deref(), Some("x\n"));
    site.end();
}

/// If only some streams are a terminal, keys may be meant for another program, such as a pager.
#[test]
fn l7_a_terminal_is_read_only_if_the_operator_says_so_and_left_as_it_was() {
    let site = Site::new();
    let line = "echo ready >&2; stty raw -echo; stty raw -echo <&2; read line; read other <&2; test -t 2 && line=terminal
                echo \"got-<$line$other>\" >&2; exit 4";
    for (flags, got) in [("-q", "got-<>"), ("-qi", "got-<typed>")] {
        let command = site.command(&["run", flags, "--", "sh", "-c", line]);
        let mut terminal = Terminal::start_with(command, Some(Stdio::null()));
        terminal.screen.until("ready");
        terminal.keyboard.write_all(b"typed\r").unwrap();
        terminal.screen.until(got);
        assert_eq!(terminal.child.wait().unwrap().code(), Some(4));
        assert!(terminal.is_ordinary(), "the terminal is as it was");
    }
    site.end();
}

#[test]
fn l2_a_run_ends_when_its_terminal_is_gone_without_a_signal() {
    let site = Site::new();
    let mark = mark();
    let plain = site.command(&["run", "-q", "--name", "interactive", "--", "sh", "/workspace/line.sh"]);
    let words: Vec<&str> = std::iter::once(plain.get_program())
        .chain(plain.get_args())
        .map(|word| word.to_str().unwrap())
        .collect();
    site.write("line.sh", &format!("trap '' HUP\necho ready\nsleep {mark}\n"));
    // The kernel sends the signal, and the process ignores it.
    site.write("go.sh", &format!("trap '' HUP\nexec {}\n", words.join(" ")));
    let mut command = Command::new("script");
    command.args(["-qc", "sh go.sh", "/dev/null"]).current_dir(site.project());
    let holder = RunningCall::new(command);
    holder.until_out("ready");
    within("it sleeps", || sleeping(&mark).len() == 1);
    holder.signal(Signal::KILL);
    within("nothing of it is left", || sleeping(&mark).is_empty());
    let closed = || {
        site.events(&session("interactive"), "session_lifecycle").last().is_some_and(|last| last == "closed")
    };
    within("it has ended", closed);
    site.end();
}
