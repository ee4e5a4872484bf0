//! Resolves paths in a workspace through its symlinks, as they are and as they would be after landing. Opens nothing.
//!
//! Each symlink may be landed or not, so at each of them both targets are followed.

use std::collections::BTreeMap;
use std::path::{Component, Components, Path, PathBuf};

use super::change::Change;
use super::node::Node;

/// Maximum number of symlinks on one path, as in the kernel.
const MAX_LINKS: usize = 40;

/// Maximum number of names looked up for all paths of one diff.
const MAX_LOOKUPS: usize = 1_000_000;

/// Maximum length of a position beyond the path of the workspace; the kernel allows no longer path.
const MAX_POSITION_BYTES: usize = 4096;

/// Symlinks by path, with their targets.
pub(super) type Links = BTreeMap<PathBuf, PathBuf>;

/// Symlinks by path, with their targets now and after landing. `None` is not a symlink.
type LinkTargets = BTreeMap<PathBuf, [Option<PathBuf>; 2]>;

/// The result of resolving a path.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PathTrace {
    /// The symlinks on the way.
    pub(super) passed: Vec<PathBuf>,
    /// The end points, as far as they are in the workspace. The workspace itself is the empty path.
    pub(super) ends: Vec<PathBuf>,
}

/// The lookup budget is used up.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BudgetExceeded;

/// Resolves the paths of one workspace within a budget.
pub(super) struct PathTracer<'a> {
    /// The path of the workspace, for symlinks that name it.
    pub(super) root: &'a Path,
    links: LinkTargets,
    steps: usize,
}

impl<'a> PathTracer<'a> {
    /// `now` are the symlinks of the folder as it is.
    pub(super) fn new(root: &'a Path, now: Links, changes: &[Change]) -> Self {
        let then = with_changes(now.clone(), changes);
        let mut links: LinkTargets = now.into_iter().map(|(path, to)| (path, [Some(to), None])).collect();
        for (path, to) in then {
            links.entry(path).or_default()[1] = Some(to);
        }
        Self { root, links, steps: 0 }
    }

    /// All symlinks.
    pub(super) fn links(&self) -> impl Iterator<Item = &PathBuf> {
        self.links.keys()
    }

    /// The symlinks at a path and below it.
    pub(super) fn below(&mut self, path: &Path) -> Result<Vec<PathBuf>, BudgetExceeded> {
        let found: Vec<PathBuf> = below(&self.links, path).cloned().collect();
        self.steps += found.len();
        if self.steps > MAX_LOOKUPS { Err(BudgetExceeded) } else { Ok(found) }
    }

    /// Resolves a path from a position in the workspace.
    pub(super) fn follow(&mut self, position: &Path, path: &Path) -> Result<PathTrace, BudgetExceeded> {
        let Self { root, links, steps } = self;
        let mut trace = PathTrace::default();
        let mut open =
            vec![Branch { position: root.join(position), remaining: vec![path.components()], links: 0 }];
        while let Some(mut branch) = open.pop() {
            let Some(part) = branch.next_component() else {
                trace.ends.extend(branch.position.strip_prefix(*root).map(Path::to_owned));
                continue;
            };
            *steps += 1;
            let bytes = branch.position.as_os_str().len().saturating_sub(root.as_os_str().len());
            if *steps > MAX_LOOKUPS || bytes > MAX_POSITION_BYTES {
                return Err(BudgetExceeded);
            }
            match part {
                Component::Prefix(_) | Component::CurDir => open.push(branch),
                Component::RootDir => open.push(Branch { position: "/".into(), ..branch }),
                Component::ParentDir => {
                    branch.position.pop();
                    open.push(branch);
                }
                Component::Normal(name) => {
                    let next = branch.position.join(name);
                    let Some((link, targets)) =
                        next.strip_prefix(*root).ok().and_then(|inner| links.get_key_value(inner))
                    else {
                        open.push(Branch { position: next, ..branch });
                        continue;
                    };
                    trace.passed.push(link.clone());
                    let [now, after] = targets;
                    for target in [Some(after), (now != after).then_some(now)].into_iter().flatten() {
                        match target {
                            None => open.push(Branch { position: next.clone(), ..branch.clone() }),
                            Some(target) if branch.links < MAX_LINKS => {
                                let mut branch = branch.clone();
                                branch.remaining.push(target.components());
                                open.push(Branch { links: branch.links + 1, ..branch });
                            }
                            Some(_) => {}
                        }
                    }
                }
            }
        }
        Ok(trace)
    }
}

/// One of the ways in which a path can be resolved.
#[derive(Debug, Clone)]
struct Branch<'p> {
    position: PathBuf,
    /// The remaining components; those of the last symlink come last and are resolved first.
    remaining: Vec<Components<'p>>,
    /// The number of symlinks followed.
    links: usize,
}

impl<'p> Branch<'p> {
    fn next_component(&mut self) -> Option<Component<'p>> {
        while let Some(nearest) = self.remaining.last_mut() {
            if let Some(part) = nearest.next() {
                return Some(part);
            }
            self.remaining.pop();
        }
        None
    }
}

/// The symlinks of a folder after the changes.
fn with_changes(mut links: Links, changes: &[Change]) -> Links {
    let is_folder = |node: &Option<Node>| matches!(node, Some(Node::Folder { .. }));
    for change in changes.iter().filter(|change| !(is_folder(&change.before) && is_folder(&change.after))) {
        let gone: Vec<PathBuf> = below(&links, &change.path).cloned().collect();
        gone.iter().for_each(|path| drop(links.remove(path)));
    }
    for change in changes {
        if let Some(Node::Symlink { to }) = &change.after {
            links.insert(change.path.clone(), to.clone());
        }
    }
    links
}

fn below<'a, T>(links: &'a BTreeMap<PathBuf, T>, path: &'a Path) -> impl Iterator<Item = &'a PathBuf> {
    links.range(path.to_owned()..).map(|(link, _)| link).take_while(move |link| link.starts_with(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracer_with(now: &[(&str, &str)], then: &[(&str, &str)]) -> PathTracer<'static> {
        let links = |links: &[(&str, &str)]| -> Links {
            links.iter().map(|(path, to)| (PathBuf::from(path), PathBuf::from(to))).collect()
        };
        let mut tracer = PathTracer::new("/home/p".as_ref(), links(now), &[]);
        tracer.links.values_mut().for_each(|both| both[1] = None);
        for (path, to) in links(then) {
            tracer.links.entry(path).or_default()[1] = Some(to);
        }
        tracer
    }

    /// Resolves `a/l`. Returns the symlinks on the way and the end points.
    fn resolved(mut tracer: PathTracer<'_>) -> Vec<String> {
        let trace = tracer.follow("a".as_ref(), "l".as_ref()).unwrap();
        assert_eq!(trace.passed[0], Path::new("a/l"));
        trace.passed[1..].iter().chain(&trace.ends).map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn all_symlinks_on_the_way_are_reported() {
        for (links, expected) in [
            (&[("a/l", "../b")][..], &["b"][..]),
            (&[("a/l", "m"), ("a/m", "n/x"), ("a/n", "/home/p/z")], &["a/m", "a/n", "z/x"]),
            (&[("a/l", "../../p/b")], &["b"]),
            (&[("a/l", "..")], &[""]),
            (&[("a/l", "/etc/passwd")], &[]),
            (&[("a/l", "../m/../x"), ("m", "n/o")], &["m", "n/x"]),
        ] {
            assert_eq!(resolved(tracer_with(links, links)), expected, "{links:?}");
        }
        let circle = &[("a/l", "l")];
        assert_eq!(resolved(tracer_with(circle, circle)).len(), MAX_LINKS, "a symlink loop ends");
    }

    #[test]
    fn both_targets_of_a_changed_symlink_are_followed() {
        let tracer = tracer_with(&[("a/l", "m/x"), ("a/n", "o")], &[("a/l", "n/x"), ("a/m", "q")]);
        let mut resolved = resolved(tracer);
        resolved.sort();
        assert_eq!(resolved, ["a/m", "a/m/x", "a/n", "a/n/x", "a/o/x", "a/q/x"]);
    }

    #[test]
    fn exceeding_the_budget_is_an_error() {
        let names: Vec<String> = (0..64).map(|number| format!("a/{number}")).collect();
        let both = |to: &str| -> Vec<(PathBuf, PathBuf)> {
            names.iter().map(|name| (name.into(), to.into())).collect()
        };
        let mut tracer = PathTracer::new("/home/p".as_ref(), both(".").into_iter().collect(), &[]);
        for (path, to) in both("./.") {
            tracer.links.entry(path).or_default()[1] = Some(to.join("../a"));
        }
        let long: PathBuf = (0..64).map(|number| number.to_string()).collect();
        assert_eq!(tracer.follow("a".as_ref(), &long), Err(BudgetExceeded));
        let deep: PathBuf = std::iter::repeat_n("x", MAX_POSITION_BYTES).collect();
        assert_eq!(super::tests::tracer_with(&[], &[]).follow("".as_ref(), &deep), Err(BudgetExceeded));
    }
}
