//! ACP over a WebSocket: one message per text frame.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code};
use axum::http::HeaderValue;
use axum::response::Response;
use futures_util::stream::SplitSink;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::time::{Instant, timeout};

use super::connection::{ConnectQuery, Connection, Outgoing};
use super::http::{CONNECTION_ID, new_id};
use crate::connection_limit::{ConnectionSlot, TOO_MUCH_UNPROVEN};
use crate::gateway::{Gateway, READ_BUFFER, WRITE_BUFFER};
use crate::principal::Principal;
use crate::send_queue::{FRAMES, SendReceiver};

/// Interval of WebSocket pings.
const PING_EVERY: Duration = Duration::from_secs(30);

/// How long the last responses may take when the daemon stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Poll interval for requests in flight.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The close code for an idle client, in the range reserved for applications.
const CLOSE_IDLE: u16 = 4408;

/// The response header with the maximum message size.
const MAX_BYTES_HEADER: &str = "acp-max-message-bytes";

/// Answers the upgrade and serves the WebSocket.
pub(super) fn upgraded(
    gateway: Arc<Gateway>,
    slot: Arc<ConnectionSlot>,
    who: Principal,
    query: ConnectQuery,
    upgrade: WebSocketUpgrade,
) -> Response {
    let limit = gateway.limits.max_message_bytes;
    let upgrade = upgrade
        .max_message_size(limit)
        .max_frame_size(limit)
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(WRITE_BUFFER)
        .max_write_buffer_size(limit.max(1 << 20));
    let tasks = gateway.tasks.clone();
    let mut response = upgrade.on_upgrade(move |socket| async move {
        // Tracked, so that shutdown waits for it.
        let _ = tasks.spawn(serve(gateway, socket, who, query, slot)).await;
    });
    if let Ok(id) = HeaderValue::from_str(&new_id()) {
        response.headers_mut().insert(CONNECTION_ID, id);
    }
    // A larger message closes the connection. A client that knows the limit can reject a single message instead.
    response.headers_mut().insert(MAX_BYTES_HEADER, limit.into());
    response
}

type Sink = SplitSink<WebSocket, Message>;

async fn serve(
    gateway: Arc<Gateway>,
    socket: WebSocket,
    who: Principal,
    query: ConnectQuery,
    slot: Arc<ConnectionSlot>,
) {
    gateway.metrics.connected();
    let (connection, messages) = Connection::new(Arc::clone(&gateway), who, query);
    tokio::select! {
        () = run(&connection, &slot, socket, messages) => {}
        () = slot.gone() => {}
    }
    connection.leave();
    gateway.metrics.disconnected();
}

async fn run(
    connection: &Arc<Connection>,
    slot: &ConnectionSlot,
    socket: WebSocket,
    mut messages: SendReceiver<Outgoing>,
) {
    slot.is_websocket();
    let (mut sink, mut stream) = socket.split();
    let limits = &connection.gateway.limits;
    let (slow, mut heard) = (limits.timeouts.slow_reader, Instant::now());
    let mut ping = tokio::time::interval_at(heard + PING_EVERY, PING_EVERY);
    let stopping = connection.gateway.stopping.clone();
    let end = loop {
        let has_room = connection.has_room();
        // Not biased: a session that streams without pause must not keep a cancel from being received.
        tokio::select! {
            Some(message) = messages.recv() => {
                if !send_all(&mut sink, message, &mut messages, slow).await {
                    break None;
                }
            }
            frame = stream.next(), if has_room => {
                heard = Instant::now();
                slot.handled();
                match frame {
                    Some(Ok(Message::Text(text))) => connection.receive(text.as_str()),
                    // Binary frames are ignored.
                    Some(Ok(Message::Binary(_) | Message::Ping(_) | Message::Pong(_))) => {}
                    Some(Ok(Message::Close(_))) => break Some((close_code::NORMAL, "")),
                    Some(Err(error)) if error.to_string().contains(TOO_MUCH_UNPROVEN) => {
                        break Some((close_code::SIZE, "a frame of a guest has at most 64 KiB"));
                    }
                    Some(Err(error)) if error.to_string().contains("too l") => {
                        break Some((close_code::SIZE, "the frame is larger than gateway.maxMessageBytes"));
                    }
                    Some(Err(_)) | None => break None,
                }
            }
            _ = ping.tick() => {
                if timeout(slow, sink.send(Message::Ping(Default::default()))).await.is_err() {
                    break None;
                }
            }
            () = tokio::time::sleep_until(heard + limits.idle) => {
                break Some((CLOSE_IDLE, "nothing was heard for longer than gateway.idleSeconds"));
            }
            () = tokio::time::sleep(POLL_INTERVAL), if !has_room => {}
            () = stopping.cancelled() => {
                // Turns have ended by now; their responses are still sent.
                let last = last_answers(connection, &mut sink, &mut messages, slow);
                let _ = timeout(DRAIN_TIMEOUT, last).await;
                break Some((close_code::AWAY, "the daemon is stopping"));
            }
        }
    };
    if let Some((code, reason)) = end {
        let close = Message::Close(Some(CloseFrame { code, reason: Utf8Bytes::from_static(reason) }));
        let _ = timeout(slow, sink.send(close)).await;
        // Waits for the peer's close frame; messages before it are ignored.
        let _ =
            timeout(Duration::from_secs(1), async { while let Some(Ok(_)) = stream.next().await {} }).await;
    }
}

/// Sends the responses of requests in flight.
async fn last_answers(
    connection: &Connection,
    sink: &mut Sink,
    messages: &mut SendReceiver<Outgoing>,
    within: Duration,
) {
    while connection.is_answering() || !messages.is_empty() {
        match timeout(POLL_INTERVAL, messages.recv()).await {
            Ok(Some(message)) => {
                if !send_all(sink, message, messages, within).await {
                    return;
                }
            }
            Ok(None) => return,
            Err(_) => {}
        }
    }
}

/// Sends a message and those queued behind it, with one flush. Returns false if the client does not read them in time.
async fn send_all(
    sink: &mut Sink,
    first: Outgoing,
    waiting: &mut SendReceiver<Outgoing>,
    within: Duration,
) -> bool {
    let sending = async {
        sink.feed(Message::Text(first.text.into())).await?;
        for _ in 0..FRAMES {
            let Some(message) = waiting.try_recv() else { break };
            sink.feed(Message::Text(message.text.into())).await?;
        }
        sink.flush().await
    };
    matches!(timeout(within, sending).await, Ok(Ok(())))
}
