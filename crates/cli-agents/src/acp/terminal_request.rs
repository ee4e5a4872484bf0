//! What an agent says when it wants a command run (`terminal/create`), checked before anyone is asked about it.

use serde_json::Value;

use crate::normalize::{self, Wanted};

/// Bytes of output that are kept of a command, whatever the agent asks for: as much as the house shows a model at once.
pub(super) const MAX_OUTPUT_BYTES: usize = 256 << 10;

/// A command that is to be run.
#[derive(Debug, PartialEq)]
pub(super) struct Order {
    pub(super) command: Wanted,
    /// Bytes of output that are kept.
    pub(super) keeps: usize,
}

impl Order {
    /// Why it is none, in a sentence with what to do.
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
        without_environment(&params["env"])?;
        let cwd = match &params["cwd"] {
            Value::Null => None,
            Value::String(cwd) => Some(cwd.as_str()),
            _ => return Err("`cwd` is a text: name a folder of the workspace, or leave it out".to_owned()),
        };
        let keeps = match &params["outputByteLimit"] {
            Value::Null => Some(MAX_OUTPUT_BYTES),
            limit => limit.as_u64().map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)),
        };
        let keeps = keeps.ok_or("`outputByteLimit` is a whole number of bytes: say how many to keep")?;
        let command = normalize::run(command, &args, cwd, workspace);
        let command = command.ok_or_else(|| {
            format!("`cwd` leads out of the workspace, or its words do not say where: name a folder of `{workspace}`")
        })?;
        Ok(Self { command, keeps: keeps.min(MAX_OUTPUT_BYTES) })
    }
}

/// Commands have the house's own variables and no others: the law, and whoever is asked, look at the line.
fn without_environment(env: &Value) -> Result<(), String> {
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
        "`env` has `{name}`: commands are given the house's own variables and no others; what a command needs stands in its line, \
         such as `NAME=value program`, where the law sees it"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(params: Value) -> (String, Option<String>) {
        let order = Order::new(&params, "/workspace").unwrap();
        let word = |name: &str| order.command.input[name].as_str().map(str::to_owned);
        assert_eq!(order.command.tool, "exec");
        (word("command").unwrap(), word("cwd"))
    }

    #[test]
    fn a_command_is_one_line_in_a_folder_of_the_workspace() {
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
    fn l1_what_is_not_a_command_in_the_workspace_is_refused() {
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
            let refused = Order::new(&params, "/workspace").unwrap_err();
            assert!(refused.contains(why), "{params}: {refused}");
        }
    }

    #[test]
    fn as_much_output_is_kept_as_the_agent_wants_and_the_house_allows() {
        for (limit, keeps) in [
            (json!(null), MAX_OUTPUT_BYTES),
            (json!(0), 0),
            (json!(7), 7),
            (json!(u64::MAX), MAX_OUTPUT_BYTES),
        ] {
            let order = Order::new(&json!({ "command": "ls", "outputByteLimit": limit }), "/workspace");
            assert_eq!(order.unwrap().keeps, keeps);
        }
    }
}
