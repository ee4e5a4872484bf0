use std::collections::BTreeSet;

use tribune_providers::RequestTimeouts;

use super::*;
use crate::hook_spec::{HookIsolation, HookPoint, HookTransport};

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse("config.json5", text)
}

fn refusal(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn the_example_is_the_default() {
    assert_eq!(parse(EXAMPLE).unwrap(), Config::default());
    assert_eq!(parse("{}").unwrap(), Config::default());
    assert_eq!(parse("{gateway: {}, log: {},}").unwrap(), Config::default());
}

/// The valid names, as the parser lists them in its error.
fn names(text: &str) -> Vec<String> {
    let said = refusal(text);
    let listed = said.rsplit_once("keys here are ").unwrap().1;
    listed.split(", ").map(str::to_owned).collect()
}

#[test]
fn the_example_shows_every_key() {
    let sections = names("{_: 1}");
    assert_eq!(
        sections,
        [
            "gateway",
            "sessions",
            "transcript",
            "log",
            "redact",
            "sandbox",
            "workspaces",
            "egress",
            "webSearch",
            "hooks",
            "models",
            "spend",
            "canary",
            "cliAgents"
        ]
    );
    let mut keys = BTreeSet::new();
    for section in sections {
        if !["sandbox", "hooks"].contains(&section.as_str()) {
            keys.extend(names(&format!("{{{section}: {{_: 1}}}}")));
        }
        keys.insert(section);
    }
    assert_eq!(keys.len(), 51, "{keys:?}");
    for key in keys {
        assert!(EXAMPLE.lines().any(|line| line.trim_start().starts_with(&format!("{key}: "))), "{key}");
    }
}

#[test]
fn values_are_parsed() {
    let config = parse(
        r#"{
            gateway: {
                address: "[::1]:0", hosts: ["Tribune.example.org", "[::1]:80"],
                origins: ["https://Tribune.example.org:443", "tauri://localhost", "http://a:443"],
                anonymous: 'default_mandate', maxConnections: 0x10, maxMessageBytes: 1024, idleSeconds: 5, drainSeconds: 0,
            },
            "sessions": {ttlMinutes: 43200, queue: 1024, maxOpen: 1, turnMinutes: 1440},
            transcript: {enabled: false, maxBytes: 1073741824, maxTurns: 1},
            log: {level: "debug", maxBytes: 65536, files: 100}, // done
            redact: {emails: true, phones: true},
            sandbox: "off",
            workspaces: { maxBytes: 1048576, hide: [".env", "/keys/*.pem"] },
            egress: {mode: "public", allow: ["Example.org:443", "[::1]:80"], deny: ["10.0.0.1", "a.example:1"]},
            webSearch: {endpoint: "http://127.0.0.1:8888/search"},
            hooks: [
                {on: "before_tool_call", command: ["/bin/check", "-x"], reads: ["/opt/lists"], timeoutMs: 10},
                {on: "gateway_start", url: "http://[::1]:9000/up"},
            ],
            canary: {every: "30m", untried: ["mine"]},
            cliAgents: {maxRunning: 3},
        }"#,
    );
    assert_eq!(
        config.unwrap(),
        Config {
            gateway: GatewayConfig {
                address: "[::1]:0".parse().unwrap(),
                hosts: vec!["tribune.example.org".into(), "[::1]:80".into()],
                origins: vec![
                    "https://tribune.example.org".into(),
                    "tauri://localhost".into(),
                    "http://a:443".into()
                ],
                anonymous: Anonymous::DefaultMandate,
                max_connections: 16,
                max_message_bytes: 1024,
                idle: Duration::from_secs(5),
                drain: Duration::ZERO,
            },
            sessions: SessionsConfig {
                ttl: Duration::from_secs(30 * 24 * 3600),
                queue: 1024,
                max_open: 1,
                turn: Duration::from_secs(24 * 3600),
            },
            transcript: TranscriptConfig { enabled: false, max_bytes: 1 << 30, max_turns: 1 },
            log: LogConfig { level: LogLevel::Debug, max_bytes: 65_536, files: 100 },
            redact: RedactConfig { emails: true, phones: true },
            sandbox: Sandbox::Off,
            workspaces: WorkspacesConfig {
                max_bytes: 1 << 20,
                hide: vec![".env".into(), "/keys/*.pem".into()]
            },
            egress: EgressConfig {
                mode: EgressMode::Public,
                allow: vec!["example.org:443".parse().unwrap(), "[::1]:80".parse().unwrap()],
                deny: vec!["10.0.0.1".parse().unwrap(), "a.example:1".parse().unwrap()],
                agents: Default::default(),
                unlisted: Default::default(),
            },
            web_search: WebSearchConfig { endpoint: Some("http://127.0.0.1:8888/search".parse().unwrap()) },
            hooks: vec![
                HookSpec {
                    on: HookPoint::BeforeToolCall,
                    reach: HookTransport::Command(
                        vec!["/bin/check".into(), "-x".into()],
                        HookIsolation::Sandbox { reads: vec!["/opt/lists".into()] },
                    ),
                    timeout: Duration::from_millis(10),
                },
                HookSpec {
                    on: HookPoint::GatewayStart,
                    reach: HookTransport::Url("http://[::1]:9000/up".parse().unwrap()),
                    timeout: Duration::from_secs(5),
                },
            ],
            models: Config::default().models,
            spend: Config::default().spend,
            canary: CanaryConfig { every: Some(Duration::from_mins(30)), untried: vec!["mine".to_owned()] },
            cli_agents: CliAgentsConfig { max_running: 3 },
        }
    );
}

#[test]
fn unknown_keys_name_the_nearest() {
    for (text, said) in [
        (
            "{\n  gatway: {},\n}",
            "config.json5:2:3: unknown key `gatway`: did you mean `gateway`? The keys here are gateway, sessions, transcript, log, redact, sandbox, workspaces, egress, webSearch, hooks, models, spend, canary, cliAgents",
        ),
        (
            "{\n  gateway: {\n    /* ü */ \"adress\": 1 } }",
            "config.json5:3:13: unknown key `gateway.adress`: did you mean `address`? The keys here are address, hosts, origins, anonymous, maxConnections, maxMessageBytes, idleSeconds, drainSeconds",
        ),
        (
            "{sessions: {ttl_minutes: 1}}",
            "config.json5:1:13: unknown key `sessions.ttl_minutes`: did you mean `ttlMinutes`? The keys here are ttlMinutes, queue, maxOpen, turnMinutes",
        ),
        (
            "{sessions: {ttlMins: 1}}",
            "config.json5:1:13: unknown key `sessions.ttlMins`: did you mean `ttlMinutes`? The keys here are ttlMinutes, queue, maxOpen, turnMinutes",
        ),
        (
            "{gateway: {port: 1}}",
            "config.json5:1:12: unknown key `gateway.port`: did you mean `address`? The keys here are address, hosts, origins, anonymous, maxConnections, maxMessageBytes, idleSeconds, drainSeconds",
        ),
        (
            "{log: {colour: true}}",
            "config.json5:1:8: unknown key `log.colour`: the keys here are level, maxBytes, files",
        ),
        (
            "{log: {'`, expected `x': true}}",
            "config.json5:1:8: unknown key `log.`, expected `x`: the keys here are level, maxBytes, files",
        ),
    ] {
        assert_eq!(refusal(text), said);
    }
}

#[test]
fn invalid_values_name_their_path_and_the_valid_values() {
    for (text, said) in [
        (
            "{gateway: {\n  maxConnections: 0 }}",
            "2:19: `gateway.maxConnections` is 0: use a whole number from 1 to 65536",
        ),
        (
            "{gateway: {maxConnections: 65537}}",
            "1:28: `gateway.maxConnections` is 65537: use a whole number from 1 to 65536",
        ),
        ("{sessions: {queue: -1}}", "1:20: `sessions.queue` is -1: use a whole number from 1 to 1024"),
        ("{sessions: {queue: 1.5}}", "1:20: `sessions.queue` is 1.5: use a whole number from 1 to 1024"),
        ("{sessions: {queue: NaN}}", "1:20: `sessions.queue` is NaN: use a whole number from 1 to 1024"),
        (
            "{sessions: {queue: 99999999999999999999}}",
            "1:20: `sessions.queue` is 99999999999999999999: use a whole number from 1 to 1024",
        ),
        ("{sessions: {queue: '8'}}", "1:20: `sessions.queue` has the wrong type: write a number"),
        ("{sessions: {queue: null}}", "1:20: `sessions.queue` has the wrong type: write a number"),
        ("{log: {level: 1}}", "1:15: `log.level` has the wrong type: write a string in quotes"),
        (
            "{transcript: {enabled: 1}}",
            "1:24: `transcript.enabled` has the wrong type: write `true` or `false`",
        ),
        ("{log: []}", "1:7: `log` has the wrong type: write an object in `{ }`"),
        ("{gateway: {hosts: 'a'}}", "1:19: `gateway.hosts` has the wrong type: write a list in `[ ]`"),
        (
            "{gateway: {hosts: ['a', 1]}}",
            "1:25: `gateway.hosts[1]` has the wrong type: write a string in quotes",
        ),
        ("[]", "1:1: the configuration has the wrong type: write an object in `{ }`"),
        (
            "{log: {level: 'wran'}}",
            "1:15: `log.level` is `wran`: did you mean \"warn\"? Use one of \"error\", \"warn\", \"info\", \"debug\"",
        ),
        (
            "{gateway: {anonymous: 'yes'}}",
            "1:23: `gateway.anonymous` is `yes`: use one of \"deny\", \"default_mandate\"",
        ),
        (
            "{gateway: {address: 'localhost:1'}}",
            "1:21: `gateway.address` is `localhost:1`, which is not an address with a port: write it like \"127.0.0.1:18789\"",
        ),
        (
            "{gateway: {address: '0.0.0.0:18789'}}",
            "1:21: `gateway.address` is `0.0.0.0:18789`, which other machines can reach: keep a loopback address such as \"127.0.0.1:18789\", and put a reverse proxy with TLS in front for other machines",
        ),
        (
            "{gateway: {hosts: ['https://a']}}",
            "1:20: `gateway.hosts[0]` is `https://a`, which is not a valid `Host` header: write it like \"tribune.example.org\" or \"tribune.local:8080\"",
        ),
        (
            "{sandbox: 'offf'}",
            "1:11: `sandbox` is `offf`: did you mean \"off\"? Use one of \"full\", \"landlock\", \"off\"",
        ),
        ("{egress: {mode: 'open'}}", "1:17: `egress.mode` is `open`: use one of \"allowlist\", \"public\""),
        (
            "{egress: {allow: ['example.org']}}",
            "1:19: `egress.allow[0]` is `example.org`, which is not a host with a port: write it like \"example.org:443\"",
        ),
        (
            "{egress: {deny: ['a/b']}}",
            "1:18: `egress.deny[0]` is `a/b`, which is not a host: write it like \"example.org\" or \"example.org:443\"",
        ),
        (
            "{webSearch: {endpoint: 'localhost'}}",
            "1:24: `webSearch.endpoint` is `localhost`, which is not a plain address: write it like \"http://127.0.0.1:8888/search\"",
        ),
        (
            "{gateway: {origins: ['a', 'https://a/']}}",
            "1:22: `gateway.origins[0]` is `a`, which is not a valid `Origin` header: write it like \"https://tribune.example.org\", without a path",
        ),
    ] {
        assert_eq!(refusal(text), format!("config.json5:{said}"));
    }
    for bad in ["", "*", "a b", "a/b", "a:b", "a:99999", "ä", "u@a", "[::1", "[x]", "a:1:2"] {
        for text in
            [format!("{{gateway: {{hosts: ['{bad}']}}}}"), format!("{{gateway: {{origins: ['x://{bad}']}}}}")]
        {
            assert!(parse(&text).is_err(), "{text}");
        }
    }
    for bad in ["null", "*", "://a", "1x://a", "https:/a"] {
        assert!(parse(&format!("{{gateway: {{origins: ['{bad}']}}}}")).is_err(), "{bad}");
    }
    let list = |count: usize| format!("{{gateway: {{hosts: [{}]}}}}", "'a',".repeat(count));
    assert!(parse(&list(64)).is_ok());
    assert_eq!(
        refusal(&list(65)),
        "config.json5:1:19: `gateway.hosts` has more than 64 entries: remove some"
    );
}

#[test]
fn syntax_errors_have_a_position() {
    for (text, said) in [
        ("", "1:1: the file contains no configuration: write at least `{}`, or remove it"),
        ("// nothing\n", "1:1: the file contains no configuration: write at least `{}`, or remove it"),
        (
            "{\n  log: {}\n  gateway: {}\n}",
            "3:3: this is not valid JSON5 (expected comma): correct the text here",
        ),
        ("{log}", "1:5: this is not valid JSON5 (expected colon): correct the text here"),
        ("{} {}", "1:4: this is not valid JSON5 (trailing characters): correct the text here"),
        (
            "{\n  log: {",
            "2:8: the file ends in the middle of an object: complete it, and close what is opened here",
        ),
        (
            "{log: {level: 'info",
            "1:7: the file ends in the middle of a string: complete it, and close what is opened here",
        ),
        (
            "{log: {level: 'a\nb'}}",
            "1:17: this is not valid JSON5 (line terminator in string): correct the text here",
        ),
        ("{\n  log: {},\n  log: {} }", "3:3: `log` is given twice: remove one of them"),
        (
            "{log: {files: 1, level: 'info',\n\n   'files': 2}}",
            "3:4: `log.files` is given twice: remove one of them",
        ),
        // Spelled differently, it is the same key.
        ("{log: {files: 1, f\\u0069les: 2}}", "1:18: `log.files` is given twice: remove one of them"),
    ] {
        assert_eq!(refusal(text), format!("config.json5:{said}"));
    }
    let deep = "[".repeat(MAX_CONFIG_BYTES);
    assert_eq!(refusal(&deep), "config.json5:1:33: this is nested deeper than 32 levels: flatten it");
    let deep = "{a:".repeat(MAX_CONFIG_BYTES / 3);
    assert_eq!(refusal(&deep), "config.json5:1:97: this is nested deeper than 32 levels: flatten it");
    assert_eq!(
        refusal(&" ".repeat(MAX_CONFIG_BYTES + 1)),
        "config.json5: the configuration is larger than 262144 bytes: shorten it"
    );
}

#[test]
fn invalid_hooks_are_rejected() {
    for (hook, said) in [
        ("{on: 'before_tool_cal', command: ['/a']}", "did you mean \"before_tool_call\"?"),
        ("{on: 'gateway_start'}", "`hooks[0]` needs either `command` or `url`"),
        (
            "{on: 'gateway_start', command: ['/a'], url: 'http://127.0.0.1:1/'}",
            "needs either `command` or `url`",
        ),
        ("{on: 'gateway_start', command: []}", "does not begin with an absolute path"),
        ("{on: 'gateway_start', command: ['check']}", "does not begin with an absolute path"),
        ("{on: 'gateway_start', url: 'http://example.org/'}", "not an address on this machine"),
        ("{on: 'gateway_start', url: 'https://127.0.0.1/'}", "not an address on this machine"),
        ("{on: 'gateway_start', url: 'http://u@127.0.0.1/'}", "not an address on this machine"),
        ("{on: 'gateway_start', command: ['/a'], timeoutMs: 0}", "use a whole number from 1 to 60000"),
        ("{on: 'gateway_start', command: ['/a'], sandbox: 'offf'}", "did you mean \"off\"?"),
        ("{on: 'gateway_start', command: ['/a'], reads: ['b']}", "not absolute"),
        ("{on: 'gateway_start', command: ['/a'], reads: ['/b', '/proc/1']}", "belongs to the running system"),
        ("{on: 'gateway_start', command: ['/a'], sandbox: 'off', reads: ['/b']}", "remove one of them"),
        ("{on: 'gateway_start', url: 'http://127.0.0.1:1/', sandbox: 'off'}", "which apply to programs only"),
        ("{on: 'gateway_start', comand: ['/a']}", "did you mean `command`?"),
        ("{command: ['/a']}", "`on`"),
    ] {
        let refused = refusal(&format!("{{hooks: [{hook}]}}"));
        assert!(refused.contains(said), "{hook}: {refused}");
    }
}

#[test]
fn secrets_are_rejected_and_not_repeated() {
    let secret = format!("trb{}{}", "_", "5e".repeat(32));
    let escaped = secret.replacen('t', "\\x74", 1);
    let rest = "contains something that looks like a secret: remove it, because secrets do not belong in this file, and rotate it if anyone may have seen it";
    for (text, place) in [
        (format!("{{gateway: {{\n address: '{secret}'}}}}"), "2:11: `gateway.address`"),
        (format!("{{gateway: {{hosts: ['a', '{escaped}']}}}}"), "1:25: `gateway.hosts[1]`"),
        (format!("{{gateway: {{token: 'x {secret}'}}}}"), "1:19: `gateway.token`"),
        (format!("{{'{secret}': 1}}"), "1:2: this"),
        (format!("'{secret}'"), "1:1: this"),
        (format!("{{\n  // the old one: {secret}\n}}"), "2:19: this comment"),
        (format!("{{ log: {{}} /* {secret} */ }}"), "1:14: this comment"),
        (format!("{{}} // {secret}"), "1:7: this comment"),
    ] {
        let said = refusal(&text);
        assert!(!said.contains("5e5e"), "{said}");
        assert_eq!(said, format!("config.json5:{place} {rest}"));
    }
}

#[test]
fn files_are_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json5");
    assert_eq!(Config::load(&path).unwrap(), Config::default());

    std::fs::write(&path, "{log: {files: 2}}").unwrap();
    assert_eq!(Config::load(&path).unwrap().log.files, 2);

    std::fs::write(&path, "{log: {files: 0}}").unwrap();
    assert_eq!(
        Config::load(&path).unwrap_err().to_string(),
        format!("{}:1:15: `log.files` is 0: use a whole number from 1 to 100", path.display())
    );

    std::fs::write(&path, b"{\n // \xC3\xBC \xFF\n}").unwrap();
    assert_eq!(
        Config::load(&path).unwrap_err().to_string(),
        format!("{}:2:7: this is not UTF-8: save the file as UTF-8 text", path.display())
    );

    std::fs::write(&path, " ".repeat(MAX_CONFIG_BYTES + 1)).unwrap();
    assert!(matches!(Config::load(&path), Err(ConfigError::TooLarge { .. })));
    let refused = Config::load(folder.path()).unwrap_err().to_string();
    assert!(refused.ends_with("check its mode and owner, or move it away to run without it"), "{refused}");
}

/// Random sequences of pieces of the example give a valid configuration or a one-line error.
#[test]
fn any_text_is_valid_or_gives_a_one_line_error() {
    let pieces: Vec<&str> = EXAMPLE
        .split_inclusive([' ', '\n', ',', '{', '}'])
        .chain(["\u{2028}", "'", "\\u", "0x", "-", "1e9999", "\0", "ü", "[", "]", "null"])
        .collect();
    let mut state = 7_u64;
    for round in 0..20_000 {
        let mut text = String::from("{");
        for _ in 0..round % 16 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text.push_str(pieces[(state >> 33) as usize % pieces.len()]);
        }
        if let Err(error) = parse(&text) {
            assert!(!error.to_string().contains(['\n', '\0']), "{text:?}");
        }
    }
}

#[test]
fn providers_are_parsed_changed_and_added() {
    let models = parse(
        r#"{models: {default: {provider: "acme", model: "big"}, providers: {
            moonshot: {enabled: true, baseUrl: "https://api.moonshot.cn/v1", startupValidation: "strict",
                models: {"kimi-k1-8k": {contextWindow: 8192, maxOutputTokens: 1024, supportsTools: false, supportsStreaming: true}},
                defaults: {model: "kimi-k1-8k"}},
            acme: {baseUrl: "https://models.example.org/v1", keyEnv: "ACME_API_KEY", kind: "openai",
                models: {big: {contextWindow: 1000000, maxOutputTokens: 64000, thinking: "off"}}},
            here: {baseUrl: "http://127.0.0.1:8080/v1", local: true},
        }}}"#,
    )
    .unwrap()
    .models;
    assert_eq!(models.default.unwrap().to_string(), "acme:big");
    let moonshot = &models.providers["moonshot"];
    assert_eq!(moonshot.startup_validation, StartupValidation::Strict);
    assert_eq!(moonshot.default_model.as_deref(), Some("kimi-k1-8k"));
    assert!(moonshot.models.contains_key("kimi-k1-128k") && !moonshot.models["kimi-k1-8k"].supports_tools);
    assert_eq!(models.providers["acme"].key_env.as_deref(), Some("ACME_API_KEY"));
    assert_eq!((models.providers["here"].is_local, &models.providers["here"].key_env), (true, &None));
    assert_eq!(models.providers.len(), 8);
    assert_eq!(Config::default().models.providers["moonshot"].default_model.as_deref(), Some("kimi-k1-128k"));
}

#[test]
fn invalid_providers_are_rejected_with_their_position() {
    let key = ["sk-ant", "-api03-", &"x".repeat(40)].concat();
    for (providers, said) in [
        ("moonshot: {baseURL: 'x'}".to_owned(), "did you mean `baseUrl`?"),
        ("x: {keyEnv: 'X_KEY'}".to_owned(), "is not built in: give its `baseUrl`"),
        ("x: {baseUrl: 'https://x.example'}".to_owned(), "needs a key unless it runs on this machine"),
        ("x: {baseUrl: 'ftp://x.example', local: true}".to_owned(), "use https"),
        ("x: {baseUrl: 'https://u:p@x.example', local: true}".to_owned(), "secret"),
        (format!("x: {{baseUrl: 'https://x.example', keyEnv: '{key}'}}"), "secret"),
        ("x: {baseUrl: 'https://x.example', keyEnv: 'my key'}".to_owned(), "is not the name of a variable"),
        (
            "x: {baseUrl: 'https://x.example', keyEnv: '8F3B2C9E71D0'}".to_owned(),
            "keyEnv` is not the name of a variable",
        ),
        ("moonshot: {defaults: {model: 'kimi'}}".to_owned(), "not among its models"),
        (
            "moonshot: {models: {a: {contextWindow: 1000, maxOutputTokens: 1000}}}".to_owned(),
            "no room for a prompt",
        ),
        ("moonshot: {models: {a: {contextWindow: 1000}}}".to_owned(), "maxOutputTokens"),
        ("moonshot: {startupValidation: 'maybe'}".to_owned(), "strict"),
        ("'Moon Shot': {baseUrl: 'https://x.example', local: true}".to_owned(), "is not a provider name"),
        ("moonshot: {apiKey: 'abc'}".to_owned(), "unknown key"),
    ] {
        let refused = refusal(&format!("{{models: {{providers: {{{providers}}}}}}}"));
        assert!(refused.starts_with("config.json5:1:") && refused.contains(said), "{providers}: {refused}");
    }
}

#[test]
fn provider_timeouts_override_the_defaults() {
    let text = "{models: {providers: {ollama: {timeouts: {connectSeconds: 3, firstByteSeconds: 3600}}, openai: {}}}}";
    let models = parse(text).unwrap().models;
    let default = RequestTimeouts::default();
    let (connect, first_byte) = (Duration::from_secs(3), Duration::from_hours(1));
    assert_eq!(
        models.providers["ollama"].timeouts.over(default),
        RequestTimeouts { connect, first_byte, ..default }
    );
    for as_before in ["openai", "moonshot"] {
        assert_eq!(models.providers[as_before].timeouts.over(default), default, "{as_before}");
    }
    for (timeouts, said) in [
        ("connectSeconds: 0", "from 1 to 300"),
        ("connectSeconds: 301", "from 1 to 300"),
        ("firstByteSeconds: 3601", "from 1 to 3600"),
        ("idleSeconds: '2m'", "write a number"),
        ("idleSecs: 5", "did you mean `idleSeconds`?"),
    ] {
        let refused =
            refusal(&format!("{{models: {{providers: {{ollama: {{timeouts: {{{timeouts}}}}}}}}}}}"));
        assert!(refused.starts_with("config.json5:1:") && refused.contains(said), "{timeouts}: {refused}");
        assert!(refused.contains("models.providers.ollama.timeouts"), "{timeouts}: {refused}");
    }
}

#[test]
fn an_undeclared_default_model_is_rejected() {
    for (models, said) in [
        ("default: 'moonshot:kimi-k1-128'", "did you mean `moonshot:kimi-k1-128k`?"),
        ("default: 'moonshoot:kimi-k1-128k'", "did you mean `moonshot:kimi-k1-128k`?"),
        ("default: 'ollama:qwen3'", "which no provider declares: declare it under `models.providers`"),
    ] {
        let refused = refusal(&format!("{{models: {{{models}}}}}"));
        assert!(refused.starts_with("config.json5:1:") && refused.contains(said), "{models}: {refused}");
    }
}

#[test]
fn the_canary_interval_is_parsed() {
    let every =
        |text: &str| parse(&format!("{{ canary: {{ every: {text} }} }}")).map(|config| config.canary.every);
    assert_eq!(every("'10m'").unwrap(), Some(Duration::from_mins(10)));
    assert_eq!(every("'30d'").unwrap(), Some(Duration::from_hours(24 * 30)));
    assert_eq!(every("'off'").unwrap(), None);
    for wrong in ["'9m'", "'31d'", "''", "'h'", "'12'", "'-1h'", "'99999999999999999999d'", "'never'"] {
        let said = every(wrong).unwrap_err().to_string();
        assert!(said.contains("such as \"12h\", or \"off\""), "{wrong}: {said}");
    }
}
