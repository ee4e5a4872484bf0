//! Scenes: scripts that have a name, built in or from a folder.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::ScriptError;
use super::limits::{MAX_DESCRIPTION_CHARS, MAX_SCENE_FILES, MAX_SCRIPT_BYTES, MAX_WORD_BYTES};
use super::parse::parse;
use super::script::Script;
use super::text::cut_chars;

/// The extension of a scene file.
const ENDING: &str = "scene";

macro_rules! builtin {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../../scenes/", $name, ".scene")))),+]
    };
}

/// Names and sources of the built-in scenes.
const BUILTIN: &[(&str, &str)] =
    builtin!["ask", "denied-shell", "fail", "flood", "hello", "mail", "parallel", "read", "slow", "think"];

/// The scenes that can be played. Cheap to clone.
#[derive(Clone)]
pub struct Scenes(Arc<BTreeMap<Box<str>, Scene>>);

struct Scene {
    description: Box<str>,
    script: Arc<Script>,
}

/// The reason for which the scenes of a folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SceneError {
    #[error("cannot read {}: {source}. Make it readable, or move it away.", .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} has more than {MAX_SCENE_FILES} scenes. Move some of them away.", .0.display())]
    TooMany(PathBuf),
    #[error("{} has more than {MAX_SCRIPT_BYTES} bytes. Shorten it, or use `repeat`.", .0.display())]
    TooLarge(PathBuf),
    #[error(
        "{} does not name a scene. Use lowercase letters, digits, `-` and `_` before the `.{ENDING}`, at most {MAX_WORD_BYTES}.",
        .0.display()
    )]
    BadName(PathBuf),
    #[error("{} has the name of a scene that comes with the program. Give it another name.", .0.display())]
    Shadows(PathBuf),
    #[error("{}:{}:{}: {}", .path.display(), .error.place.line, .error.place.column, .error.problem)]
    Script { path: PathBuf, error: ScriptError },
}

impl Scenes {
    /// The built-in scenes.
    pub fn builtin() -> Self {
        Self(Arc::new(builtin_scenes()))
    }

    /// The built-in scenes and those of a folder, which need not exist. A file that cannot be played refuses the whole
    /// folder, so that a mistake is seen when the program starts and not when the scene is played.
    pub fn builtin_and(folder: &Path) -> Result<Self, SceneError> {
        let mut scenes = builtin_scenes();
        for path in scene_files(folder)? {
            let name = scene_name(&path).ok_or_else(|| SceneError::BadName(path.clone()))?;
            if scenes.contains_key(&name) {
                return Err(SceneError::Shadows(path));
            }
            let source = read_bounded(&path)?;
            let script = parse(&source).map_err(|error| SceneError::Script { path, error })?;
            scenes.insert(name, Scene::new(&source, script));
        }
        Ok(Self(Arc::new(scenes)))
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(|name| &**name)
    }

    /// The names, each with its line of description, which may be empty.
    pub fn descriptions(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, scene)| (&**name, &*scene.description))
    }

    pub(super) fn script(&self, name: &str) -> Option<Arc<Script>> {
        self.0.get(name).map(|scene| Arc::clone(&scene.script))
    }
}

impl fmt::Debug for Scenes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

impl Scene {
    fn new(source: &str, script: Script) -> Self {
        let comment = source.lines().find_map(|line| line.trim_start().strip_prefix('#'));
        let description = cut_chars(comment.unwrap_or_default().trim(), MAX_DESCRIPTION_CHARS);
        Self { description: description.into(), script: Arc::new(script) }
    }
}

fn builtin_scenes() -> BTreeMap<Box<str>, Scene> {
    // A test parses every one of them, so none is left out here.
    let good =
        |(name, source): &(&str, &str)| Some(((*name).into(), Scene::new(source, parse(source).ok()?)));
    BUILTIN.iter().filter_map(good).collect()
}

/// The scene files of a folder, in order. Hidden files are an editor's.
fn scene_files(folder: &Path) -> Result<Vec<PathBuf>, SceneError> {
    let unreadable = |source| SceneError::Unreadable { path: folder.to_owned(), source };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(error)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(unreadable)?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if hidden || path.extension().is_none_or(|ending| ending != ENDING) {
            continue;
        }
        if files.len() == MAX_SCENE_FILES {
            return Err(SceneError::TooMany(folder.to_owned()));
        }
        files.push(path);
    }
    files.sort();
    Ok(files)
}

fn scene_name(path: &Path) -> Option<Box<str>> {
    let name = path.file_stem()?.to_str()?;
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    (name.len() <= MAX_WORD_BYTES && name.bytes().all(fits)).then(|| name.into())
}

fn read_bounded(path: &Path) -> Result<String, SceneError> {
    let unreadable = |source| SceneError::Unreadable { path: path.to_owned(), source };
    // Opening a pipe would wait for its writer.
    if !fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(unreadable(io::Error::new(io::ErrorKind::InvalidInput, "not a file")));
    }
    let mut bytes = Vec::new();
    let most = MAX_SCRIPT_BYTES as u64 + 1;
    File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)).map_err(unreadable)?;
    if bytes.len() > MAX_SCRIPT_BYTES {
        return Err(SceneError::TooLarge(path.to_owned()));
    }
    String::from_utf8(bytes)
        .map_err(|_| unreadable(io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text")))
}

#[cfg(test)]
#[path = "scenes_tests.rs"]
mod tests;
