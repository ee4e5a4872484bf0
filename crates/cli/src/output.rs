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

    /// The colours of standard output.
    pub(crate) const fn paint(&self) -> Paint {
        Paint { on: self.colour }
    }

    /// Writes `text` for people or `value` for programs, one line of JSON.
    pub(crate) fn result(&mut self, text: impl FnOnce(Paint) -> String, value: &Value) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match self.format {
            Format::Text => writeln!(out, "{}", text(self.paint()).trim_end_matches('\n'))?,
            Format::Json => writeln!(out, "{}", json_line(value))?,
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

    /// Writes a part of a text that goes on, to people only.
    pub(crate) fn stream(&mut self, text: &str) -> io::Result<()> {
        if self.format == Format::Json {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// Writes a part of what is said on the side, to people only.
    pub(crate) fn murmur(&self, text: impl FnOnce(Paint) -> String) {
        if self.format == Format::Text {
            let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            // Whoever closed standard error does not want to know.
            let _ = io::stderr().lock().write_all(text(Paint { on: colour }).as_bytes());
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

/// A line on standard error, whatever the format.
pub(crate) fn side_line(line: &str) {
    // Nobody there to hear it is no reason to stop.
    let _ = writeln!(io::stderr(), "{line}");
}

/// The same value with the members of every object in order, so that the same result is the same line in every build.
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

/// A value on one line of JSON that cannot steer a terminal either.
pub(crate) fn json_line(value: &Value) -> String {
    let text = sorted(value).to_string();
    if !text.contains(steers) {
        return text;
    }
    // Such characters can only stand in strings, where JSON has its own way to spell them.
    let spelt = |c: char| if steers(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    text.chars().map(spelt).collect()
}

/// Longest text from elsewhere that is shown to a person.
const MAX_SHOWN: usize = 2000;

/// What would move the cursor, change colours or reverse the line.
fn steers(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text from elsewhere, safe to show: what would move the cursor, change colours or reverse the line is spelt out.
pub(crate) fn clean(text: &str) -> String {
    let spelt = |c: char| if steers(c) { c.escape_unicode().to_string() } else { c.to_string() };
    text.chars().take(MAX_SHOWN).map(spelt).collect()
}

/// The same for a text of several lines: it keeps line breaks and tabs, and its whole length.
pub(crate) fn clean_text(text: &str) -> String {
    let spelt = |c: char| match c {
        '\n' | '\t' => c.to_string(),
        c if steers(c) => c.escape_unicode().to_string(),
        c => c.to_string(),
    };
    text.replace("\r\n", "\n").chars().map(spelt).collect()
}

/// The same for a text that someone decides about: what cannot be seen is spelt out too.
pub(crate) fn clean_exact(text: &str) -> String {
    let unseen = |c: char| {
        matches!(
            c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
        ) || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}')
            || matches!(c, '\u{feff}' | '\u{ffa0}' | '\u{e0000}'..='\u{e0fff}')
    };
    let spelt = |c: char| if unseen(c) { c.escape_unicode().to_string() } else { c.to_string() };
    clean_text(text).chars().map(spelt).collect()
}

/// The same on one line and cut to `most` characters.
pub(crate) fn excerpt(text: &str, most: usize) -> String {
    let mut shown: String = text.chars().take(most).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    clean(&shown)
}

/// A CID, cut to what is enough to look it up.
pub(crate) fn short_cid(cid: &str) -> String {
    clean(&cid.chars().take(15).collect::<String>())
}

/// Rows under a heading, each column as wide as its widest cell.
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

/// Colours, if the reader can see them.
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
