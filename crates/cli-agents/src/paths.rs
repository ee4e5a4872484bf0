//! Paths as the house calls them, of those that an agent names in its box.

/// How far a path may lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    Workspace,
    /// To what of the box nothing inside can change, too. Elsewhere an agent can lay links, and one of them may lead back.
    System,
}

/// Folders of the box that nothing inside can change.
const SYSTEM: [&str; 8] = ["/usr", "/etc", "/opt", "/bin", "/sbin", "/lib", "/lib32", "/lib64"];

/// The path as the house calls it, if it is one that the law can judge by.
pub(crate) fn placed(path: &str, workspace: &str, reach: Reach) -> Option<String> {
    let path = inside(path, workspace)?;
    let is_system = |folder: &&str| {
        path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let is_near = !path.starts_with('/') || (reach == Reach::System && SYSTEM.iter().any(is_system));
    is_near.then_some(path)
}

/// The path as the house calls it: relative if it is in the workspace, and in one spelling. None where its words do not say
/// where it leads: `..` goes elsewhere behind a link, and `~` is whoever's home.
pub(crate) fn inside(path: &str, workspace: &str) -> Option<String> {
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
