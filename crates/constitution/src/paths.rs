//! Lexical path normalization, without access to the file system.

/// The path without `.`, `..` and repeated slashes, and whether it leaves the workspace that it is relative to. A
/// path that leaves keeps its leading `..`, or is absolute. A backslash is part of a name, as for the kernel.
pub(crate) fn normalize(path: &str) -> (String, bool) {
    let absolute = path.starts_with('/');
    let mut kept: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if kept.last().is_some_and(|last| *last != "..") => {
                kept.pop();
            }
            // The root is its own parent.
            ".." if absolute => {}
            part => kept.push(part),
        }
    }
    let outside = absolute || kept.first() == Some(&"..") || path.starts_with('~') || path.contains('\0');
    let joined = kept.join("/");
    match (absolute, joined.is_empty()) {
        (true, _) => (format!("/{joined}"), true),
        (false, true) => (".".to_owned(), outside),
        (false, false) => (joined, outside),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normalized_lexically() {
        for (path, normal, outside) in [
            ("notes.txt", "notes.txt", false),
            ("./a//b/./c/", "a/b/c", false),
            ("a/../b", "b", false),
            ("", ".", false),
            ("a/..", ".", false),
            ("..", "..", true),
            ("a/../../b", "../b", true),
            ("../../x", "../../x", true),
            ("/etc/passwd", "/etc/passwd", true),
            ("/../etc", "/etc", true),
            ("/", "/", true),
            ("~/x", "~/x", true),
            ("a\\..\\b", "a\\..\\b", false),
            ("...", "...", false),
        ] {
            assert_eq!(normalize(path), (normal.to_owned(), outside), "{path:?}");
        }
    }
}
