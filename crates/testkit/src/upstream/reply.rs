//! The reply to one request, as a sequence of steps.

use std::io;
use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use futures_util::stream::{self, Stream};
use serde_json::Value;

use super::Connection;

/// One reply.
#[derive(Debug, Clone)]
pub struct UpstreamReply {
    status: u16,
    headers: Vec<(String, String)>,
    steps: Vec<ReplyStep>,
    /// No response head is sent.
    is_silent: bool,
    has_crlf: bool,
    has_many_lines: bool,
    /// Bytes of each write.
    write: Option<usize>,
}

#[derive(Debug, Clone)]
enum ReplyStep {
    /// A server-sent event.
    Event {
        name: Option<&'static str>,
        data: String,
    },
    Bytes(Vec<u8>),
    Pause(Duration),
    Silence,
    /// The connection is reset.
    Reset,
    /// The connection is closed before the end of the body.
    Close,
}

impl UpstreamReply {
    fn new(status: u16, content_type: &str, steps: Vec<ReplyStep>) -> Self {
        Self {
            status,
            headers: vec![("content-type".into(), content_type.into())],
            steps,
            is_silent: false,
            has_crlf: false,
            has_many_lines: false,
            write: None,
        }
    }

    /// An event stream, each event with its name and data.
    pub fn events(events: impl IntoIterator<Item = (Option<&'static str>, String)>) -> Self {
        let steps = events.into_iter().map(|(name, data)| ReplyStep::Event { name, data }).collect();
        Self::new(200, "text/event-stream; charset=utf-8", steps)
    }

    /// An event stream of these raw bytes.
    pub fn stream(bytes: impl Into<Vec<u8>>) -> Self {
        Self::new(200, "text/event-stream", vec![ReplyStep::Bytes(bytes.into())])
    }

    pub fn json(status: u16, body: &Value) -> Self {
        Self::new(status, "application/json", vec![ReplyStep::Bytes(body.to_string().into_bytes())])
    }

    /// An HTML page, as gateways send it.
    pub fn page(status: u16) -> Self {
        let page =
            "<!DOCTYPE html>\n<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>";
        Self::new(status, "text/html; charset=utf-8", vec![ReplyStep::Bytes(page.into())])
    }

    pub fn redirect(status: u16, to: &str) -> Self {
        Self::new(status, "text/plain", Vec::new()).header("location", to)
    }

    /// Reads the request and never responds.
    pub fn silence() -> Self {
        Self { is_silent: true, ..Self::new(200, "text/plain", Vec::new()) }
    }

    /// Resets the connection instead of responding.
    pub fn reset_at_once() -> Self {
        Self { is_silent: true, ..Self::new(200, "text/plain", vec![ReplyStep::Reset]) }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Ends lines with CRLF.
    pub fn crlf(mut self) -> Self {
        self.has_crlf = true;
        self
    }

    /// Spreads the JSON data of each event over several lines.
    pub fn multiline_data(mut self) -> Self {
        self.has_many_lines = true;
        self
    }

    /// Writes to the connection in chunks of this many bytes, also in the middle of characters.
    pub fn in_writes_of(mut self, bytes: usize) -> Self {
        self.write = Some(bytes);
        self
    }

    /// Sends a comment before every event, as some servers do to keep connections open.
    pub fn with_comments(mut self, comment: &str) -> Self {
        let comment = ReplyStep::Bytes(format!(": {comment}\n\n").into());
        self.steps = self.steps.into_iter().flat_map(|step| [comment.clone(), step]).collect();
        self
    }

    /// Keeps only the first `steps` steps, such as events.
    pub fn first(mut self, steps: usize) -> Self {
        self.steps.truncate(steps);
        self
    }

    pub fn then(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.steps.push(ReplyStep::Bytes(bytes.into()));
        self
    }

    pub fn then_pause(mut self, pause: Duration) -> Self {
        self.steps.push(ReplyStep::Pause(pause));
        self
    }

    /// Sends nothing more and keeps the connection open.
    pub fn then_silence(mut self) -> Self {
        self.steps.push(ReplyStep::Silence);
        self
    }

    pub fn then_reset(mut self) -> Self {
        self.steps.push(ReplyStep::Reset);
        self
    }

    pub fn then_close(mut self) -> Self {
        self.steps.push(ReplyStep::Close);
        self
    }

    /// The bytes of the body, without pauses and connection errors.
    pub fn bytes(&self) -> Vec<u8> {
        self.steps.iter().flat_map(|step| self.render(step)).collect()
    }

    fn render(&self, step: &ReplyStep) -> Vec<u8> {
        match step {
            ReplyStep::Bytes(bytes) => bytes.clone(),
            ReplyStep::Pause(_) | ReplyStep::Silence | ReplyStep::Reset | ReplyStep::Close => Vec::new(),
            ReplyStep::Event { name, data } => {
                let end = if self.has_crlf { "\r\n" } else { "\n" };
                let data = match serde_json::from_str::<Value>(data) {
                    Ok(value) if self.has_many_lines => serde_json::to_string_pretty(&value).unwrap(),
                    _ => data.clone(),
                };
                let name = name.map(|name| format!("event: {name}{end}")).unwrap_or_default();
                let data: String = data.lines().map(|line| format!("data: {line}{end}")).collect();
                format!("{name}{data}{end}").into_bytes()
            }
        }
    }

    pub(super) async fn send(self, connection: Connection) -> Response<Body> {
        if self.is_silent {
            match self.steps.as_slice() {
                // hyper cannot abort a connection, so the socket is shut down underneath it.
                [ReplyStep::Reset] => {
                    connection.0.set_linger(Some(Duration::ZERO)).unwrap();
                    connection.0.shutdown(std::net::Shutdown::Both).unwrap();
                }
                _ => std::future::pending().await,
            }
        }
        let mut response = Response::builder().status(self.status);
        for (name, value) in &self.headers {
            response = response.header(name, value);
        }
        response.body(Body::from_stream(self.body(connection))).unwrap()
    }

    fn body(self, connection: Connection) -> impl Stream<Item = io::Result<Vec<u8>>> {
        let mut actions = Vec::new();
        for step in &self.steps {
            let bytes = self.render(step);
            actions.extend(
                bytes.chunks(self.write.unwrap_or(usize::MAX)).map(|bytes| ReplyStep::Bytes(bytes.to_vec())),
            );
            if !matches!(step, ReplyStep::Bytes(_) | ReplyStep::Event { .. }) {
                actions.push(step.clone());
            }
        }
        stream::unfold((actions.into_iter(), connection), async |(mut actions, connection)| {
            loop {
                match actions.next()? {
                    ReplyStep::Bytes(bytes) => {
                        // Yields, so that the previous write is flushed.
                        tokio::task::yield_now().await;
                        return Some((Ok(bytes), (actions, connection)));
                    }
                    ReplyStep::Event { .. } => {}
                    ReplyStep::Pause(pause) => tokio::time::sleep(pause).await,
                    ReplyStep::Silence => std::future::pending().await,
                    end @ (ReplyStep::Reset | ReplyStep::Close) => {
                        // Gives the client time to read the previous writes, which a reset may discard.
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        if matches!(end, ReplyStep::Reset) {
                            connection.0.set_linger(Some(Duration::ZERO)).unwrap();
                        }
                        return Some((Err(io::ErrorKind::ConnectionAborted.into()), (actions, connection)));
                    }
                }
            }
        })
    }
}
