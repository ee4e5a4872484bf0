//! The tokens in `run/`: the operator's, which authenticates the operator's programs, and the guest token, which lets in agents
//! that are not in the roster. Who may do what is decided elsewhere.

use std::io;
use std::path::{Path, PathBuf};

use tribune_storage::files;
use tribune_storage::files::Secrecy;
use tribune_storage::home::Home;

use crate::start_error::StartError;

/// The prefixes of the tokens.
pub(crate) const OPERATOR: &str = "trb_";
pub(crate) const GUEST: &str = "trbg_";

/// The file with the operator's token.
pub(crate) fn operator_path(home: &Home) -> PathBuf {
    home.root().join("run").join("token")
}

/// The file with the guest token.
pub(crate) fn guest_path(home: &Home) -> PathBuf {
    home.root().join("run").join("guest-token")
}

/// Reads a token from its file. Creates one if the file is missing or holds no valid token.
pub(crate) fn load_or_create(path: &Path, prefix: &str) -> Result<String, StartError> {
    let failed = |error| StartError::File { path: path.to_owned(), error };
    if let Ok(text) = std::fs::read_to_string(path) {
        let token = text.trim();
        if is_token(token, prefix) {
            // The mode may have been widened since.
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
            return Ok(token.to_owned());
        }
    }
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(|error| failed(io::Error::other(error.to_string())))?;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let token = format!("{prefix}{hex}");
    files::replace(path, format!("{token}\n").as_bytes(), Secrecy::Owner).map_err(failed)?;
    Ok(token)
}

fn is_token(text: &str, prefix: &str) -> bool {
    text.strip_prefix(prefix).is_some_and(|hex| {
        hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    })
}
