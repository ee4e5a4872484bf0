//! The answer to each kind of message.

use crate::content::{ContentBlock, Message, Resource, Role};
use crate::event::StopReason;
use crate::rehearsal::fakes::{PlayedTurn, TestSession};
use crate::runtime::AgentRuntime;

#[tokio::test]
async fn an_ordinary_message_is_answered_honestly() {
    let played = TestSession::new().turn("What is\nthe time?").await;
    assert_eq!(
        played.text(),
        "This is the rehearsal agent: no model is connected, so nobody thought about your message.\n\n\
         You said:\n\n> What is\n> the time?\n\n\
         Send `/scenes` to see what I can play for you."
    );
    assert!(played.texts().len() > 5, "it is streamed");
    assert_eq!(played.stop(), StopReason::EndTurn);
}

#[tokio::test]
async fn attachments_are_counted() {
    let stage = TestSession::new();
    let mut input = stage.input("$input");
    let (data, mime_type) = (String::new(), String::new());
    let image = ContentBlock::Image { data: data.clone(), mime_type: mime_type.clone() };
    let resource = Resource { uri: "file:///x".into(), mime_type: None, text: None, blob: None };
    input.content.extend([
        image.clone(),
        image,
        ContentBlock::Audio { data, mime_type },
        ContentBlock::Resource { resource },
    ]);
    let message = |role, text: &str| Message { role, content: vec![ContentBlock::text(text)] };
    input.injected_messages = vec![message(Role::User, "earlier")];
    input
        .injected_messages
        .extend((0..12).map(|_| message(Role::Mailbox, &format!("one\n{}", "x".repeat(1_000)))));
    let text = PlayedTurn::of(stage.backend.run_turn(&stage.handle, input)).await.text();
    let mail = format!("- one {}…\n", "x".repeat(196));
    assert!(text.contains("> $input\n\nWith it came 2 images, 1 audio recording, 1 resource.\n\n"), "{text}");
    let expected =
        format!("Before it, 12 messages came from other agents:\n\n{}- and 2 more", mail.repeat(10));
    assert!(text.contains(&expected), "{text}");
}

#[tokio::test]
async fn the_echo_is_bounded_and_nothing_is_no_echo() {
    let text = TestSession::new().turn(&"ä".repeat(100_000)).await.text();
    assert!(text.contains(&format!("> {}…\n", "ä".repeat(500))));
    assert!(TestSession::new().turn(" \n").await.text().contains("You sent no text."));
}

#[tokio::test]
async fn scenes_are_listed_and_the_nearest_named() {
    let stage = TestSession::new();
    let list = stage.turn(" /scenes\n").await.text();
    assert!(list.contains("\n- `hello`: Says hello, and what this is\n"), "{list}");
    let played = stage.turn("/play denied-shel").await;
    assert_eq!(
        played.text(),
        format!("There is no scene `denied-shel`. Did you mean `/play denied-shell`?\n\n{list}")
    );
    assert_eq!(played.stop(), StopReason::EndTurn);
    assert!(stage.turn("/play zzzzzzzzz").await.text().starts_with("There is no scene `zzzzzzzzz`.\n\n"));
    assert!(stage.turn("/play").await.text().starts_with("Which scene?"));
    assert!(stage.turn("/playing").await.text().contains("> /playing"));
    assert!(stage.turn("/play hello").await.text().starts_with("Hello."));
}

#[tokio::test]
async fn a_bad_script_is_an_error_that_says_where() {
    let played = TestSession::new().turn("!say a\n\n  !slwoly 2s b").await;
    assert_eq!(
        played.error(),
        (
            "bad_script",
            "The script is wrong in line 3, column 4: `slwoly` is not a command. Did you mean `slowly`?"
        )
    );
    assert_eq!((played.text().as_str(), played.stop()), ("", StopReason::Error));
}

#[tokio::test]
async fn one_line_without_the_mark_makes_an_ordinary_message() {
    assert!(TestSession::new().turn("!say a\nsay b").await.text().contains("no model is connected"));
    assert_eq!(TestSession::new().turn("! say !a\n\n!# note").await.text(), "!a");
}
