//! What the server does with one request, step by step.

use std::io;
use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use futures_util::stream::{self, Stream};
use serde_json::Value;

use super::Line;

/// One answer.
#[derive(Debug, Clone)]
pub struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    steps: Vec<Step>,
    /// The head never comes.
    is_silent: bool,
    has_crlf: bool,
    has_many_lines: bool,
    /// Bytes of each write.
    write: Option<usize>,
}

#[derive(Debug, Clone)]
enum Step {
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
    /// The connection is closed before the body's end.
    Close,
}

impl Reply {
    fn new(status: u16, content_type: &str, steps: Vec<Step>) -> Self {
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

    /// A stream of events, each with its name and data.
    pub fn events(events: impl IntoIterator<Item = (Option<&'static str>, String)>) -> Self {
        let steps = events.into_iter().map(|(name, data)| Step::Event { name, data }).collect();
        Self::new(200, "text/event-stream; charset=utf-8", steps)
    }

    /// A stream of these bytes as they are.
    pub fn stream(bytes: impl Into<Vec<u8>>) -> Self {
        Self::new(200, "text/event-stream", vec![Step::Bytes(bytes.into())])
    }

    pub fn json(status: u16, body: &Value) -> Self {
        Self::new(status, "application/json", vec![Step::Bytes(body.to_string().into_bytes())])
    }

    /// A web page, as gateways send them.
    pub fn page(status: u16) -> Self {
        let page =
            "<!DOCTYPE html>\n<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>";
        Self::new(status, "text/html; charset=utf-8", vec![Step::Bytes(page.into())])
    }

    pub fn redirect(status: u16, to: &str) -> Self {
        Self::new(status, "text/plain", Vec::new()).header("location", to)
    }

    /// Takes the request and never says a word.
    pub fn silence() -> Self {
        Self { is_silent: true, ..Self::new(200, "text/plain", Vec::new()) }
    }

    /// Closes the connection instead of answering.
    pub fn reset_at_once() -> Self {
        Self { is_silent: true, ..Self::new(200, "text/plain", vec![Step::Reset]) }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Lines end with CR and LF.
    pub fn crlf(mut self) -> Self {
        self.has_crlf = true;
        self
    }

    /// The data of each event is spread over several lines, where white space makes no difference.
    pub fn many_lines(mut self) -> Self {
        self.has_many_lines = true;
        self
    }

    /// Each write to the connection has this many bytes, in the middle of characters if need be.
    pub fn in_writes_of(mut self, bytes: usize) -> Self {
        self.write = Some(bytes);
        self
    }

    /// A comment before every event, as some send to keep connections open.
    pub fn with_comments(mut self, comment: &str) -> Self {
        let comment = Step::Bytes(format!(": {comment}\n\n").into());
        self.steps = self.steps.into_iter().flat_map(|step| [comment.clone(), step]).collect();
        self
    }

    /// Only so many steps, such as events.
    pub fn first(mut self, steps: usize) -> Self {
        self.steps.truncate(steps);
        self
    }

    pub fn then(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.steps.push(Step::Bytes(bytes.into()));
        self
    }

    pub fn then_pause(mut self, pause: Duration) -> Self {
        self.steps.push(Step::Pause(pause));
        self
    }

    /// Nothing more comes, and the connection stays open.
    pub fn then_silence(mut self) -> Self {
        self.steps.push(Step::Silence);
        self
    }

    pub fn then_reset(mut self) -> Self {
        self.steps.push(Step::Reset);
        self
    }

    pub fn then_close(mut self) -> Self {
        self.steps.push(Step::Close);
        self
    }

    /// The bytes of the body, without pauses and what follows them on the line.
    pub fn bytes(&self) -> Vec<u8> {
        self.steps.iter().flat_map(|step| self.render(step)).collect()
    }

    fn render(&self, step: &Step) -> Vec<u8> {
        match step {
            Step::Bytes(bytes) => bytes.clone(),
            Step::Pause(_) | Step::Silence | Step::Reset | Step::Close => Vec::new(),
            Step::Event { name, data } => {
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

    pub(super) async fn send(self, line: Line) -> Response<Body> {
        if self.is_silent {
            match self.steps.as_slice() {
                // hyper answers or waits; only the socket itself can be cut under it.
                [Step::Reset] => {
                    line.0.set_linger(Some(Duration::ZERO)).unwrap();
                    line.0.shutdown(std::net::Shutdown::Both).unwrap();
                }
                _ => std::future::pending().await,
            }
        }
        let mut response = Response::builder().status(self.status);
        for (name, value) in &self.headers {
            response = response.header(name, value);
        }
        response.body(Body::from_stream(self.body(line))).unwrap()
    }

    fn body(self, line: Line) -> impl Stream<Item = io::Result<Vec<u8>>> {
        let mut acts = Vec::new();
        for step in &self.steps {
            let bytes = self.render(step);
            acts.extend(
                bytes.chunks(self.write.unwrap_or(usize::MAX)).map(|bytes| Step::Bytes(bytes.to_vec())),
            );
            if !matches!(step, Step::Bytes(_) | Step::Event { .. }) {
                acts.push(step.clone());
            }
        }
        stream::unfold((acts.into_iter(), line), async |(mut acts, line)| {
            loop {
                match acts.next()? {
                    Step::Bytes(bytes) => {
                        // What was written before is flushed while this one waits.
                        tokio::task::yield_now().await;
                        return Some((Ok(bytes), (acts, line)));
                    }
                    Step::Event { .. } => {}
                    Step::Pause(pause) => tokio::time::sleep(pause).await,
                    Step::Silence => std::future::pending().await,
                    end @ (Step::Reset | Step::Close) => {
                        // What was written before is read first; a reset may throw away what is not.
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        if matches!(end, Step::Reset) {
                            line.0.set_linger(Some(Duration::ZERO)).unwrap();
                        }
                        return Some((Err(io::ErrorKind::ConnectionAborted.into()), (acts, line)));
                    }
                }
            }
        })
    }
}
