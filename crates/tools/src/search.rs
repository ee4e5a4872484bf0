//! `search`: finds the lines of the workspace's text files that contain a text.
//!
//! The query is a plain text and not a pattern, so every query costs the same. Entries, bytes, depth and matches are all
//! bounded, because the workspace may contain anything.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};

use memchr::memmem::Finder;
use rustix::fd::OwnedFd;
use rustix::fs::FileType;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tribune_records::outcome::{AccessLog, ToolAnswer};
use tribune_records::text::{RESULT_BYTES, shown};
use tribune_runtime::ToolSpec;

use super::input::Input;
use super::workspace_dir;
use super::workspace_dir::{Opened, Place, Workspace};

pub(super) const NAME: &str = "search";

/// Maximum bytes of a query: a line, not a document.
const MAX_QUERY_BYTES: usize = 1024;

/// Matches in one answer if the call sets no number.
const DEFAULT_MATCHES: usize = 50;

/// Maximum number of matches in one answer.
const MAX_MATCHES: usize = 200;

/// Maximum bytes of matches in one answer. The rest of [`RESULT_BYTES`] is for the last match and the reason of the end.
const MAX_FOUND_BYTES: usize = RESULT_BYTES - 16 * 1024;

/// Maximum number of files and folders visited in one call.
const MAX_ENTRIES: usize = 10_000;

/// Maximum bytes read in one call: about one second of work.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// Maximum depth of nested folders.
const MAX_DEPTH: usize = 32;

/// Maximum characters of a line in the answer.
const MAX_SHOWN_CHARS: usize = 300;

/// How many bytes at the beginning of a file are searched for a NUL. A file with one is binary.
const SNIFFED_BYTES: usize = 8 * 1024;

/// Bytes per read; a line longer than this is searched in pieces.
const CHUNK_BYTES: usize = 64 * 1024;

/// The checked input of a call.
#[derive(Debug)]
pub(super) struct Search {
    query: String,
    path: String,
    most: usize,
}

pub(super) fn spec() -> ToolSpec {
    ToolSpec {
        name: NAME.to_owned(),
        description: "Find a text in the files of your workspace. It is taken literally, with upper and lower case \
                      as given; it is not a pattern. Answers one line per match, `path:line: text`. Binary files \
                      and links are passed over. If the search ended early, the last line says why."
            .to_owned(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "query": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": MAX_QUERY_BYTES,
                    "description": "The text to find, on one line."
                },
                "path": {
                    "type": "string",
                    "description": "File or folder to search, relative to the workspace. All of it if left out."
                },
                "max": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MAX_MATCHES,
                    "description": format!("How many matches to show. {DEFAULT_MATCHES} if left out.")
                }
            },
            "required": ["query"],
            "additionalProperties": false
        }),
    }
}

impl Search {
    pub(super) fn new(input: &Value) -> Result<Self, String> {
        let input = Input::new(NAME, input, &["query", "path", "max"])?;
        let query = input.text("query")?;
        if query.is_empty() {
            return Err("`query` is empty: say what to look for".to_owned());
        }
        if query.len() > MAX_QUERY_BYTES {
            let bytes = query.len();
            return Err(format!(
                "`query` has {bytes} bytes, and {MAX_QUERY_BYTES} are allowed: look for a part of it"
            ));
        }
        if query.contains('\n') {
            return Err("`query` has several lines, and lines are searched one by one: look for one of them"
                .to_owned());
        }
        let path = input.optional_text("path")?.unwrap_or(".");
        let most = match input.optional_number("max")? {
            None => DEFAULT_MATCHES,
            Some(0) => return Err("`max` is at least 1: leave it out to see the first matches".to_owned()),
            Some(max) => usize::try_from(max).map_or(MAX_MATCHES, |max| max.min(MAX_MATCHES)),
        };
        Ok(Self { query: query.to_owned(), path: path.to_owned(), most })
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn run(
        &self,
        workspace: &Workspace,
        stop: &CancellationToken,
        trail: &AccessLog,
    ) -> ToolAnswer {
        let opened = workspace.path(&self.path)?;
        let place = workspace.place(&opened);
        let mut walk = Walk {
            workspace,
            finder: Finder::new(&self.query),
            stop,
            trail,
            matches_left: self.most,
            entries_left: MAX_ENTRIES,
            bytes_left: MAX_BYTES,
            files: 0,
            found: String::new(),
            limits: Vec::new(),
        };
        let begin = self.path.trim_end_matches('/');
        match opened {
            Opened::File { file, .. } => walk.file(&file, begin, &place),
            Opened::Folder(folder) => {
                walk.folder(&folder, if begin == "." { "" } else { begin }, &place, 0);
            }
        }
        Ok(walk.answer(&self.query))
    }
}

/// Why the search ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    Matches,
    Entries,
    Bytes,
    Depth,
    /// The caller stopped waiting for the answer.
    Stopped,
}

impl Limit {
    fn sentence(self) -> String {
        match self {
            Self::Matches => "there are more matches: narrow `path` or `query`, or raise `max`".to_owned(),
            Self::Entries => format!("stopped after {MAX_ENTRIES} files and folders: narrow `path`"),
            Self::Bytes => format!("stopped after {} MiB: narrow `path`", MAX_BYTES / (1024 * 1024)),
            Self::Depth => format!("folders more than {MAX_DEPTH} deep were passed over: name one in `path`"),
            Self::Stopped => "stopped before the end".to_owned(),
        }
    }
}

/// A search in progress.
#[derive(Debug)]
struct Walk<'a> {
    workspace: &'a Workspace,
    finder: Finder<'a>,
    stop: &'a CancellationToken,
    trail: &'a AccessLog,
    matches_left: usize,
    entries_left: usize,
    bytes_left: usize,
    /// The number of files searched.
    files: usize,
    found: String,
    limits: Vec<Limit>,
}

impl Walk<'_> {
    fn answer(mut self, query: &str) -> String {
        if self.found.is_empty() {
            self.found = format!("no match for `{}` in {} files\n", shown(query), self.files);
        }
        for limit in self.limits {
            self.found.push_str(&format!("[{}]\n", limit.sentence()));
        }
        self.found
    }

    fn folder(&mut self, folder: &OwnedFd, path: &str, place: &Place, depth: usize) {
        if depth > MAX_DEPTH {
            return self.note(Limit::Depth);
        }
        // A folder that cannot be listed, or was removed meanwhile, has no matches.
        let Ok(found) = workspace_dir::names(folder, self.entries_left) else { return };
        for (name, kind) in &found.names {
            if self.entries_left == 0 {
                self.note(Limit::Entries);
            }
            if self.is_over() {
                return;
            }
            self.entries_left -= 1;
            if !matches!(kind, FileType::RegularFile | FileType::Directory | FileType::Unknown) {
                continue;
            }
            let printed = workspace_dir::printed(name);
            let path = if path.is_empty() { printed } else { format!("{path}/{printed}") };
            let place = place.entry(name);
            if self.workspace.hides(&place) {
                continue;
            }
            match workspace_dir::entry(folder, name) {
                Some(Opened::File { file, .. }) => self.file(&file, &path, &place),
                Some(Opened::Folder(inner)) => self.folder(&inner, &path, &place, depth + 1),
                None => {}
            }
        }
        if found.more {
            self.note(Limit::Entries);
        }
    }

    fn file(&mut self, file: &File, path: &str, place: &Place) {
        self.files += 1;
        // A file with a read error was searched as far as possible.
        let _ = self.lines(file, path, place);
    }

    fn lines(&mut self, mut file: &File, path: &str, place: &Place) -> io::Result<()> {
        // The bytes read of the current line and the lines behind it.
        let mut pending = Vec::new();
        let mut line = Line { path, place, number: 1, shown: false };
        let mut sniffed = false;
        while !self.is_over() {
            let before = pending.len();
            pending.resize(before + CHUNK_BYTES.min(self.bytes_left), 0);
            let read = file.read(&mut pending[before..]);
            pending.truncate(before + read.as_ref().map_or(0, |got| *got));
            let got = match read {
                Ok(got) => got,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if got == 0 {
                self.look(&mut line, &pending);
                return Ok(());
            }
            if !std::mem::replace(&mut sniffed, true)
                && memchr::memchr(0, &pending[..got.min(SNIFFED_BYTES)]).is_some()
            {
                self.files -= 1;
                return Ok(());
            }
            self.bytes_left -= got;
            let mut taken = 0;
            while let Some(len) = memchr::memchr(b'\n', &pending[taken..]) {
                self.look(&mut line, &pending[taken..taken + len]);
                line = Line { path, place, number: line.number + 1, shown: false };
                taken += len + 1;
            }
            if pending.len() - taken > CHUNK_BYTES {
                self.look(&mut line, &pending[taken..]);
                // A match may begin at the end of this piece.
                taken = pending.len() + 1 - self.finder.needle().len();
            }
            pending.drain(..taken);
        }
        self.look(&mut line, &pending);
        Ok(())
    }

    /// Adds the line to the answer if it contains the query.
    fn look(&mut self, line: &mut Line<'_>, text: &[u8]) {
        if line.shown {
            return;
        }
        let Some(at) = self.finder.find(text) else { return };
        if self.matches_left == 0 || self.found.len() > MAX_FOUND_BYTES {
            return self.note(Limit::Matches);
        }
        if self.trail.read(line.place.resource()).is_err() {
            return self.note(Limit::Stopped);
        }
        self.matches_left -= 1;
        line.shown = true;
        self.found.push_str(&format!("{}:{}: {}\n", line.path, line.number, cut(text, at)));
    }

    fn is_over(&mut self) -> bool {
        if self.stop.is_cancelled() {
            self.note(Limit::Stopped);
        } else if self.bytes_left == 0 {
            self.note(Limit::Bytes);
        }
        self.limits.iter().any(|limit| *limit != Limit::Depth)
    }

    fn note(&mut self, limit: Limit) {
        if !self.limits.contains(&limit) {
            self.limits.push(limit);
        }
    }
}

/// The current line.
#[derive(Debug)]
struct Line<'a> {
    path: &'a str,
    place: &'a Place,
    number: usize,
    /// A long line is searched in pieces and shown once.
    shown: bool,
}

/// The text around the match at `at`, on one line of at most [`MAX_SHOWN_CHARS`].
fn cut(line: &[u8], at: usize) -> String {
    // Show the beginning of the line with a near match, and a quarter of the width before a far one.
    let begin = if at < MAX_SHOWN_CHARS / 2 { 0 } else { at - MAX_SHOWN_CHARS / 4 };
    let end = line.len().min(begin + MAX_SHOWN_CHARS * 4);
    let text = String::from_utf8_lossy(&line[begin..end]);
    let (mark, text) = match begin {
        0 => ("", &*text),
        _ => ("…", text.trim_start_matches(char::REPLACEMENT_CHARACTER)),
    };
    mark.chars().chain(text.trim_end().chars()).take(MAX_SHOWN_CHARS).collect()
}
