//! Turns played from their first event to their last, with paused time: no test waits.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::error::{ErrorKind, RuntimeError};
use crate::event::EventKind::{ReasoningDelta, TextDelta, ToolCallUpdate, UsageUpdate};
use crate::event::{EventKind, StopReason};
use crate::rehearsal::fakes::{PlayedTurn, TestSession};
use crate::runtime::AgentRuntime;
use crate::session::{CloseReason, SessionState};
use crate::tool::ToolCall;

fn text(text: &str) -> EventKind {
    TextDelta { text: text.into() }
}

fn done(stop_reason: StopReason) -> EventKind {
    EventKind::Done { stop_reason }
}

#[tokio::test(start_paused = true)]
async fn what_is_said_and_thought_stands_on_lines() {
    let played = TestSession::new().script("say a\nthink b\nsay c\nthink d\nusage 7 9").await;
    let thought = |text: &str| ReasoningDelta { text: text.into() };
    assert_eq!(
        played.events,
        [
            text("a"),
            thought("b"),
            text("\nc"),
            thought("\nd"),
            UsageUpdate { input_tokens: 7, output_tokens: 9 },
            done(StopReason::EndTurn)
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn usage_is_a_quarter_of_the_bytes() {
    let stage = TestSession::new();
    let mut input = stage.input("!say 12345678");
    input.system = "s".repeat(100);
    let played = PlayedTurn::of(stage.backend.run_turn(&stage.handle, input)).await;
    assert!(played.events.contains(&UsageUpdate { input_tokens: 113 / 4, output_tokens: 2 }));
}

#[tokio::test(start_paused = true)]
async fn calls_reach_the_toolbox_and_results_the_text() {
    let stage = TestSession::new();
    let played = stage
        .script(
            "call read {\"path\":\"x\"}\nexpect ok\nsay got $result\ncall exec\nexpect error\nthink $result",
        )
        .await;
    assert_eq!(played.text(), r#"got read: {"path":"x"}"#);
    assert!(played.events.contains(&ReasoningDelta { text: "exec: {}".into() }));
    let calls: Vec<ToolCall> =
        stage.tools.calls.lock().unwrap().iter().map(|(call, _)| call.clone()).collect();
    let call = |id: &str, name: &str, input| ToolCall { id: id.into(), name: name.into(), input };
    assert_eq!(calls, [call("call-1", "read", json!({"path": "x"})), call("call-2", "exec", json!({}))]);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_was_not_expected_ends_the_turn() {
    for (script, message) in [
        ("call exec\nexpect ok\nsay not reached", "Line 2 of the script expected the call to succeed"),
        ("call read\n\nexpect error\nsay not reached", "Line 3 of the script expected the call to fail"),
    ] {
        let played = TestSession::new().script(script).await;
        let (code, said) = played.error();
        assert_eq!((code, played.stop(), played.text()), ("unexpected", StopReason::Error, String::new()));
        assert!(said.starts_with(message), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn arguments_are_streamed_under_the_id_of_the_call() {
    let stage = TestSession::new();
    let json = r#"{"path": "a rather long path of some file"}"#;
    let played = stage.script(&format!("call read\narguments write {json}")).await;
    let mut streamed = String::new();
    let mut pieces = 0;
    for kind in &played.events {
        if let ToolCallUpdate { id, input_delta } = kind {
            assert_eq!(id, "call-2");
            streamed.push_str(input_delta);
            pieces += 1;
        }
    }
    assert_eq!(streamed, json);
    assert!(pieces > 2);
    assert_eq!(stage.tools.calls.lock().unwrap()[1].0.id, "call-2");
}

#[tokio::test(start_paused = true)]
async fn calls_together_take_as_long_as_the_longest() {
    let stage = TestSession::new();
    let began = Instant::now();
    let script =
        "together\ncall a {\"ms\":300}\ncall b {\"ms\":100}\narguments c {\"ms\":200}\nend\nsay $result";
    let played = stage.script(script).await;
    assert_eq!(began.elapsed(), Duration::from_millis(300));
    assert_eq!(played.text(), "a: {\"ms\":300}\nb: {\"ms\":100}\nc: {\"ms\":200}");
    let calls = stage.tools.calls.lock().unwrap();
    let back: Vec<(&str, u128)> = calls.iter().map(|(call, at)| (call.id.as_str(), at.as_millis())).collect();
    assert_eq!(back, [("call-2", 100), ("call-3", 200), ("call-1", 300)]);
}

#[tokio::test(start_paused = true)]
async fn one_failure_fails_all_that_are_together() {
    let together = "together\ncall read\ncall exec\ncall read\nend";
    let stop = async |script: String| TestSession::new().script(&script).await.stop();
    assert_eq!(stop(format!("{together}\nexpect ok")).await, StopReason::Error);
    assert_eq!(stop(format!("{together}\nexpect error")).await, StopReason::EndTurn);
}

#[tokio::test(start_paused = true)]
async fn waiting_and_speaking_slowly_take_their_time() {
    let began = Instant::now();
    let played = TestSession::new().script("wait 2s\nslowly 20ms one two  three\nwait 5ms").await;
    assert_eq!(played.texts(), ["one ", "two  ", "three"]);
    assert_eq!(began.elapsed(), Duration::from_millis(2_000 + 40 + 5));
}

#[tokio::test(start_paused = true)]
async fn repeats_multiply() {
    let played = TestSession::new().script("repeat 3\nsay a\nrepeat 2\nsay b\nend\nend\nsay c").await;
    assert_eq!(played.text(), "a\nb\nb\na\nb\nb\na\nb\nb\nc");
}

#[tokio::test(start_paused = true)]
async fn a_flood_is_as_large_as_it_says() {
    let played = TestSession::new().script("say a\nflood 3000 10\nsay b").await;
    let texts = played.texts();
    assert_eq!((texts.len(), texts[3001]), (3002, "\nb"));
    assert!(texts[1..3001].iter().all(|text| text.len() == 10));
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_does_too_much_is_stopped() {
    for script in [
        "repeat 1000\nrepeat 1000\nflood 100\nend\nend",
        "call a\nrepeat 1000\nrepeat 1000\nrepeat 1000\nexpect ok\nend\nend\nend",
        "flood 100000 65536",
    ] {
        let mut events = TestSession::new().stream(&format!("!{}", script.replace('\n', "\n!")));
        // Only the last events are kept: one of these scripts sends 256 MiB.
        let (mut count, mut last) = (0, VecDeque::new());
        while let Some(event) = events.next().await {
            count += 1;
            last.push_back(event.unwrap().kind);
            last.drain(..last.len().saturating_sub(3));
        }
        assert!(count <= 200_003);
        assert!(matches!(&last[0], EventKind::Error { code, .. } if code == "too_long"), "{:?}", last[0]);
        assert_eq!(last[2], done(StopReason::Error));
    }
}

#[tokio::test(start_paused = true)]
async fn a_script_says_how_it_ends() {
    for (word, reason) in [
        ("end_turn", StopReason::EndTurn),
        ("max_tokens", StopReason::MaxTokens),
        ("refusal", StopReason::Refusal),
    ] {
        let played = TestSession::new().script(&format!("say a\nstop {word}\nsay b")).await;
        assert_eq!((played.text().as_str(), played.stop()), ("a", reason));
    }
    let played = TestSession::new().script("say a\nfail overloaded Try again later.\nsay b").await;
    assert_eq!(played.events, [text("a")]);
    assert_eq!(
        played.failed,
        Some(RuntimeError::new(ErrorKind::from_code("overloaded"), "Try again later."))
    );
}

#[tokio::test(start_paused = true)]
async fn a_panic_ends_the_turn_and_nothing_else() {
    let stage = TestSession::new();
    let panicked = tokio::spawn(PlayedTurn::of(stage.stream("!say a\n!panic Oh no"))).await.unwrap_err();
    assert_eq!(panicked.into_panic().downcast_ref::<String>().unwrap(), "Oh no");
    assert_eq!(stage.backend.sessions.len(), 0);
    assert_eq!(stage.turn("!say b").await.text(), "b");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_wakes_every_wait() {
    for script in [
        "wait 3600s",
        "hang",
        "slowly 3600s a b c",
        "call a {\"ms\":3600000}",
        "repeat 1000\nwait 3600s\nend",
    ] {
        for by_token in [true, false] {
            let stage = TestSession::new();
            let began = Instant::now();
            let later = async {
                sleep(Duration::from_millis(50)).await;
                assert_eq!(stage.backend.status(&stage.handle).await.unwrap().state, SessionState::Running);
                if by_token {
                    stage.cancel.cancel();
                } else {
                    stage.backend.cancel(&stage.handle).await.unwrap();
                }
            };
            let script = format!("{script}\nsay not reached");
            let (played, ()) = tokio::join!(stage.script(&script), later);
            assert_eq!(played.stop(), StopReason::Cancelled, "{script}");
            assert!(!played.text().contains("not"));
            assert_eq!(began.elapsed(), Duration::from_millis(50));
            let status = stage.backend.status(&stage.handle).await.unwrap();
            assert_eq!((status.state, status.backend.as_str()), (SessionState::Cancelled, "rehearsal"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_lets_a_cancel_through() {
    let stage = TestSession::new();
    let cancel = async { stage.cancel.cancel() };
    // On one thread the second future runs only when the first lets it.
    let (played, ()) = tokio::join!(stage.script("flood 100000"), cancel);
    assert_eq!(played.stop(), StopReason::Cancelled);
    assert!(played.events.len() < 100);
}

#[tokio::test(start_paused = true)]
async fn the_deaf_ignore_a_cancel_for_a_minute() {
    let stage = TestSession::new();
    let began = Instant::now();
    let later = async {
        sleep(Duration::from_secs(1)).await;
        stage.cancel.cancel();
    };
    let (played, ()) = tokio::join!(stage.script("deaf\nsay not reached"), later);
    assert_eq!(played.events, [done(StopReason::Cancelled)]);
    assert_eq!(began.elapsed(), Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn a_turn_cancelled_before_it_began_does_nothing() {
    let stage = TestSession::new();
    let stream = stage.stream("!say a");
    stage.backend.cancel(&stage.handle).await.unwrap();
    assert_eq!(PlayedTurn::of(stream).await.events, [done(StopReason::Cancelled)]);
    assert_eq!(stage.turn("!say a").await.stop(), StopReason::EndTurn, "a cancel is for one turn");
    assert_eq!(stage.backend.sessions.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_question_is_answered_in_the_next_turn() {
    let stage = TestSession::new();
    let script = "call a\nrepeat 2\nask Who?\ncall a\nsay $answer, $input\nend\nsay done";
    let first = stage.script(script).await;
    assert_eq!((first.text().as_str(), first.stop()), ("Who?", StopReason::EndTurn));
    assert_eq!(stage.backend.sessions.len(), 1);
    let typed = format!("!{}", script.replace('\n', "\n!"));
    assert_eq!(stage.turn("/play hello").await.text(), format!("/play hello, {typed}\nWho?"));
    assert_eq!(stage.turn("me").await.text(), format!("me, {typed}\ndone"));
    assert!(stage.turn("me").await.text().contains("no model is connected"));
    assert_eq!(stage.backend.sessions.len(), 0);
    let calls = stage.tools.calls.lock().unwrap();
    assert!(calls.iter().all(|(call, _)| call.id == "call-1"), "ids begin anew in each turn");
}

#[tokio::test(start_paused = true)]
async fn a_closed_session_forgets_its_question_and_ends_its_turn() {
    let stage = TestSession::new();
    stage.script("ask Who?\nsay $answer").await;
    stage.backend.close(&stage.handle, CloseReason::Requested).await.unwrap();
    assert_eq!(stage.backend.sessions.len(), 0);
    assert!(stage.turn("me").await.text().contains("no model is connected"));

    let old = stage.stream("!hang");
    stage.backend.close(&stage.handle, CloseReason::Requested).await.unwrap();
    let new = stage.stream("!say a");
    assert_eq!(PlayedTurn::of(old).await.stop(), StopReason::Cancelled);
    assert_eq!(stage.backend.status(&stage.handle).await.unwrap().state, SessionState::Running);
    assert_eq!(PlayedTurn::of(new).await.text(), "a");
}

#[tokio::test(start_paused = true)]
async fn one_turn_at_a_time() {
    let stage = TestSession::new();
    let mut running = stage.stream("!say a");
    assert_eq!(stage.turn("!say b").await.failed.unwrap().code(), "busy");
    while !matches!(running.next().await.unwrap().unwrap().kind, EventKind::Done { .. }) {}
    assert_eq!(stage.turn("!say b").await.text(), "b", "the next may begin as soon as `done` is seen");
    drop(running);
    drop(stage.stream("!hang"));
    assert_eq!(stage.backend.sessions.len(), 0);
}
