//! The daemon's log: one JSON object per line under `logs/gateway/`, bounded in file size and number. It contains ids, counts
//! and outcomes; no message, prompt, token or key is ever passed to a log line.

use std::io;
use std::path::Path;

use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tribune_config::{LogConfig, LogLevel};
use tribune_storage::rotating_file::RotatingFile;

/// Logs to files under `root`, and warnings and errors to standard error as well.
pub fn start(root: &Path, config: &LogConfig) -> io::Result<()> {
    let files = RotatingFile::open(&root.join("logs").join("gateway"), config.max_bytes, config.files)?;
    let level = match config.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    };
    let to_files = tracing_subscriber::fmt::layer().json().with_writer(LogFiles(files)).with_filter(level);
    let to_people = tracing_subscriber::fmt::layer()
        .compact()
        .without_time()
        .with_target(false)
        .with_writer(io::stderr)
        .with_filter(LevelFilter::WARN.min(level));
    // Only Tribune's own lines: log lines of libraries may quote their input.
    let ours = tracing_subscriber::filter::filter_fn(|line| line.target().starts_with("tribune"));
    let started =
        tracing_subscriber::registry().with(to_files.and_then(to_people).with_filter(ours)).try_init();
    started.map_err(|error| io::Error::other(error.to_string()))
}

/// Logs only the source location of a panic. Its message may quote user data, so it is dropped.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map_or_else(String::new, ToString::to_string);
        tracing::error!(place, "something panicked");
    }));
}

/// The files as a destination of log lines.
struct LogFiles(RotatingFile);

impl<'a> MakeWriter<'a> for LogFiles {
    type Writer = &'a RotatingFile;

    fn make_writer(&'a self) -> Self::Writer {
        &self.0
    }
}
