//! `data/approvers.json`: the approvers besides the operator, with their roles. Tokens are stored as hashes; a token is shown
//! once, when it is created.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;
use tribune_records::approval::approver::{Approver, OPERATOR, Roles};
use tribune_records::deciders::{Decider, DeciderKind};
use tribune_storage::files;
use tribune_storage::files::Secrecy;

/// Most approvers of one instance.
const MAX_APPROVERS: usize = 256;

/// Most roles of one approver.
const MAX_ROLES: usize = 32;

/// Longest name or role in bytes.
const MAX_NAME_BYTES: usize = 64;

/// Largest file in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Prefix of a token.
const TOKEN: &str = "tra_";

/// Why the approvers cannot be read or changed. Each message ends with the next step.
#[derive(Debug, thiserror::Error)]
pub enum ApproversError {
    #[error("`{path}` cannot be used ({what}): repair it, or remove it to start without approvers", path = .path.display())]
    File { path: PathBuf, what: String },
    #[error(
        "`{0}` cannot name an approver or a role: use 1 to {MAX_NAME_BYTES} lowercase letters, digits, `-` and `_`"
    )]
    Name(String),
    #[error("`{0}` is the name of the operator, who can always decide: choose another name")]
    Operator(String),
    #[error("there is an approver `{0}` already: remove it first, or choose another name")]
    Taken(String),
    #[error("`{0}` is the name of an agent, which could then approve its own calls: choose another name")]
    Agent(String),
    #[error("there is no approver `{0}`: `tribune approvers list` shows all of them")]
    Unknown(String),
    #[error("there are {MAX_APPROVERS} approvers already: remove one first")]
    TooMany,
    #[error("a token could not be created ({0}): try again")]
    Random(String),
}

/// One line of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    id: String,
    roles: Vec<String>,
    /// BLAKE3 of the token, in hex.
    token_hash: String,
}

/// The approvers besides the operator.
#[derive(Debug)]
pub struct Approvers {
    path: PathBuf,
    lines: Mutex<Vec<Line>>,
}

impl Approvers {
    pub fn load(path: PathBuf) -> Result<Self, ApproversError> {
        let failed = |what: String| ApproversError::File { path: path.clone(), what };
        let lines = match std::fs::metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed(error.to_string())),
            Ok(found) if found.len() > MAX_FILE_BYTES => return Err(failed("it is too large".to_owned())),
            Ok(_) => {
                let text = std::fs::read(&path).map_err(|error| failed(error.to_string()))?;
                serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))?
            }
        };
        Ok(Self { path, lines: Mutex::new(lines) })
    }

    /// All approvers, by name.
    pub fn list(&self) -> Vec<Approver> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(Line::approver).collect()
    }

    /// Whether an approver has this name.
    pub fn knows(&self, id: &str) -> bool {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|line| line.id == id)
    }

    /// The approver with this token.
    pub fn by_token(&self, token: &str) -> Option<Approver> {
        let hash = hash(token);
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        // All lines are compared, so that the time does not depend on which one matches.
        let mut found = None;
        for line in lines.iter() {
            if bool::from(line.token_hash.as_bytes().ct_eq(hash.as_bytes())) {
                found = Some(line.approver());
            }
        }
        found
    }

    /// All approvers, as entries about changes name them.
    pub fn deciders(&self) -> Vec<Decider> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).iter().map(Line::decider).collect()
    }

    /// The BLAKE3 hashes of all tokens.
    pub fn token_hashes(&self) -> Vec<[u8; 32]> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let hash = |line: &Line| blake3::Hash::from_hex(&line.token_hash).ok().map(blake3::Hash::into);
        lines.iter().filter_map(hash).collect()
    }

    /// Checks an approver that is to be added, and makes its token. Nothing is changed.
    pub fn prepare(
        &self,
        id: &str,
        roles: &[String],
        is_agent: impl Fn(&str) -> bool,
    ) -> Result<NewApprover, ApproversError> {
        for name in std::iter::once(id).chain(roles.iter().map(String::as_str)) {
            if !is_name(name) {
                return Err(ApproversError::Name(name.chars().take(MAX_NAME_BYTES).collect()));
            }
            if name == OPERATOR {
                return Err(ApproversError::Operator(name.to_owned()));
            }
        }
        if is_agent(id) {
            return Err(ApproversError::Agent(id.to_owned()));
        }
        if self.knows(id) {
            return Err(ApproversError::Taken(id.to_owned()));
        }
        if self.list().len() >= MAX_APPROVERS || roles.len() > MAX_ROLES {
            return Err(ApproversError::TooMany);
        }
        let mut bytes = [0_u8; 32];
        getrandom::fill(&mut bytes).map_err(|error| ApproversError::Random(error.to_string()))?;
        let token: String = TOKEN
            .chars()
            .chain(bytes.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).map(char::from))
            .collect();
        let line = Line { id: id.to_owned(), roles: roles.to_vec(), token_hash: hash(&token) };
        Ok(NewApprover { line, token })
    }

    /// Adds an approver and returns its token, which cannot be shown again. Blocks on the disk.
    pub fn add(&self, new: NewApprover) -> Result<String, ApproversError> {
        let NewApprover { line, token } = new;
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.iter().any(|known| known.id == line.id) {
            return Err(ApproversError::Taken(line.id));
        }
        if lines.len() >= MAX_APPROVERS {
            return Err(ApproversError::TooMany);
        }
        let mut changed = lines.clone();
        changed.push(line);
        changed.sort_by(|a, b| a.id.cmp(&b.id));
        self.replace(&changed)?;
        *lines = changed;
        Ok(token)
    }

    /// Removes an approver. Blocks on the disk.
    pub fn remove(&self, id: &str) -> Result<(), ApproversError> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let changed: Vec<Line> = lines.iter().filter(|line| line.id != id).cloned().collect();
        if changed.len() == lines.len() {
            return Err(ApproversError::Unknown(id.to_owned()));
        }
        self.replace(&changed)?;
        *lines = changed;
        Ok(())
    }

    fn replace(&self, lines: &[Line]) -> Result<(), ApproversError> {
        let failed = |what: String| ApproversError::File { path: self.path.clone(), what };
        let json = serde_json::to_vec_pretty(lines).map_err(|error| failed(error.to_string()))?;
        files::replace(&self.path, &json, Secrecy::Owner).map_err(|error| failed(error.to_string()))
    }
}

/// An approver that is not added yet.
pub struct NewApprover {
    line: Line,
    token: String,
}

impl NewApprover {
    pub fn decider(&self) -> Decider {
        self.line.decider()
    }
}

impl std::fmt::Debug for NewApprover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewApprover").field("id", &self.line.id).finish_non_exhaustive()
    }
}

impl Line {
    fn approver(&self) -> Approver {
        Approver { id: self.id.clone(), roles: Roles::These(self.roles.clone()) }
    }

    fn decider(&self) -> Decider {
        let Self { id, roles, token_hash } = self;
        let fingerprint = crate::fingerprint(format!("{id}\n{}\n{token_hash}", roles.join(",")).as_bytes());
        Decider { kind: DeciderKind::Approver, id: id.clone(), roles: roles.clone(), fingerprint }
    }
}

fn hash(token: &str) -> String {
    blake3::hash(token.as_bytes()).to_hex().to_string()
}

fn is_name(name: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(
        approvers: &Approvers,
        id: &str,
        roles: &[String],
        is_agent: impl Fn(&str) -> bool,
    ) -> Result<String, ApproversError> {
        approvers.prepare(id, roles, is_agent).and_then(|new| approvers.add(new))
    }

    #[test]
    fn a_token_survives_a_restart_and_is_never_stored() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("approvers.json");
        let approvers = Approvers::load(path.clone()).unwrap();
        let token = add(&approvers, "alice", &["security".to_owned()], |_| false).unwrap();
        assert!(!std::fs::read_to_string(&path).unwrap().contains(&token));
        let again = Approvers::load(path).unwrap();
        let alice = again.by_token(&token).unwrap();
        assert_eq!(alice, Approver { id: "alice".into(), roles: Roles::These(vec!["security".into()]) });
        assert_eq!(again.by_token(&format!("{token}0")), None);
        again.remove("alice").unwrap();
        assert_eq!(again.by_token(&token), None);
        assert!(matches!(again.remove("alice"), Err(ApproversError::Unknown(_))));
    }

    #[test]
    fn ambiguous_names_are_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let approvers = Approvers::load(folder.path().join("approvers.json")).unwrap();
        for name in ["", "Al", "a b", &"x".repeat(65)] {
            assert!(matches!(add(&approvers, name, &[], |_| false), Err(ApproversError::Name(_))), "{name}");
        }
        assert!(matches!(add(&approvers, OPERATOR, &[], |_| false), Err(ApproversError::Operator(_))));
        assert!(matches!(
            add(&approvers, "al", &[OPERATOR.to_owned()], |_| false),
            Err(ApproversError::Operator(_))
        ));
        assert!(matches!(add(&approvers, "main", &[], |_| true), Err(ApproversError::Agent(_))));
        add(&approvers, "bob", &[], |_| false).unwrap();
        assert!(matches!(add(&approvers, "bob", &[], |_| false), Err(ApproversError::Taken(_))));
    }
}
