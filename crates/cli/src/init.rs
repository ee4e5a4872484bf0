//! `tribune init`: creates the files of a home that people edit. Existing files are not changed.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use serde_json::json;
use tribune_constitution::{DEFAULT_CONSTITUTION, DEFAULT_MANDATE_TEXT};
use tribune_daemon::daemon::write_if_missing;
use tribune_registry::DEFAULT_ROSTER;
use tribune_storage::home::Home;

use crate::error::{CliError, CommandOutcome};
use crate::hints::next_command;
use crate::output::Output;

/// A file of a new home: its path, its purpose and its first content.
struct HomeFile {
    path: &'static str,
    about: &'static str,
    content: &'static str,
}

const CONFIG: HomeFile = HomeFile {
    path: "config.json5",
    about: "settings, each at its default and explained",
    content: tribune_config::EXAMPLE,
};

/// Files that the daemon needs or shows at its first start.
const HOME_FILES: [HomeFile; 5] = [
    HomeFile { path: "constitution.md", about: "the law for every agent", content: DEFAULT_CONSTITUTION },
    HomeFile {
        path: "mandates/default.md",
        about: "what an agent without a mandate of its own may do",
        content: DEFAULT_MANDATE_TEXT,
    },
    HomeFile { path: "data/agent-roster.jsonl", about: "the agents, one per line", content: DEFAULT_ROSTER },
    HomeFile { path: "board.md", about: "notes that every agent sees", content: "" },
    HomeFile {
        path: "agents/main/workspace/welcome.txt",
        about: "a file for the agent `main` to read",
        content: include_str!("welcome.txt"),
    },
];

/// Whether a file was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileOutcome {
    Created,
    Kept,
}

pub(crate) fn run(home: &Home, output: &mut Output) -> Result<CommandOutcome, CliError> {
    let home = &Home::at(absolute(home)?);
    home.prepare()?;
    let mut outcomes = vec![(&CONFIG, write_home_file(home, &CONFIG)?)];
    for file in &HOME_FILES {
        outcomes.push((file, write_home_file(home, file)?));
    }
    let paths = |wanted: FileOutcome| -> Vec<&str> {
        outcomes.iter().filter(|(_, outcome)| *outcome == wanted).map(|(file, _)| file.path).collect()
    };
    let value =
        json!({ "home": home.root(), "made": paths(FileOutcome::Created), "kept": paths(FileOutcome::Kept) });
    output.result(
        |paint| {
            let line = |(file, outcome): &(&HomeFile, FileOutcome)| {
                let word = match outcome {
                    FileOutcome::Created => paint.good("made"),
                    FileOutcome::Kept => paint.faint("kept"),
                };
                format!("{word}  {:<35}{}", file.path, paint.faint(file.about))
            };
            let lines: Vec<String> = outcomes.iter().map(line).collect();
            format!(
                "home {}\n{}\n\nnext:\n  {}",
                home.root().display(),
                lines.join("\n"),
                next_command(home, "up")
            )
        },
        &value,
    )?;
    Ok(CommandOutcome::Done)
}

/// Creates the files that a new home lacks, except the settings: without a settings file the defaults hold.
pub(crate) fn create_missing_files(home: &Home) -> Result<(), CliError> {
    HOME_FILES.iter().try_for_each(|file| write_home_file(home, file).map(drop))
}

/// The absolute path of the home: people and programs in other folders get it.
pub(crate) fn absolute(home: &Home) -> Result<PathBuf, CliError> {
    std::path::absolute(home.root()).map_err(CliError::file(home.root()))
}

fn write_home_file(home: &Home, file: &HomeFile) -> Result<FileOutcome, CliError> {
    let path = home.root().join(file.path);
    if let Some(folder) = path.parent() {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(CliError::file(folder))?;
    }
    let made = write_if_missing(&path, file.content.as_bytes())?;
    Ok(if made { FileOutcome::Created } else { FileOutcome::Kept })
}
