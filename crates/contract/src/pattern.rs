//! Glob patterns for paths in a workspace.

use std::collections::HashSet;

/// A pattern, as [`crate::WorkspaceMount`] describes it. Matching ignores case, because file systems may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(Vec<PatternPart>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum PatternPart {
    /// `**`: any number of components.
    Names,
    /// One literal component.
    Name(String),
    /// One of these literal components.
    OneOf(HashSet<String>),
    /// One component with `*` or `?`.
    Like(String),
}

impl Pattern {
    #[must_use]
    pub fn new(text: &str) -> Self {
        let trimmed = text.trim_end_matches('/');
        let is_path = trimmed.contains('/');
        let folded = fold_case(trimmed);
        let names = folded.split('/').filter(|name| !name.is_empty());
        let parts = names.map(|name| match name {
            "**" => PatternPart::Names,
            name if name.contains(['*', '?']) => PatternPart::Like(name.to_owned()),
            name => PatternPart::Name(name.to_owned()),
        });
        // A pattern without a slash matches at every depth.
        let anywhere = (!is_path && !trimmed.is_empty()).then_some(PatternPart::Names);
        Self(anywhere.into_iter().chain(parts).collect())
    }

    /// Returns whether the pattern matches this path, relative to the root of the workspace.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        self.matches_folded(&fold_case(path))
    }

    /// Like [`Self::matches`] for a path whose case is folded already.
    pub(crate) fn matches_folded(&self, folded: &str) -> bool {
        let mut is_match = false;
        let mut reached = vec![0];
        for name in folded.split('/') {
            let mut next = Vec::new();
            is_match = false;
            for at in reached {
                is_match |= self.step(at, name, |at| next.push(at));
            }
            next.sort_unstable();
            next.dedup();
            reached = next;
        }
        is_match
    }

    /// Matches one component against the part `at` and calls `on` with every part that may follow. Returns whether the
    /// pattern is complete with this component.
    fn step(&self, mut at: usize, name: &str, mut on: impl FnMut(usize)) -> bool {
        let Self(parts) = self;
        let mut is_match = false;
        while let Some(part) = parts.get(at) {
            let is_it = match part {
                PatternPart::Names => {
                    on(at);
                    is_match |= at + 1 == parts.len();
                    // `**` also matches no component.
                    at += 1;
                    continue;
                }
                PatternPart::Name(wanted) => wanted == name,
                PatternPart::OneOf(wanted) => wanted.contains(name),
                PatternPart::Like(wanted) => glob_match(wanted.as_bytes(), name.as_bytes()),
            };
            if is_it {
                on(at + 1);
                is_match |= at + 1 == parts.len();
            }
            break;
        }
        is_match
    }
}

/// Patterns that are matched together, component by component. For callers that reach a folder through symlinks and so
/// have no plain path to it.
#[derive(Debug, Clone, Default)]
pub struct PatternSet(Vec<Pattern>);

/// How far a path has advanced in each pattern of a [`PatternSet`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PatternProgress(Vec<(usize, usize)>);

impl PatternSet {
    /// Most patterns are plain names that match at every depth. They become one pattern, so that a component is looked up
    /// among them once.
    #[must_use]
    pub fn new(texts: &[String]) -> Self {
        let mut names = HashSet::new();
        let mut patterns = Vec::new();
        for pattern in texts.iter().map(|text| Pattern::new(text)) {
            match pattern.0.as_slice() {
                [PatternPart::Names, PatternPart::Name(name)] => {
                    names.insert(name.clone());
                }
                _ => patterns.push(pattern),
            }
        }
        if !names.is_empty() {
            patterns.push(Pattern(vec![PatternPart::Names, PatternPart::OneOf(names)]));
        }
        Self(patterns)
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The progress at the root of a workspace.
    #[must_use]
    pub fn start(&self) -> PatternProgress {
        PatternProgress((0..self.0.len()).map(|pattern| (pattern, 0)).collect())
    }

    /// Returns whether any pattern matches `name` in a folder with this progress.
    #[must_use]
    pub fn matches(&self, from: &PatternProgress, name: &str) -> bool {
        let name = fold_case(name);
        from.0.iter().any(|&(pattern, at)| self.0[pattern].step(at, &name, |_| ()))
    }

    /// Returns the progress in the subfolder `name` of a folder with this progress.
    #[must_use]
    pub fn step(&self, from: &PatternProgress, name: &str) -> PatternProgress {
        let name = fold_case(name);
        let mut on = Vec::new();
        for &(pattern, at) in &from.0 {
            self.0[pattern].step(at, &name, |at| on.push((pattern, at)));
        }
        on.retain(|&(pattern, at)| at < self.0[pattern].0.len());
        on.sort_unstable();
        on.dedup();
        PatternProgress(on)
    }
}

impl PatternProgress {
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the part of this progress that `other` lacks.
    #[must_use]
    pub fn beyond(&self, other: &Self) -> Self {
        Self(self.0.iter().filter(|at| other.0.binary_search(at).is_err()).copied().collect())
    }

    /// Returns the union of both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let mut both = [self.0.as_slice(), &other.0].concat();
        both.sort_unstable();
        both.dedup();
        Self(both)
    }
}

/// Folds case as case-insensitive file systems do: first to upper case, so that `ſ` equals `s`.
pub(crate) fn fold_case(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

/// Matches one component. Backtracks to the last star only, so the time is at most the product of both lengths.
fn glob_match(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut pos) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        match (pattern.get(at), text.get(pos)) {
            (Some(b'*'), _) => {
                at += 1;
                star = Some((at, pos));
                continue;
            }
            (Some(b'?'), Some(_)) => {
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
        // Back to the last star, which now takes one byte more.
        let Some((after, from)) = star.filter(|&(_, from)| from < text.len()) else { return false };
        (at, pos) = (after, from + 1);
        star = Some((after, from + 1));
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
            ("**", "a/b", true),
            ("a/**/**/c", "a/c", true),
            ("**/a/**/b/c", "x/a/b/b/a/b/c", true),
            ("**/a/**/b/c", "x/a/b/b/a/b", false),
            ("", "a", false),
            ("a", "", false),
            ("*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ];
        for (pattern, path, expected) in cases {
            assert_eq!(Pattern::new(pattern).matches(path), expected, "{pattern} {path}");
        }
    }
    #[test]
    fn progress_advances_component_by_component() {
        let patterns = PatternSet::new(&["config/*/key", ".env", "a/**/b"].map(str::to_owned));
        let start = patterns.start();
        let plain = patterns.step(&start, "src");
        assert_eq!(plain.beyond(&start), PatternProgress::default());
        assert!(patterns.matches(&plain, ".ENV") && !patterns.matches(&plain, "key"));
        let config = patterns.step(&start, "Config");
        assert!(!config.beyond(&start).is_empty());
        let inner = patterns.step(&config.beyond(&start), "x");
        assert!(patterns.matches(&inner, "key") && !patterns.matches(&inner, ".env"));
        assert!(patterns.matches(&inner.and(&plain), ".env"));
        // `**` is available again after every component.
        let below = patterns.step(&start, "a");
        assert_eq!(patterns.step(&below, "x"), below);
        assert!(patterns.matches(&below, "b"));
    }
}
