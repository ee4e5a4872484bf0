//! Commands that a message suggests. They must act on the same home as the command that prints the message.

use std::path::PathBuf;

use tribune_storage::home::Home;

/// The home that is used if the user names none.
pub(crate) fn default_home() -> Option<PathBuf> {
    std::env::home_dir().filter(|home| !home.as_os_str().is_empty()).map(|home| home.join(".tribune"))
}

/// `tribune WORDS`, with `--home` if the home is not the default one.
pub(crate) fn next_command(home: &Home, words: &str) -> String {
    if default_home().is_some_and(|usual| usual == home.root()) {
        return format!("tribune {words}");
    }
    let path = home.root().display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+@%,:".contains(c);
    let path = if path.chars().all(plain) { path } else { format!("'{}'", path.replace('\'', r"'\''")) };
    format!("tribune {words} --home {path}")
}

/// Adds `--home` to each command in backquotes, if the home is not the default one.
pub(crate) fn with_home(home: &Home, sentence: &str) -> String {
    let parts = sentence.split('`').enumerate().map(|(index, part)| match part.strip_prefix("tribune ") {
        Some(words) if index % 2 == 1 => next_command(home, words),
        Some(_) | None => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("`")
}

/// Does so only if the next command would not use this home by itself.
pub(crate) fn name_home_if_needed(home: &Home, sentence: &str) -> String {
    let named = std::env::var_os("TRIBUNE_HOME").filter(|path| !path.is_empty()).map(Into::into);
    match named.or_else(default_home).is_some_and(|found| found == home.root()) {
        true => sentence.to_owned(),
        false => with_home(home, sentence),
    }
}
