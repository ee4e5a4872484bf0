//! `memory`: values that an agent keeps across turns and sessions.
//!
//! One small JSON file per key in `agents/<id>/memory/`, where no other agent and no program of a workspace can read.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tribune_ledger::Timestamp;
use tribune_records::outcome::{AccessLog, Resource, ToolAnswer, ToolError, ToolErrorCode};
use tribune_records::text::shown;
use tribune_redact::Redactor;
use tribune_runtime::{AgentId, ToolSpec};

use super::input::Input;
use super::send_message::fresh_id;
use super::workspace_dir;

pub(super) const NAME: &str = "memory";

/// Maximum bytes of a key, which is a file name without its extension.
const MAX_KEY_BYTES: usize = 64;

/// Maximum bytes of a value: one page. A longer value belongs in a file of the workspace.
const MAX_VALUE_BYTES: usize = 16 * 1024;

/// Maximum number of keys of an agent: as many as it can still survey.
const MAX_KEYS: usize = 256;

/// Maximum bytes read of a file: enough for a value with every byte escaped.
const MAX_FILE_BYTES: u64 = 7 * MAX_VALUE_BYTES as u64;

const ENDING: &str = ".json";

/// The checked input of a call.
#[derive(Debug)]
pub(super) enum Memory {
    Get(String),
    Set(String, String),
    List,
    Delete(String),
}

/// Whose memory it is, and how it is written.
#[derive(Debug)]
pub(super) struct MemoryOwner<'a> {
    pub(super) agent: &'a AgentId,
    pub(super) now: Timestamp,
    /// Removes secrets from values: the files are read by every later session.
    pub(super) redactor: &'a Redactor,
}

/// The content of a file.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    value: String,
    at: String,
}

pub(super) fn spec() -> ToolSpec {
    ToolSpec {
        name: NAME.to_owned(),
        description: format!(
            "Remember things across turns and sessions. `set` keeps a value under a key, `get` gives it back, `list` \
             shows the keys, `delete` forgets one. At most {MAX_KEYS} keys of {MAX_VALUE_BYTES} bytes each."
        ),
        input_schema: json!({
            "type": "object",
            "properties": {
                "action": { "type": "string", "enum": ["get", "set", "list", "delete"] },
                "key": {
                    "type": "string",
                    "description": "Letters, digits, `.`, `-` and `_`, beginning with a letter or digit. Not for `list`."
                },
                "value": { "type": "string", "description": "What to keep. For `set` only." }
            },
            "required": ["action"],
            "additionalProperties": false
        }),
    }
}

impl Memory {
    pub(super) fn new(input: &Value) -> Result<Self, String> {
        let input = Input::new(NAME, input, &["action", "key", "value"])?;
        let key = || {
            let key = input.text("key")?;
            if is_key(key) { Ok(key.to_owned()) } else { Err(bad_key(key)) }
        };
        match input.word("action", &["get", "set", "list", "delete"])? {
            "set" => Ok(Self::Set(key()?, input.bounded_text("value", MAX_VALUE_BYTES)?.to_owned())),
            "list" => input.without(&["key", "value"], "for `list`").map(|()| Self::List),
            action => {
                input.without(&["value"], &format!("for `{action}`"))?;
                if action == "get" { key().map(Self::Get) } else { key().map(Self::Delete) }
            }
        }
    }

    pub(super) fn run(&self, home: &Path, owner: &MemoryOwner<'_>, trail: &AccessLog) -> ToolAnswer {
        let folder = workspace_dir::own_folder(home, owner.agent, "memory")?;
        match self {
            Self::Get(key) => {
                trail.read(Resource::Memory(key.clone()))?;
                get(&folder, key)
            }
            Self::Set(key, value) => {
                if owner.redactor.contains_secret(key) {
                    let sentence = "the key looks like a secret, which is not kept: choose another key";
                    return Err(ToolError::new(ToolErrorCode::InvalidInput, sentence));
                }
                let keys = keys(&folder)?;
                if !keys.contains(key) && keys.len() >= MAX_KEYS {
                    let sentence = format!("there are {MAX_KEYS} keys already: delete one first");
                    return Err(ToolError::new(ToolErrorCode::TooLarge, sentence));
                }
                trail.write(Resource::Memory(key.clone()))?;
                let kept = owner.redactor.redact(value);
                let note = if kept == value.as_str() { "" } else { ", without the secrets in it" };
                set(&folder, key, &Kept { value: kept.into_owned(), at: owner.now.to_string() })?;
                Ok(format!("kept under `{key}`{note}"))
            }
            Self::List => {
                let keys = keys(&folder)?;
                for key in &keys {
                    trail.read(Resource::Memory(key.clone()))?;
                }
                Ok(if keys.is_empty() { "[nothing is kept]".to_owned() } else { keys.join("\n") })
            }
            Self::Delete(key) => {
                trail.write(Resource::Memory(key.clone()))?;
                match rustix::fs::unlinkat(&folder, file_name(key), AtFlags::empty()) {
                    Ok(()) => rustix::fs::fsync(&folder).map_err(failed)?,
                    Err(Errno::NOENT) => return Err(missing(key)),
                    Err(error) => return Err(failed(error)),
                }
                Ok(format!("forgot `{key}`"))
            }
        }
    }
}

fn get(folder: &OwnedFd, key: &str) -> ToolAnswer {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(folder, file_name(key), flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(Errno::NOENT) => return Err(missing(key)),
        Err(error) => return Err(failed(error)),
    };
    let mut json = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut json).map_err(failed)?;
    let kept: Kept = serde_json::from_slice(&json).map_err(|_| {
        let sentence = format!("what is kept under `{key}` cannot be read: set it again");
        ToolError::new(ToolErrorCode::Failed, sentence)
    })?;
    Ok(kept.value)
}

fn set(folder: &OwnedFd, key: &str, kept: &Kept) -> Result<(), ToolError> {
    let fresh = format!(".{}.new", fresh_id()?);
    let write = || -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(folder, fresh.as_str(), flags, Mode::RUSR | Mode::WUSR)?;
        let mut file = File::from(fd);
        file.write_all(&serde_json::to_vec(kept)?)?;
        file.sync_all()?;
        rustix::fs::renameat(folder, fresh.as_str(), folder, file_name(key))?;
        Ok(rustix::fs::fsync(folder)?)
    };
    write().map_err(|error| {
        // At worst a stray file remains that is not a key.
        let _ = rustix::fs::unlinkat(folder, fresh.as_str(), AtFlags::empty());
        failed(error)
    })
}

/// The keys, sorted.
fn keys(folder: &OwnedFd) -> Result<Vec<String>, ToolError> {
    let found = workspace_dir::names(folder, 4 * MAX_KEYS).map_err(failed)?;
    Ok(found.names.keys().filter_map(|name| key_of(name)).take(MAX_KEYS).collect())
}

fn key_of(name: &CStr) -> Option<String> {
    name.to_str().ok()?.strip_suffix(ENDING).filter(|key| is_key(key)).map(str::to_owned)
}

fn file_name(key: &str) -> String {
    format!("{key}{ENDING}")
}

fn is_key(key: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let begins = key.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
    begins && key.len() <= MAX_KEY_BYTES && key.bytes().all(word)
}

fn bad_key(key: &str) -> String {
    format!(
        "`{}` is not a valid key: use at most {MAX_KEY_BYTES} letters, digits, `.`, `-` and `_`, beginning with a letter or digit",
        shown(key)
    )
}

fn missing(key: &str) -> ToolError {
    ToolError::new(ToolErrorCode::NotFound, format!("nothing is kept under `{key}`: see `list` for the keys"))
}

fn failed(error: impl Into<io::Error>) -> ToolError {
    let kind = error.into().kind();
    ToolError::new(
        ToolErrorCode::Failed,
        format!("the memory cannot be used at the moment ({kind}): tell the operator"),
    )
}
