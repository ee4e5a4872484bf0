//! `tribune init`: the files of a home that a person may want to change. What is there already stays as it is.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use serde_json::json;
use tribune_constitution::{DEFAULT_CONSTITUTION, DEFAULT_MANDATE_TEXT};
use tribune_daemon::daemon::write_if_missing;
use tribune_registry::DEFAULT_ROSTER;
use tribune_storage::home::Home;

use crate::error::{CliError, Outcome};
use crate::output::Output;
use crate::up::next_command;

/// A file of a home: where it is, what it is for, what it says at first.
struct Piece {
    path: &'static str,
    about: &'static str,
    content: &'static str,
}

const CONFIG: Piece = Piece {
    path: "config.json5",
    about: "settings, each at its default and explained",
    content: tribune_config::EXAMPLE,
};

/// What the daemon needs or shows on its first day.
const PIECES: [Piece; 5] = [
    Piece { path: "constitution.md", about: "the law for every agent", content: DEFAULT_CONSTITUTION },
    Piece {
        path: "mandates/default.md",
        about: "what an agent without a mandate of its own may do",
        content: DEFAULT_MANDATE_TEXT,
    },
    Piece { path: "data/agent-roster.jsonl", about: "the agents, one per line", content: DEFAULT_ROSTER },
    Piece { path: "board.md", about: "notes that every agent sees", content: "" },
    Piece {
        path: "agents/main/workspace/welcome.txt",
        about: "a file for the agent `main` to read",
        content: include_str!("welcome.txt"),
    },
];

/// What became of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Made,
    Kept,
}

pub(crate) fn run(home: &Home, output: &mut Output) -> Result<Outcome, CliError> {
    let home = &Home::at(absolute(home)?);
    home.prepare()?;
    let mut fates = vec![(&CONFIG, place(home, &CONFIG)?)];
    for piece in &PIECES {
        fates.push((piece, place(home, piece)?));
    }
    let paths = |wanted: Fate| -> Vec<&str> {
        fates.iter().filter(|(_, fate)| *fate == wanted).map(|(piece, _)| piece.path).collect()
    };
    let value = json!({ "home": home.root(), "made": paths(Fate::Made), "kept": paths(Fate::Kept) });
    output.result(
        |paint| {
            let line = |(piece, fate): &(&Piece, Fate)| {
                let word = match fate {
                    Fate::Made => paint.good("made"),
                    Fate::Kept => paint.faint("kept"),
                };
                format!("{word}  {:<35}{}", piece.path, paint.faint(piece.about))
            };
            let lines: Vec<String> = fates.iter().map(line).collect();
            format!(
                "home {}\n{}\n\nnext:\n  {}",
                home.root().display(),
                lines.join("\n"),
                next_command(home, "up")
            )
        },
        &value,
    )?;
    Ok(Outcome::Done)
}

/// Puts in place whatever a fresh home lacks, but no settings: without them the defaults hold.
pub(crate) fn furnish(home: &Home) -> Result<(), CliError> {
    PIECES.iter().try_for_each(|piece| place(home, piece).map(drop))
}

/// The folder of `home` from the root on: it is told to people and programs that are elsewhere.
pub(crate) fn absolute(home: &Home) -> Result<PathBuf, CliError> {
    std::path::absolute(home.root()).map_err(CliError::file(home.root()))
}

fn place(home: &Home, piece: &Piece) -> Result<Fate, CliError> {
    let path = home.root().join(piece.path);
    if let Some(folder) = path.parent() {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(CliError::file(folder))?;
    }
    let made = write_if_missing(&path, piece.content.as_bytes())?;
    Ok(if made { Fate::Made } else { Fate::Kept })
}
