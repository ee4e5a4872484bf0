//! Commands that are pointed at in a sentence: they must be about the same home as the command that points at them.

use tribune_storage::home::Home;

use crate::args::default_home;
use crate::up::next_command;

/// A sentence whose commands are about this home, where it is not the usual one.
pub(crate) fn with_home(home: &Home, sentence: &str) -> String {
    let parts = sentence.split('`').enumerate().map(|(index, part)| match part.strip_prefix("tribune ") {
        Some(words) if index % 2 == 1 => next_command(home, words),
        Some(_) | None => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("`")
}

/// The same, where the next command would not find this home by itself.
pub(crate) fn about(home: &Home, sentence: &str) -> String {
    let named = std::env::var_os("TRIBUNE_HOME").filter(|path| !path.is_empty()).map(Into::into);
    match named.or_else(default_home).is_some_and(|found| found == home.root()) {
        true => sentence.to_owned(),
        false => with_home(home, sentence),
    }
}
