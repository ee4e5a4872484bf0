//! Runs an example of plain HTTP, with a minimal client.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use super::coverage::Coverage;
use super::fences::Fence;
use super::in_process_daemon::InProcessDaemon;
use super::pattern::{Names, fill, is_like, matches};

const TIMEOUT: Duration = Duration::from_secs(20);

/// Sends the request of an example as often as it states, and checks each response.
pub(super) fn play(fence: &Fence, daemon: &InProcessDaemon, coverage: &mut Coverage) {
    let place = &fence.place;
    // The values of one example are known to the next ones.
    let mut known = std::mem::take(&mut coverage.names);
    known.extend(daemon.names());
    let names = &mut known;
    let filled: Vec<TcpStream> = if fence.has("full") {
        (0..daemon.config.gateway.max_connections).map(|_| keep_one(daemon)).collect()
    } else {
        Vec::new()
    };
    let at = fence.text.find("← ").unwrap_or_else(|| panic!("{place}: no response"));
    let (request, answer) = fence.text.split_at(at);
    let (status, expected) = answer.split_once('\n').unwrap();
    let status: u16 = status.strip_prefix("← ").unwrap().trim().parse().unwrap();
    let (head, body) = request.split_once("\n\n").unwrap_or((request, ""));
    let (head, body) = (fill(head.trim(), names), fill(body.trim(), names));
    for _ in 0..fence.times() {
        let mut response = send(daemon.address(), &head, &body);
        if response.status != status {
            let text = response.text();
            panic!("{place}: {} instead of {status}: {text}", response.status);
        }
        if response.is("text/event-stream") {
            events(&mut response, expected, names, coverage, place);
        } else {
            let text = response.text();
            looks_like(expected.trim(), &text, &response, names, coverage, place);
        }
    }
    if status < 300 {
        let mut words = head.split_whitespace().map(str::to_owned);
        let (verb, target) = (words.next().unwrap(), words.next().unwrap());
        let path = target.split('?').next().unwrap_or_default().to_owned();
        coverage.requests.insert((verb, path));
    }
    drop(filled);
    coverage.names = known;
}

/// A connection that keeps its slot, because the operator is on it.
fn keep_one(daemon: &InProcessDaemon) -> TcpStream {
    let mut stream = TcpStream::connect(daemon.address()).unwrap();
    let names = daemon.names();
    let head = fill("GET /v1/status HTTP/1.1\r\nAuthorization: Bearer <token>", &names);
    write!(stream, "{head}\r\nHost: {}\r\n\r\n", daemon.address()).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let _ = stream.read(&mut [0; 1024]).unwrap();
    stream
}

fn looks_like(
    expected: &str,
    text: &str,
    response: &Response,
    names: &mut Names,
    coverage: &mut Coverage,
    place: &str,
) {
    if response.is("application/json") {
        let expected: Value =
            serde_json::from_str(expected).unwrap_or_else(|error| panic!("{place}: {error}"));
        let actual: Value = serde_json::from_str(text).unwrap();
        matches(&expected, &actual, names).unwrap_or_else(|why| panic!("{place}: {why}: {text}"));
        coverage.codes.extend(expected["error"]["code"].as_str().map(str::to_owned));
        return;
    }
    // Plain text: the shown lines occur in their order.
    let mut lines = text.lines();
    for expected in expected.lines() {
        let expected = fill(expected, names);
        assert!(lines.any(|line| is_like(&expected, line)), "{place}: no line is {expected}: {text}");
    }
}

/// Reads events until all shown ones have arrived. `…` stands for any number of other events.
fn events(response: &mut Response, expected: &str, names: &mut Names, coverage: &mut Coverage, place: &str) {
    let mut skipping = false;
    for block in expected.trim().split("\n\n") {
        if block.trim() == "…" {
            skipping = true;
            continue;
        }
        let (id, data) = block.trim().split_once('\n').unwrap_or_else(|| panic!("{place}: {block}"));
        let expected: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        loop {
            let (came_id, came) = response.event().unwrap_or_else(|| panic!("{place}: the stream ended"));
            let event: Value = serde_json::from_str(&came).unwrap();
            coverage.events.push(event.clone());
            let mut trial = names.clone();
            let fits = matches(&expected, &event, &mut trial)
                .and_then(|()| matches(&Value::from(id), &Value::from(format!("id: {came_id}")), &mut trial));
            match fits {
                Ok(()) => {
                    *names = trial;
                    break;
                }
                Err(_) if skipping => {}
                Err(why) => panic!("{place}: {why}"),
            }
        }
        skipping = false;
    }
}

pub(super) struct Response {
    pub(super) status: u16,
    headers: BTreeMap<String, String>,
    body: BufReader<TcpStream>,
}

/// Sends a request; `head` is its first line and its headers. The required headers are added.
pub(super) fn send(address: SocketAddr, head: &str, body: &str) -> Response {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut lines = head.lines();
    let mut request = format!("{} HTTP/1.1\r\n", lines.next().unwrap());
    for line in lines.clone() {
        request.push_str(&format!("{line}\r\n"));
    }
    if !lines.clone().any(|line| line.to_lowercase().starts_with("host:")) {
        request.push_str(&format!("Host: {address}\r\n"));
    }
    if !body.is_empty() {
        request.push_str(&format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()));
    }
    request.push_str("\r\n");
    request.push_str(body);
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = BufReader::new(stream);
    let mut line = || {
        let mut line = String::new();
        answer.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    };
    let first = line();
    let status = first.split(' ').nth(1).unwrap_or_else(|| panic!("{first}")).parse().unwrap();
    let mut headers = BTreeMap::new();
    loop {
        let line = line();
        let Some((name, value)) = line.split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    Response { status, headers, body: answer }
}

impl Response {
    fn is(&self, kind: &str) -> bool {
        self.headers.get("content-type").is_some_and(|found| found.starts_with(kind))
    }

    /// The whole body.
    pub(super) fn text(&mut self) -> String {
        let mut body = Vec::new();
        match self.headers.get("content-length") {
            Some(length) => {
                body.resize(length.parse().unwrap(), 0);
                self.body.read_exact(&mut body).unwrap();
            }
            None => {
                while let Some(chunk) = self.chunk() {
                    body.extend(chunk);
                }
            }
        }
        String::from_utf8(body).unwrap()
    }

    fn chunk(&mut self) -> Option<Vec<u8>> {
        assert_eq!(self.headers["transfer-encoding"], "chunked");
        let mut size = String::new();
        self.body.read_line(&mut size).unwrap();
        let size = usize::from_str_radix(size.trim(), 16).ok().filter(|size| *size > 0)?;
        let mut chunk = vec![0; size + 2];
        self.body.read_exact(&mut chunk).unwrap();
        chunk.truncate(size);
        Some(chunk)
    }

    /// The next event of a stream: its id and its data.
    fn event(&mut self) -> Option<(String, String)> {
        loop {
            // The daemon sends each event as one chunk, and sometimes a comment.
            let chunk = String::from_utf8(self.chunk()?).unwrap();
            let field =
                |name: &str| chunk.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
            if let (Some(id), Some(data)) = (field("id: "), field("data: ")) {
                assert_eq!(chunk.matches("data: ").count(), 1, "one event in a chunk: {chunk}");
                return Some((id, data));
            }
        }
    }
}
