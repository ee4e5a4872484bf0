//! Replaces the text of a call that is allowed: from a file, or edited in an editor.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::error::CliError;

/// Largest text: the same bound as for a call.
const MAX_BYTES: u64 = 1 << 20;

/// Reads the text from a file; `-` is standard input.
pub(super) fn from_file(path: &Path) -> Result<String, CliError> {
    let mut text = String::new();
    let read = match path.to_str() {
        Some("-") => std::io::stdin().take(MAX_BYTES + 1).read_to_string(&mut text),
        _ => std::fs::File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text)),
    };
    read.map_err(CliError::file(path.to_owned()))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(CliError::Input(format!(
            "`{}` has more than {MAX_BYTES} bytes: shorten it",
            path.display()
        )));
    }
    Ok(text)
}

/// Lets the user edit the text in an editor. Returns `None` if it is unchanged.
#[expect(clippy::disallowed_methods, reason = "a person's editor, started for that person")]
pub(super) fn edited(approval: &Value) -> Result<Option<String>, CliError> {
    let Some(words) = approval["draft"].as_str().and_then(|name| approval["action"]["input"][name].as_str())
    else {
        let what = match approval["needs"].as_u64() {
            Some(2..) => "several people must agree to the same text: deny the call, and say what to change",
            _ => "this call has no text that can be edited: allow it as it is, or deny it",
        };
        return Err(CliError::Input(what.to_owned()));
    };
    let mut file = PrivateFile::new()?;
    file.write(words)?;
    let editor =
        std::env::var("VISUAL").or_else(|_| std::env::var("EDITOR")).unwrap_or_else(|_| "vi".to_owned());
    // Run through a shell, because the variable may hold options.
    let status =
        Command::new("sh").arg("-c").arg(format!("{editor} \"$1\"")).arg(&editor).arg(&file.path).status();
    match status {
        Ok(status) if status.success() => {}
        Ok(_) => {
            return Err(CliError::Input(format!("`{editor}` failed, so nothing was decided: try again")));
        }
        Err(error) => {
            let what = format!("`{editor}` cannot be started ({error}): set EDITOR, or use --text-file");
            return Err(CliError::Input(what));
        }
    }
    let text = from_file(&file.path)?;
    Ok((text != words).then_some(text))
}

/// A temporary file that only its owner can read, removed on drop.
struct PrivateFile {
    path: std::path::PathBuf,
    file: std::fs::File,
}

impl PrivateFile {
    fn new() -> Result<Self, CliError> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let name = format!(
            "tribune-draft-{}-{}.txt",
            std::process::id(),
            std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.subsec_nanos())
        );
        let path = std::env::temp_dir().join(name);
        let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(CliError::file(path.clone()))?;
        Ok(Self { path, file })
    }

    fn write(&mut self, words: &str) -> Result<(), CliError> {
        self.file.write_all(words.as_bytes()).map_err(CliError::file(self.path.clone()))
    }
}

impl Drop for PrivateFile {
    fn drop(&mut self) {
        // A file that cannot be removed stays in the temporary folder, readable only by its owner.
        let _ = std::fs::remove_file(&self.path);
    }
}
