//! Where paths lead in a workspace, through links as they are and as they would be. Nothing is opened here.
//!
//! Each link may land or be left, so at each of them both tracer are gone.

use std::collections::BTreeMap;
use std::path::{Component, Components, Path, PathBuf};

use super::diff::Change;
use super::node::Node;

/// Links on one way; the kernel follows no more.
const MAX_LINKS: usize = 40;

/// Names that are looked up for all tracer of one diff. Nobody who means well needs more.
const MAX_LOOKUPS: usize = 1_000_000;

/// Bytes of a place beyond the path of the workspace; the kernel takes no longer path.
const MAX_POSITION_BYTES: usize = 4096;

/// Links by their path, and where each leads.
pub(super) type Links = BTreeMap<PathBuf, PathBuf>;

/// Links by their path, and where each leads now and then. None is no link.
type LinkTargets = BTreeMap<PathBuf, [Option<PathBuf>; 2]>;

/// Where a path leads.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PathTrace {
    /// The links that it goes through.
    pub(super) passed: Vec<PathBuf>,
    /// What is at its end, as far as that is in the workspace. The workspace itself has no name.
    pub(super) ends: Vec<PathBuf>,
}

/// All that was to be looked at is used up.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BudgetExceeded;

/// The tracer of one workspace.
pub(super) struct PathTracer<'a> {
    /// Where the workspace is, for paths that name it.
    pub(super) root: &'a Path,
    links: LinkTargets,
    steps: usize,
}

impl<'a> PathTracer<'a> {
    /// `now` are the links of the folder as it is.
    pub(super) fn new(root: &'a Path, now: Links, changes: &[Change]) -> Self {
        let then = with_changes(now.clone(), changes);
        let mut links: LinkTargets = now.into_iter().map(|(path, to)| (path, [Some(to), None])).collect();
        for (path, to) in then {
            links.entry(path).or_default()[1] = Some(to);
        }
        Self { root, links, steps: 0 }
    }

    /// All links.
    pub(super) fn links(&self) -> impl Iterator<Item = &PathBuf> {
        self.links.keys()
    }

    /// The links at a path and below it.
    pub(super) fn below(&mut self, path: &Path) -> Result<Vec<PathBuf>, BudgetExceeded> {
        let found: Vec<PathBuf> = below(&self.links, path).cloned().collect();
        self.steps += found.len();
        if self.steps > MAX_LOOKUPS { Err(BudgetExceeded) } else { Ok(found) }
    }

    /// Follows a path from a place in the workspace.
    pub(super) fn follow(&mut self, place: &Path, path: &Path) -> Result<PathTrace, BudgetExceeded> {
        let Self { root, links, steps } = self;
        let mut trace = PathTrace::default();
        // Places, each with what is left to go from there, the nearest last, and how many links led there.
        let mut open = vec![(root.join(place), vec![path.components()], 0)];
        while let Some((mut place, mut left, passed)) = open.pop() {
            let Some(part) = next(&mut left) else {
                trace.ends.extend(place.strip_prefix(*root).map(Path::to_owned));
                continue;
            };
            *steps += 1;
            let bytes = place.as_os_str().len().saturating_sub(root.as_os_str().len());
            if *steps > MAX_LOOKUPS || bytes > MAX_POSITION_BYTES {
                return Err(BudgetExceeded);
            }
            match part {
                Component::Prefix(_) | Component::CurDir => open.push((place, left, passed)),
                Component::RootDir => open.push(("/".into(), left, passed)),
                Component::ParentDir => {
                    place.pop();
                    open.push((place, left, passed));
                }
                Component::Normal(name) => {
                    let on = place.join(name);
                    let Some((link, both)) =
                        on.strip_prefix(*root).ok().and_then(|inner| links.get_key_value(inner))
                    else {
                        open.push((on, left, passed));
                        continue;
                    };
                    trace.passed.push(link.clone());
                    let [now, then] = both;
                    for to in [Some(then), (now != then).then_some(now)].into_iter().flatten() {
                        match to {
                            None => open.push((on.clone(), left.clone(), passed)),
                            Some(to) if passed < MAX_LINKS => {
                                let mut further = left.clone();
                                further.push(to.components());
                                open.push((place.clone(), further, passed + 1));
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

/// The next part of what is left to go.
fn next<'p>(left: &mut Vec<Components<'p>>) -> Option<Component<'p>> {
    while let Some(nearest) = left.last_mut() {
        if let Some(part) = nearest.next() {
            return Some(part);
        }
        left.pop();
    }
    None
}

/// The links that a folder has, as they would be.
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

    fn tracer(now: &[(&str, &str)], then: &[(&str, &str)]) -> PathTracer<'static> {
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

    /// The links on the way of `a/l`, and its ends.
    fn led(mut tracer: PathTracer<'_>) -> Vec<String> {
        let trace = tracer.follow("a".as_ref(), "l".as_ref()).unwrap();
        assert_eq!(trace.passed[0], Path::new("a/l"));
        trace.passed[1..].iter().chain(&trace.ends).map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn every_step_of_a_way_is_told() {
        for (links, expected) in [
            (&[("a/l", "../b")][..], &["b"][..]),
            (&[("a/l", "m"), ("a/m", "n/x"), ("a/n", "/home/p/z")], &["a/m", "a/n", "z/x"]),
            (&[("a/l", "../../p/b")], &["b"]),
            (&[("a/l", "..")], &[""]),
            (&[("a/l", "/etc/passwd")], &[]),
            (&[("a/l", "../m/../x"), ("m", "n/o")], &["m", "n/x"]),
        ] {
            assert_eq!(led(tracer(links, links)), expected, "{links:?}");
        }
        let circle = &[("a/l", "l")];
        assert_eq!(led(tracer(circle, circle)).len(), MAX_LINKS, "a circle has an end");
    }

    #[test]
    fn each_link_may_land_or_be_left() {
        let tracer = tracer(&[("a/l", "m/x"), ("a/n", "o")], &[("a/l", "n/x"), ("a/m", "q")]);
        let mut led = led(tracer);
        led.sort();
        assert_eq!(led, ["a/m", "a/m/x", "a/n", "a/n/x", "a/o/x", "a/q/x"]);
    }

    #[test]
    fn too_much_is_said() {
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
        assert_eq!(super::tests::tracer(&[], &[]).follow("".as_ref(), &deep), Err(BudgetExceeded));
    }
}
