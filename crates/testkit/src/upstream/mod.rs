//! A fake model provider on a loopback port: a real HTTP server that sends queued replies in order and records every
//! request byte for byte.
//!
//! ```ignore
//! let upstream = FakeUpstream::start().await;
//! upstream.reply(ModelOutput::new().text("hello").anthropic());
//! // … send a request to upstream.base_url() …
//! assert_eq!(upstream.requests()[0].path, "/v1/messages");
//! ```

pub mod model;
mod model_output;
mod reply;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, Method, Response};
use axum::serve::{IncomingStream, Listener};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

pub use model_output::ModelOutput;
pub use reply::UpstreamReply;

/// The server. It stops on drop.
#[derive(Debug)]
pub struct FakeUpstream {
    address: SocketAddr,
    state: Arc<UpstreamState>,
    connections: Arc<AtomicUsize>,
    _server: JoinSet<()>,
}

/// A request that the server received.
#[derive(Debug, Clone)]
pub struct RecordedRequest {
    pub method: Method,
    /// Path and query.
    pub path: String,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl RecordedRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

#[derive(Debug, Default)]
struct UpstreamState {
    replies: Mutex<VecDeque<UpstreamReply>>,
    models: Mutex<Option<Vec<String>>>,
    requests: Mutex<Vec<RecordedRequest>>,
    /// Answers as a fake model when no reply is queued.
    is_model: AtomicBool,
}

impl FakeUpstream {
    pub async fn start() -> Self {
        Self::start_on("127.0.0.1:0".parse().unwrap()).await
    }

    pub async fn start_on(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (state, connections) = (Arc::new(UpstreamState::default()), Arc::new(AtomicUsize::new(0)));
        let counting = CountingListener { listener, connections: connections.clone() };
        let app = Router::new().fallback(answer).with_state(state.clone());
        let app = app.into_make_service_with_connect_info::<Connection>();
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(counting, app).await.unwrap() });
        Self { address, state, connections, _server: server }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL without a path.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Queues a reply. A request that finds the queue empty gets status 418.
    pub fn reply(&self, reply: UpstreamReply) -> &Self {
        self.state.replies.lock().unwrap().push_back(reply);
        self
    }

    /// From now on, answers every request for the model list. Such requests consume no queued reply.
    pub fn set_models(&self, models: &[&str]) -> &Self {
        *self.state.models.lock().unwrap() = Some(models.iter().map(|&model| model.to_owned()).collect());
        self
    }

    /// From now on, answers every model request that finds the queue empty, as described in [`model`].
    pub fn act_as_model(&self) -> &Self {
        self.state.is_model.store(true, Ordering::SeqCst);
        self
    }

    /// All requests received so far, in order.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.state.requests.lock().unwrap().clone()
    }

    /// Number of accepted connections, used or not.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn answer(
    State(state): State<Arc<UpstreamState>>,
    ConnectInfo(connection): ConnectInfo<Connection>,
    request: Request,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, usize::MAX).await else { return Response::new(Body::empty()) };
    let model_reply = || {
        let is_model = state.is_model.load(Ordering::SeqCst);
        is_model.then(|| model::answer(&head.method, &head.uri.to_string(), &body)).flatten()
    };
    let model_reply = model_reply();
    let is_list = head.method == Method::GET && head.uri.path().ends_with("/models");
    state.requests.lock().unwrap().push(RecordedRequest {
        method: head.method,
        path: head.uri.to_string(),
        headers: head.headers,
        body: body.to_vec(),
    });
    let model_list = state.models.lock().unwrap().clone().filter(|_| is_list).map(|models| {
        let data: Vec<Value> = models.iter().map(|id| json!({ "id": id, "object": "model" })).collect();
        UpstreamReply::json(200, &json!({ "object": "list", "data": data, "has_more": false }))
    });
    let reply = model_list.or_else(|| state.replies.lock().unwrap().pop_front()).or(model_reply);
    reply
        .unwrap_or_else(|| UpstreamReply::json(418, &json!({ "error": { "message": "no reply is left" } })))
        .send(connection)
        .await
}

/// A listener that counts connections.
struct CountingListener {
    listener: TcpListener,
    connections: Arc<AtomicUsize>,
}

/// The TCP connection of a request, so that a reply can break it.
#[derive(Debug, Clone)]
struct Connection(Arc<socket2::Socket>);

impl Listener for CountingListener {
    type Io = TcpStream;
    type Addr = Connection;

    async fn accept(&mut self) -> (TcpStream, Connection) {
        loop {
            if let Ok((stream, _)) = self.listener.accept().await {
                self.connections.fetch_add(1, Ordering::SeqCst);
                stream.set_nodelay(true).unwrap();
                let connection = Connection(Arc::new(socket2::SockRef::from(&stream).try_clone().unwrap()));
                return (stream, connection);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Connection> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

impl axum::extract::connect_info::Connected<IncomingStream<'_, CountingListener>> for Connection {
    fn connect_info(stream: IncomingStream<'_, CountingListener>) -> Self {
        stream.remote_addr().clone()
    }
}
