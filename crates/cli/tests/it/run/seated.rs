//! A run with someone at the terminal.

use std::io::Write as _;

use super::Site;
use crate::screen::Terminal;

#[test]
fn a_shell_has_a_terminal_of_its_own_with_job_control() {
    let site = Site::new();
    let mut command = site.command(&["run", "--name", "seat", "--", "bash", "--norc", "-i"]);
    command.env("TERM", "xterm");
    let mut terminal = Terminal::start(command);
    terminal.screen.until("its questions are in another terminal");
    terminal.keyboard.write_all(b"echo size $(stty size) flags $-\r").unwrap();
    terminal.screen.until("size 40 120 flags ");
    terminal.keyboard.write_all(b"case $- in *m*) echo job-$((40+2));; esac\r").unwrap();
    terminal.screen.until("job-42");
    // Ctrl-C ends what is in front, and not the shell.
    terminal.keyboard.write_all(b"echo go-$((5+5)); cat\r").unwrap();
    terminal.screen.until("go-10");
    terminal.keyboard.write_all(b"mark\r").unwrap();
    terminal.screen.until("mark");
    // The terminal's own echo came first; this is the program in front.
    terminal.screen.until("mark");
    terminal.keyboard.write_all(b"\x03").unwrap();
    // What is typed before the shell is back goes with the program.
    terminal.screen.until("$ ");
    terminal.keyboard.write_all(b"echo still-$((1+1)); echo x > made.txt\r").unwrap();
    terminal.screen.until("still-2");
    terminal.keyboard.write_all(b"exit 5\r").unwrap();
    terminal.screen.until("the folder is as it was");
    assert_eq!(terminal.child.wait().unwrap().code(), Some(5));
    assert!(terminal.is_ordinary(), "the terminal is as it was");
    assert_eq!(site.read("made.txt"), None);
    site.house.ok(&["workspace", "land", "seat", "--all"]);
    assert_eq!(site.read("made.txt").as_deref(), Some("x\n"));
    site.end();
}
