//! Where results go: text for people or JSON for programs.

use std::io::{self, IsTerminal as _, Write as _};

use serde_json::Value;
use tribune_ledger::jcs;

/// How results are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Json,
}

/// Standard output.
#[derive(Debug)]
pub(crate) struct Output {
    format: Format,
    colour: bool,
}

impl Output {
    pub(crate) fn new(format: Format) -> Self {
        let colour = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { format, colour }
    }

    pub(crate) const fn format(&self) -> Format {
        self.format
    }

    /// Writes `text` for people or `value` for programs, one line of JSON.
    pub(crate) fn result(&mut self, text: impl FnOnce(Paint) -> String, value: &Value) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match self.format {
            Format::Text => writeln!(out, "{}", text(Paint { on: self.colour }).trim_end_matches('\n'))?,
            // Canonical, so that the same result is the same line whatever the build.
            Format::Json => {
                let mut line = jcs::to_vec(value).map_err(io::Error::other)?;
                line.push(b'\n');
                out.write_all(&line)?;
            }
        }
        out.flush()
    }

    /// Writes `text` exactly as it is, for results that are files.
    pub(crate) fn verbatim(&mut self, text: &str, value: &Value) -> io::Result<()> {
        match self.format {
            Format::Text => {
                let mut out = io::stdout().lock();
                out.write_all(text.as_bytes())?;
                out.flush()
            }
            Format::Json => self.result(|_| String::new(), value),
        }
    }

    /// Says something on the side, to people only.
    #[expect(clippy::print_stderr, reason = "standard output is for results")]
    pub(crate) fn aside(&self, text: &str) {
        if self.format == Format::Text {
            eprintln!("{text}");
        }
    }
}

/// Colours, if the reader can see them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    pub(crate) fn good(self, text: &str) -> String {
        self.wrap("32", text)
    }

    pub(crate) fn bad(self, text: &str) -> String {
        self.wrap("1;31", text)
    }

    pub(crate) fn unsure(self, text: &str) -> String {
        self.wrap("33", text)
    }

    pub(crate) fn faint(self, text: &str) -> String {
        self.wrap("2", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
