//! How a command can end, and with which exit code.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use tribune_client::ClientError;
use tribune_config::ConfigError;
use tribune_daemon::daemon::StartError;
use tribune_governance::policy_files::LawError;
use tribune_registry::RosterError;
use tribune_registry::profiles::{InstallError, ProfilesError};
use tribune_registry::roster::LineFault;
use tribune_storage::export::ExportError;
use tribune_storage::home::{Home, HomeError};
use tribune_storage::keys::KeyFileError;
use tribune_storage::store::StoreError;

use crate::hints;
use crate::output::{Format, clean};

/// The exit codes, which scripts rely on.
const FAILED: u8 = 1;
const BROKEN: u8 = 2;
const INCOMPLETE: u8 = 3;
/// What a shell says of a command that Ctrl-C ended.
const CANCELLED: u8 = 130;
/// `EX_USAGE`: clap's own 2 means something else here.
const USAGE: u8 = 64;
/// `EX_UNAVAILABLE`: the command needs a daemon and there is none.
const UNAVAILABLE: u8 = 69;

/// What could not be run, as `env` and `timeout` say it.
pub(crate) const NOT_RUN: u8 = 125;

/// A command that ran to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// What was checked is broken.
    Broken,
    /// What was checked is sound as far as it goes, but something is missing.
    Incomplete,
    /// The agent failed at what it was asked; it was said why.
    Failed,
    /// It was ended by whoever asked for it.
    Cancelled,
    /// As what ran says.
    Code(u8),
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::SUCCESS,
            Outcome::Broken => Self::from(BROKEN),
            Outcome::Incomplete => Self::from(INCOMPLETE),
            Outcome::Failed => Self::from(FAILED),
            Outcome::Cancelled => Self::from(CANCELLED),
            Outcome::Code(code) => Self::from(code),
        }
    }
}

/// A command that could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Home(#[from] HomeError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Key(#[from] KeyFileError),
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error(transparent)]
    Roster(#[from] RosterError),
    #[error(transparent)]
    Law(#[from] LawError),
    #[error(transparent)]
    Profiles(#[from] ProfilesError),
    #[error(transparent)]
    Install(#[from] InstallError),
    #[error("`{path}`: {error}")]
    File { path: PathBuf, error: io::Error },
    #[error("{0}")]
    Tree(String),
    #[error("{0}")]
    Input(String),
    #[error("the output could not be written: {0}")]
    Output(#[from] io::Error),
    #[error("the system gives this process no threads or events ({0}): try again when it has some to spare")]
    System(io::Error),
    #[error(
        "the operator's token `{path}` cannot be read ({error}): `tribune down` and `tribune up` make one if it is gone", path = .path.display()
    )]
    NoToken { path: PathBuf, error: io::Error },
    /// The home that no daemon runs in.
    #[error("no daemon is running in {home}: start one with `tribune up`", home = .0.display())]
    NoDaemon(PathBuf),
    #[error(
        "a daemon (pid {pid}) runs in {home} already, at http://{address}: `tribune status` shows it, `tribune down` stops it", home = .home.display()
    )]
    AlreadyRunning { home: PathBuf, pid: u32, address: SocketAddr },
    #[error(
        "the daemon (pid {pid}) does not answer at {address}: it is stopping, or stuck; `tribune down --now` ends it"
    )]
    Silent { pid: u32, address: SocketAddr },
    #[error("the daemon takes too long to answer: `tribune status` shows how it is")]
    Slow,
    /// Its last words, or none.
    #[error("{0}")]
    NotStarted(String),
    #[error("{0}")]
    NotStopped(String),
    /// What the daemon answered, or that it did not.
    #[error(transparent)]
    Daemon(#[from] ClientError),
    /// Why nothing runs in a box.
    #[error("{0}")]
    NotRun(String),
    /// The same, and it is nothing that was typed.
    #[error(transparent)]
    NotBegun(Box<CliError>),
    #[error("nobody reads the answers any more: some of the last lines may be written without one")]
    Unanswered,
}

impl CliError {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::File { path, error }
    }

    /// As the end of something that was to run: what was typed wrong stays that.
    pub(crate) fn before_a_run(self) -> Self {
        match self {
            Self::NotRun(_) | Self::NotBegun(_) => self,
            _ if self.is_about_what_was_typed() => self,
            error => Self::NotBegun(Box::new(error)),
        }
    }

    fn kind(&self) -> &str {
        match self {
            Self::Store(_) | Self::Tree(_) | Self::Start(StartError::Store(_) | StartError::Sessions(_)) => {
                "store"
            }
            Self::Home(_) | Self::AlreadyRunning { .. } => "home",
            Self::Config(_) | Self::Start(StartError::TooManyStanding { .. }) => "config",
            Self::Start(StartError::Model { .. }) => "model",
            Self::Start(StartError::Law(_)) => "law",
            Self::Start(StartError::Roster(_)) => "roster",
            Self::Start(StartError::Approvers(_)) => "approvers",
            Self::Start(StartError::Profiles(_)) => "profiles",
            Self::Start(StartError::Scenes(_)) => "scenes",
            Self::Start(StartError::PortTaken(_) | StartError::Listen { .. }) => "port",
            Self::Start(StartError::File { .. } | StartError::Brokers(_)) => "file",
            Self::NotStarted(_) => "start",
            Self::NotRun(_) => "sandbox",
            Self::NotBegun(error) => error.kind(),
            Self::NotStopped(_) => "stop",
            Self::Silent { .. } | Self::Slow => "connection",
            Self::Key(_) => "key",
            Self::Export(_) => "export",
            Self::Roster(_) => "roster",
            Self::Law(_) => "law",
            Self::Profiles(_) => "profiles",
            Self::Install(_) => "install",
            Self::File { .. } | Self::NoToken { .. } => "file",
            Self::Input(_) => "input",
            Self::Output(_) | Self::Unanswered => "output",
            Self::System(_) => "system",
            Self::NoDaemon(_) => "unavailable",
            Self::Daemon(error) => error.code().unwrap_or("connection"),
        }
    }

    /// Says what went wrong, on one line of standard error.
    #[expect(clippy::print_stderr, reason = "this is where errors are said")]
    pub(crate) fn report(&self, format: Format, home: Option<&Home>) -> ExitCode {
        match self {
            // Whoever reads our output has seen enough.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
            _ => {}
        }
        let said = self.to_string();
        let said = home.map_or_else(|| said.clone(), |home| hints::about(home, &said));
        match format {
            Format::Text => eprintln!("error: {}", clean(&said)),
            Format::Json => eprintln!("{}", json_error(self.kind(), &said)),
        }
        ExitCode::from(match self {
            Self::NoDaemon(_) => UNAVAILABLE,
            Self::NotRun(_) | Self::NotBegun(_) => NOT_RUN,
            _ if self.is_about_what_was_typed() => USAGE,
            _ => FAILED,
        })
    }

    /// Whether a name or an id that was typed is wrong, whoever noticed it.
    fn is_about_what_was_typed(&self) -> bool {
        match self {
            Self::Input(_) => true,
            Self::Daemon(error) => {
                matches!(error.code(), Some("bad_request" | "invalid_params" | "not_found" | "unknown_agent"))
            }
            Self::Roster(RosterError::Entry(fault)) => {
                !matches!(fault, LineFault::SameId { .. } | LineFault::SameKey { .. })
            }
            _ => false,
        }
    }
}

fn json_error(kind: &str, message: &str) -> serde_json::Value {
    serde_json::json!({ "error": { "kind": kind, "message": message } })
}

/// Help and version go to standard output with 0; a wrong call to standard error with 64.
#[expect(clippy::print_stderr, reason = "this is where errors are said")]
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() && std::env::args().any(|arg| arg == "--json") {
        eprintln!("{}", json_error("usage", error.to_string().trim_end()));
        return ExitCode::from(USAGE);
    }
    // If even this cannot be printed, the exit code has to do.
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
}
