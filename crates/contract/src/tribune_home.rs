//! Recognises a home of Tribune: the state folder of an instance, with its keys and the token of its operator. No sandbox
//! and no tool of an agent shows one, whichever instance it belongs to.

use std::path::{Path, PathBuf};

/// Returns whether a folder with these entries is a home.
#[must_use]
pub fn is_tribune_home(has: impl Fn(&str) -> bool) -> bool {
    has("keys") && ["tribune.db", "vault.db", "daybook"].into_iter().any(&has)
        || has("run") && has("tribune.db")
}

/// Returns the home that a path is or lies in. `exists` looks a path up on the disk.
#[must_use]
pub fn tribune_home_around(path: &Path, exists: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let is_home = |folder: &&Path| is_tribune_home(|name| exists(&folder.join(name)));
    path.ancestors().find(is_home).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_are_recognised_by_what_they_hold() {
        for (names, expected) in [
            (&["keys", "tribune.db", "run"][..], true),
            (&["keys", "vault.db"][..], true),
            (&["keys", "daybook"][..], true),
            (&["run", "tribune.db"][..], true),
            (&["keys", "run"][..], false),
            (&["keys"][..], false),
            (&["tribune.db"][..], false),
            (&[][..], false),
        ] {
            assert_eq!(is_tribune_home(|name| names.contains(&name)), expected, "{names:?}");
        }
        let there = |path: &Path| ["/a/b/keys", "/a/b/vault.db"].map(Path::new).contains(&path);
        assert_eq!(tribune_home_around("/a/b/agents/x".as_ref(), there), Some("/a/b".into()));
        assert_eq!(tribune_home_around("/a".as_ref(), there), None);
    }
}
