//! Every command, every mistake with its place, and that no text makes the parser panic.

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::error::{ErrorKind, RuntimeError};
use crate::event::{StopReason, Usage};
use crate::rehearsal::keyword::Keyword;
use crate::rehearsal::script::ExpectedResult;
use crate::rehearsal::template::TextTemplate;

const EVERY_COMMAND: &str = r#"# every command
say Hello,  world
  think Let me see
slowly 20ms one two

call read {"path":"x"}
expect ok
arguments exec {"a": 1}
expect error
together
	call read
	arguments list []
end
repeat 3
  wait 2s
  repeat 2
    flood 5
  end
end
flood 5 7
ask Who?
usage 3 4
stop max_tokens
fail over_2 It is over.
hang
deaf
panic Oh no
"#;

fn call(tool: &str, input: serde_json::Value, streamed: Option<&str>) -> ScriptCall {
    ScriptCall { tool: tool.into(), input, streamed: streamed.map(Into::into) }
}

#[test]
fn every_command_is_read() {
    let text = TextTemplate::parse;
    let expected = vec![
        ScriptStep::Say(text("Hello,  world")),
        ScriptStep::Think(text("Let me see")),
        ScriptStep::Slowly { pause: Duration::from_millis(20), text: text("one two") },
        ScriptStep::Calls(vec![call("read", json!({"path": "x"}), None)]),
        ScriptStep::Expect { outcome: ExpectedResult::Ok, line: 7 },
        ScriptStep::Calls(vec![call("exec", json!({"a": 1}), Some(r#"{"a": 1}"#))]),
        ScriptStep::Expect { outcome: ExpectedResult::Error, line: 9 },
        ScriptStep::Calls(vec![call("read", json!({}), None), call("list", json!([]), Some("[]"))]),
        ScriptStep::Repeat { times: 3 },
        ScriptStep::Wait(Duration::from_secs(2)),
        ScriptStep::Repeat { times: 2 },
        ScriptStep::Flood { deltas: 5, bytes: 8 },
        ScriptStep::Again,
        ScriptStep::Again,
        ScriptStep::Flood { deltas: 5, bytes: 7 },
        ScriptStep::Ask(text("Who?")),
        ScriptStep::Usage(Usage { input_tokens: 3, output_tokens: 4 }),
        ScriptStep::Stop(StopReason::MaxTokens),
        ScriptStep::Fail(RuntimeError::new(ErrorKind::from_code("over_2"), "It is over.")),
        ScriptStep::Hang,
        ScriptStep::Deaf,
        ScriptStep::Panic("Oh no".into()),
    ];
    assert_eq!(parse(EVERY_COMMAND).unwrap().steps, expected);
    for word in Keyword::WORDS {
        assert!(EVERY_COMMAND.lines().any(|line| line.trim().split(' ').next() == Some(word)), "{word}");
    }
}

#[test]
fn windows_line_ends_and_an_empty_script_are_fine() {
    assert_eq!(parse("say a\r\nsay b\r\n").unwrap(), parse("say a\nsay b").unwrap());
    assert_eq!(parse("").unwrap().steps, []);
}

#[test]
fn mistakes_say_where_and_what_instead() {
    for (script, line, column, message) in [
        ("say a\n sya b", 2, 2, "`sya` is not a command. Did you mean `say`?"),
        ("Say b", 1, 1, "`Say` is not a command. Did you mean `say`?"),
        ("xylophone", 1, 1, "`xylophone` is not a command. Use one of: say, think, slowly,"),
        ("say", 1, 4, "this needs a text. Write it as `say TEXT`."),
        ("think  ", 1, 6, "this needs a text."),
        ("ask", 1, 4, "this needs a question."),
        ("slowly", 1, 7, "this needs a time."),
        ("slowly 20ms", 1, 12, "this needs a text. Write it as `slowly 20ms TEXT`."),
        ("panic", 1, 6, "this needs a text."),
        ("call", 1, 5, "this needs the name of a tool. Write it as `call TOOL JSON`."),
        ("call read {x}", 1, 12, "this is not JSON: key must be a string."),
        ("arguments ä {\"ä\": nul}", 1, 22, "this is not JSON: expected ident."),
        ("call read {} x", 1, 14, "this is not JSON: trailing characters."),
        ("call read {", 1, 11, "this is not JSON: EOF while parsing an object."),
        ("call a\nexpect", 2, 7, "this needs `ok` or `error`."),
        ("call a\nexpect okay", 2, 8, "`okay` is not an outcome. Did you mean `ok`?"),
        ("call a\nexpect eror", 2, 8, "`eror` is not an outcome. Did you mean `error`?"),
        ("call a\nexpect ok now", 2, 11, "nothing may follow here. Write it as `expect ok`."),
        ("expect ok", 1, 1, "nothing was called yet. Put a `call` before this."),
        ("wait 200", 1, 6, "`200` is not a time. Write it as `200ms` or `2s`, at most `3600s`."),
        ("wait 3601s", 1, 6, "`3601s` is not a time."),
        ("wait 3600001ms", 1, 6, "`3600001ms` is not a time."),
        ("wait +1s", 1, 6, "`+1s` is not a time."),
        ("wait ms", 1, 6, "`ms` is not a time."),
        ("wait 99999999999999999999s", 1, 6, "`99999999999999999999s` is not a time."),
        ("wait 1s 2s", 1, 9, "nothing may follow here."),
        ("flood", 1, 6, "this needs how many deltas. Write it as `flood DELTAS BYTES`."),
        ("flood 0", 1, 7, "`0` is not a number from 1 to 100000."),
        ("flood 100001", 1, 7, "`100001` is not a number from 1 to 100000."),
        ("flood 1 65537", 1, 9, "`65537` is not a number from 1 to 65536."),
        ("flood 1 1 1", 1, 11, "nothing may follow here."),
        ("repeat 1001\nend", 1, 8, "`1001` is not a number from 1 to 1000."),
        ("repeat many\nend", 1, 8, "`many` is not a number from 1 to 1000."),
        ("repeat 2\n  # nothing\nend", 1, 1, "this block is empty."),
        ("together\nend", 1, 1, "this block is empty."),
        ("say a\n repeat 2\nsay b", 2, 2, "this block does not end."),
        ("repeat 2\nrepeat 2\nsay b\nend", 1, 1, "this block does not end."),
        ("say a\nend", 2, 1, "there is no block to end here."),
        ("together\n  say a\nend", 2, 3, "only `call` and `arguments` may stand in `together`."),
        ("together\nrepeat 2", 2, 1, "only `call` and `arguments`"),
        ("together\ntogether", 2, 1, "only `call` and `arguments`"),
        ("hang on", 1, 6, "nothing may follow here. Write it as `hang`."),
        ("usage 1", 1, 8, "this needs the tokens that came out. Write it as `usage IN OUT`."),
        ("usage 1 -1", 1, 9, "`-1` is not a number from 0 to 4294967295."),
        ("stop", 1, 5, "this needs a reason."),
        ("stop maxtokens", 1, 6, "`maxtokens` is not a reason. Did you mean `max_tokens`?"),
        ("stop cancelled", 1, 6, "`cancelled` is not a reason. Use one of: end_turn, max_tokens, refusal."),
        ("fail Overloaded x", 1, 6, "`Overloaded` is not a code."),
        ("fail overloaded", 1, 16, "this needs a message. Write it as `fail CODE MESSAGE`."),
    ] {
        let error = parse(script).unwrap_err();
        assert_eq!((error.place.line, error.place.column), (line, column), "{script:?}: {error}");
        assert!(error.problem.to_string().starts_with(message), "{script:?}: {error}");
        assert!(error.to_string().starts_with(&format!("line {line}, column {column}: ")));
    }
}

#[test]
fn scripts_have_bounds() {
    let problem = |script: &str| parse(script).unwrap_err().problem;
    assert_eq!(problem(&format!("say {}", "x".repeat(MAX_SCRIPT_BYTES))), ScriptProblem::TooManyBytes);
    assert!(parse(&"hang\n".repeat(MAX_LINES)).is_ok());
    assert_eq!(problem(&"hang\n".repeat(MAX_LINES + 1)), ScriptProblem::TooManyLines);

    let nested = |depth| format!("{}hang\n{}", "repeat 2\n".repeat(depth), "end\n".repeat(depth));
    assert!(parse(&nested(MAX_REPEAT_DEPTH)).is_ok());
    assert_eq!(problem(&nested(MAX_REPEAT_DEPTH + 1)), ScriptProblem::TooDeep);

    let together = |calls| format!("together\n{}end", "call a\n".repeat(calls));
    assert!(parse(&together(MAX_TOGETHER)).is_ok());
    assert_eq!(problem(&together(MAX_TOGETHER + 1)), ScriptProblem::TooManyTogether);

    assert_eq!(problem(&format!("call {}", "x".repeat(65))), ScriptProblem::LongTool);
    let deep = format!("call a {}", "[".repeat(60_000));
    assert!(matches!(problem(&deep), ScriptProblem::Json(_)));
}

#[test]
fn a_message_repeats_little_and_moves_no_cursor() {
    let message = parse(&format!("\u{1b}[2J{}", "x".repeat(60_000))).unwrap_err().to_string();
    assert!(message.len() < 400 && !message.contains('\u{1b}'), "{message}");
}

#[test]
fn no_text_makes_the_parser_panic() {
    const ODD: [&str; 12] =
        ["", " ", "\n", "$", "ä", "{", "\"", "end\n", "\u{0}", "99999999999", "\u{2028}", "together\n"];
    // Xorshift: the same texts on every run.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let (mut good, mut bad) = (0, 0);
    for _ in 0..20_000 {
        let mut script = EVERY_COMMAND.to_owned();
        for _ in 0..=random(4) {
            let from = script.floor_char_boundary(random(script.len() + 1));
            let to = script.ceil_char_boundary(from + random(6)).min(script.len());
            script.replace_range(from..to, ODD[random(ODD.len())]);
        }
        match parse(&script) {
            Ok(_) => good += 1,
            Err(error) => {
                bad += 1;
                let lines: Vec<&str> = script.lines().collect();
                let width = lines[error.place.line - 1].chars().count();
                assert!(error.place.column <= width + 1, "{script:?}: {error}");
                assert!(!error.to_string().is_empty());
            }
        }
    }
    assert!(good > 100 && bad > 100, "{good} good, {bad} bad");
}
