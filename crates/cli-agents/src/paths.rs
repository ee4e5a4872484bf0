//! Normalizes paths that an agent names inside its sandbox.

/// The folders that a path may lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathScope {
    Workspace,
    /// Also those of the sandbox that cannot be changed from inside. Elsewhere an agent can create links, and one of
    /// them may lead back.
    System,
}

/// Folders of the sandbox that cannot be changed from inside.
const SYSTEM: [&str; 8] = ["/usr", "/etc", "/opt", "/bin", "/sbin", "/lib", "/lib32", "/lib64"];

/// The normalized path, if the law can judge by it.
pub(crate) fn normalize_path(path: &str, workspace: &str, reach: PathScope) -> Option<String> {
    let path = relative_to_workspace(path, workspace)?;
    let is_system = |folder: &&str| {
        path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let is_near = !path.starts_with('/') || (reach == PathScope::System && SYSTEM.iter().any(is_system));
    is_near.then_some(path)
}

/// The path, relative if it is in the workspace, and in one spelling. `None` where the text does not say where it
/// leads: `..` goes elsewhere behind a link, and `~` depends on the user.
pub(crate) fn relative_to_workspace(path: &str, workspace: &str) -> Option<String> {
    let path = match path.strip_prefix("file://") {
        Some(address) if address.contains(['%', '?', '#']) => return None,
        Some(path) => path,
        None => path,
    };
    if path.is_empty()
        || path.starts_with('~')
        || path.contains('\0')
        || path.split('/').any(|part| part == "..")
    {
        return None;
    }
    let parts = |path: &str| -> Vec<String> {
        path.split('/').filter(|part| !matches!(*part, "" | ".")).map(str::to_owned).collect()
    };
    let own = parts(path);
    if !path.starts_with('/') {
        return Some(if own.is_empty() { ".".to_owned() } else { own.join("/") });
    }
    match own.strip_prefix(parts(workspace).as_slice()) {
        Some([]) => Some(".".to_owned()),
        Some(inner) => Some(inner.join("/")),
        None => Some(format!("/{}", own.join("/"))),
    }
}
