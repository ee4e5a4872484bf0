//! Names in workspaces that the operator keeps from agents (`workspaces.hide`). In a box they look empty; the tools refuse them.

use tribune_contract::Pattern;

/// Patterns of such names, as [`tribune_contract::Workspace`] describes them.
#[derive(Debug, Default)]
pub(super) struct Hidden(Vec<Pattern>);

impl Hidden {
    pub(super) fn new(patterns: &[String]) -> Self {
        Self(patterns.iter().map(|pattern| Pattern::new(pattern)).collect())
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a path of the workspace is hidden, or is in something that is.
    pub(super) fn covers(&self, path: &str) -> bool {
        let mut ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        ends.any(|end| self.0.iter().any(|pattern| pattern.matches(&path[..end])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_something_hidden_is_hidden() {
        let hidden = Hidden::new(&[".env".to_owned(), "keys/private".to_owned(), "*.pem".to_owned()]);
        for path in [".env", "a/b/.ENV", "keys/private", "keys/private/a/b", "x/Host.PEM", ".env/x"] {
            assert!(hidden.covers(path), "{path}");
        }
        for path in ["", "env", ".envrc", "keys", "keys/public", "a/keys/private"] {
            assert!(!hidden.covers(path), "{path}");
        }
        assert!(!Hidden::default().covers(".env"));
    }
}
