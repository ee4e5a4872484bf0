//! Where results go: text for people or JSON for programs.

use std::io::{self, IsTerminal as _, Write as _};

use serde_json::Value;

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
            Format::Json => {
                serde_json::to_writer(&mut out, &sorted(value))?;
                writeln!(out)?;
            }
        }
        out.flush()
    }

    /// The same for a verdict, which stands whether or not anyone reads to its end.
    pub(crate) fn verdict(&mut self, text: impl FnOnce(Paint) -> String, value: &Value) -> io::Result<()> {
        match self.result(text, value) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written,
        }
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
    pub(crate) fn aside(&self, text: &str) {
        if self.format == Format::Text {
            // Nobody there to hear it is no reason to stop.
            let _ = writeln!(io::stderr(), "{text}");
        }
    }
}

/// The same value with the members of every object in order, so that the same result is the same line in every build.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> =
                members.iter().map(|(key, value)| (key.clone(), sorted(value))).collect();
            members.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(members.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        plain => plain.clone(),
    }
}

/// Longest text from elsewhere that is shown to a person.
const MAX_SHOWN: usize = 2000;

/// A text from elsewhere, safe to show: what would move the cursor, change colours or reverse the line is spelt out.
pub(crate) fn clean(text: &str) -> String {
    let steers = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let spelt = |c: char| if steers(c) { c.escape_unicode().to_string() } else { c.to_string() };
    text.chars().take(MAX_SHOWN).map(spelt).collect()
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
