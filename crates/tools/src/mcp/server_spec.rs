//! A server that a client requests for its session, validated: a program with its arguments and variables.

use serde_json::Value;
use tribune_ledger::cid::Domain;
use tribune_ledger::{Cid, jcs};

/// Maximum number of servers of one session.
pub(super) const MAX_SERVERS: usize = 8;

/// Maximum bytes of a command and of all its arguments, and the maximum number of arguments.
const MAX_COMMAND_BYTES: usize = 4096;
const MAX_ARGS_BYTES: usize = 64 << 10;
const MAX_ARGS: usize = 256;

/// Maximum number of variables, and maximum bytes of all of them.
const MAX_VARIABLES: usize = 128;
const MAX_VARIABLES_BYTES: usize = 64 << 10;

/// Maximum bytes of the name by which agents and policy know a server. The name of a tool has 64 bytes and contains this one.
const MAX_NAME_BYTES: usize = 24;

/// A server to start. Its variables may hold secrets, so `Debug` omits their values.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerSpec {
    /// As agents and policy know it: letters, digits, `_` and `-`.
    pub name: String,
    pub command: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
}

impl std::fmt::Debug for ServerSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wanted")
            .field("name", &self.name)
            .field("command", &self.command)
            .finish_non_exhaustive()
    }
}

impl ServerSpec {
    /// Parses a stdio server. The error says which member is wrong, and never repeats its value.
    pub fn read(server: &Value) -> Result<Self, &'static str> {
        let name = server["name"].as_str().ok_or("`name` must be a string")?;
        let command = server["command"].as_str().ok_or("`command` must be a string")?;
        if command.is_empty() || command.len() > MAX_COMMAND_BYTES || command.contains('\0') {
            return Err("`command` must be the name or path of a program, of at most 4096 bytes");
        }
        let texts = "`args` must be a list of at most 256 strings, of 64 KiB together";
        let mut args = Vec::new();
        for arg in list(&server["args"]).ok_or(texts)? {
            args.push(arg.as_str().filter(|arg| !arg.contains('\0')).ok_or(texts)?.to_owned());
        }
        if args.len() > MAX_ARGS || args.iter().map(String::len).sum::<usize>() > MAX_ARGS_BYTES {
            return Err(texts);
        }
        let pairs =
            "`env` must be a list of at most 128 variables, each with `name` and `value`, of 64 KiB together";
        let mut env = Vec::new();
        for variable in list(&server["env"]).ok_or(pairs)? {
            let text = |member: &str| variable[member].as_str().filter(|text| !text.contains('\0'));
            let (name, value) = text("name").zip(text("value")).ok_or(pairs)?;
            if name.is_empty() || name.contains('=') {
                return Err(pairs);
            }
            env.push((name.to_owned(), value.to_owned()));
        }
        let bytes = env.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        if env.len() > MAX_VARIABLES || bytes > MAX_VARIABLES_BYTES {
            return Err(pairs);
        }
        Ok(Self { name: plain(name), command: command.to_owned(), args, env })
    }

    /// The name of its program, without the folder.
    pub(crate) fn program(&self) -> &str {
        self.command.rsplit('/').next().unwrap_or_default()
    }

    /// The value of one of its variables.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.env.iter().rev().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// The values of variables that are secrets by their names.
    pub(crate) fn secrets(&self) -> Vec<String> {
        const WORDS: [&str; 7] = ["KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL", "AUTH", "COOKIE"];
        let is_secret = |name: &str| {
            let name = name.to_ascii_uppercase();
            WORDS.iter().any(|word| name.contains(word))
        };
        self.env.iter().filter(|(name, _)| is_secret(name)).map(|(_, value)| value.clone()).collect()
    }

    /// A description without the values of its variables.
    pub(crate) fn described(&self) -> Value {
        let names: Vec<&str> = self.env.iter().map(|(name, _)| name.as_str()).collect();
        serde_json::json!({ "name": self.name, "command": self.command, "args": self.args, "env": names })
    }
}

/// The hash of a JSON text, in the form of other hashes of calls.
pub(super) fn digest(value: &Value) -> String {
    let text = jcs::to_vec(value).unwrap_or_else(|_| value.to_string().into_bytes());
    Cid::from_bytes(Domain::Action.hash(&[b"mcp", &text])).to_string()
}

/// A list; an absent one is empty.
fn list(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Null => Some(&[]),
        Value::Array(items) => Some(items),
        _ => None,
    }
}

/// A name in characters that tool names may have. A run of others becomes one `_`.
fn plain(name: &str) -> String {
    let mut plain = String::new();
    for c in name.chars() {
        let c = if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        if plain.len() < MAX_NAME_BYTES && !(c == '_' && plain.ends_with('_')) {
            plain.push(c);
        }
    }
    match plain.trim_matches('_') {
        "" => "server".to_owned(),
        plain => plain.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_server_is_a_program_with_arguments_and_variables() {
        let sent = json!({
            "name": "GitHub (work)", "command": "/opt/x/github", "args": ["stdio"],
            "env": [{ "name": "GITHUB_TOKEN", "value": "ghs_secret" }, { "name": "HOST", "value": "h" }],
        });
        let wanted = ServerSpec::read(&sent).unwrap();
        assert_eq!((wanted.name.as_str(), wanted.program()), ("GitHub_work", "github"));
        assert_eq!((wanted.variable("HOST"), wanted.variable("PATH")), (Some("h"), None));
        assert_eq!(wanted.secrets(), ["ghs_secret"]);
        let told = format!("{wanted:?} {}", wanted.described());
        assert!(told.contains("GITHUB_TOKEN") && !told.contains("ghs_secret"), "{told}");
        assert!(
            ServerSpec::read(&json!({ "name": "x", "command": "x" })).is_ok(),
            "the rest may be left out"
        );
    }

    #[test]
    fn names_consist_of_characters_that_tool_names_may_have() {
        for (name, expected) in [
            ("git", "git"),
            ("a__b", "a_b"),
            ("  my server/2 ", "my_server_2"),
            ("\u{202e}\n", "server"),
            ("", "server"),
            ("ü", "server"),
        ] {
            assert_eq!(plain(name), expected, "{name:?}");
        }
        assert_eq!(plain(&"x".repeat(1000)).len(), MAX_NAME_BYTES);
    }

    #[test]
    fn an_invalid_server_is_refused_without_its_values() {
        let secret = "sk-ant-api03-secret";
        let plain = json!({ "name": "x", "command": "x", "args": [], "env": [] });
        for (member, value) in [
            ("name", json!([secret])),
            ("command", json!("")),
            ("command", json!([secret])),
            ("command", json!(format!("{secret}\0"))),
            ("command", json!(secret.repeat(1000))),
            ("args", json!(secret)),
            ("args", json!([1, secret])),
            ("args", json!([format!("{secret}\0")])),
            ("args", json!(vec![secret; 257])),
            ("args", json!(["x".repeat(65 << 10)])),
            ("env", json!({ "A": secret })),
            ("env", json!([{ "name": secret }])),
            ("env", json!([{ "name": "A=B", "value": secret }])),
            ("env", json!([{ "name": "", "value": secret }])),
            ("env", json!([{ "name": "A", "value": "x".repeat(65 << 10) }])),
        ] {
            let mut sent = plain.clone();
            sent[member] = value;
            let refused = ServerSpec::read(&sent).unwrap_err();
            assert!(refused.contains(member) && !refused.contains(secret), "{sent}: {refused}");
        }
    }
}
