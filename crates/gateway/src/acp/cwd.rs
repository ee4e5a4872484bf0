//! The folders that a client asks for: `cwd` and `additionalDirectories`.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tribune_records::workspace_roots;

use super::wire::Fault;
use crate::principal::Principal;

/// The path of the agent's own workspace, on this endpoint and inside every sandbox.
pub(super) const OWN: &str = "/workspace";

/// The folder that a session works in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Chosen {
    /// The workspace of its agent.
    Own,
    /// A folder that the operator chose.
    Folder(PathBuf),
}

/// Maximum number of names in a sentence.
const MAX_NAMES: usize = 8;

/// The parameter of the additional directories.
pub(super) const ADDITIONAL_DIRECTORIES: &str = "additionalDirectories";

/// The additional directories that a client asks for. The protocol requires exactly this list. `None` for callers other than the
/// operator, who cannot choose: their sessions keep the directories they have.
pub(super) fn additional_directories(
    who: &Principal,
    params: &Value,
    home: &Path,
) -> Result<Option<Vec<String>>, Fault> {
    let folders = list(params, ADDITIONAL_DIRECTORIES)?;
    if who.operator().is_err() {
        return match folders.is_empty() {
            true => Ok(None),
            false => Err(Fault::params(format!(
                "`{ADDITIONAL_DIRECTORIES}` are chosen by the operator alone: leave them out"
            ))),
        };
    }
    let folders: Option<Vec<&str>> = folders.iter().map(Value::as_str).collect();
    let Some(folders) = folders else {
        return Err(Fault::params(format!("`{ADDITIONAL_DIRECTORIES}` is a list of paths")));
    };
    workspace_roots::validate_additional_directories(ADDITIONAL_DIRECTORIES, &folders, home)
        .map(Some)
        .map_err(Fault::params)
}

/// The sentence for additional directories that the session cannot use.
pub(super) fn out_of_reach(why: &str, folders: &[String]) -> String {
    format!("{why} Out of its reach: {}.", names(folders.iter().cloned()))
}

pub(super) fn list<'a>(params: &'a Value, name: &str) -> Result<&'a [Value], Fault> {
    match &params[name] {
        Value::Null => Ok(&[]),
        Value::Array(items) => Ok(items),
        _ => Err(Fault::params(format!("`{name}` is a list"))),
    }
}

/// Lists names in a sentence: at most [`MAX_NAMES`], without control characters.
pub(super) fn names(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(MAX_NAMES);
    let plain =
        |name: String| name.chars().filter(|c| !c.is_control() && *c != '`').take(200).collect::<String>();
    let mut shown =
        names.take(MAX_NAMES).map(|name| format!("`{}`", plain(name))).collect::<Vec<_>>().join(", ");
    if more > 0 {
        shown.push_str(&format!(" and {more} more"));
    }
    shown
}

/// The folder that a client asks for. Only the operator may choose one.
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
    let found = workspace_roots::validate_root("cwd", cwd, home).map_err(Fault::params)?;
    Ok(Chosen::Folder(found))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cwd_is_an_existing_absolute_folder_outside_the_home_chosen_by_the_operator() {
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
        let anonymous = Principal::Anonymous { id: "anonymous".parse().unwrap() };
        assert!(ask(&anonymous, &at("project")).unwrap_err().contains("operator alone"));
        assert_eq!(ask(&anonymous, OWN), Ok(Chosen::Own));
    }

    #[test]
    fn only_the_operator_chooses_additional_directories() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("lib")).unwrap();
        let lib = root.join("lib").to_str().unwrap().to_owned();
        let ask = |who: &Principal, params: Value| {
            additional_directories(who, &params, &root.join("home")).map_err(|fault| fault.message)
        };
        let (operator, anonymous) =
            (Principal::Operator, Principal::Anonymous { id: "anonymous".parse().unwrap() });
        assert_eq!(
            ask(&operator, json!({ ADDITIONAL_DIRECTORIES: [lib, lib] })),
            Ok(Some(vec![lib.clone()]))
        );
        for none in
            [json!({}), json!({ ADDITIONAL_DIRECTORIES: null }), json!({ ADDITIONAL_DIRECTORIES: [] })]
        {
            assert_eq!(ask(&operator, none.clone()), Ok(Some(Vec::new())));
            assert_eq!(ask(&anonymous, none), Ok(None));
        }
        assert!(
            ask(&anonymous, json!({ ADDITIONAL_DIRECTORIES: [lib] })).unwrap_err().contains("operator alone")
        );
        for (wrong, why) in
            [(json!(1), "is a list"), (json!([7]), "a list of paths"), (json!(["lib"]), "not absolute")]
        {
            assert!(
                ask(&operator, json!({ ADDITIONAL_DIRECTORIES: wrong })).unwrap_err().contains(why),
                "{why}"
            );
        }
        let told = out_of_reach("No.", &["/tmp`\n".to_owned(), lib]);
        assert!(told.starts_with("No. Out of its reach: `/tmp`, `/"), "{told}");
        let missing = chosen(&operator, &json!({ "mcpServers": [] }), Path::new("/nowhere"));
        assert!(missing.unwrap_err().message.contains("missing"));
    }
}
