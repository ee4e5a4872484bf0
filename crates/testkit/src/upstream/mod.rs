//! A model provider on a loopback port: a real HTTP server that answers with what it was told to, in order, and remembers
//! every request to the byte.
//!
//! ```ignore
//! let upstream = FakeUpstream::start().await;
//! upstream.reply(Say::new().text("hello").anthropic());
//! // … ask it at upstream.base_url() …
//! assert_eq!(upstream.requests()[0].path, "/v1/messages");
//! ```

mod anthropic;
mod gemini;
pub mod model;
mod openai;
mod reply;
mod responses;
mod say;

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

pub use reply::Reply;
pub use say::Say;

/// The server. It ends with this.
#[derive(Debug)]
pub struct FakeUpstream {
    address: SocketAddr,
    desk: Arc<Desk>,
    connections: Arc<AtomicUsize>,
    _server: JoinSet<()>,
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Recorded {
    pub method: Method,
    /// With the query.
    pub path: String,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Recorded {
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
struct Desk {
    replies: Mutex<VecDeque<Reply>>,
    models: Mutex<Option<Vec<String>>>,
    requests: Mutex<Vec<Recorded>>,
    /// Answers by itself what no reply is left for.
    is_model: AtomicBool,
}

impl FakeUpstream {
    pub async fn start() -> Self {
        Self::start_on("127.0.0.1:0".parse().unwrap()).await
    }

    pub async fn start_on(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (desk, connections) = (Arc::new(Desk::default()), Arc::new(AtomicUsize::new(0)));
        let door = Door { listener, connections: connections.clone() };
        let app = Router::new().fallback(answer).with_state(desk.clone());
        let app = app.into_make_service_with_connect_info::<Line>();
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(door, app).await.unwrap() });
        Self { address, desk, connections, _server: server }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Without a path.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What the next request gets that no earlier reply is for. A request that nothing is left for gets status 418.
    pub fn reply(&self, reply: Reply) -> &Self {
        self.desk.replies.lock().unwrap().push_back(reply);
        self
    }

    /// Answers every request for the list of models from now on, beside the replies.
    pub fn lists(&self, models: &[&str]) -> &Self {
        *self.desk.models.lock().unwrap() = Some(models.iter().map(|&model| model.to_owned()).collect());
        self
    }

    /// Answers every request for a model's words from now on as [`model`] says, beside the replies.
    pub fn acts_as_model(&self) -> &Self {
        self.desk.is_model.store(true, Ordering::SeqCst);
        self
    }

    /// All requests so far, in order.
    pub fn requests(&self) -> Vec<Recorded> {
        self.desk.requests.lock().unwrap().clone()
    }

    /// How many connections were made, used or not.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn answer(
    State(desk): State<Arc<Desk>>,
    ConnectInfo(line): ConnectInfo<Line>,
    request: Request,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, usize::MAX).await else { return Response::new(Body::empty()) };
    let thought = || {
        let is_model = desk.is_model.load(Ordering::SeqCst);
        is_model.then(|| model::answer(&head.method, &head.uri.to_string(), &body)).flatten()
    };
    let thought = thought();
    let is_list = head.method == Method::GET && head.uri.path().ends_with("/models");
    desk.requests.lock().unwrap().push(Recorded {
        method: head.method,
        path: head.uri.to_string(),
        headers: head.headers,
        body: body.to_vec(),
    });
    let listed = desk.models.lock().unwrap().clone().filter(|_| is_list).map(|models| {
        let data: Vec<Value> = models.iter().map(|id| json!({ "id": id, "object": "model" })).collect();
        Reply::json(200, &json!({ "object": "list", "data": data, "has_more": false }))
    });
    let reply = listed.or_else(|| desk.replies.lock().unwrap().pop_front()).or(thought);
    reply
        .unwrap_or_else(|| Reply::json(418, &json!({ "error": { "message": "no reply is left" } })))
        .send(line)
        .await
}

/// The listener, counting.
struct Door {
    listener: TcpListener,
    connections: Arc<AtomicUsize>,
}

/// The connection beneath a request, to be broken on demand.
#[derive(Debug, Clone)]
struct Line(Arc<socket2::Socket>);

impl Listener for Door {
    type Io = TcpStream;
    type Addr = Line;

    async fn accept(&mut self) -> (TcpStream, Line) {
        loop {
            if let Ok((stream, _)) = self.listener.accept().await {
                self.connections.fetch_add(1, Ordering::SeqCst);
                stream.set_nodelay(true).unwrap();
                let line = Line(Arc::new(socket2::SockRef::from(&stream).try_clone().unwrap()));
                return (stream, line);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Line> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

impl axum::extract::connect_info::Connected<IncomingStream<'_, Door>> for Line {
    fn connect_info(stream: IncomingStream<'_, Door>) -> Self {
        stream.remote_addr().clone()
    }
}
