//! Patterns of names in a workspace.

/// A pattern, as [`crate::Workspace`] describes it. Upper and lower case are the same to it, because a file
/// system may think so too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    folded: String,
    /// Whether it is compared with a path and not with a name.
    is_path: bool,
}

impl Pattern {
    #[must_use]
    pub fn new(text: &str) -> Self {
        let trimmed = text.trim_end_matches('/');
        let is_path = trimmed.contains('/');
        let folded = fold(trimmed.strip_prefix('/').unwrap_or(trimmed));
        Self { folded, is_path }
    }

    /// Whether this is about what has this path from the root of the workspace.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        self.matches_folded(&fold(path))
    }

    /// The same for a path that is folded already.
    pub(crate) fn matches_folded(&self, folded: &str) -> bool {
        if self.is_path {
            return glob(self.folded.as_bytes(), folded.as_bytes());
        }
        let name = folded.rsplit('/').next().unwrap_or_default();
        glob(self.folded.as_bytes(), name.as_bytes())
    }
}

/// Letters that some file system takes for the same become the same: first large, so that `ſ` is an `s`.
pub(crate) fn fold(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

/// Takes time in the product of both lengths: it goes back to the last star of each kind alone.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut pos) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    let mut double: Option<(usize, usize)> = None;
    loop {
        if pattern[at..].starts_with(b"**/") {
            at += 3;
            double = Some((at, pos));
            star = None;
            continue;
        }
        if pattern[at..].starts_with(b"**") {
            // At the end: whatever is below.
            return true;
        }
        match (pattern.get(at), text.get(pos)) {
            (Some(b'*'), _) => {
                at += 1;
                star = Some((at, pos));
                continue;
            }
            (Some(b'?'), Some(byte)) if *byte != b'/' => {
                (at, pos) = (at + 1, pos + 1);
                continue;
            }
            (Some(wanted), Some(byte)) if wanted == byte => {
                (at, pos) = (at + 1, pos + 1);
                continue;
            }
            (None, None) => return true,
            _ => {}
        }
        // Back to the last star, which takes one byte more of this name, or to the last `**`, which takes one name more.
        if let Some((after, from)) = star
            && text.get(from).is_some_and(|byte| *byte != b'/')
        {
            (at, pos) = (after, from + 1);
            star = Some((after, from + 1));
            continue;
        }
        let Some((after, from)) = double else { return false };
        let Some(slash) = text[from..].iter().position(|byte| *byte == b'/') else { return false };
        (at, pos) = (after, from + slash + 1);
        double = Some((after, pos));
        star = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names_and_paths() {
        let cases = [
            (".env", ".env", true),
            (".env", "a/b/.env", true),
            (".env", "a/.ENV", true),
            (".env", ".env.local", false),
            (".env*", "a/.env.local", true),
            ("*.pem", "keys/host.pem", true),
            ("*.pem", "keys/host.pem.txt", false),
            ("/.env", ".env", true),
            ("/.env", "a/.env", false),
            ("secrets/**", "secrets/a/b", true),
            ("secrets/**", "secret/a", false),
            ("**/.git/hooks", ".git/hooks", true),
            ("**/.git/hooks", "sub/x/.git/hooks", true),
            ("**/.git/hooks", "sub/.git/hooks2", false),
            ("**/.git/hooks", "a.git/hooks", false),
            ("a/*/c", "a/b/c", true),
            ("a/*/c", "a/b/b/c", false),
            ("a/**/c", "a/x/y/c", true),
            ("a/**/c", "a/c", true),
            ("id_?sa", "id_rsa", true),
            (".husky", "a/.hu\u{17f}ky", true),
            ("*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ];
        for (pattern, path, expected) in cases {
            assert_eq!(Pattern::new(pattern).matches(path), expected, "{pattern} {path}");
        }
    }
}
