//! Recorded and generated streams for tests of the parsers.

use tribune_providers::ApiDialect;
use tribune_testkit::ModelOutput;

/// A stream, with a name that describes it.
pub(crate) struct Recording {
    pub(crate) name: &'static str,
    pub(crate) dialect: ApiDialect,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) fn all() -> Vec<Recording> {
    let rich = ModelOutput::new()
        .thinking("Zuerst 東京 🗼, dann…", "c2lnbmF0dXJl")
        .redacted("ZGF0YQ==")
        .text("Ich schaue nach – 👀.\nZeile zwei")
        .call("a", "read", r#"{"path": "straße 🛣.txt", "n": 1.50}"#)
        .call("b", "list", "{}")
        .usage(100, 20, 40);
    let mut recordings = Vec::new();
    for (dialect, reply) in [(ApiDialect::Anthropic, rich.anthropic()), (ApiDialect::OpenAi, rich.openai())] {
        for (name, reply) in [
            ("plain", reply.clone()),
            ("CRLF, comments", reply.clone().crlf().with_comments("ping 🏓")),
            ("many lines", reply.clone().multiline_data()),
            ("cut", reply.clone().first(9)),
            ("rubbish in the middle", reply.clone().first(5).then("data: {\"choices\":\n\n")),
            ("no text in the middle", reply.first(5).then(b"data: \xff\n\n".as_slice())),
        ] {
            recordings.push(Recording { name, dialect, bytes: reply.bytes() });
        }
    }
    for (name, text) in [
        ("error in the middle", ANTHROPIC_OVERLOADED),
        ("unknown kinds", ANTHROPIC_UNKNOWN),
        ("input with the beginning", ANTHROPIC_COMPATIBLE),
    ] {
        recordings.push(Recording { name, dialect: ApiDialect::Anthropic, bytes: text.into() });
    }
    for (name, text) in [
        ("moonshot", MOONSHOT),
        ("gemini", GEMINI),
        ("ollama", OLLAMA),
        ("openrouter", OPENROUTER),
        ("openrouter, error in the middle", OPENROUTER_ERROR),
    ] {
        recordings.push(Recording { name, dialect: ApiDialect::OpenAiCompatible, bytes: text.into() });
    }
    recordings
}

pub(crate) fn named(name: &str) -> Recording {
    all().into_iter().find(|recording| recording.name == name).unwrap()
}

const ANTHROPIC_OVERLOADED: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_1","role":"assistant","content":[],"usage":{"input_tokens":9,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"I was about to"}}

event: error
data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}

"#;

const ANTHROPIC_UNKNOWN: &str = r#"event: message_start
data: {"type":"message_start","message":{"usage":{"input_tokens":9,"cache_creation_input_tokens":null,"output_tokens":1}}}

event: weather_report
data: {"type":"weather_report","sky":"blue"}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"s1","name":"web_search","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"q\":1}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"signature_delta","signature":"b21pdHRlZA=="}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"text","text":"","citations":[]}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"citations_delta","citation":{"url":"x"}}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"blue"}}

event: content_block_stop
data: {"type":"content_block_stop","index":2}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":9,"output_tokens":12,"server_tool_use":{"web_search_requests":1}}}

event: message_stop
data: {"type":"message_stop"}

"#;

/// A compatible server: no event names, no block ends, no message end, and the input in the start event.
const ANTHROPIC_COMPATIBLE: &str = r#"data:{"type":"message_start","message":{"usage":{"input_tokens":0,"output_tokens":0}}}

data:{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"","name":"read","input":{"path":"x"}}}

data:{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"","name":"list","input":{}}}

data:{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":70,"output_tokens":12}}

"#;

/// Thinking in `reasoning_content`, usage inside the choice.
const MOONSHOT: &str = r#"data: {"id":"cmpl-1","object":"chat.completion.chunk","created":1,"model":"kimi-k1-128k","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}

data: {"id":"cmpl-1","choices":[{"index":0,"delta":{"reasoning_content":"想一想"},"finish_reason":null}]}

data: {"id":"cmpl-1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"functions.read:0","type":"function","function":{"name":"read","arguments":""}}]},"finish_reason":null}]}

data: {"id":"cmpl-1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"path\": \"x\"}"}}]},"finish_reason":null}]}

data: {"id":"cmpl-1","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls","usage":{"prompt_tokens":87,"completion_tokens":11,"total_tokens":98,"cached_tokens":64}}],"system_fingerprint":"fpv0"}

data: [DONE]

"#;

/// Complete calls with equal indexes and empty ids, the finish reason `stop`, a signature, thinking tokens only in the
/// total.
const GEMINI: &str = r#"data: {"choices":[{"delta":{"role":"assistant","tool_calls":[{"extra_content":{"google":{"thought_signature":"CiQB4/H/"}},"function":{"arguments":"{\"path\":\"a\"}","name":"read"},"id":"","index":0,"type":"function"}]},"index":0}],"created":1,"id":"g1","model":"gemini-2.5-pro","object":"chat.completion.chunk"}

data: {"choices":[{"delta":{"role":"assistant","tool_calls":[{"function":{"arguments":"{\"path\":\"b\"}","name":"read"},"id":"","index":0,"type":"function"}]},"finish_reason":"stop","index":0}],"created":1,"id":"g1","usage":{"completion_tokens":20,"prompt_tokens":50,"total_tokens":170}}

data: [DONE]

"#;

/// No index, no `[DONE]`, `reasoning`, and text beside the call.
const OLLAMA: &str = r#"data: {"id":"chatcmpl-9","choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning":"hm"},"finish_reason":null}]}

data: {"id":"chatcmpl-9","choices":[{"index":0,"delta":{"role":"assistant","content":"Let me see."},"finish_reason":null}]}

data: {"id":"chatcmpl-9","choices":[{"index":0,"delta":{"role":"assistant","content":"","tool_calls":[{"id":"call_x","type":"function","function":{"name":"read","arguments":"{\"path\":\"x\"}"}}]},"finish_reason":null}]}

data: {"id":"chatcmpl-9","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":"stop"}]}

"#;

/// Comments, `reasoning` beside `reasoning_details`, null usage in every chunk.
const OPENROUTER: &str = r#": OPENROUTER PROCESSING

: OPENROUTER PROCESSING

data: {"id":"gen-1","provider":"X","choices":[{"index":0,"delta":{"role":"assistant","content":"","reasoning":"Well","reasoning_details":[{"type":"reasoning.text","text":"Well"}]},"finish_reason":null,"native_finish_reason":null}],"usage":null}

data: {"id":"gen-1","provider":"X","choices":[{"index":0,"delta":{"role":"assistant","content":"Yes"},"finish_reason":null}],"usage":null}

data: {"id":"gen-1","provider":"X","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":"stop","native_finish_reason":"stop"}],"usage":null}

data: {"id":"gen-1","provider":"X","choices":[],"usage":{"prompt_tokens":14,"completion_tokens":3,"total_tokens":17,"prompt_tokens_details":{"cached_tokens":4}}}

data: [DONE]

"#;

const OPENROUTER_ERROR: &str = r#"data: {"id":"gen-1","choices":[{"index":0,"delta":{"role":"assistant","content":"Yes, "},"finish_reason":null}]}

data: {"id":"gen-1","error":{"code":502,"message":"Provider disconnected"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}

data: [DONE]

"#;
