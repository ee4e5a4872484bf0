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

/// Names that a sentence shows at most.
const SHOWN: usize = 8;

/// What a client asks for beside its folder and does not get: further folders. Each is a sentence for people, because nobody should
/// believe to have what was left out in silence.
pub(super) fn left_out(params: &Value) -> Result<Vec<String>, Fault> {
    let folders = list(params, "additionalDirectories")?;
    if folders.is_empty() {
        return Ok(Vec::new());
    }
    let names = names(folders.iter().map(|folder| folder.as_str().unwrap_or("unnamed").to_owned()));
    Ok(vec![format!("A session of Tribune works in one folder. Out of its reach: {names}.")])
}

pub(super) fn list<'a>(params: &'a Value, name: &str) -> Result<&'a [Value], Fault> {
    match &params[name] {
        Value::Null => Ok(&[]),
        Value::Array(items) => Ok(items),
        _ => Err(Fault::params(format!("`{name}` is a list"))),
    }
}

/// Names in a sentence: some of them, and only what can be read.
pub(super) fn names(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(SHOWN);
    let plain =
        |name: String| name.chars().filter(|c| !c.is_control() && *c != '`').take(200).collect::<String>();
    let mut shown = names.take(SHOWN).map(|name| format!("`{}`", plain(name))).collect::<Vec<_>>().join(", ");
    if more > 0 {
        shown.push_str(&format!(" and {more} more"));
    }
    shown
}

/// Which folder a client asks for, if it may have it.
pub(super) fn chosen(who: &Principal, params: &Value, home: &Path) -> Result<Chosen, Fault> {
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
    fn what_is_not_offered_is_told() {
        let ask = |params: Value| left_out(&params).map_err(|fault| fault.message);
        let told = ask(json!({ "additionalDirectories": ["/tmp`\n", 7] })).unwrap();
        assert_eq!(told.len(), 1);
        assert!(told[0].contains("in one folder") && told[0].contains("`/tmp`, `unnamed`"), "{told:?}");
        assert_eq!(ask(json!({ "additionalDirectories": [] })), Ok(Vec::new()));
        assert_eq!(ask(json!({})), Ok(Vec::new()));
        assert!(ask(json!({ "additionalDirectories": 1 })).unwrap_err().contains("is a list"));
        let missing = chosen(&Principal::Operator, &json!({ "mcpServers": [] }), Path::new("/nowhere"));
        assert!(missing.unwrap_err().message.contains("missing"));
    }
}
