//! How a command can end, and its exit code.

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

/// Exit codes are an interface: scripts rely on them.
const FAILED: u8 = 1;
const BROKEN: u8 = 2;
const INCOMPLETE: u8 = 3;
/// The shell's code for a command that Ctrl-C ended.
const CANCELLED: u8 = 130;
/// `EX_USAGE`. clap uses 2, which here means that a check found damage.
const USAGE: u8 = 64;
/// `EX_UNAVAILABLE`: the command needs a daemon and none is running.
const UNAVAILABLE: u8 = 69;

/// The command could not be run; the same code as `env` and `timeout`.
pub(crate) const NOT_RUN: u8 = 125;

/// How a command that reached its end ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandOutcome {
    Done,
    /// A check found damage or errors.
    Broken,
    /// What could be checked is sound, but something is missing.
    Incomplete,
    /// The work failed, and the reason was printed.
    Failed,
    /// The user cancelled it.
    Cancelled,
    /// The exit code of the program that ran.
    Code(u8),
}

impl From<CommandOutcome> for ExitCode {
    fn from(outcome: CommandOutcome) -> Self {
        match outcome {
            CommandOutcome::Done => Self::SUCCESS,
            CommandOutcome::Broken => Self::from(BROKEN),
            CommandOutcome::Incomplete => Self::from(INCOMPLETE),
            CommandOutcome::Failed => Self::from(FAILED),
            CommandOutcome::Cancelled => Self::from(CANCELLED),
            CommandOutcome::Code(code) => Self::from(code),
        }
    }
}

/// An error that ends a command.
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
    #[error(
        "the system refuses more threads or event descriptors ({0}): close other programs, then try again"
    )]
    System(io::Error),
    #[error(
        "the operator's token `{path}` cannot be read ({error}): if the file is missing, `tribune down` and `tribune up` create it", path = .path.display()
    )]
    NoToken { path: PathBuf, error: io::Error },
    #[error("no daemon is running in {home}: start one with `tribune up`", home = .0.display())]
    NoDaemon(PathBuf),
    #[error(
        "a daemon (pid {pid}) already runs in {home}, at http://{address}: `tribune status` shows it, `tribune down` stops it", home = .home.display()
    )]
    AlreadyRunning { home: PathBuf, pid: u32, address: SocketAddr },
    #[error(
        "the daemon (pid {pid}) does not answer at {address}: it is stopping or hangs; `tribune down --now` ends it"
    )]
    Silent { pid: u32, address: SocketAddr },
    #[error("the daemon takes too long to answer: see `tribune status`")]
    Slow,
    /// The last line that the daemon printed, or a substitute.
    #[error("{0}")]
    NotStarted(String),
    #[error("{0}")]
    NotStopped(String),
    /// The daemon's error, or a failed connection.
    #[error(transparent)]
    Daemon(#[from] ClientError),
    /// Why the command could not be started in a sandbox.
    #[error("{0}")]
    NotRun(String),
    /// An error before the start of a run that is no usage error.
    #[error(transparent)]
    NotBegun(Box<CliError>),
    #[error("the reader of the answers has gone: some of the last lines may be recorded without an answer")]
    Unanswered,
}

impl CliError {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |error| Self::File { path, error }
    }

    /// Gives an error before a run the exit code for "could not be run"; a usage error keeps its own.
    pub(crate) fn before_a_run(self) -> Self {
        match self {
            Self::NotRun(_) | Self::NotBegun(_) => self,
            _ if self.is_usage_error() => self,
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
            Self::Start(StartError::File { .. } | StartError::Sockets(_)) => "file",
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

    /// Prints the error on one line of standard error.
    #[expect(clippy::print_stderr, reason = "errors are printed here")]
    pub(crate) fn report(&self, format: Format, home: Option<&Home>) -> ExitCode {
        match self {
            // The reader of the output closed the pipe.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
            _ => {}
        }
        let message = self.to_string();
        let message = home.map_or_else(|| message.clone(), |home| hints::name_home_if_needed(home, &message));
        match format {
            Format::Text => eprintln!("error: {}", clean(&message)),
            Format::Json => eprintln!("{}", json_error(self.kind(), &message)),
        }
        ExitCode::from(match self {
            Self::NoDaemon(_) => UNAVAILABLE,
            Self::NotRun(_) | Self::NotBegun(_) => NOT_RUN,
            _ if self.is_usage_error() => USAGE,
            _ => FAILED,
        })
    }

    /// Whether the user named something wrongly, no matter if this process or the daemon found out.
    fn is_usage_error(&self) -> bool {
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

/// Prints clap's message. Help and version go to standard output with 0, a usage error to standard error with 64.
#[expect(clippy::print_stderr, reason = "errors are printed here")]
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() && std::env::args().any(|arg| arg == "--json") {
        eprintln!("{}", json_error("usage", error.to_string().trim_end()));
        return ExitCode::from(USAGE);
    }
    // If printing fails too, the exit code is all that is left.
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
}
