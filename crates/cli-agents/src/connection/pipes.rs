//! The two tasks of a connection: one reads the agent's lines, the other writes ours.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tribune_json_rpc::{LineEnd, LineError, LineReader};

use super::{AgentConnection, Shared};

/// How long the agent may leave a line of ours unread.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn read(connection: AgentConnection, mut lines: LineReader<impl AsyncRead + Unpin>) {
    let Shared { codec, reception, end, .. } = &*connection.0;
    let fault = loop {
        let line = tokio::select! {
            line = lines.next() => line,
            () = end.broken() => return,
        };
        match line {
            Ok(Some(line)) if line.end == LineEnd::Newline => {
                let line = line.into_text_lossy();
                let is_valid = line.trim().is_empty() || connection.take(line).await;
                if !is_valid && reception.count_junk_line() {
                    break format!("it writes what is no {}", codec.protocol().title());
                }
            }
            // A line without an end was cut off, and does not count. The supervisor of the process finds the reason.
            Ok(Some(_) | None) => return end.close_output(),
            Err(LineError::TooLong) => {
                break format!("it wrote a line of more than {} bytes", codec.max_line_bytes());
            }
            Err(LineError::Io(error)) => break format!("its output cannot be read ({error})"),
        }
    };
    connection.disconnect(fault);
}

pub(super) async fn write(
    connection: AgentConnection,
    mut stdin: impl AsyncWrite + Unpin,
    mut lines: mpsc::Receiver<String>,
) {
    loop {
        let line = tokio::select! {
            biased;
            () = connection.0.end.broken() => return,
            Some(line) = lines.recv() => line,
        };
        let writing = async {
            stdin.write_all(line.as_bytes()).await?;
            stdin.write_all(b"\n").await?;
            stdin.flush().await
        };
        match tokio::time::timeout(WRITE_TIMEOUT, writing).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                return connection.disconnect_exited(format!("it takes no more input ({error})"));
            }
            Err(_) => return connection.disconnect("it does not read its input"),
        }
    }
}
