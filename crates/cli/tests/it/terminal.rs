//! Helpers that run `tribune` on a pseudo-terminal.

use std::cell::RefCell;
use std::fs::File;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::in_process_daemon::PATIENCE;

/// A call on its own pseudo-terminal.
pub(crate) struct Terminal {
    pub(crate) child: Child,
    pub(crate) keyboard: File,
    pub(crate) screen: Screen,
    /// The call's side, kept open so that it survives the call.
    own: File,
}

impl Terminal {
    pub(crate) fn start(command: Command) -> Self {
        Self::start_with(command, None)
    }

    /// A call with another standard output, such as a pipe.
    pub(crate) fn start_with(mut command: Command, stdout: Option<Stdio>) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let size = Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap();
        let open = || File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let own = open();
        let stdout = stdout.unwrap_or_else(|| open().into());
        let child = command.stdin(open()).stdout(stdout).stderr(open()).spawn().unwrap();
        let keyboard = File::from(terminal.try_clone().unwrap());
        Self { child, keyboard, screen: Screen::new(File::from(terminal)), own }
    }

    /// Whether the terminal is in cooked mode with echo, as a shell leaves it.
    pub(crate) fn is_ordinary(&self) -> bool {
        tcgetattr(&self.own)
            .unwrap()
            .local_modes
            .contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
    }
}

/// The output on a terminal.
pub(crate) struct Screen {
    bytes: Receiver<Vec<u8>>,
    rest: RefCell<String>,
}

impl Screen {
    fn new(mut terminal: File) -> Self {
        let (sender, bytes) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = terminal.read(&mut buffer) {
                if sender.send(buffer[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { bytes, rest: RefCell::default() }
    }

    /// Waits for `text` and drops everything before it.
    pub(crate) fn until(&self, text: &str) {
        let mut rest = self.rest.borrow_mut();
        loop {
            if let Some(at) = rest.find(text) {
                rest.drain(..at + text.len());
                return;
            }
            match self.bytes.recv_timeout(PATIENCE) {
                Ok(bytes) => rest.push_str(&String::from_utf8_lossy(&bytes)),
                Err(error) => panic!("{error}: no {text:?} in {rest:?}"),
            }
        }
    }
}
