//! `read`: returns a piece of a text file, or the names in a folder.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;

use rustix::fd::OwnedFd;
use rustix::fs::FileType;
use serde_json::{Value, json};
use tribune_records::outcome::{AccessLog, ToolAnswer, ToolError, ToolErrorCode};
use tribune_records::text::{RESULT_BYTES, shown};
use tribune_runtime::ToolSpec;

use super::input::Input;
use super::workspace_dir;
use super::workspace_dir::{Opened, Place, Workspace};

pub(super) const NAME: &str = "read";

/// Maximum bytes of a file in one answer. The rest of [`RESULT_BYTES`] is for the mark behind them.
const MAX_READ_BYTES: usize = RESULT_BYTES - 1024;

/// Maximum number of names of a folder in one answer.
const MAX_LISTED_NAMES: usize = 1000;

/// The checked input of a call.
#[derive(Debug)]
pub(super) struct Read {
    path: String,
    /// In bytes.
    offset: u64,
    /// In bytes.
    limit: usize,
}

pub(super) fn spec() -> ToolSpec {
    ToolSpec {
        name: NAME.to_owned(),
        description: "Read a text file from your workspace, or list a folder. A long file comes in pieces: the \
                      answer ends with a mark that says at which offset to read on. In a listing, folders end \
                      with `/`. Use `.` for the workspace itself. Paths are relative to the workspace and cannot \
                      lead out of it."
            .to_owned(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "path": {
                    "type": "string",
                    "description": "File or folder, relative to the workspace, such as `notes/plan.md`."
                },
                "offset": {
                    "type": "integer",
                    "minimum": 0,
                    "description": "First byte to read. 0 if left out. For files only."
                },
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MAX_READ_BYTES,
                    "description": "How many bytes to read. As many as fit if left out. For files only."
                }
            },
            "required": ["path"],
            "additionalProperties": false
        }),
    }
}

impl Read {
    pub(super) fn new(input: &Value) -> Result<Self, String> {
        let input = Input::new(NAME, input, &["path", "offset", "limit"])?;
        let path = input.text("path")?.to_owned();
        let offset = input.optional_number("offset")?.unwrap_or(0);
        let limit = input.optional_number("limit")?.unwrap_or(u64::MAX);
        if limit == 0 {
            return Err("`limit` is at least 1: leave it out to read as much as fits".to_owned());
        }
        let limit = usize::try_from(limit).map_or(MAX_READ_BYTES, |limit| limit.min(MAX_READ_BYTES));
        Ok(Self { path, offset, limit })
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn run(&self, workspace: &Workspace, trail: &AccessLog) -> ToolAnswer {
        let opened = workspace.path(&self.path)?;
        let place = workspace.place(&opened);
        match opened {
            Opened::File { file, bytes } => {
                trail.read(place.resource())?;
                self.file(&file, bytes)
            }
            Opened::Folder(folder) => self.folder(&folder, &place, trail),
        }
    }

    fn file(&self, file: &File, bytes: u64) -> ToolAnswer {
        let path = shown(&self.path);
        if self.offset > bytes {
            let sentence = format!("`{path}` has {bytes} bytes: choose an `offset` within them");
            return Err(ToolError::new(ToolErrorCode::InvalidInput, sentence));
        }
        let piece = read_at(file, self.offset, self.limit).map_err(|error| {
            ToolError::new(
                ToolErrorCode::Failed,
                format!("`{path}` cannot be read ({}): try again", error.kind()),
            )
        })?;
        let read_to = self.offset + piece.len() as u64;
        let Some((text, unread)) = whole_characters(&piece, self.offset > 0, read_to < bytes) else {
            let sentence = format!("`{path}` is not UTF-8 text ({bytes} bytes): it cannot be shown");
            return Err(ToolError::new(ToolErrorCode::Refused, sentence));
        };
        let next = read_to - unread as u64;
        if next >= bytes {
            return Ok(text.to_owned());
        }
        if piece.is_empty() {
            // The file became shorter in between.
            return Ok(String::new());
        }
        if text.is_empty() {
            let sentence =
                format!("a `limit` of {} is less than the next character: choose at least 4", self.limit);
            return Err(ToolError::new(ToolErrorCode::InvalidInput, sentence));
        }
        Ok(format!("{text}\n[cut: bytes {} to {next} of {bytes}; read on with offset {next}]", self.offset))
    }

    fn folder(&self, folder: &OwnedFd, place: &Place, trail: &AccessLog) -> ToolAnswer {
        let found = workspace_dir::names(folder, MAX_LISTED_NAMES).map_err(|error| {
            let sentence = format!("`{}` cannot be listed ({error}): try again", shown(&self.path));
            ToolError::new(ToolErrorCode::Failed, sentence)
        })?;
        if found.names.is_empty() {
            trail.read(place.resource())?;
            return Ok("[the folder is empty]".to_owned());
        }
        let mut listing = String::new();
        for (name, kind) in &found.names {
            trail.read(place.entry(name).resource())?;
            listing.push_str(&workspace_dir::printed(name));
            listing.push_str(if *kind == FileType::Directory { "/\n" } else { "\n" });
        }
        if found.more {
            listing.push_str(&format!("[cut: the folder has more than {} names]\n", found.names.len()));
        }
        Ok(listing)
    }
}

fn read_at(file: &File, offset: u64, limit: usize) -> io::Result<Vec<u8>> {
    let mut piece = vec![0; limit];
    let mut filled = 0;
    while filled < limit {
        match file.read_at(&mut piece[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(got) => filled += got,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    piece.truncate(filled);
    Ok(piece)
}

/// Returns the text in a piece of a file and the number of bytes left over at its end, or `None` if it is not text. Drops a
/// character that the piece begins in the middle of; one that it ends in the middle of is left over.
fn whole_characters(piece: &[u8], begins_inside: bool, ends_inside: bool) -> Option<(&str, usize)> {
    let continued = |&&byte: &&u8| byte & 0b1100_0000 == 0b1000_0000;
    let dropped = if begins_inside { piece.iter().take(3).take_while(continued).count() } else { 0 };
    let piece = &piece[dropped..];
    match std::str::from_utf8(piece) {
        Ok(text) => Some((text, 0)),
        Err(error) if ends_inside && error.error_len().is_none() => {
            let (text, rest) = piece.split_at(error.valid_up_to());
            Some((std::str::from_utf8(text).ok()?, rest.len()))
        }
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_contain_whole_characters() {
        let text = "aä€".as_bytes();
        assert_eq!(whole_characters(text, false, false), Some(("aä€", 0)));
        assert_eq!(whole_characters(&text[..5], false, true), Some(("aä", 2)));
        assert_eq!(whole_characters(&text[..5], false, false), None);
        assert_eq!(whole_characters(&text[2..], true, false), Some(("€", 0)));
        assert_eq!(whole_characters(&text[2..], false, false), None);
        assert_eq!(whole_characters(b"a\xffb", true, true), None);
    }
}
