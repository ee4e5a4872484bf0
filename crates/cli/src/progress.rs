//! A progress bar on standard error for work of more than a second, if standard error is a terminal.

use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Work that is shorter shows no bar.
const SHOW_AFTER: Duration = Duration::from_secs(1);

/// Shows how many entries are done.
#[derive(Debug)]
pub(crate) struct EntryProgress {
    what: &'static str,
    total: u64,
    started: Instant,
    bar: Option<ProgressBar>,
}

impl EntryProgress {
    /// `total` is 0 if it is not known.
    pub(crate) fn new(what: &'static str, total: u64) -> Self {
        Self { what, total, started: Instant::now(), bar: None }
    }

    pub(crate) fn set(&mut self, done: u64) {
        if self.bar.is_none() && self.started.elapsed() > SHOW_AFTER && io::stderr().is_terminal() {
            self.bar = Some(bar(self.what, self.total));
        }
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        }
    }
}

impl Drop for EntryProgress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(what: &'static str, total: u64) -> ProgressBar {
    let (bar, template) = match total {
        0 => (ProgressBar::new_spinner(), "{msg} {human_pos} entries, {per_sec}"),
        total => (ProgressBar::new(total), "{msg} {bar:32} {human_pos} of {human_len} entries, {eta} left"),
    };
    // The templates are constants; if one is wrong, the default style serves.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.with_message(what)
}
