//! The request log: one line per model request, under `logs/<provider>/`, with ids, hashes, numbers and outcomes. It never
//! contains a key, a prompt or any text of a conversation.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use tribune_config::LogConfig;
use tribune_storage::rotating_file::RotatingFile;

/// One line of the request log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RequestRecord {
    pub request_id: String,
    pub timestamp: String,
    pub provider: String,
    pub model: String,
    pub session: String,
    /// The ledger entry of the turn.
    pub turn: String,
    pub round: u32,
    pub estimated_tokens: u64,
    pub reserved_tokens: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_written_tokens: u64,
    pub first_ms: u64,
    pub latency_ms: u64,
    pub outcome: String,
    /// Hashes of the parts of the prompt.
    pub prompt: serde_json::Value,
    /// The policy context: channel, class, mandate and hash of the law.
    pub gate: serde_json::Value,
}

/// The request logs of all providers; clones share their files.
#[derive(Debug, Clone)]
pub struct RequestLog(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    root: PathBuf,
    max_bytes: u64,
    files: usize,
    open: Mutex<HashMap<String, RotatingFile>>,
}

impl RequestLog {
    /// Logs under `root`, with the file sizes and counts of `config`.
    pub fn new(root: PathBuf, config: &LogConfig) -> Self {
        let (max_bytes, files) = (config.max_bytes, config.files);
        Self(Arc::new(Shared { root, max_bytes, files, open: Mutex::default() }))
    }

    /// Writes a line. A write error does not fail the turn; it is reported in the daemon's log.
    pub fn write(&self, record: &RequestRecord) {
        if let Err(error) = self.try_write(record) {
            tracing::warn!(provider = record.provider, %error, "a request could not be logged");
        }
    }

    fn try_write(&self, record: &RequestRecord) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        let mut open = self.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        if !open.contains_key(&record.provider) {
            // INVARIANT: the name of a provider is a plain word, so the path stays below `root`.
            let folder = self.0.root.join(&record.provider);
            open.insert(
                record.provider.clone(),
                RotatingFile::open(&folder, self.0.max_bytes, self.0.files)?,
            );
        }
        match open.get(&record.provider) {
            Some(mut file) => file.write_all(&line),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use tribune_config::LogLevel;

    use super::*;

    #[test]
    fn each_provider_has_its_own_bounded_log() {
        let folder = tempfile::tempdir().unwrap();
        let config = LogConfig { level: LogLevel::Info, max_bytes: 2_000, files: 2 };
        let log = RequestLog::new(folder.path().to_owned(), &config);
        for n in 0..50 {
            let record = RequestRecord {
                request_id: n.to_string(),
                timestamp: "2030-01-01T00:00:00Z".into(),
                provider: if n % 2 == 0 { "moonshot" } else { "anthropic" }.into(),
                model: "m".into(),
                session: "s".into(),
                turn: "b3:0".into(),
                round: 1,
                estimated_tokens: 1,
                reserved_tokens: 1,
                input_tokens: 1,
                output_tokens: 1,
                cache_read_tokens: 0,
                cache_written_tokens: 0,
                first_ms: 1,
                latency_ms: 1,
                outcome: "end_turn".into(),
                prompt: serde_json::json!({}),
                gate: serde_json::json!({}),
            };
            log.write(&record);
        }
        for provider in ["moonshot", "anthropic"] {
            let files: Vec<_> = std::fs::read_dir(folder.path().join(provider)).unwrap().collect();
            assert_eq!(files.len(), 2, "{provider}");
            for file in files {
                assert!(file.unwrap().metadata().unwrap().len() <= 2_000);
            }
        }
    }
}
