//! The arguments of a call as the policy sees them: paths, hosts, recipients, programs.
//!
//! A path in an additional directory is relative to it, as in a session that works there. Nothing here reads the file
//! system.

use serde_json::Value;
use tribune_constitution::{CallArgs, CommandFacts, command};

use crate::workspace_roots::beneath;

/// Tools whose path may be in an additional directory.
const PATH_TOOLS: [&str; 4] = ["read", "search", "write", "edit"];

/// The arguments of a call in a session with these additional directories.
pub fn args_of(tool: &str, input: &Value, additional_directories: &[String]) -> CallArgs {
    let path = input.get("path").and_then(Value::as_str).filter(|_| PATH_TOOLS.contains(&tool));
    let Some((folder, inner)) = path.and_then(|path| beneath(additional_directories, path)) else {
        return plain_args(tool, input);
    };
    let mut from_there = input.clone();
    from_there["path"] = inner.into();
    CallArgs { folder: Some(folder.to_owned()), ..plain_args(tool, &from_there) }
}

fn plain_args(tool: &str, input: &Value) -> CallArgs {
    let facts = parse_command(tool, input).map(|parsed| {
        let mut programs = command::programs(&parsed);
        if !parsed.is_plain() {
            // It does more than start programs, so a list of programs does not describe it.
            programs.push(command::UNKNOWN.to_owned());
        }
        CommandFacts { programs, parsed: true }
    });
    let mut args = CallArgs::derive(tool, input, facts.as_ref());
    args.is_autorun = args.path.as_deref().is_some_and(tribune_contract::is_autorun_path);
    args
}

/// The command line of a call that runs one, if it can be parsed.
pub(super) fn parse_command(tool: &str, input: &Value) -> Option<command::ParsedCommand> {
    (tool == "exec")
        .then(|| input.get("command")?.as_str())
        .flatten()
        .and_then(|line| command::parse(line).ok())
}
