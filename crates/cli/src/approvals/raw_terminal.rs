//! The terminal in raw mode, on a screen of its own. However this ends, by leaving, by a failure or by a panic, the
//! terminal is as it was.

use std::io::{self, Write as _};
use std::sync::{Mutex, PoisonError};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// How the terminal was, while it is not.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Another screen, without a cursor, where a line that is too long stays one.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &[u8] = b"\x1b[?7h\x1b[?25h\x1b[?1049l";

/// Size of a terminal that does not tell.
const USUAL: (usize, usize) = (80, 24);

/// The terminal is raw as long as this lives.
#[derive(Debug)]
pub(super) struct Raw(());

impl Raw {
    pub(super) fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        let entered = Self(());
        // What a panic says is said on the ordinary screen.
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

impl Drop for Raw {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before {
        // A terminal that is gone needs no mending.
        let _ = io::stdout().lock().write_all(LEAVE).and_then(|()| io::stdout().flush());
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &before);
    }
}

/// Columns and rows.
pub(super) fn size() -> (usize, usize) {
    match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => USUAL,
    }
}

/// Puts lines on the screen; they fit it.
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
