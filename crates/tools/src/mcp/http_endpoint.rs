//! The door to a session's servers for an agent of another make: MCP over streamable HTTP, a path for each server. The servers are the
//! house's own clients as ever; here they are told of, and a call of one of their tools is handed to the turn that runs, which has it
//! judged.
//!
//! One message comes with a request, and its answer goes back as JSON. There are no streams, no sessions, and nothing but tools.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::Full;
use hyper::body::{Body, Bytes};
use hyper::header::{ALLOW, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, ORIGIN};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tribune_cli_agents::{Hatch, Served, Servers};
use tribune_egress::proxy_env::SERVERS_PORT;
use tribune_egress::{SocketService, http_socket};
use tribune_runtime::SessionKey;

use super::McpServers;
use super::client::{VERSION, VERSIONS};
use super::server::short;

/// Bytes of a request: what the input of a call may have, and what stands around it.
const MAX_BODY_BYTES: usize = (1 << 20) + (64 << 10);

/// For all of a request to come.
const BODY: Duration = Duration::from_secs(30);

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;

/// What an agent is told of a server, by its name; none if there is no such server.
type Offer = Box<dyn Fn(&str) -> Option<Vec<Told>> + Send + Sync>;

/// Speaks for the servers of one session.
pub struct Door {
    offer: Offer,
    hatch: Arc<Hatch>,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Door")
    }
}

/// What a request comes to.
enum Reply {
    /// Nothing is to be said.
    Taken,
    Message(StatusCode, Value),
    /// What is no message, and so has no answer that is one.
    Refused(StatusCode, &'static str),
}

#[async_trait]
impl SocketService for Door {
    async fn serve(&self, stream: UnixStream, _: &Arc<SessionKey>, head: Duration) {
        http_socket::serve(stream, head, |request| self.answer(request)).await;
    }
}

impl Door {
    /// The door to the servers that the session has now, and what its agent is told of them; none if it has none.
    pub fn to(mcp: &Arc<McpServers>, session: &SessionKey) -> Option<(Self, Servers)> {
        let (edition, names) = mcp.present(session)?;
        let tools = mcp.specs(session).into_iter().map(|spec| spec.name).collect();
        let hatch = Arc::new(Hatch::default());
        let url = |name: &String| format!("http://127.0.0.1:{SERVERS_PORT}/{name}");
        let all = names.iter().map(|name| Served { name: name.clone(), url: url(name) }).collect();
        let (mcp, session) = (Arc::clone(mcp), session.clone());
        let offer: Offer = Box::new(move |server| mcp.told_of(&session, server));
        let door = Self { offer, hatch: Arc::clone(&hatch) };
        Some((door, Servers { all, tools, hatch, edition }))
    }

    /// Answers one request.
    async fn answer<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body + Send,
        B::Data: Send,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        match self.reply(request).await {
            Reply::Taken => response(StatusCode::ACCEPTED, Full::default()),
            Reply::Message(status, message) => response(status, Full::from(message.to_string())),
            Reply::Refused(status, why) => {
                let mut refused = response(status, Full::from(json!({ "error": why }).to_string()));
                if status == StatusCode::METHOD_NOT_ALLOWED {
                    refused.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
                }
                refused
            }
        }
    }

    async fn reply<B>(&self, request: Request<B>) -> Reply
    where
        B: Body + Send,
        B::Data: Send,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        if let Err(why) = check_names(&head.headers) {
            return Reply::Refused(StatusCode::FORBIDDEN, why);
        }
        let server = head.uri.path().strip_prefix('/').unwrap_or_default();
        let Some(tools) = (self.offer)(server) else {
            return Reply::Refused(
                StatusCode::NOT_FOUND,
                "there is no such server: each has a path of its own",
            );
        };
        if head.method != Method::POST {
            return Reply::Refused(
                StatusCode::METHOD_NOT_ALLOWED,
                "messages are sent with POST, and there are no streams",
            );
        }
        let is_json =
            head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).is_some_and(|kind| {
                kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
            });
        if !is_json {
            return Reply::Refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "a message is application/json");
        }
        let body = match tokio::time::timeout(BODY, http_socket::read_body(body, MAX_BODY_BYTES)).await {
            Ok(Ok(body)) => body,
            Ok(Err(_)) => {
                return Reply::Refused(StatusCode::PAYLOAD_TOO_LARGE, "a message has at most one mebibyte");
            }
            Err(_) => return Reply::Refused(StatusCode::REQUEST_TIMEOUT, "the message did not come"),
        };
        self.said((server, &tools), &body).await
    }

    /// What is said to a server.
    async fn said(&self, server: (&str, &[Told]), body: &[u8]) -> Reply {
        let wrong =
            |code: i64, why: &str| Reply::Message(StatusCode::BAD_REQUEST, error(&Value::Null, code, why));
        let message = match serde_json::from_slice::<Value>(body) {
            Ok(Value::Object(message)) => message,
            Ok(Value::Array(_)) => return wrong(INVALID_REQUEST, "one message comes with a request"),
            Ok(_) => return wrong(INVALID_REQUEST, "a message is an object"),
            Err(_) => return wrong(PARSE_ERROR, "this is no JSON"),
        };
        if message.get("jsonrpc").is_none_or(|version| version != "2.0") {
            return wrong(INVALID_REQUEST, "a message is JSON-RPC 2.0");
        }
        let method = match message.get("method") {
            Some(Value::String(method)) => method.as_str(),
            Some(_) => return wrong(INVALID_REQUEST, "`method` is a text"),
            // Nobody here has asked anything.
            None => return Reply::Taken,
        };
        let id = match message.get("id") {
            Some(id @ (Value::Number(_) | Value::String(_))) => id,
            Some(_) => return wrong(INVALID_REQUEST, "`id` is a number or a text"),
            None => return Reply::Taken,
        };
        let params = message.get("params").unwrap_or(&Value::Null);
        let answer = match self.asked(server, method, params).await {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err((code, why)) => error(id, code, &why),
        };
        Reply::Message(StatusCode::OK, answer)
    }

    async fn asked(
        &self,
        (server, tools): (&str, &[Told]),
        method: &str,
        params: &Value,
    ) -> Result<Value, (i64, String)> {
        match method {
            "initialize" => {
                let wanted = params["protocolVersion"].as_str().unwrap_or_default();
                let version = VERSIONS.into_iter().find(|known| *known == wanted).unwrap_or(VERSION);
                Ok(json!({
                    "protocolVersion": version,
                    "capabilities": { "tools": {} },
                    "serverInfo": { "name": server, "title": format!("{server}, through Tribune"), "version": env!("CARGO_PKG_VERSION") },
                }))
            }
            "ping" => Ok(json!({})),
            "tools/list" => Ok(json!({ "tools": tools.iter().map(Told::described).collect::<Vec<_>>() })),
            "tools/call" => {
                let name = params["name"].as_str().unwrap_or_default();
                let Some(tool) = tools.iter().find(|tool| tool.name == name) else {
                    return Err((INVALID_PARAMS, format!("the server has no tool `{}`", short(name))));
                };
                let arguments = match &params["arguments"] {
                    Value::Null => json!({}),
                    arguments @ Value::Object(_) => arguments.clone(),
                    _ => return Err((INVALID_PARAMS, "`arguments` is an object".to_owned())),
                };
                let outcome = self.hatch.call(tool.called.clone(), arguments).await;
                let content = json!([{ "type": "text", "text": outcome.content }]);
                Ok(json!({ "content": content, "isError": outcome.is_error }))
            }
            _ => Err((METHOD_NOT_FOUND, "this is not offered here".to_owned())),
        }
    }
}

/// A tool of a server, as an agent of another make is told of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Told {
    /// Without the name of its server, which the agent puts before it again.
    pub(super) name: String,
    /// As the house calls it.
    pub(super) called: String,
    pub(super) description: String,
    pub(super) input_schema: Value,
}

impl Told {
    fn described(&self) -> Value {
        json!({ "name": self.name, "description": self.description, "inputSchema": self.input_schema })
    }
}

/// A page that a browser in the box shows cannot make it speak to a server: it comes from elsewhere, or by another name.
fn check_names(headers: &HeaderMap) -> Result<(), &'static str> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok()).map(str::to_ascii_lowercase);
    let own = ["127.0.0.1", "localhost"].map(|name| format!("{name}:{SERVERS_PORT}"));
    if hosts.next().is_some() || host.is_none_or(|host| !own.contains(&host)) {
        return Err("the Host header does not name this server: use its address");
    }
    match headers.contains_key(ORIGIN) {
        true => Err("pages do not speak to servers"),
        false => Ok(()),
    }
}

fn response(status: StatusCode, body: Full<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    if status != StatusCode::ACCEPTED {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    response
}

fn error(id: &Value, code: i64, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
}

#[cfg(test)]
#[path = "http_endpoint_tests.rs"]
mod tests;
