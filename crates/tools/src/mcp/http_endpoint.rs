//! The endpoint through which a CLI agent uses its session's MCP servers: MCP over streamable HTTP, with one path per server.
//! Tribune remains the only client of the servers. The endpoint lists their tools, and hands each call to the running turn,
//! which has it authorized.
//!
//! Each request carries one message, and the response is JSON. There are no streams, no sessions, and nothing but tools.

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
use tribune_cli_agents::{McpCallChannel, ServerEndpoint, SessionMcpServers};
use tribune_egress::proxy_env::SERVERS_PORT;
use tribune_egress::{SocketService, http_socket};
use tribune_json_rpc::{
    self as json_rpc, ErrorObject, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, NULL_ID, PARSE_ERROR,
    RpcMessage,
};
use tribune_runtime::SessionKey;

use super::McpServers;
use super::client::{VERSION, VERSIONS};
use super::server::short;

/// Maximum bytes of a request: the maximum input of a call, and room for the rest of the message.
const MAX_BODY_BYTES: usize = (1 << 20) + (64 << 10);

/// Time limit for receiving a request.
const BODY: Duration = Duration::from_secs(30);

/// The tools of a server by its name; `None` if there is no such server.
type Offer = Box<dyn Fn(&str) -> Option<Vec<ExposedTool>> + Send + Sync>;

/// A server and its tools, as a CLI agent sees them.
#[derive(Clone, Copy)]
struct ExposedServer<'a> {
    name: &'a str,
    tools: &'a [ExposedTool],
}

/// Serves MCP for the servers of one session.
pub struct McpEndpoint {
    offer: Offer,
    channel: Arc<McpCallChannel>,
}

impl fmt::Debug for McpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("McpEndpoint")
    }
}

/// The reply to a request.
enum Reply {
    /// Accepted without a message.
    Taken,
    Message(StatusCode, String),
    /// Not a message, so the error is not one either.
    Refused(StatusCode, &'static str),
}

#[async_trait]
impl SocketService for McpEndpoint {
    async fn serve(&self, stream: UnixStream, _: &Arc<SessionKey>, head: Duration) {
        http_socket::serve(stream, head, |request| self.answer(request)).await;
    }
}

impl McpEndpoint {
    /// The endpoint for the session's current servers, and what its agent needs to reach them; `None` if it has no servers.
    pub fn to(mcp: &Arc<McpServers>, session: &SessionKey) -> Option<(Self, SessionMcpServers)> {
        let (generation, names) = mcp.present(session)?;
        let tools = mcp.specs(session).into_iter().map(|spec| spec.name).collect();
        let channel = Arc::new(McpCallChannel::default());
        let url = |name: &String| format!("http://127.0.0.1:{SERVERS_PORT}/{name}");
        let all = names.iter().map(|name| ServerEndpoint { name: name.clone(), url: url(name) }).collect();
        let (mcp, session) = (Arc::clone(mcp), session.clone());
        let offer: Offer = Box::new(move |server| mcp.exposed_tools(&session, server));
        let endpoint = Self { offer, channel: Arc::clone(&channel) };
        Some((endpoint, SessionMcpServers { all, tools, channel, generation }))
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
            Reply::Message(status, message) => response(status, Full::from(message)),
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
            return Reply::Refused(StatusCode::NOT_FOUND, "there is no such server: each has its own path");
        };
        if head.method != Method::POST {
            return Reply::Refused(
                StatusCode::METHOD_NOT_ALLOWED,
                "send messages with POST: there are no streams",
            );
        }
        let is_json =
            head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).is_some_and(|kind| {
                kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
            });
        if !is_json {
            return Reply::Refused(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "the content type must be application/json",
            );
        }
        let body = match tokio::time::timeout(BODY, http_socket::read_body(body, MAX_BODY_BYTES)).await {
            Ok(Ok(body)) => body,
            Ok(Err(_)) => {
                return Reply::Refused(StatusCode::PAYLOAD_TOO_LARGE, "a message has at most one mebibyte");
            }
            Err(_) => {
                return Reply::Refused(StatusCode::REQUEST_TIMEOUT, "the message did not arrive in time");
            }
        };
        self.handle_message(ExposedServer { name: server, tools: &tools }, &body).await
    }

    /// Handles one message to a server.
    async fn handle_message(&self, server: ExposedServer<'_>, body: &[u8]) -> Reply {
        let wrong = |code: i64, why: &str| {
            let error = ErrorObject::new(code, why);
            Reply::Message(StatusCode::BAD_REQUEST, json_rpc::error_response(NULL_ID, &error))
        };
        let Ok(message) = serde_json::from_slice::<RpcMessage<Value>>(body) else {
            return match serde_json::from_slice::<Value>(body) {
                Ok(Value::Array(_)) => wrong(INVALID_REQUEST, "a request carries one message"),
                Ok(_) => wrong(INVALID_REQUEST, "a message must be an object"),
                Err(_) => wrong(PARSE_ERROR, "this is not JSON"),
            };
        };
        if message.jsonrpc.is_none_or(|version| version != "2.0") {
            return wrong(INVALID_REQUEST, "a message must be JSON-RPC 2.0");
        }
        let method = match message.method {
            Some(Value::String(method)) => method,
            Some(_) => return wrong(INVALID_REQUEST, "`method` must be a string"),
            // A response, although nothing was requested.
            None => return Reply::Taken,
        };
        let id = match message.id {
            Some(id @ (Value::Number(_) | Value::String(_))) => id,
            Some(_) => return wrong(INVALID_REQUEST, "`id` must be a number or a string"),
            None => return Reply::Taken,
        };
        let answer = match self.handle_request(server, &method, &message.params.unwrap_or_default()).await {
            Ok(result) => json_rpc::response(id, &result),
            Err((code, why)) => json_rpc::error_response(id, &ErrorObject::new(code, &why)),
        };
        Reply::Message(StatusCode::OK, answer)
    }

    async fn handle_request(
        &self,
        ExposedServer { name: server, tools }: ExposedServer<'_>,
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
            "tools/list" => {
                Ok(json!({ "tools": tools.iter().map(ExposedTool::described).collect::<Vec<_>>() }))
            }
            "tools/call" => {
                let name = params["name"].as_str().unwrap_or_default();
                let Some(tool) = tools.iter().find(|tool| tool.name == name) else {
                    return Err((INVALID_PARAMS, format!("the server has no tool `{}`", short(name))));
                };
                let arguments = match &params["arguments"] {
                    Value::Null => json!({}),
                    arguments @ Value::Object(_) => arguments.clone(),
                    _ => return Err((INVALID_PARAMS, "`arguments` must be an object".to_owned())),
                };
                let outcome = self.channel.call(tool.called.clone(), arguments).await;
                let content = json!([{ "type": "text", "text": outcome.content }]);
                Ok(json!({ "content": content, "isError": outcome.is_error }))
            }
            _ => Err((METHOD_NOT_FOUND, "this is not offered here".to_owned())),
        }
    }
}

/// A tool of a server, as a CLI agent sees it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ExposedTool {
    /// Without the name of its server, which the agent adds again.
    pub(super) name: String,
    /// The name under which Tribune knows the tool.
    pub(super) called: String,
    pub(super) description: String,
    pub(super) input_schema: Value,
}

impl ExposedTool {
    fn described(&self) -> Value {
        json!({ "name": self.name, "description": self.description, "inputSchema": self.input_schema })
    }
}

/// Refuses requests of web pages, so that a page in a browser inside the sandbox cannot reach a server. Such a request comes
/// from another origin or through another host name (DNS rebinding).
fn check_names(headers: &HeaderMap) -> Result<(), &'static str> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok()).map(str::to_ascii_lowercase);
    let own = ["127.0.0.1", "localhost"].map(|name| format!("{name}:{SERVERS_PORT}"));
    if hosts.next().is_some() || host.is_none_or(|host| !own.contains(&host)) {
        return Err("the Host header does not name this server: use its address");
    }
    match headers.contains_key(ORIGIN) {
        true => Err("web pages cannot use servers"),
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

#[cfg(test)]
#[path = "http_endpoint_tests.rs"]
mod tests;
