//! A client for Tribune RPC over a WebSocket. It sends one request at a time and buffers the notifications that arrive
//! in between. [`acp`] transports ACP over the same kind of connection.

pub mod acp;
mod daemon_proof;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::handshake::client::Response;
use tokio_tungstenite::tungstenite::http::header::AUTHORIZATION;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};
use tribune_json_rpc::{Repeated, RpcMessage};

use daemon_proof::ProofRequest;

/// Time limit for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum size of a message from the daemon: a page of large events.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// Maximum number of notifications that are buffered while a call waits for its response. Later ones are dropped.
const MAX_BUFFERED: usize = 100_000;

/// Why a request has no response.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("the daemon does not answer at {0}")]
    Unreachable(String),
    #[error("the daemon refused the connection: {0}")]
    Rejected(String),
    #[error("the daemon ended the connection{0}")]
    Closed(String),
    #[error("the daemon sent a message that is not Tribune RPC")]
    InvalidMessage,
    #[error(
        "what listens at {0} did not prove that it is the daemon which knows this token, so the token was not sent: check the address, which must be the one that the daemon itself listens on, and that the token is still valid"
    )]
    Unproven(String),
    /// An error response of the daemon.
    #[error("{message}")]
    Rpc { code: String, message: String },
}

impl ClientError {
    /// The error of a JSON-RPC error object.
    fn of_object(error: &Value) -> Self {
        Self::Rpc {
            code: error["data"]["code"].as_str().unwrap_or("internal").to_owned(),
            message: error["message"].as_str().unwrap_or_default().to_owned(),
        }
    }

    /// The error code, if the daemon sent an error response.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Rpc { code, .. } => Some(code),
            _ => None,
        }
    }
}

/// A notification from the daemon.
#[derive(Debug, Clone, PartialEq)]
pub struct Notification {
    pub method: String,
    pub params: Value,
}

impl Notification {
    /// The error that a `session.ended` carries, if the events ended with one.
    pub fn error(&self) -> Option<ClientError> {
        self.params.get("error").map(ClientError::of_object)
    }
}

/// A message received on a connection.
#[derive(Debug)]
pub enum RpcIncoming {
    Notification(Notification),
    /// The response to the request with this id.
    Response(u64, Result<Value, ClientError>),
}

/// A connection to the daemon.
#[derive(Debug)]
pub struct RpcClient {
    socket: Socket,
    next_id: u64,
    /// Notifications that arrived during calls.
    buffered: VecDeque<Notification>,
}

impl RpcClient {
    /// Connects to `address` (`127.0.0.1:18789`): with a token as the operator, without one as an anonymous caller.
    pub async fn connect(address: &str, token: Option<&str>) -> Result<Self, ClientError> {
        let (socket, _) = open(address, "/rpc", token).await?;
        Ok(Self { socket, next_id: 1, buffered: VecDeque::new() })
    }

    /// Connects to an address of which only the token tells that it is the daemon's: the daemon proves that it knows the token
    /// before the token is sent.
    pub async fn connect_proven(address: SocketAddr, token: &str) -> Result<Self, ClientError> {
        let unproven = || ClientError::Unproven(address.to_string());
        let mut client = Self::connect(&address.to_string(), None).await?;
        let request = ProofRequest::new(token).ok_or_else(unproven)?;
        let params = request.params();
        let answer = tokio::time::timeout(CONNECT_TIMEOUT, client.call("auth.daemon", &params));
        let answer = answer.await.map_err(|_| unproven())?.map_err(|_| unproven())?;
        if !request.is_proven(&answer, address) {
            return Err(unproven());
        }
        client.call("auth.token", &json!({ "token": token })).await?;
        Ok(client)
    }

    /// Sends a request and returns its id. [`Self::next`] returns the response with this id.
    pub async fn send(&mut self, method: &str, params: &Value) -> Result<u64, ClientError> {
        let id = self.next_id;
        self.next_id += 1;
        self.send_text(tribune_json_rpc::request(id, method, params)).await?;
        Ok(id)
    }

    /// Sends a raw frame.
    pub async fn send_text(&mut self, frame: String) -> Result<(), ClientError> {
        self.socket.send(Message::text(frame)).await.map_err(|_| ClientError::Closed(String::new()))
    }

    /// Returns the next message: a buffered notification if there is one, else the next that arrives.
    pub async fn next(&mut self) -> Result<RpcIncoming, ClientError> {
        if let Some(notification) = self.buffered.pop_front() {
            return Ok(RpcIncoming::Notification(notification));
        }
        self.receive().await
    }

    async fn receive(&mut self) -> Result<RpcIncoming, ClientError> {
        loop {
            let text = match self.socket.next().await {
                Some(Ok(Message::Text(text))) => text,
                Some(Ok(Message::Close(frame))) => {
                    let reason = frame.map(|frame| format!(" ({}: {})", u16::from(frame.code), frame.reason));
                    return Err(ClientError::Closed(reason.unwrap_or_default()));
                }
                Some(Ok(_)) => continue,
                Some(Err(_)) | None => return Err(ClientError::Closed(String::new())),
            };
            return parse(&text).ok_or(ClientError::InvalidMessage);
        }
    }

    /// Sends a request and waits for its response. Notifications that arrive in between are buffered for
    /// [`Self::next`].
    pub async fn call(&mut self, method: &str, params: &Value) -> Result<Value, ClientError> {
        let id = self.send(method, params).await?;
        loop {
            match self.receive().await? {
                RpcIncoming::Response(of, answer) if of == id || of == 0 => return answer,
                RpcIncoming::Response(..) => {}
                RpcIncoming::Notification(notification) => {
                    if self.buffered.len() < MAX_BUFFERED {
                        self.buffered.push_back(notification);
                    }
                }
            }
        }
    }

    /// Takes the notifications that were buffered during calls.
    pub fn take_notifications(&mut self) -> Vec<Notification> {
        std::mem::take(&mut self.buffered).into()
    }

    /// Closes the connection.
    pub async fn close(mut self) {
        let _ = self.socket.close(None).await;
    }
}

/// Parses a message of the daemon.
fn parse(text: &str) -> Option<RpcIncoming> {
    let message = serde_json::from_str::<RpcMessage<Value>>(text).ok()?;
    if message.repeated != Repeated::None {
        return None;
    }
    match message.method {
        Some(Value::String(method)) => {
            let params = message.params.unwrap_or_default();
            return Some(RpcIncoming::Notification(Notification { method, params }));
        }
        Some(Value::Null) | None => {}
        Some(_) => return None,
    }
    let is_given = |member: &Value| !member.is_null();
    let answer = match (message.error.filter(is_given), message.result.filter(is_given)) {
        (Some(error), _) => Err(ClientError::of_object(&error)),
        (None, Some(result)) => Ok(result),
        (None, None) => return None,
    };
    let id = message.id.as_ref().and_then(Value::as_u64).unwrap_or(0);
    Some(RpcIncoming::Response(id, answer))
}

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Opens a WebSocket connection to the daemon.
async fn open(address: &str, path: &str, token: Option<&str>) -> Result<(Socket, Response), ClientError> {
    let unreachable = || ClientError::Unreachable(address.to_owned());
    let mut request = format!("ws://{address}{path}").into_client_request().map_err(|_| unreachable())?;
    if let Some(token) = token {
        let value = format!("Bearer {token}")
            .parse()
            .map_err(|_| ClientError::Rejected("the token is malformed".into()))?;
        request.headers_mut().insert(AUTHORIZATION, value);
    }
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES));
    let connecting = tokio_tungstenite::connect_async_with_config(request, Some(config), true);
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await.map_err(|_| unreachable())?;
    let (socket, response) = connected.map_err(|error| match error {
        tungstenite::Error::Http(response) => {
            let body = response.body().as_deref().unwrap_or_default();
            let body = serde_json::from_slice::<Value>(body).ok();
            let message = body.as_ref().and_then(|body| body["error"]["message"].as_str());
            ClientError::Rejected(message.map_or_else(|| response.status().to_string(), str::to_owned))
        }
        _ => unreachable(),
    })?;
    Ok((socket, response))
}
