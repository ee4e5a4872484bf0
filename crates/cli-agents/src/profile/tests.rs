use serde_json::{Value, json};

use super::*;
use crate::mcp_bridge::ServerEndpoint;

fn read(value: &Value) -> Result<Profile, String> {
    serde_json::from_value(value.clone()).map_err(|error| error.to_string())
}

/// The smallest valid profile, with `more` in it.
fn with(name: &str, more: Value) -> Result<Profile, String> {
    let mut least = json!({ "id": "mine", "title": "mine", "command": ["acp-agent"] });
    least[name] = more;
    read(&least)
}

fn surroundings() -> ProfileContext {
    ProfileContext {
        arch: "x64".into(),
        conversation: None,
        home: "/home/agent".into(),
        workspace: "/workspace".into(),
        program: "/opt/program".into(),
        node: "/usr/bin/node".into(),
        model: "m-1".into(),
        model_url: "http://127.0.0.1:4000".into(),
        placeholder_key: "{home}".into(),
        servers: Vec::new(),
    }
}

#[test]
fn template_words_are_filled_in_once() {
    let profile = read(&json!({
        "id": "mine", "title": "mine",
        "command": ["{program}/run", "{workspace}{workspace}", "{}", "{A}", "${x1}", "{"],
        "environment": { "KEY": "{placeholder_key}" },
        "files": { "a/b.json": { "{model}": ["{model_url}/v1", 1, null] }, "c.toml": ["x = '{model}'", "[t]"] },
    }));
    let filled = profile.unwrap().fill(&surroundings());
    assert_eq!(
        filled.command,
        ["/opt/program/run", "/workspace/workspace", "{}", "{A}", "${x1}", "{"],
        "a word is small letters and `_`"
    );
    assert_eq!(
        filled.environment,
        [("KEY".to_owned(), "{home}".to_owned())],
        "what is filled in is not looked through"
    );
    assert_eq!(filled.files[1], ("c.toml".to_owned(), "x = 'm-1'\n[t]\n".to_owned()));
    let written: Value = serde_json::from_str(&filled.files[0].1).unwrap();
    assert_eq!(written, json!({ "m-1": ["http://127.0.0.1:4000/v1", 1, null] }));
}

#[test]
fn a_conversation_is_resumed_by_an_id_that_is_no_option() {
    let profile = read(&json!({
        "id": "mine", "title": "mine", "command": ["run"], "resume": ["--resume", "{conversation}"],
    }));
    let profile = profile.unwrap();
    assert_eq!(profile.fill(&surroundings()).command, ["run"]);
    let with = ProfileContext { conversation: Some("c-1".to_owned()), ..surroundings() };
    assert_eq!(profile.fill(&with).command, ["run", "--resume", "c-1"]);
    assert!(profile.takes_up("15e23604-3ee1-48ed-be8c-e2086e86e929"));
    for name in ["--dangerously-skip-permissions", "-", "", "a b", "a\n", "../x", "ä"] {
        assert!(!profile.takes_up(name), "{name}");
    }
    assert!(with_protocol("acp").takes_up("whatever it is"), "no argument comes of it");
}

#[test]
fn each_server_adds_to_system_files() {
    let profile = read(&json!({
        "id": "mine", "title": "mine", "command": ["run", "{server}"],
        "system": { "a.json": { "on": false, "list": ["x"], "deep": { "own": 1 } }, "b.toml": ["x = 1"], "c.toml": ["y = 2"] },
        "perServer": {
            "a.json": { "on": true, "list": ["{server_url}"], "deep": { "{server}": "{model}" } },
            "b.toml": ["[{server}]", "url = '{server_url}'"],
        },
    }));
    let profile = profile.unwrap();
    let filled = |servers: Vec<ServerEndpoint>| profile.fill(&ProfileContext { servers, ..surroundings() });
    let json = |filled: &FilledProfile| serde_json::from_str::<Value>(&filled.system[0].1).unwrap();
    let none = filled(Vec::new());
    assert_eq!(json(&none), json!({ "on": false, "list": ["x"], "deep": { "own": 1 } }));
    assert_eq!((none.system[1].1.as_str(), none.command[1].as_str()), ("x = 1\n", "{server}"));
    let server =
        |name: &str| ServerEndpoint { name: name.to_owned(), url: format!("http://127.0.0.1:4100/{name}") };
    let two = filled(vec![server("git"), server("{home}")]);
    let list = json!(["x", "http://127.0.0.1:4100/git", "http://127.0.0.1:4100/{home}"]);
    let deep = json!({ "own": 1, "git": "m-1", "{home}": "m-1" });
    assert_eq!(json(&two), json!({ "on": true, "list": list, "deep": deep }));
    let lines =
        "x = 1\n[git]\nurl = 'http://127.0.0.1:4100/git'\n[{home}]\nurl = 'http://127.0.0.1:4100/{home}'\n";
    assert_eq!((two.system[1].1.as_str(), two.system[2].1.as_str()), (lines, "y = 2\n"));
}

fn with_protocol(protocol: &str) -> Profile {
    with("protocol", json!(protocol)).unwrap()
}

#[test]
fn the_protocol_of_a_profile_names_its_backend() {
    assert_eq!(with("mode", json!("x")).unwrap().protocol(), Protocol::Acp);
    assert_eq!(with_protocol("acp").protocol().backend(), "acp");
    assert_eq!(with_protocol("claude-stream-json").protocol().backend(), "claude_code");
}

#[test]
fn an_invalid_profile_is_refused_with_a_reason() {
    for (name, more, why) in [
        ("id", json!("../x"), "not a name for a profile"),
        ("id", json!(""), "not a name for a profile"),
        ("id", json!("9lives"), "not a name for a profile"),
        ("command", json!([]), "name the program"),
        ("command", json!([""]), "name the program"),
        ("command", json!(["{worspace}"]), "did you mean `{workspace}`?"),
        ("command", json!(["a\u{0}b"]), "zero byte"),
        ("environment", json!({ "A B": "x" }), "no name of a variable"),
        ("environment", json!({ "1A": "x" }), "no name of a variable"),
        ("environment", json!({ "LD_PRELOAD": "x" }), "which the sandbox sets itself"),
        ("environment", json!({ "HOME": "/" }), "which the sandbox sets itself"),
        ("environment", json!({ "A": "{keys}" }), "not a known word"),
        ("files", json!({ "../x": "" }), "no path inside a folder"),
        ("files", json!({ "/etc/x": "" }), "no path inside a folder"),
        ("files", json!({ "a//b": "" }), "no path inside a folder"),
        ("files", json!({ "a": 5 }), "neither a text"),
        ("files", json!({ "a": ["x", 1] }), "neither a text"),
        ("files", json!({ "a": { "b": ["{nothing}"] } }), "not a known word"),
        ("system", json!({ "../x": "" }), "no path inside a folder"),
        ("keep", json!(["../x"]), "no path inside a folder"),
        ("keep", json!(["a/./b"]), "no path inside a folder"),
        ("hide", json!([""]), "names nothing in a workspace"),
        ("hide", json!(["/"]), "names nothing in a workspace"),
        ("hide", json!(["a/../b"]), "names nothing in a workspace"),
        ("folders", json!(["opt"]), "no folder of this machine"),
        ("folders", json!(["/opt/../root"]), "no folder of this machine"),
        ("folders", json!(["/"]), "no folder of this machine"),
        ("model", json!("morse"), "unknown variant `morse`"),
        ("quirks", json!(["odd"]), "unknown variant `odd`"),
        ("protocol", json!("morse"), "unknown variant `morse`"),
        ("resume", json!(["{talk}"]), "not a known word"),
        (
            "install",
            json!({ "npm": "a", "version": "1.2.3", "sharedWith": "../x" }),
            "not a name for a profile",
        ),
        ("capabilities", json!({ "fs": { "readTextfile": true } }), "unknown field `readTextfile`"),
        ("shell", json!("sh"), "unknown field `shell`"),
        ("commands", json!(["/init"]), "no command"),
        ("commands", json!([""]), "no command"),
        ("instructions", json!(["docs/AGENTS.md"]), "no file at the root of a workspace"),
        ("instructions", json!([".."]), "no file at the root of a workspace"),
        ("install", json!({ "npm": "a", "version": "^1.2.3" }), "one exact version"),
        ("install", json!({ "npm": "a", "version": "latest" }), "one exact version"),
        ("install", json!({ "npm": "a", "version": "1.2" }), "one exact version"),
        ("install", json!({ "npm": "a", "version": "1.2.3 --global" }), "one exact version"),
        ("install", json!({ "npm": "../a", "version": "1.2.3" }), "no name of a package"),
        ("install", json!({ "npm": "git+ssh://x/y", "version": "1.2.3" }), "no name of a package"),
        ("install", json!({ "npm": "someone/else", "version": "1.2.3" }), "no name of a package"),
        ("install", json!({ "npm": "--global", "version": "1.2.3" }), "no name of a package"),
        ("install", json!({ "npm": "@/a", "version": "1.2.3" }), "no name of a package"),
    ] {
        let refused = with(name, more.clone()).expect_err(&format!("{name}: {more}"));
        assert!(refused.contains(why), "{name}: {more}: {refused}");
    }
    let many: serde_json::Map<String, Value> = (0..65).map(|n| (format!("V{n}"), json!(""))).collect();
    assert!(with("environment", many.into()).unwrap_err().contains("64 are the most"));
}

#[test]
fn exact_versions_and_names_of_packages_pass() {
    for version in ["0.99.1", "1.0.0-rc.1", "1.2.3+build.5"] {
        for npm in ["opencode-ai", "@google/gemini-cli", "a.b_c"] {
            let profile = with("install", json!({ "npm": npm, "version": version, "node": 20 })).unwrap();
            let package = profile.install().unwrap();
            assert_eq!((package.npm.as_str(), package.version.as_str()), (npm, version));
        }
    }
}
