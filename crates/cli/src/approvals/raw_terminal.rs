//! The terminal in raw mode, on the alternate screen. It is restored however the program ends: return, error or panic.

use std::io::{self, Write as _};
use std::sync::{Mutex, PoisonError};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use super::screen::ScreenSize;

/// The terminal's settings from before, while it is in raw mode.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Alternate screen, no cursor, no line wrap.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[?7l";
const EXIT: &[u8] = b"\x1b[?7h\x1b[?25h\x1b[?1049l";

/// The size to assume if the terminal does not report one.
const USUAL: ScreenSize = ScreenSize { columns: 80, rows: 24 };

/// Keeps the terminal in raw mode until it is dropped.
#[derive(Debug)]
pub(super) struct RawTerminal(());

impl RawTerminal {
    pub(super) fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        let entered = Self(());
        // A panic message must appear on the normal screen.
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            hook(panic);
        }));
        tcsetattr(io::stdin(), OptionalActions::Drain, &raw)?;
        let mut out = io::stdout().lock();
        out.write_all(ENTER)?;
        out.flush()?;
        Ok(entered)
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before {
        // A terminal that is gone needs no restoring.
        let _ = io::stdout().lock().write_all(EXIT).and_then(|()| io::stdout().flush());
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &before);
    }
}

/// The size of the terminal.
pub(super) fn size() -> ScreenSize {
    match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
            ScreenSize { columns: size.ws_col.into(), rows: size.ws_row.into() }
        }
        _ => USUAL,
    }
}

/// Draws the lines, which fit the screen.
pub(super) fn draw(lines: &[String]) -> io::Result<()> {
    let mut frame = String::from("\x1b[H");
    for (n, line) in lines.iter().enumerate() {
        if n > 0 {
            frame.push_str("\r\n");
        }
        frame.push_str(line);
        frame.push_str("\x1b[K");
    }
    frame.push_str("\x1b[J");
    let mut out = io::stdout().lock();
    out.write_all(frame.as_bytes())?;
    out.flush()
}
