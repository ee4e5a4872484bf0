//! The interface of a service that answers on a session's socket.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::net::UnixStream;
use tribune_runtime::SessionKey;

/// A service on a socket of a session: the model proxy, the session's MCP servers, or the scripted model of a canary.
#[async_trait]
pub trait SocketService: Send + Sync + fmt::Debug {
    /// Serves one connection from the session's sandbox. `head` is the timeout for the head of a request. When the session's
    /// sockets are closed, the future is dropped.
    async fn serve(&self, stream: UnixStream, session: &Arc<SessionKey>, head: Duration);
}
