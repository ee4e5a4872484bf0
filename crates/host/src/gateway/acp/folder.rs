//! The folder that a client wants to work in.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::wire::Fault;
use crate::gateway::principal::Principal;
use crate::tools::ground;

/// What the agent's own workspace is called here, and inside every box.
pub(super) const OWN: &str = "/workspace";

/// Where a session works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Chosen {
    /// In the workspace of its agent.
    Own,
    /// In this folder of the operator's.
    Folder(PathBuf),
}

/// Which folder a client asks for, if it may have it. What it asks for beside that is refused rather than left out: nobody
/// should believe to have servers or folders that are not there.
pub(super) fn chosen(who: &Principal, params: &Value, home: &Path) -> Result<Chosen, Fault> {
    if params["mcpServers"].as_array().is_some_and(|servers| !servers.is_empty()) {
        let what =
            "`mcpServers` is not empty, and MCP servers are not run for sessions here: send an empty list";
        return Err(Fault::params(what));
    }
    if params["additionalDirectories"].as_array().is_some_and(|folders| !folders.is_empty()) {
        return Err(Fault::params(
            "`additionalDirectories` is not empty, and a session has one folder: send an empty list",
        ));
    }
    let Some(cwd) = params["cwd"].as_str() else {
        return Err(Fault::params("`cwd` is missing: an absolute path"));
    };
    if cwd == OWN {
        return Ok(Chosen::Own);
    }
    if who.operator().is_err() {
        return Err(Fault::params(format!(
            "`cwd` is chosen by the operator alone: send `{OWN}`, the agent's own workspace"
        )));
    }
    let found = ground::given("cwd", cwd, home).map_err(Fault::params)?;
    Ok(Chosen::Folder(found))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_folder_is_there_absolute_outside_of_the_home_and_the_operators_to_choose() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (home, project) = (root.join("home"), root.join("project"));
        for folder in [&home.join("keys"), &project] {
            std::fs::create_dir_all(folder).unwrap();
        }
        std::fs::write(root.join("file"), "").unwrap();
        std::os::unix::fs::symlink(&home, root.join("link")).unwrap();
        let ask = |who: &Principal, cwd: &str| {
            chosen(who, &json!({ "cwd": cwd, "mcpServers": [] }), &home).map_err(|fault| fault.message)
        };
        let at = |name: &str| root.join(name).to_str().unwrap().to_owned();
        let operator = Principal::Operator;
        assert_eq!(ask(&operator, &at("project")), Ok(Chosen::Folder(project)));
        assert_eq!(ask(&operator, &at("home/../project/.")), ask(&operator, &at("project")));
        assert_eq!(ask(&operator, OWN), Ok(Chosen::Own));
        for (cwd, why) in [
            ("project".to_owned(), "not absolute"),
            (at("missing"), "cannot be used"),
            (at("file"), "not a folder"),
            (at("home"), "Tribune's own home"),
            (at("home/keys"), "Tribune's own home"),
            (at("link"), "Tribune's own home"),
            (at("link/keys"), "Tribune's own home"),
            (at(""), "Tribune's own home"),
            ("/".to_owned(), "Tribune's own home"),
        ] {
            assert!(ask(&operator, &cwd).unwrap_err().contains(why), "{cwd}");
        }
        let stranger = Principal::Anonymous { id: "anonymous".parse().unwrap() };
        assert!(ask(&stranger, &at("project")).unwrap_err().contains("operator alone"));
        assert_eq!(ask(&stranger, OWN), Ok(Chosen::Own));
    }

    #[test]
    fn what_is_not_offered_is_refused() {
        let ask = |params: Value| {
            chosen(&Principal::Operator, &params, Path::new("/nowhere")).map_err(|fault| fault.message)
        };
        let servers =
            json!({ "cwd": OWN, "mcpServers": [{ "name": "x", "command": "y", "args": [], "env": [] }] });
        assert!(ask(servers).unwrap_err().contains("MCP"));
        let folders = json!({ "cwd": OWN, "mcpServers": [], "additionalDirectories": ["/tmp"] });
        assert!(ask(folders).unwrap_err().contains("one folder"));
        assert!(ask(json!({ "mcpServers": [] })).unwrap_err().contains("missing"));
    }
}
