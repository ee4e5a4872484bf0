use serde_json::json;

use super::*;

fn of(tool: &str, input: Value) -> String {
    serde_json::to_string(&CallArgs::derive(tool, &input, None)).unwrap()
}

#[test]
fn attributes_are_derived_per_tool() {
    for (tool, input, args) in [
        ("read", json!({"path": "./a/../notes.txt"}), r#"{"path":"notes.txt","outside":false}"#),
        ("write", json!({"path": "../x", "content": "abc"}), r#"{"path":"../x","outside":true,"bytes":3}"#),
        (
            "web_fetch",
            json!({"url": "https://Example.org/secret?q=1"}),
            r#"{"host":"example.org","port":443,"scheme":"https","method":"GET"}"#,
        ),
        (
            "egress",
            json!({"url": "http://a.example:8080/secret?q=1", "method": "POST", "action": "listed"}),
            r#"{"host":"a.example","port":8080,"scheme":"http","method":"POST","action":"listed"}"#,
        ),
        (
            "message",
            json!({"to": "bob", "recipientType": "sender", "template": "thanks", "text": "Hi.", "attachments": []}),
            r#"{"recipient":"bob","recipientType":"sender","template":"thanks","links":false,"attachments":false,"bytes":3}"#,
        ),
        (
            "message",
            json!({"to": "bob", "text": "see a.example", "media": "x.png"}),
            r#"{"recipient":"bob","links":true,"attachments":true,"bytes":13}"#,
        ),
        (
            "memory",
            json!({"action": "set", "key": "k", "value": "vv"}),
            r#"{"bytes":2,"action":"set","name":"k"}"#,
        ),
        ("exec", json!({"command": "rm -rf /"}), r#"{"programs":["?"],"parsed":false,"bytes":8}"#),
        (
            "deploy",
            json!({"path": ["a"], "url": "host", "action": "go", "to": "a@B.org"}),
            r#"{"recipient":"a@b.org","action":"go","unseen":["path","outside","host","port","scheme"]}"#,
        ),
        ("deploy", json!({"path": "ok", "file": "secrets/key"}), r#"{"unseen":["path","outside"]}"#),
        ("deploy", json!({"to": "b@evil.example, a@b.org"}), r#"{"unseen":["recipient"]}"#),
        ("deploy", json!({"url": "https://a@evil.example/"}), r#"{"unseen":["host","port","scheme"]}"#),
        ("read", json!({}), "{}"),
        ("read", json!(null), "{}"),
        ("read", json!([1]), "{}"),
    ] {
        assert_eq!(of(tool, input), args, "{tool}");
    }
    let command = CommandFacts { programs: vec!["ls".into(), "git".into(), "ls".into()], parsed: true };
    let args = CallArgs::derive("exec", &json!({"command": "git x; ls; ls"}), Some(&command));
    assert_eq!((args.programs, args.parsed), (Some(vec!["git".to_owned(), "ls".to_owned()]), Some(true)));
}

#[test]
fn a_call_has_only_the_attributes_of_its_tool() {
    // A value for every key that any tool reads.
    let input = json!({
        "path": "a", "url": "https://a.example/", "method": "GET", "command": "ls", "to": "bob",
        "recipientType": "sender", "template": "t", "text": "x", "content": "x", "query": "x", "attachments": [],
        "action": "list", "name": "n", "arguments": { "a": 1 },
    });
    let tools = [
        "read",
        "search",
        "write",
        "edit",
        "web_fetch",
        EGRESS,
        "web_search",
        "browser",
        "exec",
        "message",
        "send_message",
        "memory",
        "cron",
        "gateway",
        "nodes",
        "spawn",
        LAND,
        MCP,
        MCP_SERVER,
        "deploy",
    ];
    for tool in tools {
        let command = CommandFacts { programs: vec!["ls".into()], parsed: true };
        // The call alone does not say which folder it is in, and only built-in tools have one.
        let is_placed = ["read", "search", "write", "edit"].contains(&tool);
        let folder = is_placed.then(|| "/srv/lib".to_owned());
        let mut args = CallArgs { folder, ..CallArgs::derive(tool, &input, Some(&command)) };
        if tool == "deploy" {
            // The gate looks for addresses if a tool has no manifest.
            args.note_addresses(&input);
        }
        let args = serde_json::to_value(args).unwrap();
        let found = args
            .as_object()
            .unwrap()
            .keys()
            .map(|key| if key == "recipientType" { "recipient_type" } else { key });
        assert_eq!(found.collect::<BTreeSet<_>>(), CallArgs::attributes(tool), "{tool}");
    }
}

#[test]
fn mcp_calls_have_their_names_and_starts_their_program() {
    let call = json!({ "name": "git", "action": "commit", "arguments": { "path": "/etc", "action": "x" } });
    assert_eq!(of(MCP, call), r#"{"bytes":28,"action":"commit","name":"git"}"#);
    let start = |command: &str| {
        let input =
            json!({ "action": "operator", "name": "git", "command": command, "args": ["--key", "k"] });
        of(MCP_SERVER, input)
    };
    let known = r#"{"programs":["npx"],"action":"operator","name":"git"}"#;
    assert_eq!((start("/usr/bin/npx").as_str(), start("npx").as_str()), (known, known));
    for odd in ["", "/usr/bin/", "/bin/a\nb", "/bin/ls ", "/bin/l\u{200b}s"] {
        assert!(start(odd).contains(r#""malformed":true"#), "{odd}");
    }
}

#[test]
fn l5_no_text_of_an_argument_is_in_the_facts() {
    let secret = "correct horse battery staple";
    for tool in ["write", "edit", "exec", "message", "send_message", "memory", "web_search", "web_fetch"] {
        let input = json!({
            "path": "a", "content": secret, "text": secret, "body": secret, "command": secret, "query": secret,
            "value": secret, "url": format!("https://a.example/{secret}?{secret}#{secret}"),
        });
        let args = of(tool, input);
        assert!(!args.contains("horse"), "{tool}: {args}");
    }
}

#[test]
fn l3_an_attribute_that_rules_cannot_read_is_malformed() {
    for (tool, input) in [
        ("read", json!({"path": "x".repeat(5000)})),
        ("read", json!({"path": 7})),
        ("read", json!({"path": ["a"]})),
        ("web_fetch", json!({"url": "https://user@host/"})),
        ("message", json!({"to": "a\nb"})),
        ("message", json!({"to": "a", "recipient": "b"})),
        ("read", json!({"path": "a", "file": "b"})),
        ("memory", json!({"action": "set", "name": "notes", "key": "secrets"})),
        ("memory", json!({"action": "set", "key": " secrets"})),
        ("message", json!({"to": "agent:d\u{200B}ev"})),
        ("message", json!({"to": "Boss <x@evil.example>"})),
        ("deploy", json!({"path": "x".repeat(5000)})),
    ] {
        assert!(CallArgs::derive(tool, &input, None).malformed, "{tool} {input}");
    }
    let many = CommandFacts { programs: (0..33).map(|n| n.to_string()).collect(), parsed: true };
    assert!(CallArgs::derive("exec", &json!({}), Some(&many)).malformed);
}

#[test]
fn l3_a_command_that_is_not_a_string_is_malformed() {
    for input in
        [json!({}), json!({"command": ["sudo", "x"]}), json!({"command": 1}), json!({"command": null})]
    {
        assert!(CallArgs::derive("exec", &input, None).malformed, "{input}");
    }
    assert!(!CallArgs::derive("exec", &json!({"command": "ls"}), None).malformed);
}
