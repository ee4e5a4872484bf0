//! Carries ACP to the daemon and back, message by message, without looking into it.

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio_tungstenite::tungstenite::Message;

use super::{ClientError, Socket, open};

/// The header in which the daemon says how large a message may be.
const MOST_BYTES: &str = "acp-max-message-bytes";

/// The way of what a client says.
#[derive(Debug)]
pub struct Sending {
    sink: SplitSink<Socket, Message>,
    most_bytes: Option<usize>,
}

/// The way of what it is told.
#[derive(Debug)]
pub struct Receiving(SplitStream<Socket>);

/// Connects to `address`, for sessions with `agent` or for the session with this key. Both are made of characters that stand for
/// themselves in an address.
pub async fn connect(
    address: &str,
    token: Option<&str>,
    agent: Option<&str>,
    session: Option<&str>,
) -> Result<(Sending, Receiving), ClientError> {
    let wishes = [("agent", agent), ("session", session)].into_iter();
    let wishes: Vec<String> =
        wishes.filter_map(|(name, value)| Some(format!("{name}={}", escaped(value?)))).collect();
    let path = if wishes.is_empty() { "/acp".to_owned() } else { format!("/acp?{}", wishes.join("&")) };
    let (socket, response) = open(address, &path, token).await?;
    let most_bytes = response.headers().get(MOST_BYTES).and_then(|most| most.to_str().ok()?.parse().ok());
    let (sink, stream) = socket.split();
    Ok((Sending { sink, most_bytes }, Receiving(stream)))
}

/// A text for the query of an address.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

impl Sending {
    /// Bytes of the largest message that the daemon takes, if it says so. A larger one ends the connection.
    pub const fn most_bytes(&self) -> Option<usize> {
        self.most_bytes
    }

    pub async fn send(&mut self, message: String) -> Result<(), ClientError> {
        self.sink.send(Message::text(message)).await.map_err(|_| ClientError::Closed(String::new()))
    }

    /// Says goodbye.
    pub async fn close(mut self) {
        let _ = self.sink.close().await;
    }
}

impl Receiving {
    /// The next message.
    pub async fn next(&mut self) -> Result<String, ClientError> {
        loop {
            match self.0.next().await {
                Some(Ok(Message::Text(text))) => return Ok(text.as_str().to_owned()),
                Some(Ok(Message::Close(frame))) => {
                    let why = frame.map(|frame| format!(" ({}: {})", u16::from(frame.code), frame.reason));
                    return Err(ClientError::Closed(why.unwrap_or_default()));
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(ClientError::Closed(String::new())),
            }
        }
    }
}
