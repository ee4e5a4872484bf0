//! Printing results: text for people, JSON for programs.

use std::io::{self, IsTerminal as _, Write as _};

use serde_json::Value;

/// The format of results.
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

    /// The colours for standard output.
    pub(crate) const fn paint(&self) -> Paint {
        Paint { on: self.colour }
    }

    /// Writes `text` for people or `value` for programs, as one line of JSON.
    pub(crate) fn result(&mut self, text: impl FnOnce(Paint) -> String, value: &Value) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match self.format {
            Format::Text => writeln!(out, "{}", text(self.paint()).trim_end_matches('\n'))?,
            Format::Json => writeln!(out, "{}", json_line(value))?,
        }
        out.flush()
    }

    /// Like [`Self::result`], but a reader that closed the pipe is no error: a verdict also has an exit code.
    pub(crate) fn verdict(&mut self, text: impl FnOnce(Paint) -> String, value: &Value) -> io::Result<()> {
        match self.result(text, value) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written,
        }
    }

    /// Writes `text` unchanged, for results that are files.
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

    /// Writes a part of a longer text. Text format only.
    pub(crate) fn stream(&mut self, text: &str) -> io::Result<()> {
        if self.format == Format::Json {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// Writes a part of a notice, with colours, to standard error. Text format only.
    pub(crate) fn notice_part(&self, text: impl FnOnce(Paint) -> String) {
        if self.format == Format::Text {
            let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            // A closed standard error is no reason to stop.
            let _ = io::stderr().lock().write_all(text(Paint { on: colour }).as_bytes());
        }
    }

    /// Writes a notice on a line of standard error. Text format only.
    pub(crate) fn notice(&self, text: &str) {
        if self.format == Format::Text {
            // A closed standard error is no reason to stop.
            let _ = writeln!(io::stderr(), "{text}");
        }
    }
}

/// Writes a line to standard error in either format.
pub(crate) fn stderr_line(line: &str) {
    // A closed standard error is no reason to stop.
    let _ = writeln!(io::stderr(), "{line}");
}

/// The value with the members of every object sorted, so that equal results are equal lines in every build.
pub(crate) fn sorted(value: &Value) -> Value {
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

/// A value as one line of JSON, with escapes for characters that could control a terminal.
pub(crate) fn json_line(value: &Value) -> String {
    let text = sorted(value).to_string();
    if !text.contains(is_unsafe_for_terminal) {
        return text;
    }
    // Such characters occur only inside strings, where JSON has an escape for them.
    let escape =
        |c: char| if is_unsafe_for_terminal(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    text.chars().map(escape).collect()
}

/// Characters of an untrusted text that are shown to a person.
const MAX_SHOWN: usize = 2000;

/// Whether a character moves the cursor, changes colours or reverses the line.
fn is_unsafe_for_terminal(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Makes an untrusted text safe to print: escapes control characters and direction marks, and cuts it at a bound.
pub(crate) fn clean(text: &str) -> String {
    let escape =
        |c: char| if is_unsafe_for_terminal(c) { c.escape_unicode().to_string() } else { c.to_string() };
    text.chars().take(MAX_SHOWN).map(escape).collect()
}

/// Does so for a text of several lines: keeps line breaks, tabs and the full length.
pub(crate) fn clean_text(text: &str) -> String {
    let escape = |c: char| match c {
        '\n' | '\t' => c.to_string(),
        c if is_unsafe_for_terminal(c) => c.escape_unicode().to_string(),
        c => c.to_string(),
    };
    text.replace("\r\n", "\n").chars().map(escape).collect()
}

/// Does so for a text that a person decides about: escapes invisible characters too.
pub(crate) fn clean_exact(text: &str) -> String {
    let unseen = |c: char| {
        matches!(
            c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
        ) || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}')
            || matches!(c, '\u{feff}' | '\u{ffa0}' | '\u{e0000}'..='\u{e0fff}')
    };
    let escape = |c: char| if unseen(c) { c.escape_unicode().to_string() } else { c.to_string() };
    clean_text(text).chars().map(escape).collect()
}

/// Cuts a text at `most` characters and makes it safe to print on one line.
pub(crate) fn excerpt(text: &str, most: usize) -> String {
    let mut shown: String = text.chars().take(most).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    clean(&shown)
}

/// The start of a CID, long enough to look it up.
pub(crate) fn short_cid(cid: &str) -> String {
    clean(&cid.chars().take(15).collect::<String>())
}

/// A JSON value as a table cell; `-` for null.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => excerpt(text, 200),
        other => clean(&other.to_string()),
    }
}

/// `1 call`, `2 calls`.
pub(crate) fn count(number: u64, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}

/// A table with aligned columns.
pub(crate) fn table(heading: &[&str], rows: &[Vec<String>], paint: Paint) -> String {
    let heading: Vec<String> = heading.iter().map(|&name| name.to_owned()).collect();
    let width = |column: usize| {
        let cells = rows.iter().chain([&heading]).filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    let mut lines = vec![paint.faint(&line(&heading))];
    lines.extend(rows.iter().map(line));
    lines.join("\n")
}

/// Applies colours if the stream shows them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint {
    on: bool,
}

impl Paint {
    /// No colours.
    pub(crate) const OFF: Self = Self { on: false };

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
