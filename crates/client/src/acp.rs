//! Transports ACP messages between a client and the daemon, without parsing them.

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio_tungstenite::tungstenite::Message;

use super::{ClientError, Socket, open};

/// The response header with the daemon's maximum message size.
const MOST_BYTES: &str = "acp-max-message-bytes";

/// The sending half of an ACP connection.
#[derive(Debug)]
pub struct AcpSender {
    sink: SplitSink<Socket, Message>,
    max_message_bytes: Option<usize>,
}

/// The receiving half of an ACP connection.
#[derive(Debug)]
pub struct AcpReceiver(SplitStream<Socket>);

/// Connects to `address`, for new sessions with `agent`, or for the session with the key `session`.
pub async fn connect(
    address: &str,
    token: Option<&str>,
    agent: Option<&str>,
    session: Option<&str>,
) -> Result<(AcpSender, AcpReceiver), ClientError> {
    let query = [("agent", agent), ("session", session)].into_iter();
    let query: Vec<String> =
        query.filter_map(|(name, value)| Some(format!("{name}={}", percent_encoded(value?)))).collect();
    let path = if query.is_empty() { "/acp".to_owned() } else { format!("/acp?{}", query.join("&")) };
    let (socket, response) = open(address, &path, token).await?;
    let most_bytes = response.headers().get(MOST_BYTES).and_then(|most| most.to_str().ok()?.parse().ok());
    let (sink, stream) = socket.split();
    Ok((AcpSender { sink, max_message_bytes: most_bytes }, AcpReceiver(stream)))
}

/// Percent-encodes a text for the query of a URL.
fn percent_encoded(text: &str) -> String {
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte);
    text.bytes()
        .map(|byte| if is_unreserved(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

impl AcpSender {
    /// The daemon's maximum message size in bytes, if it announced one. A larger message closes the connection.
    pub const fn most_bytes(&self) -> Option<usize> {
        self.max_message_bytes
    }

    pub async fn send(&mut self, message: String) -> Result<(), ClientError> {
        self.sink.send(Message::text(message)).await.map_err(|_| ClientError::Closed(String::new()))
    }

    /// Closes the connection.
    pub async fn close(mut self) {
        let _ = self.sink.close().await;
    }
}

impl AcpReceiver {
    /// The next message.
    pub async fn next(&mut self) -> Result<String, ClientError> {
        loop {
            match self.0.next().await {
                Some(Ok(Message::Text(text))) => return Ok(text.as_str().to_owned()),
                Some(Ok(Message::Close(frame))) => {
                    let reason = frame.map(|frame| format!(" ({}: {})", u16::from(frame.code), frame.reason));
                    return Err(ClientError::Closed(reason.unwrap_or_default()));
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(ClientError::Closed(String::new())),
            }
        }
    }
}
