use super::*;

fn parse(text: &str) -> Result<ToolManifest, String> {
    ToolManifest::parse("manifests/deploy.json", "deploy", text).map_err(|errors| said(&errors))
}

fn said(errors: &[TextError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// The specified values of the ten tools, key by key.
#[test]
fn the_ten_tools_have_the_specified_values() {
    let agreed = [
        (
            "exec",
            "Shell Execution",
            r#"["proc:exec","fs:read","fs:write","net:http"]"#,
            "critical",
            "owner",
            "verified",
        ),
        ("read", "File Read", r#"["fs:read"]"#, "low", "community", "verified"),
        ("write", "File Write", r#"["fs:write"]"#, "medium", "verified", "verified"),
        ("web_fetch", "Web Fetch", r#"["net:https"]"#, "medium", "community", "untrusted"),
        ("web_search", "Web Search", r#"["net:https"]"#, "medium", "community", "untrusted"),
        ("message", "Send Message", r#"["message:send"]"#, "high", "owner", "verified"),
        ("gateway", "Gateway Control", r#"["system:admin"]"#, "critical", "owner", "verified"),
        ("cron", "Cron Scheduler", r#"["system:schedule"]"#, "high", "owner", "verified"),
        ("browser", "Browser Control", r#"["net:https","fs:read"]"#, "high", "verified", "untrusted"),
        ("nodes", "Node Control", r#"["device:control"]"#, "high", "owner", "verified"),
    ];
    for (id, name, capabilities, risk, min, output) in agreed {
        let own = ToolManifest::built_in(id).unwrap();
        let listed = serde_json::to_string(&own.capabilities).unwrap();
        assert_eq!(
            (own.name.as_str(), listed.as_str(), own.risk_level.as_str()),
            (name, capabilities, risk),
            "{id}"
        );
        assert_eq!((own.min_input_trust.as_str(), own.output_trust.as_str()), (min, output), "{id}");
    }
    assert_eq!(ToolManifest::all_built_in().count(), 20);
    assert!(ToolManifest::all_built_in().map(|own| own.id).is_sorted_by(|a, b| a < b));
}

#[test]
fn ways_out_and_private_readers_are_known() {
    let with = |outside| {
        let out = ToolManifest::all_built_in().filter(|own| own.is_way_out(outside));
        out.map(|own| own.id).collect::<Vec<_>>()
    };
    let inside = [
        "browser",
        "cron",
        "egress",
        "exec",
        "gateway",
        "mcp",
        "message",
        "nodes",
        "send_message",
        "spawn",
        "web_fetch",
        "web_search",
    ];
    assert_eq!(with(false), inside);
    assert_eq!(
        with(true).len(),
        inside.len() + 4,
        "edit, landing, mcp_server and write, when outside the workspace"
    );
    let private: Vec<_> =
        ToolManifest::all_built_in().filter(ToolManifest::reads_private).map(|own| own.id).collect();
    assert_eq!(private, ["browser", "exec", "mcp", "mcp_server", "memory", "nodes", "read", "search"]);
}

#[test]
fn a_manifest_is_read() {
    let text = r#"{"id":"deploy","name":"Deploy","capabilities":["proc:exec"],"riskLevel":"high","minInputTrust":"owner","outputTrust":"verified"}"#;
    let own = parse(text).unwrap();
    assert_eq!(
        (own.effect, own.risk_level),
        (ToolEffect::SideEffect, Risk::High),
        "no word is the strictest"
    );
    let again = serde_json::to_string(&own).unwrap();
    assert_eq!(parse(&again).unwrap(), own);
    assert!(again.ends_with(r#""effect":"side_effect"}"#), "{again}");
}

#[test]
fn refusals_say_where_and_what() {
    let text = |key: &str, value: &str| {
        let mut keys = vec![
            ("id", "\"deploy\""),
            ("name", "\"Deploy\""),
            ("capabilities", "[]"),
            ("riskLevel", "\"low\""),
            ("minInputTrust", "\"owner\""),
            ("outputTrust", "\"owner\""),
        ];
        keys.retain(|(own, _)| *own != key);
        keys.push((key, value));
        keys.iter().map(|(key, value)| format!("{key}: {value},\n")).collect::<String>()
    };
    for (key, value, said) in [
        (
            "riskLvl",
            "1",
            "manifests/deploy.json:8:1: unknown key `riskLvl`: did you mean `riskLevel`? The keys here are id, name, capabilities, riskLevel, minInputTrust, outputTrust, effect",
        ),
        (
            "riskLevel",
            "\"hgh\"",
            "manifests/deploy.json:7:12: `riskLevel` is `hgh`: did you mean `high`? The words are low, medium, high, critical",
        ),
        (
            "capabilities",
            "[\"fs:raed\"]",
            "manifests/deploy.json:7:16: `capabilities[0]` is `fs:raed`: did you mean `fs:read`? The words are fs:read, fs:write, proc:exec, net:http, net:https, message:send, message:mail, memory:read, memory:write, agent:spawn, system:admin, system:schedule, device:control",
        ),
        (
            "id",
            "\"other\"",
            "manifests/deploy.json:7:1: `id` is `other`, but the file is named for `deploy`: rename one of them",
        ),
        (
            "id",
            "\"a b\"",
            "manifests/deploy.json:7:1: `id` is `a b`, which cannot name a tool: use letters, digits, `_` and `-`, at most 64",
        ),
        (
            "name",
            "\"a\\nb\"",
            "manifests/deploy.json:7:1: `name` is not a display name: write one line of at most 128 bytes",
        ),
        ("name", "1", "manifests/deploy.json:7:7: `name` has the wrong type: write a string in quotes"),
    ] {
        assert_eq!(parse(&format!("{{\n{}}}", text(key, value))).unwrap_err(), said);
    }
    let missing = parse("{ id: \"deploy\" }").unwrap_err();
    for key in ["name", "capabilities", "riskLevel", "minInputTrust", "outputTrust"] {
        let line = format!("manifests/deploy.json:1:1: the file: the key `{key}` is missing: add it");
        assert!(missing.lines().any(|said| said == line), "{missing}");
    }
    let twice = parse(&format!("{{\n{} id: \"x\" }}", text("id", "\"deploy\""))).unwrap_err();
    assert_eq!(twice, "manifests/deploy.json:8:2: `id` is given twice: remove one of them");
    let broken = parse("{ id: ").unwrap_err();
    assert!(broken.contains("the file ends in the middle of a value: complete it"), "{broken}");
    let large = parse(&" ".repeat(MAX_MANIFEST_BYTES + 1)).unwrap_err();
    assert!(large.contains("shorten it"), "{large}");
}

#[test]
fn l3_a_built_in_manifest_can_only_be_made_stricter() {
    let with = |change: fn(&mut ToolManifest)| {
        let mut own = ToolManifest::built_in("write").unwrap();
        change(&mut own);
        let text = serde_json::to_string(&own).unwrap();
        ToolManifest::parse("manifests/write.json", "write", &text)
            .map_err(|errors| errors[0].message.clone())
    };
    assert!(with(|_| {}).is_ok());
    assert!(with(|own| own.min_input_trust = Trust::Owner).is_ok());
    assert!(with(|own| own.effect = ToolEffect::SideEffect).is_ok());
    assert!(with(|own| own.capabilities.push(Capability::NetHttps)).is_ok());
    for looser in [
        (|own| own.min_input_trust = Trust::Untrusted) as fn(&mut ToolManifest),
        |own| own.effect = ToolEffect::ReadOnly,
        |own| own.capabilities.clear(),
        |own| own.risk_level = Risk::Low,
        |own| own.output_trust = Trust::Owner,
    ] {
        let refused = with(looser).unwrap_err();
        assert!(refused.contains("is looser than the built-in manifest of `write`, which has"), "{refused}");
    }
}
