//! The operator's prompt for one agent: `agents/<id>/prompt.md` in the state folder. It follows the law and the mandate in the
//! system prompt.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::PathBuf;

use tribune_constitution::AgentPrompt;
use tribune_runtime::{AgentId, ErrorKind, RuntimeError};

/// Largest file in bytes, the same as the limit of [`AgentPrompt`].
const MAX_BYTES: u64 = 64 * 1024;

/// The prompts of all agents of one state folder.
#[derive(Debug, Clone)]
pub struct AgentPrompts {
    home: PathBuf,
}

impl AgentPrompts {
    pub const fn new(home: PathBuf) -> Self {
        Self { home }
    }

    /// The prompt of an agent, if it has one. A prompt that cannot be read or is invalid is an error, because the agent would
    /// behave differently without it.
    pub fn of(&self, agent: &AgentId) -> Result<Option<AgentPrompt>, RuntimeError> {
        let path = self.home.join("agents").join(agent.as_str()).join("prompt.md");
        let refused = |what: String| {
            let what = format!("agents/{agent}/prompt.md cannot be used: {what}");
            RuntimeError::new(ErrorKind::AgentPrompt, what)
        };
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(refused(format!("{error}; check its mode and owner"))),
        };
        let mut text = String::new();
        file.take(MAX_BYTES + 1)
            .read_to_string(&mut text)
            .map_err(|error| refused(format!("{error}; save it as UTF-8 text")))?;
        if text.trim().is_empty() {
            return Ok(None);
        }
        AgentPrompt::new(&text).map(Some).map_err(|error| refused(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_prompt_is_an_error() {
        let home = tempfile::tempdir().unwrap();
        let prompts = AgentPrompts::new(home.path().to_owned());
        let main: AgentId = "main".parse().unwrap();
        assert!(prompts.of(&main).unwrap().is_none());
        let folder = home.path().join("agents/main");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("prompt.md"), "You write short answers.\n").unwrap();
        assert!(prompts.of(&main).unwrap().is_some());
        for bad in [&b"constitution_hash: b3:00"[..], b"\xff\xfe", &vec![b'x'; 70 * 1024]] {
            std::fs::write(folder.join("prompt.md"), bad).unwrap();
            assert_eq!(prompts.of(&main).unwrap_err().code(), "agent_prompt");
        }
    }
}
