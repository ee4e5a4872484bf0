//! `tribune providers` and `tribune models`, against a provider on this machine, and against keys pasted into the wrong
//! place.

use std::fs;
use std::io::Read as _;

use insta::{Settings, assert_snapshot};
use serde_json::{Value, json};
use tribune_testkit::upstream::{FakeUpstream, ModelOutput, UpstreamReply};

use crate::command_output;
use crate::daemon_process::ForegroundDaemon;
use crate::fixture::{CliOutput, Place, cli_output};

/// A secret that must not appear anywhere.
const SECRET: &str = "fixture-key-4be7d1a90c";

fn settings(place: &Place) -> Settings {
    let mut settings = command_output::settings(place);
    settings.add_filter(r"127\.0\.0\.1:\d+", "[ADDRESS]");
    settings.add_filter(r"\(\d+ ms\)", "([TIME])");
    settings.add_filter(concat!("tribune ", env!("CARGO_PKG_VERSION")), "tribune [VERSION]");
    settings
}

/// A provider on this machine, in its own runtime.
struct Upstream {
    runtime: tokio::runtime::Runtime,
    fake: FakeUpstream,
}

impl Upstream {
    fn start() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let fake = runtime.block_on(FakeUpstream::start());
        fake.set_models(&["m"]);
        Self { runtime, fake }
    }

    fn add(&self, place: &Place) -> String {
        place.ok(&[
            "providers",
            "add",
            "fake",
            "--dialect",
            "anthropic",
            "--base-url",
            &self.fake.base_url(),
            "--key-env",
            "FAKE_API_KEY",
            "--model",
            "m",
            "--context-window",
            "100000",
            "--max-output",
            "1000",
        ])
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        // The server's task must end before its runtime.
        let _inside = self.runtime.enter();
    }
}

fn with_key(place: &Place, args: &[&str]) -> CliOutput {
    cli_output(place.command(args).env("FAKE_API_KEY", SECRET).output().unwrap())
}

#[test]
fn help_says_what_it_costs() {
    let place = Place::new();
    settings(&place).bind(|| {
        assert_snapshot!("help_providers", place.ok(&["providers", "--help"]));
        assert_snapshot!("help_providers_test", place.ok(&["providers", "test", "--help"]));
        assert_snapshot!("help_providers_add", place.ok(&["providers", "add", "--help"]));
        assert_snapshot!("help_models", place.ok(&["models", "--help"]));
    });
}

#[test]
fn a_fresh_machine_shows_what_there_could_be() {
    let place = Place::new();
    settings(&place).bind(|| {
        assert_snapshot!("providers_list", place.ok(&["providers", "list"]));
        assert_snapshot!("models", place.ok(&["models"]));
    });
    assert!(!place.home().exists(), "reading creates nothing");
    let nothing = place.call(&["providers", "test"]);
    assert_eq!(nothing.code, 1, "{nothing:?}");
    assert!(nothing.out.starts_with("no provider is set up"), "{nothing:?}");
    let list: Value = serde_json::from_str(&place.ok(&["providers", "list", "--json"])).unwrap();
    assert_eq!(list.as_array().unwrap().len(), 6);
}

#[test]
fn a_provider_is_added_tried_and_used_with_and_without_a_daemon() {
    let (place, upstream) = (Place::new(), Upstream::start());
    settings(&place).bind(|| assert_snapshot!("providers_add", upstream.add(&place)));

    upstream.fake.reply(ModelOutput::new().text("ok").anthropic());
    let tried = with_key(&place, &["providers", "test", "fake"]);
    assert_eq!(tried.code, 0, "{tried:?}");
    assert!(tried.err.contains("no daemon is running"), "{tried:?}");
    settings(&place).bind(|| assert_snapshot!("providers_test", tried.out));
    let spent = place.ok(&["spend", "--by", "agent"]);
    assert!(spent.contains("(operator)"), "{spent}");

    place.ok(&["agents", "add", "ada", "--model", "fake:m"]);
    let mut up = place.command(&["up", "--port", "0"]);
    up.env("FAKE_API_KEY", SECRET);
    let daemon = ForegroundDaemon::start_with(up, "stop with Ctrl-C");
    settings(&place).bind(|| assert_snapshot!("up_with_model", daemon.greeting));
    // The daemon has the key, whatever this shell has.
    upstream.fake.reply(ModelOutput::new().text("ok").anthropic());
    assert!(place.ok(&["providers", "test", "fake:m"]).contains("fake:m answers"));
    let models: Value = serde_json::from_str(&place.ok(&["models", "--json"])).unwrap();
    let fake = models["providers"].as_array().unwrap().iter().find(|one| one["provider"] == "fake").unwrap();
    assert_eq!((&fake["key_set"], &fake["models"][0]["agents"]), (&json!(true), &json!(["ada"])));
    let doctor = place.ok(&["doctor"]);
    assert!(doctor.contains("ok   models: 1 agent has its model"), "{doctor}");
    upstream.fake.reply(ModelOutput::new().text("hello from a model").anthropic());
    let talked = place.ok(&["chat", "--agent", "ada", "hello"]);
    assert!(talked.contains("hello from a model"), "{talked}");

    // Added while the daemon runs: the output says what to do.
    place.ok(&["providers", "add", "late", "--base-url", "http://127.0.0.1:1", "--local"]);
    let late = place.call(&["providers", "test", "late"]);
    assert_eq!(late.code, 64);
    assert!(late.err.contains("the daemon started before it was added"), "{late:?}");
    daemon.stop();
}

#[test]
fn key_that_only_this_shell_has_is_reported() {
    let (place, upstream) = (Place::new(), Upstream::start());
    upstream.add(&place);
    place.ok(&["agents", "add", "ada", "--model", "fake:m"]);
    let daemon = ForegroundDaemon::start(&place);
    assert!(daemon.greeting.contains("agent `ada` cannot use its model fake:m: Missing FAKE_API_KEY"));
    let tried = with_key(&place, &["providers", "test"]);
    assert_eq!(tried.code, 1);
    assert!(tried.out.starts_with("FAIL fake key: Missing FAKE_API_KEY"), "{tried:?}");
    assert!(
        tried.err.contains("FAKE_API_KEY is set in this shell, but the daemon started without it"),
        "{tried:?}"
    );
    let doctor = place.call(&["doctor"]);
    assert!(
        doctor.out.contains("warn models: agent `ada` has no usable model: Missing FAKE_API_KEY"),
        "{doctor:?}"
    );
    assert_eq!(upstream.fake.connections(), 0);
    daemon.stop();
}

#[test]
fn provider_messages_cannot_control_the_terminal() {
    let (place, upstream) = (Place::new(), Upstream::start());
    upstream.add(&place);
    let message = format!("\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{202e} {SECRET}\r\nall is well");
    let complaint =
        json!({ "type": "error", "error": { "type": "invalid_request_error", "message": message } });
    for format in [&["--json"][..], &[]] {
        upstream.fake.reply(UpstreamReply::json(400, &complaint));
        let tried = with_key(&place, &[&["providers", "test", "fake"], format].concat());
        assert_eq!(tried.code, 1, "{tried:?}");
        for told in [&tried.out, &tried.err] {
            assert!(!told.contains(SECRET), "{told}");
            let steers = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
            assert!(!told.contains(steers), "{told:?}");
        }
        assert!(tried.out.contains("bad_request") || tried.out.contains("FAIL fake model: "), "{tried:?}");
    }
}

#[test]
fn pasted_key_is_refused_and_not_repeated() {
    let place = Place::new();
    place.ok(&["init"]);
    let path = place.home().join("config.json5");
    let before = fs::read_to_string(&path).unwrap();
    let known = ["sk-ant", "-api03-", &"k".repeat(40)].concat();
    let odd = "9f8e7d6c5b4a39281706";
    let base = ["--base-url", "https://models.example.org/v1"];
    let model = |name: &'static str| ["--model", name, "--context-window", "9000", "--max-output", "100"];
    let given: [Vec<&str>; 4] = [
        [&["acme", "--key-env", &known][..], &base].concat(),
        [&["acme", "--key-env", odd][..], &base].concat(),
        vec!["acme", "--key-env", "ACME_KEY", "--base-url", "https://user:hunter22@models.example.org"],
        [&[known.as_str(), "--local"][..], &base, &model("m")].concat(),
    ];
    for args in given {
        let refused = place.call(&[&["providers", "add"], &args[..]].concat());
        assert_eq!(refused.code, 64, "{args:?}: {refused:?}");
        assert_eq!(refused.err.lines().count(), 1, "{refused:?}");
        assert!(
            [known.as_str(), odd, "hunter22"].iter().all(|key| !refused.err.contains(key)),
            "{refused:?}"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), before);
    }
}

#[test]
fn comments_stay_and_what_is_broken_or_taken_is_left_alone() {
    let place = Place::new();
    place.ok(&["init"]);
    let path = place.home().join("config.json5");
    let add = [
        "providers",
        "add",
        "ollama",
        "--model",
        "qwen3:8b",
        "--context-window",
        "40960",
        "--max-output",
        "8192",
    ];
    place.ok(&add);
    let after = fs::read_to_string(&path).unwrap();
    let comments = |text: &str| text.lines().filter(|line| line.trim_start().starts_with("//")).count();
    assert_eq!(comments(&after), comments(tribune_config::EXAMPLE));
    assert!(after.contains("      ollama: {\n        models: {\n          \"qwen3:8b\": {"), "{after}");
    let again = place.call(&add);
    assert_eq!((again.code, fs::read_to_string(&path).unwrap()), (64, after));
    assert!(again.err.contains("--replace"), "{again:?}");
    place.ok(&[&add[..], &["--replace"]].concat());
    let mut other = add;
    other[4] = "qwen3:14b";
    place.ok(&other);
    let both = fs::read_to_string(&path).unwrap();
    assert!(both.contains("qwen3:8b") && both.contains("qwen3:14b"), "{both}");
    let open = ["--base-url", "http://models.example.org/v1", "--key-env", "ACME_KEY"];
    let open = place.call(&[&["providers", "add", "acme"][..], &open].concat());
    assert!(open.code == 64 && open.err.contains("use https"), "{open:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), both);

    let refused = place.call(&["providers", "add", "acme", "--key-env", "ACME_KEY"]);
    assert!(refused.err.contains("give its `baseUrl`") && refused.code == 64, "{refused:?}");
    for broken in ["{ models: {", "{ modles: {} }", "\u{1b}[2J"] {
        fs::write(&path, broken).unwrap();
        let refused = place.refused(&add);
        assert!(refused.contains("config.json5:1:") && !refused.contains('\u{1b}'), "{refused}");
        assert_eq!(fs::read_to_string(&path).unwrap(), broken);
    }
}

#[test]
fn a_kill_at_any_moment_leaves_the_old_settings_or_the_new() {
    let place = Place::new();
    place.ok(&["init"]);
    let path = place.home().join("config.json5");
    for n in 0..40_u64 {
        let before = fs::read_to_string(&path).unwrap();
        let id = format!("p{n}");
        let mut command =
            place.command(&["providers", "add", &id, "--base-url", "http://127.0.0.1:1", "--local"]);
        let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_micros(n * 250));
        let _ = child.kill();
        child.wait().unwrap();
        let mut out = String::new();
        child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        let after = fs::read_to_string(&path).unwrap();
        tribune_config::Config::load(&path).unwrap();
        assert!(after == before || after.contains(&format!("{id}: {{")), "{after}");
        assert!(out.is_empty() || after != before, "reported events are stored");
    }
}

#[test]
fn an_agent_is_added_with_a_model_and_never_with_one_that_is_ignored() {
    let place = Place::new();
    place.ok(&["agents", "add", "ada", "--model", "moonshot:kimi-k1-128k"]);
    let shown = place.ok(&["agents", "show", "ada"]);
    assert!(shown.contains("native") && shown.contains("moonshot:kimi-k1-128k"), "{shown}");
    let ignored =
        place.call(&["agents", "add", "bob", "--backend", "rehearsal", "--model", "moonshot:kimi-k1-128k"]);
    assert!(ignored.code == 64 && ignored.err.contains("uses no model"), "{ignored:?}");
    // The output says at once what is missing, and its hints name the same home.
    let unknown = place.call(&["agents", "add", "eve", "--model", "mooonshot:kimi-k1-128k"]);
    assert!(unknown.code == 0 && unknown.err.contains("eve has no usable model yet"), "{unknown:?}");
    assert!(unknown.err.contains("did you mean") || unknown.err.contains("no provider"), "{unknown:?}");
    let other = place.path("other").display().to_string();
    let elsewhere = place.call(&["agents", "add", "eve", "--model", "moonshot:nope", "--home", &other]);
    assert!(elsewhere.code == 0 && elsewhere.err.contains("eve has no usable model yet"), "{elsewhere:?}");
    assert!(elsewhere.err.contains(&format!("tribune models --home {other}")), "{elsewhere:?}");
    assert!(elsewhere.out.contains(&format!("tribune chat --agent eve --home {other}")), "{elsewhere:?}");
    for reserved in ["operator", "(operator)", "house", "tribune"] {
        let refused = place.call(&["agents", "add", reserved]);
        assert!(refused.code == 64 && refused.err.contains("choose another"), "{refused:?}");
    }
    let nameless = place.call(&["agents", "add", "bob", "--model", "kimi"]);
    assert!(nameless.code == 64 && nameless.err.contains("names no provider"), "{nameless:?}");
}
