//! Latency between a model and a client: a plain HTTP client as the baseline, Tribune's provider client, and the whole
//! daemon, all reading the same stream from a local server. Then a thousand concurrent streams.

use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tribune_client::{RpcClient, RpcIncoming};
use tribune_providers::{
    ApiDialect, BaseUrl, ChatMessage, ModelEvent, ModelRequest, ProviderClient as Provider, ProviderEndpoint,
    RequestTimeouts, UserPart,
};

use crate::log::BenchHome;
use crate::server::{DaemonProcess, percentile};
use crate::turns::{ms, sync_cost};

/// Short answers, for the latency of the first word, and how many words they have. A single word may be held back until
/// the next one shows that it does not start a secret.
const FIRST: usize = 400;
const FEW_WORDS: usize = 20;

/// Turns per session, so that the history stays short: a plain client sends none.
const PER_SESSION: usize = 10;

/// Words of a long answer, sent as fast as the client reads them, and how many such answers.
const WORDS: usize = 4_000;
const LONG: usize = 12;

/// Concurrent streams, and the words of each, four per second.
const STREAMS: usize = 1_000;
const SLOW_WORDS: usize = 40;
const PAUSE: Duration = Duration::from_millis(250);

/// Streams that share a connection to the daemon.
const PER_CLIENT: usize = 50;

pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    println!("streams: added over a plain HTTP client; goals: first word <= 1 ms, each word <= 20 us (p50)");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let upstream = upstream()?;
    let home = BenchHome::new()?;
    let root = home.home.root();
    std::fs::create_dir_all(root.join("data"))?;
    std::fs::write(root.join("config.json5"), config(upstream))?;
    let roster = json!({ "id": "main", "backend": "native", "model": "bench:few", "mandate": "default", "standing": false });
    std::fs::write(root.join("data/agent-roster.jsonl"), format!("{roster}\n"))?;
    let server = DaemonProcess::start(&home.home)?;
    let sync = sync_cost(root)?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        compare(upstream, &server).await?;
        println!("  one fdatasync here takes {:.3} ms; the daemon shows a word when it is durable", ms(sync));
        many(&server).await
    })
}

async fn compare(upstream: SocketAddr, server: &DaemonProcess) -> Result<(), Box<dyn Error>> {
    let (plain, provider) = (plain()?, provider(upstream)?);
    let (mut client, mut key) = (server.client().await?, String::new());
    let (mut first, mut each) = ([const { Vec::new() }; 3], [const { Vec::new() }; 3]);
    for n in 0..FIRST {
        if n % PER_SESSION == 0 {
            key = format!("agent:main:rpc:local:dm:bench-{n}");
            open(&mut client, &key, "bench:few").await?;
        }
        first[0].push(by_plain_client(&plain, upstream, "few").await?.0);
        first[1].push(by_provider(&provider, "few").await?.0);
        first[2].push(by_daemon(&mut client, &key).await?.0);
    }
    for n in 0..LONG {
        let long = format!("agent:main:rpc:local:dm:long-{n}");
        open(&mut client, &long, "bench:many").await?;
        each[0].push(by_plain_client(&plain, upstream, "many").await?.1);
        each[1].push(by_provider(&provider, "many").await?.1);
        each[2].push(by_daemon(&mut client, &long).await?.1);
    }
    let micros = |time: Duration| time.as_secs_f64() * 1e6 / WORDS as f64;
    for (n, name) in ["plain client", "provider", "daemon"].into_iter().enumerate() {
        let (one, whole) = (percentile(&first[n], 50), percentile(&each[n], 50));
        let added =
            |all: &[Vec<Duration>; 3]| percentile(&all[n], 50).saturating_sub(percentile(&all[0], 50));
        println!(
            "  {name:<13} first word p50 {:>7.3} ms (added {:>6.3})   each word {:>6.1} us (added {:>5.1})",
            ms(one),
            ms(added(&first)),
            micros(whole),
            micros(added(&each)),
        );
    }
    Ok(())
}

/// Runs a thousand concurrent streams, and samples the daemon's memory before, during and after.
async fn many(server: &DaemonProcess) -> Result<(), Box<dyn Error>> {
    let mut clients = Vec::new();
    for group in 0..STREAMS / PER_CLIENT {
        let mut client = server.client().await?;
        let keys: Vec<String> =
            (0..PER_CLIENT).map(|n| format!("agent:main:rpc:local:dm:many-{group}-{n}")).collect();
        for key in &keys {
            open(&mut client, key, "bench:slow").await?;
        }
        clients.push((client, keys));
    }
    let before = server.resident()?;
    let began = Instant::now();
    let mut waiting: Vec<_> =
        clients.into_iter().map(|(client, keys)| tokio::task::spawn_local(drain(client, keys))).collect();
    let mut most = Vec::new();
    while waiting.iter().any(|task| !task.is_finished()) {
        tokio::time::sleep(Duration::from_millis(500)).await;
        most.push(server.resident()?);
    }
    let mut words = 0;
    for task in waiting.drain(..) {
        words += task.await?.map_err(|error| error.to_string())?;
    }
    let taken = began.elapsed();
    let half = most.get(most.len() / 2).copied().unwrap_or_default();
    println!(
        "  {STREAMS} streams at once: {words} words in {:.1} s (sent within {:.1} s); memory {} MiB before, {} at half, {} at most, {} after",
        taken.as_secs_f64(),
        (PAUSE * SLOW_WORDS as u32).as_secs_f64(),
        before >> 10,
        half >> 10,
        most.iter().max().copied().unwrap_or_default() >> 10,
        server.resident()? >> 10,
    );
    Ok(())
}

/// Runs a turn in each session over one connection, and counts the words.
async fn drain(mut client: RpcClient, keys: Vec<String>) -> Result<usize, Box<dyn Error>> {
    for key in &keys {
        client.send("turn.run", &say(key)).await?;
    }
    let (mut open, mut words) = (keys.len(), 0);
    while open > 0 {
        match client.next().await? {
            RpcIncoming::Notification(message) => words += words_in(&message.params["event"]),
            RpcIncoming::Response(_, answer) => {
                answer?;
                open -= 1;
            }
        }
    }
    Ok(words)
}

async fn open(client: &mut RpcClient, key: &str, model: &str) -> Result<(), Box<dyn Error>> {
    client.call("session.init", &json!({ "session_key": key, "mode": "persistent", "model": model })).await?;
    Ok(())
}

fn say(key: &str) -> Value {
    json!({ "session_key": key, "input": { "content": [{ "type": "text", "text": "go" }] } })
}

fn words_in(event: &Value) -> usize {
    if event["type"] == "text_delta" {
        event["text"].as_str().map_or(0, |text| text.matches("word").count())
    } else {
        0
    }
}

/// Time to the first word, and to the end.
type StreamTimes = Result<(Duration, Duration), Box<dyn Error>>;

fn plain() -> Result<reqwest::Client, Box<dyn Error>> {
    Ok(reqwest::Client::builder().no_proxy().tls_certs_only([]).build()?)
}

async fn by_plain_client(client: &reqwest::Client, upstream: SocketAddr, model: &str) -> StreamTimes {
    let body = json!({ "model": model, "stream": true, "messages": [{ "role": "user", "content": "go" }] });
    let began = Instant::now();
    let url = format!("http://{upstream}/v1/chat/completions");
    let mut answer = client.post(url).body(body.to_string()).send().await?;
    let mut first = None;
    while let Some(piece) = answer.chunk().await? {
        if piece.windows(4).any(|window| window == b"word") {
            first.get_or_insert_with(|| began.elapsed());
        }
    }
    Ok((first.ok_or("the stream had no word")?, began.elapsed()))
}

fn provider(upstream: SocketAddr) -> Result<Provider, Box<dyn Error>> {
    let endpoint = ProviderEndpoint {
        provider: "bench".to_owned(),
        dialect: ApiDialect::OpenAi,
        base_url: BaseUrl::parse(&format!("http://{upstream}/v1"))?,
        key: None,
        key_env: None,
        timeouts: RequestTimeouts::default(),
    };
    Ok(Provider::new(endpoint)?)
}

async fn by_provider(provider: &Provider, model: &str) -> StreamTimes {
    let request = ModelRequest {
        model: model.to_owned(),
        system: Vec::new(),
        messages: vec![ChatMessage::User(vec![UserPart::Text("go".to_owned())])],
        tools: Vec::new(),
        max_output_tokens: 100,
        thinking: None,
    };
    let began = Instant::now();
    let mut stream = provider.stream(&request, &CancellationToken::new()).await?;
    let mut first = None;
    while let Some(event) = stream.next().await {
        if matches!(event?, ModelEvent::Text(_)) {
            first.get_or_insert_with(|| began.elapsed());
        }
    }
    Ok((first.ok_or("the stream had no word")?, began.elapsed()))
}

async fn by_daemon(client: &mut RpcClient, key: &str) -> StreamTimes {
    let began = Instant::now();
    let id = client.send("turn.run", &say(key)).await?;
    let mut first = None;
    loop {
        match client.next().await? {
            RpcIncoming::Notification(message) if words_in(&message.params["event"]) > 0 => {
                first.get_or_insert_with(|| began.elapsed());
            }
            RpcIncoming::Response(of, answer) if of == id => {
                answer?;
                return Ok((first.ok_or("the stream had no word")?, began.elapsed()));
            }
            RpcIncoming::Notification(_) | RpcIncoming::Response(..) => {}
        }
    }
}

fn config(upstream: SocketAddr) -> String {
    let limits = "{ contextWindow: 10000000, maxOutputTokens: 1000 }";
    format!(
        "{{ models: {{ providers: {{ bench: {{ kind: 'openai', baseUrl: 'http://{upstream}/v1', local: true, startupValidation: 'off', \
         models: {{ few: {limits}, many: {limits}, slow: {limits} }} }} }} }} }}"
    )
}

/// A fake model server in its own thread. The model `few` sends a few words, `many` sends many at once, `slow` sends
/// some slowly.
fn upstream() -> Result<SocketAddr, Box<dyn Error>> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            let Ok(listener) = TcpListener::from_std(listener) else { return };
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream));
            }
        });
    });
    Ok(address)
}

/// Answers every request on a connection.
async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut received = Vec::new();
    loop {
        let Some(body) = request(&mut stream, &mut received).await? else { return Ok(()) };
        let model = serde_json::from_slice::<Value>(&body).unwrap_or_default()["model"].clone();
        let (words, pause) = match model.as_str() {
            Some("many") => (WORDS, Duration::ZERO),
            Some("slow") => (SLOW_WORDS, PAUSE),
            _ => (FEW_WORDS, Duration::ZERO),
        };
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await?;
        for n in 0..words {
            let delta = json!({ "id": "b", "object": "chat.completion.chunk", "choices": [{ "index": 0, "delta": { "content": format!("word {n} ") } }] });
            stream.write_all(&chunk(&format!("data: {delta}\n\n"))).await?;
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
        }
        let end = json!({ "id": "b", "object": "chat.completion.chunk", "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }],
            "usage": { "prompt_tokens": 10, "completion_tokens": words } });
        stream.write_all(&chunk(&format!("data: {end}\n\ndata: [DONE]\n\n"))).await?;
        stream.write_all(b"0\r\n\r\n").await?;
    }
}

fn chunk(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}

/// The body of the next request, or `None` at the end of the connection.
async fn request(stream: &mut TcpStream, read: &mut Vec<u8>) -> std::io::Result<Option<Vec<u8>>> {
    loop {
        let head = read.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(head) = head {
            let text = String::from_utf8_lossy(&read[..head]).to_ascii_lowercase();
            let length =
                text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
            let end = head + 4 + length.unwrap_or(0_usize);
            if read.len() >= end {
                let rest = read.split_off(end);
                let body = std::mem::replace(read, rest).split_off(head + 4);
                return Ok(Some(body));
            }
        }
        if stream.read_buf(read).await? == 0 {
            return Ok(None);
        }
    }
}
