//! Validates a request to run a command (`terminal/create`), before a person is asked about it.

use serde_json::Value;

use crate::normalize::{self, NormalizedCall};

/// Bytes of output that are kept of a command, whatever the agent asks for: as much as the host shows a model at once.
pub(super) const MAX_OUTPUT_BYTES: usize = 256 << 10;

/// A command to run.
#[derive(Debug, PartialEq)]
pub(super) struct TerminalRequest {
    pub(super) command: NormalizedCall,
    /// Bytes of output that are kept.
    pub(super) output_limit: usize,
}

impl TerminalRequest {
    /// The error is a sentence with a next step.
    pub(super) fn new(params: &Value, workspace: &str) -> Result<Self, String> {
        let command = match params["command"].as_str() {
            Some(command) if !command.trim().is_empty() => command,
            _ => return Err("`command` is empty or no text: say what to run".to_owned()),
        };
        let args = match &params["args"] {
            Value::Null => Some(Vec::new()),
            Value::Array(args) => args.iter().map(Value::as_str).collect(),
            _ => None,
        };
        let args = args.ok_or("`args` is a list of texts: write each word of the command as one")?;
        if command.contains('\0') || args.iter().any(|word| word.contains('\0')) {
            return Err("the command holds a NUL character, which no command has: leave it out".to_owned());
        }
        check_environment(&params["env"])?;
        let cwd = match &params["cwd"] {
            Value::Null => None,
            Value::String(cwd) => Some(cwd.as_str()),
            _ => return Err("`cwd` is a text: name a folder of the workspace, or leave it out".to_owned()),
        };
        let output_limit = match &params["outputByteLimit"] {
            Value::Null => Some(MAX_OUTPUT_BYTES),
            limit => limit.as_u64().map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)),
        };
        let output_limit =
            output_limit.ok_or("`outputByteLimit` is a whole number of bytes: say how many to keep")?;
        let command = normalize::run(command, &args, cwd, workspace);
        let command = command.ok_or_else(|| {
            format!("`cwd` leads out of the workspace, or its words do not say where: name a folder of `{workspace}`")
        })?;
        Ok(Self { command, output_limit: output_limit.min(MAX_OUTPUT_BYTES) })
    }
}

/// Commands get the host's own environment variables and no others: the law, and the person who is asked, see only the
/// command line.
fn check_environment(env: &Value) -> Result<(), String> {
    let first = match env {
        Value::Null => return Ok(()),
        Value::Array(variables) => match variables.first() {
            None => return Ok(()),
            Some(first) => first["name"].as_str().unwrap_or_default(),
        },
        _ => return Err("`env` is a list: leave it out".to_owned()),
    };
    let name: String = first.chars().filter(|c| !c.is_control()).take(64).collect();
    Err(format!(
        "`env` has `{name}`: commands get the host's own variables and no others; write what a command needs into its line, \
         such as `NAME=value program`, where the law sees it"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(params: Value) -> (String, Option<String>) {
        let request = TerminalRequest::new(&params, "/workspace").unwrap();
        let word = |name: &str| request.command.input[name].as_str().map(str::to_owned);
        assert_eq!(request.command.tool, "exec");
        (word("command").unwrap(), word("cwd"))
    }

    #[test]
    fn a_command_is_one_line_in_a_workspace_folder() {
        let plain = |line: &str| (line.to_owned(), None);
        assert_eq!(line(json!({ "command": "ls -l | wc" })), plain("ls -l | wc"));
        assert_eq!(line(json!({ "command": "npm", "args": ["run", "a b"] })), plain("npm run 'a b'"));
        assert_eq!(line(json!({ "command": "a b", "args": ["$(x)"] })), plain("'a b' '$(x)'"));
        assert_eq!(line(json!({ "command": "/bin/sh", "args": ["-c", "ls; pwd"] })), plain("ls; pwd"));
        assert_eq!(line(json!({ "command": "ls", "args": [], "env": [], "cwd": "/workspace" })), plain("ls"));
        let inner = json!({ "command": "ls", "cwd": "/workspace/src/./x/" });
        assert_eq!(line(inner), ("ls".to_owned(), Some("src/x".to_owned())));
    }

    #[test]
    fn l1_an_invalid_terminal_request_is_refused() {
        for (params, why) in [
            (json!({}), "`command`"),
            (json!({ "command": " " }), "`command`"),
            (json!({ "command": ["ls"] }), "`command`"),
            (json!({ "command": "ls", "args": "x" }), "`args`"),
            (json!({ "command": "ls", "args": ["x", 3] }), "`args`"),
            (json!({ "command": "l\0s" }), "NUL"),
            (json!({ "command": "ls", "args": ["\0"] }), "NUL"),
            (json!({ "command": "ls", "cwd": "/etc" }), "`cwd`"),
            (json!({ "command": "ls", "cwd": "/workspace/../etc" }), "`cwd`"),
            (json!({ "command": "ls", "cwd": "~" }), "`cwd`"),
            (json!({ "command": "ls", "cwd": "" }), "`cwd`"),
            (json!({ "command": "ls", "cwd": "a\0" }), "`cwd`"),
            (json!({ "command": "ls", "cwd": 3 }), "`cwd`"),
            (json!({ "command": "ls", "outputByteLimit": -1 }), "`outputByteLimit`"),
            (json!({ "command": "ls", "env": [{ "name": "LD_PRELOAD", "value": "x" }] }), "`LD_PRELOAD`"),
            (json!({ "command": "ls", "env": [{ "name": "PATH", "value": "/tmp" }] }), "`PATH`"),
            (json!({ "command": "ls", "env": [{ "value": "x" }] }), "`env`"),
            (json!({ "command": "ls", "env": { "A": "b" } }), "`env`"),
        ] {
            let refused = TerminalRequest::new(&params, "/workspace").unwrap_err();
            assert!(refused.contains(why), "{params}: {refused}");
        }
    }

    #[test]
    fn the_output_limit_is_bounded() {
        for (limit, output_limit) in [
            (json!(null), MAX_OUTPUT_BYTES),
            (json!(0), 0),
            (json!(7), 7),
            (json!(u64::MAX), MAX_OUTPUT_BYTES),
        ] {
            let request =
                TerminalRequest::new(&json!({ "command": "ls", "outputByteLimit": limit }), "/workspace");
            assert_eq!(request.unwrap().output_limit, output_limit);
        }
    }
}
