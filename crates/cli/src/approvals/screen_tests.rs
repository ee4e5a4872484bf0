use serde_json::json;

use super::*;

fn row(id: &str) -> Value {
    json!({ "id": id, "agent_id": "main", "tool": "exec", "what": "ls", "created_at": "", "expires_at": "" })
}

fn full(id: &str, command: &str) -> Value {
    let mut row = row(id);
    row["state"] = "pending".into();
    row["patterns"] = json!(["git push", "git *"]);
    row["action"] = json!({ "input": { "command": command } });
    row
}

/// A screen with two calls, the first selected, and a time at which it can be decided.
fn screen() -> (Screen, Instant) {
    let began = Instant::now();
    let mut screen = Screen::new(Paint::OFF, ScreenSize { columns: 100, rows: 40 }, began);
    screen.refresh(vec![row("aaaaaaaa"), row("bbbbbbbb")], 2, began);
    screen.show(full("aaaaaaaa", "ls"));
    (screen, began + SETTLE_TIME)
}

fn decided(id: &str, decision: &'static str) -> KeyAction {
    KeyAction::Decide { id: id.to_owned(), decision, pattern: None }
}

#[test]
fn one_key_decides_the_selected_call() {
    for (key, decision) in [('a', "allow_once"), ('s', "allow_session"), ('d', "deny"), ('D', "deny_stop")] {
        let (mut screen, now) = screen();
        assert_eq!(screen.key(Key::Char(key), now), decided("aaaaaaaa", decision));
    }
    let (mut screen, now) = screen();
    assert_eq!(screen.key(Key::Down, now), KeyAction::Nothing);
    assert_eq!(screen.key(Key::Char('a'), now), KeyAction::Nothing, "its card is not fetched yet");
    assert_eq!(screen.key(Key::Char('d'), now), decided("bbbbbbbb", "deny"), "a call can be denied unseen");
    assert_eq!(screen.key(Key::Char('q'), now), KeyAction::Quit);
    assert_eq!(screen.key(Key::Quit, now), KeyAction::Quit);
}

#[test]
fn selection_stays_with_its_call_and_blocks_keys_after_it_moved() {
    let (mut screen, now) = screen();
    screen.refresh(vec![row("00000000"), row("aaaaaaaa")], 2, now);
    assert_eq!(screen.selected(), Some("aaaaaaaa"));
    // Another approver decided it: the next call is selected, and cannot be decided at once.
    screen.refresh(vec![row("00000000"), row("cccccccc")], 2, now);
    assert_eq!(screen.selected(), Some("cccccccc"));
    screen.show(full("cccccccc", "rm"));
    assert_eq!(screen.key(Key::Char('a'), now), KeyAction::Nothing);
    assert!(screen.lines().iter().any(|line| line.contains("look again")));
    assert_eq!(screen.key(Key::Char('a'), now + SETTLE_TIME), decided("cccccccc", "allow_once"));
    // A repeated key decides once.
    assert_eq!(screen.key(Key::Char('a'), now + SETTLE_TIME), KeyAction::Nothing);
    screen.refresh(Vec::new(), 0, now);
    assert_eq!(screen.selected(), None);
    assert_eq!(screen.key(Key::Char('a'), now + SETTLE_TIME * 3), KeyAction::Nothing);
}

#[test]
fn long_card_must_be_scrolled_to_its_end_before_allowing() {
    let (mut screen, now) = screen();
    let long = format!("ls\n{}rm -rf /", "echo\n".repeat(100));
    screen.show(full("aaaaaaaa", &long));
    assert_eq!(screen.key(Key::Char('a'), now), KeyAction::Nothing);
    assert!(screen.lines().iter().any(|line| line.contains("scroll to its end")));
    for _ in 0..200 {
        assert_eq!(screen.key(Key::Char('j'), now), KeyAction::Nothing);
    }
    assert!(screen.lines().iter().any(|line| line.contains("rm -rf /")), "{:#?}", screen.lines());
    assert_eq!(screen.key(Key::Char('a'), now), decided("aaaaaaaa", "allow_once"));
}

#[test]
fn pattern_is_picked_from_the_list() {
    let (mut screen, now) = screen();
    assert_eq!(screen.key(Key::Char('p'), now), KeyAction::Nothing);
    assert_eq!(screen.key(Key::Char('a'), now), KeyAction::Nothing, "letters decide nothing here");
    screen.key(Key::Down, now);
    screen.key(Key::Down, now);
    assert!(screen.lines().iter().any(|line| line.starts_with("› git *")), "{:#?}", screen.lines());
    let pattern = Some("git *".to_owned());
    let effect = KeyAction::Decide { id: "aaaaaaaa".to_owned(), decision: "allow_pattern", pattern };
    assert_eq!(screen.key(Key::Enter, now), effect);
}

#[test]
fn lines_fit_every_screen_size() {
    for (columns, rows) in [(1, 1), (20, 5), (80, 24), (200, 100)] {
        let (mut screen, now) = screen();
        screen.resize(ScreenSize { columns, rows });
        screen.show(full("aaaaaaaa", &"long ".repeat(500)));
        for key in [Key::Back, Key::Enter, Key::Down, Key::Back, Key::Char('p')] {
            screen.key(key, now);
            let lines = screen.lines();
            assert_eq!(lines.len(), rows, "{columns}x{rows}");
            assert!(
                lines.iter().all(|line| line.chars().count() <= columns.max(1)),
                "{columns}x{rows} {lines:#?}"
            );
        }
    }
}
