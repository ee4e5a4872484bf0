use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};

use super::reception::MAX_JUNK_LINES;
use super::*;

/// A connection, and the agent's ends of its pipes.
fn connected() -> (AgentConnection, DuplexStream, BufReader<DuplexStream>) {
    let (ours_in, theirs_in) = tokio::io::duplex(1 << 16);
    let (theirs_out, ours_out) = tokio::io::duplex(1 << 16);
    let (connection, reading, writing) = AgentConnection::new(&crate::acp::Acp, ours_in, ours_out);
    tokio::spawn(reading);
    tokio::spawn(writing);
    (connection, theirs_out, BufReader::new(theirs_in))
}

async fn next_message(from: &mut BufReader<DuplexStream>) -> Value {
    let mut line = String::new();
    from.read_line(&mut line).await.unwrap();
    serde_json::from_str(&line).unwrap()
}

#[tokio::test]
async fn responses_find_their_request_and_late_ones_are_ignored() {
    let (connection, mut agent, mut input) = connected();
    let requesting = connection.clone();
    let response = tokio::spawn(async move { requesting.request("m", &json!({})).await });
    let id = next_message(&mut input).await["id"].clone();
    let twice = format!("{{\"id\":{id},\"result\":7}}\n{{\"id\":{id},\"result\":8}}\nwarning: x\n\n");
    agent.write_all(twice.as_bytes()).await.unwrap();
    assert_eq!(response.await.unwrap(), Ok(json!(7)));
    assert!(!connection.is_broken());
    agent.write_all(b"{\"id\":99,\"result\":1}\n").await.unwrap();
    assert_eq!(connection.broken().await, "it responded to a request that was not made");
    assert!(matches!(connection.request("m", &json!({})).await, Err(ConnectionFault::Broken(_))));
}

#[tokio::test]
async fn requests_are_refused_while_no_turn_listens() {
    let (connection, mut agent, mut input) = connected();
    agent.write_all(b"{\"id\":\"a\",\"method\":\"session/request_permission\"}\n").await.unwrap();
    assert_eq!(next_message(&mut input).await["result"]["outcome"]["outcome"], "cancelled");
    agent.write_all(b"{\"id\":0,\"method\":\"fs/write_text_file\"}\n").await.unwrap();
    let refused = next_message(&mut input).await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(0), &json!(-32603)));
    assert_eq!(connection.violation(), None);
    let of = |id: &str, kind: &str, status: &str| {
        let call = json!({ "sessionUpdate": kind, "toolCallId": id, "status": status });
        format!("{}\n", json!({ "method": "session/update", "params": { "update": call } }))
    };
    let update = |kind: &str, status: &str| of("t", kind, status);
    // An old conversation is reported again; then a turn ends, and its last notification comes late.
    agent.write_all(update("tool_call", "completed").as_bytes()).await.unwrap();
    agent.write_all(b"{\"id\":1,\"method\":\"x\"}\n").await.unwrap();
    next_message(&mut input).await;
    let mut receiver = connection.listen(ListenPhase::Turn);
    agent.write_all(update("tool_call", "in_progress").as_bytes()).await.unwrap();
    receiver.next().await.unwrap();
    connection.mark_idle();
    drop(receiver);
    agent.write_all(update("tool_call_update", "completed").as_bytes()).await.unwrap();
    agent.write_all(b"{\"id\":1,\"method\":\"x\"}\n").await.unwrap();
    next_message(&mut input).await;
    assert_eq!(connection.violation(), None);
    agent.write_all(of("another", "tool_call_update", "completed").as_bytes()).await.unwrap();
    agent.write_all(b"{\"id\":1,\"method\":\"x\"}\n").await.unwrap();
    next_message(&mut input).await;
    assert!(connection.violation().is_some(), "a call that no turn knew");
}

/// The turn took its response, and its end was not noted yet.
#[tokio::test]
async fn messages_that_a_turn_did_not_take_come_after_it() {
    let (connection, mut agent, mut input) = connected();
    let receiver = connection.listen(ListenPhase::Turn);
    let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "t", "status": "completed" });
    let line = json!({ "method": "session/update", "params": { "update": call } });
    agent.write_all(format!("{line}\n{{\"id\":1,\"method\":\"x\"}}\n").as_bytes()).await.unwrap();
    drop(receiver);
    next_message(&mut input).await;
    assert!(connection.violation().is_some());
}

#[tokio::test]
async fn work_between_turns_is_a_violation() {
    for status in ["pending", "in_progress", "completed"] {
        let (connection, mut agent, mut input) = connected();
        connection.mark_idle();
        let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "t", "status": status });
        let line = json!({ "method": "session/update", "params": { "update": call } });
        agent.write_all(format!("{line}\n{{\"id\":1,\"method\":\"x\"}}\n").as_bytes()).await.unwrap();
        next_message(&mut input).await;
        assert!(connection.violation().is_some(), "{status}");
    }
}

#[tokio::test]
async fn junk_lines_and_endless_lines_break_the_connection() {
    let (connection, mut agent, _input) = connected();
    agent.write_all("no message\n".repeat(MAX_JUNK_LINES + 1).as_bytes()).await.unwrap();
    assert_eq!(connection.broken().await, "it writes what is no ACP");
    let (connection, mut agent, _input) = connected();
    let endless = tokio::spawn(async move { while agent.write_all(&[b'x'; 1 << 16]).await.is_ok() {} });
    assert!(connection.broken().await.starts_with("it wrote a line of more than"));
    endless.await.unwrap();
    let (connection, agent, _input) = connected();
    drop(agent);
    connection.ended().await;
    connection.disconnect("first");
    connection.disconnect("second");
    assert_eq!(connection.broken().await, "first");
}
