//! `tribune law`: check, test, explain, replay and backtest, with and without a daemon.

use std::path::PathBuf;

use serde_json::{Value, json};
use tribune_testkit::{TempHome, config};

use crate::fixture::{CliOutput, Place, cli_output};
use crate::in_process_daemon::{InProcessDaemon, command};

const NO_SECRETS: &str = r#"@id("no-secrets")
@example_deny("{\"args\": {\"path\": \"secrets/key\"}}")
@example_allow("{\"args\": {\"path\": \"notes.txt\"}}")
forbid(principal, action == Tribune::Action::"read", resource)
when { context has path && context.path like "secrets/*" };
"#;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn call(home: &TempHome, args: &[&str]) -> CliOutput {
    cli_output(command(home, args).output().unwrap())
}

/// A daemon with some history: two reads, one of a secret file, and a denied shell command.
fn history() -> InProcessDaemon {
    let home = TempHome::new();
    home.write("policy/local.cedar", NO_SECRETS);
    home.write("agents/main/workspace/notes.txt", "hello");
    let daemon = InProcessDaemon::with(home, &config());
    let script = "!call read {\"path\":\"notes.txt\"}\n!call read {\"path\":\"secrets/key\"}\n!call exec {\"command\":\"ls\"}";
    assert_eq!(daemon.call(&["chat", script]).code, 0);
    daemon
}

/// The only file in the folder where a home keeps its laws.
fn kept(home: &TempHome) -> PathBuf {
    let folder = home.home.root().join("constitutions");
    let mut files = std::fs::read_dir(folder).unwrap();
    let file = files.next().unwrap().unwrap().path();
    assert!(files.next().is_none());
    file
}

#[test]
fn a_law_is_checked_with_the_place_of_every_mistake() {
    let place = Place::new();
    let write = |file: &str, text: &str| {
        let path = place.path(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("good/policy/local.cedar", NO_SECRETS);
    let good = place.call(&["law", "check", "good"]);
    assert_eq!(
        (good.code, good.out.starts_with("law: sound, 0 errors, 0 warnings; its hash is b3:")),
        (0, true),
        "{good:?}"
    );

    write(
        "dull/policy/local.cedar",
        "@id(\"a\") permit(principal, action == Tribune::Action::\"read\", resource);",
    );
    let dull = place.call(&["law", "check", "dull"]);
    assert_eq!(dull.code, 0, "{dull:?}");
    assert!(
        dull.out.contains("dull/policy/local.cedar:1:1: warning: the rule `a` permits nothing"),
        "{dull:?}"
    );

    // The roster of the home is known.
    write("home/data/agent-roster.jsonl", "{\"id\":\"dev\"}\n");
    write(
        "strange/policy/local.cedar",
        &NO_SECRETS.replace("(principal,", "(principal == Tribune::Agent::\"dve\","),
    );
    let strange = place.call(&["law", "check", "strange"]);
    let said = "local.cedar:1:1: warning: the rule `no-secrets` is for the agent `dve`, which is not in the roster: did you mean `dev`?";
    assert!(strange.code == 0 && strange.out.contains(said), "{strange:?}");

    write("bad/policy/local.cedar", &NO_SECRETS.replace("context.path like", "context.paht like"));
    write("bad/mandates/dev.md", "---\ntools: read\n---\nDo well.\n");
    let bad = place.call(&["law", "check", "bad"]);
    assert_eq!(bad.code, 2, "{bad:?}");
    assert!(
        bad.out.contains("bad/policy/local.cedar:5:") && bad.out.contains("law: REFUSED, 1 error"),
        "{bad:?}"
    );
    let value = json(&place.call(&["--json", "law", "check", "bad"]).out);
    assert_eq!((&value["errors"], &value["hash"]), (&json!(1), &Value::Null));
    assert_eq!(
        (&value["findings"][0]["file"], &value["findings"][0]["line"]),
        (&json!("policy/local.cedar"), &json!(5))
    );
    // A law that cannot be read cannot be tested or backtested either.
    assert_eq!(place.call(&["law", "test", "bad"]).code, 2);
    assert_eq!(place.call(&["law", "show", "bad"]).code, 64);

    // The settings have mistakes of every kind, and each is reported.
    write("typed/policy/law.json5", "{\n  mod: 1,\n  mode: \"adit\",\n  overrides: { raed: \"off\" },\n}\n");
    write("typed/mandates/dev.md", "---\ntools: read\n---\nDo well.\n");
    let typed = place.call(&["law", "check", "typed"]);
    let places: Vec<&str> =
        typed.out.lines().filter_map(|line| line.split_once("law.json5:")?.1.split(": ").next()).collect();
    assert_eq!((typed.code, places), (2, vec!["2:3", "3:9", "4:16"]), "{typed:?}");

    std::fs::create_dir(place.path("empty")).unwrap();
    for dir in ["empty", "nowhere"] {
        let said = place.call(&["law", "check", dir]);
        assert_eq!(said.code, 64, "{said:?}");
    }
    // A home without a law of its own has the built-in one.
    assert_eq!(place.call(&["law", "check"]).code, 0);
}

#[test]
fn rules_are_tried_on_their_own_examples() {
    let place = Place::new();
    let policy = place.path("law/policy");
    std::fs::create_dir_all(&policy).unwrap();
    std::fs::write(policy.join("local.cedar"), NO_SECRETS).unwrap();
    let good = place.ok(&["law", "test", "law"]);
    assert_eq!(good, "ok   no-secrets @example_allow\nok   no-secrets @example_deny\npassed: 2 examples\n");
    std::fs::write(policy.join("local.cedar"), NO_SECRETS.replace("notes.txt", "secrets/notes.txt")).unwrap();
    let bad = place.call(&["law", "test", "law"]);
    assert_eq!(bad.code, 2, "{bad:?}");
    assert!(bad.out.contains("FAIL no-secrets @example_allow (law/policy/local.cedar:"), "{bad:?}");
    assert!(bad.out.contains("wanted allow, the law says deny (policy.no-secrets)"), "{bad:?}");
    let value = json(&place.call(&["--json", "law", "test", "law"]).out);
    assert_eq!(
        (&value["tested"], &value["failed"], &value["examples"][0]["passed"]),
        (&json!(2), &json!(1), &json!(false))
    );

    let shown = place.ok(&["law", "show", "law"]);
    assert!(
        shown.contains("forbid no-secrets  policy/local.cedar:1") && shown.contains("RULES (1)"),
        "{shown}"
    );
    std::fs::remove_dir_all(&policy).unwrap();
    std::fs::create_dir(&policy).unwrap();
    assert!(place.ok(&["law", "test", "law"]).starts_with("no rule has an example"));
}

#[test]
fn replay_decides_every_verdict_identically() {
    let daemon = history();
    let value = json(&daemon.ok(&["--json", "law", "replay"]));
    let all = value["verdicts"].as_u64().unwrap();
    assert!(all >= 6, "{value}");
    assert_eq!(
        (value["identical"].as_u64(), &value["different"], &value["unavailable"]),
        (Some(all), &json!(0), &json!(0))
    );
    let home = daemon.stop();
    let again = call(&home, &["law", "replay"]);
    let said = format!("replay: identical, {all} of {all} verdicts decided again with the same result\n");
    assert_eq!((again.code, again.out.starts_with(&said)), (0, true), "{again:?}");

    // One more byte in the home's law: past verdicts belong to the kept law, and the output says so.
    home.write("policy/local.cedar", &format!("{NO_SECRETS} "));
    let edited = call(&home, &["law", "replay"]);
    assert_eq!(edited.code, 0, "{edited:?}");
    assert!(edited.out.contains("no verdict was made under it yet"), "{edited:?}");

    let path = kept(&home);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("secrets/*", "secretz/*")).unwrap();
    let tampered = call(&home, &["law", "replay"]);
    assert_eq!(tampered.code, 2, "{tampered:?}");
    assert!(tampered.out.contains("BROKEN, 0 of") && tampered.out.contains("was changed"), "{tampered:?}");

    std::fs::remove_file(&path).unwrap();
    let missing = call(&home, &["law", "replay"]);
    assert_eq!(missing.code, 3, "{missing:?}");
    assert!(
        missing.out.contains(&format!("{all} verdicts not decided again: the texts of the law b3:")),
        "{missing:?}"
    );
    let value = json(&call(&home, &["--json", "law", "replay"]).out);
    assert_eq!((value["unavailable"].as_u64(), &value["laws"][0]["available"]), (Some(all), &json!(false)));
    // The texts are those of the home again.
    home.write("policy/local.cedar", NO_SECRETS);
    assert_eq!(call(&home, &["law", "replay"]).code, 0);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test tampers with the ledger")]
fn a_verdict_that_the_law_does_not_give_is_found() {
    let home = history().stop();
    let log = rusqlite::Connection::open(home.home.root().join("tribune.db")).unwrap();
    let changed = log
        .execute("UPDATE ledger SET payload = replace(payload, 'policy.no-secrets', 'policy.no-secretz') WHERE quality = 'policy_verdict'", [])
        .unwrap();
    assert!(changed > 0);
    drop(log);
    let said = call(&home, &["law", "replay"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.out.contains("different: 1\n  entry ") && said.out.contains("read secrets/key"), "{said:?}");
    assert!(
        said.out.contains("recorded: deny (policy.no-secretz")
            && said.out.contains("again:    deny (policy.no-secrets"),
        "{said:?}"
    );
}

#[test]
fn a_verdict_is_explained_step_by_step() {
    let daemon = history();
    let tail = daemon.ok(&["--json", "ledger", "tail", "-n", "100"]);
    let entries: Vec<Value> = tail.lines().map(json).collect();
    let secret = |entry: &&Value| entry["entry"]["payload"]["facts"]["args"]["path"] == "secrets/key";
    let verdict = entries.iter().find(secret).unwrap();
    let said = daemon.ok(&["law", "explain", verdict["entry"]["cid"].as_str().unwrap()]);
    for line in
        ["passed  kernel.frozen", "denied  policy.no-secrets", "decision   deny (policy.no-secrets): "]
    {
        assert!(said.contains(line), "{line}: {said}");
    }
    // By its position, and by its call.
    assert_eq!(daemon.ok(&["law", "explain", &verdict["index"].to_string()]), said);
    assert_eq!(daemon.ok(&["law", "explain", verdict["entry"]["parents"][0].as_str().unwrap()]), said);

    let value = json(&daemon.ok(&["--json", "law", "explain", &verdict["index"].to_string()]));
    assert_eq!((&value["recorded"]["agrees"], &value["verdict"]["decision"]), (&json!(true), &json!("deny")));
    // The same facts under another law.
    let other = daemon.home().folder.path().join("other");
    std::fs::create_dir_all(other.join("policy")).unwrap();
    let facts = daemon.home().folder.path().join("facts.json");
    std::fs::write(&facts, value["facts"].to_string()).unwrap();
    let (facts, other) = (facts.to_str().unwrap(), other.to_str().unwrap());
    let under =
        |args: &[&str]| json(&daemon.ok(&[&["--json", "law", "explain", "--facts", facts], args].concat()));
    assert_eq!(under(&[])["verdict"]["decision"], "deny");
    assert_eq!(under(&["--with", other])["verdict"]["decision"], "allow");

    for wrong in ["0", "999999", "zz", "b3:ffffffffffff"] {
        assert_eq!(daemon.call(&["law", "explain", wrong]).code, 64, "{wrong}");
    }
}

#[test]
fn law_is_backtested_on_past_calls() {
    let daemon = history();
    let dir = daemon.home().folder.path().join("trial");
    std::fs::create_dir_all(dir.join("policy")).unwrap();
    let rule = "@id(\"no-notes\") forbid(principal, action == Tribune::Action::\"read\", resource) when { context has path && context.path == \"notes.txt\" };\n@id(\"ask\") forbid(principal, action == Tribune::Action::\"read\", resource) when { context has path && context.path like \"secrets/*\" } unless { context.approved };";
    std::fs::write(dir.join("policy/trial.cedar"), rule).unwrap();
    let dir = dir.to_str().unwrap();
    let said = daemon.ok(&["law", "backtest", "--with", dir, "--since", "1d"]);
    assert!(said.contains("3 calls decided again, 1 as before"), "{said}");
    assert!(
        said.contains("newly denied   1   tools: read 1; agents: main 1\n  read notes.txt by main\n"),
        "{said}"
    );
    assert!(said.contains("now deny (policy.no-notes)") && said.contains("prompts added  1 "), "{said}");
    let value = json(&daemon.ok(&["--json", "law", "backtest", "--with", dir]));
    assert_eq!(
        (&value["backtest"]["newlyDenied"]["count"], &value["backtest"]["calls"]),
        (&json!(1), &json!(3))
    );
    let later = json(&daemon.ok(&["--json", "law", "backtest", "--with", dir, "--since", "2999-01-01"]));
    assert_eq!(later["backtest"]["calls"], 0);
    assert_eq!(daemon.call(&["law", "backtest", "--with", dir, "--since", "soon"]).code, 64);
    assert!(daemon.ok(&["law", "suggest"]).starts_with("no rule to suggest"));
}

#[test]
fn a_rule_is_suggested_for_what_was_always_allowed() {
    let home = TempHome::new();
    // The built-in tool with a stricter manifest: a sent message cannot be undone.
    let manifest = json!({
        "id": "send_message", "name": "Send Message", "capabilities": ["message:mail"], "riskLevel": "low",
        "minInputTrust": "community", "outputTrust": "verified", "effect": "side_effect",
    });
    home.write("manifests/send_message.json", &manifest.to_string());
    home.write(
        "data/agent-roster.jsonl",
        "{\"id\":\"main\"}\n{\"id\":\"writer\",\"accepts_from\":[\"main\"]}\n",
    );
    let daemon = InProcessDaemon::with(home, &config());
    for _ in 0..2 {
        let chat = daemon.start(&["chat", "!call send_message {\"to\":\"writer\",\"text\":\"hello\"}"]);
        let waits = chat.until_err("waits for approval");
        let id = waits.split("approval ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
        daemon.ok(&["approvals", "allow", &id]);
        let (status, _, err) = chat.end();
        assert_eq!(status.code(), Some(0), "{err}");
    }
    let said = daemon.ok(&["law", "suggest", "--min", "2"]);
    assert!(said.starts_with("would have saved 2 prompts\n"), "{said}");
    assert!(
        said.contains("action == Tribune::Action::\"send_message\"") && said.contains("prompts saved  2 "),
        "{said}"
    );
    let value = json(&daemon.ok(&["--json", "law", "suggest", "--min", "2"]));
    // The suggested rule can be used unchanged.
    daemon.home().write("policy/saved.cedar", value["suggestions"][0]["rule"].as_str().unwrap());
    assert_eq!(daemon.call(&["law", "check"]).code, 0);
    assert!(daemon.ok(&["law", "suggest", "--min", "3"]).starts_with("no rule to suggest"));
    assert_eq!(daemon.call(&["law", "replay"]).code, 0, "approved calls are replayed too");
}

#[test]
fn backtest_first_shows_what_people_denied() {
    let home = TempHome::new();
    home.write("mandates/dev.md", "---\ntools: read, exec\n---\n");
    home.write("data/agent-roster.jsonl", "{\"id\":\"main\",\"mandate\":\"dev\"}\n");
    let daemon = InProcessDaemon::with(home, &config());
    for decision in ["deny", "deny", "allow"] {
        let chat = daemon.start(&["chat", "!call exec {\"command\":\"true\"}"]);
        let waits = chat.until_err("waits for approval");
        let id = waits.split("approval ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
        daemon.ok(&["approvals", decision, &id]);
        chat.end();
    }
    let trial = tempfile::tempdir().unwrap();
    let dir = trial.path().to_str().unwrap();
    std::fs::create_dir_all(trial.path().join("mandates")).unwrap();
    std::fs::create_dir_all(trial.path().join("policy")).unwrap();
    std::fs::write(trial.path().join("mandates/dev.md"), "---\ntools: read, exec\n---\n").unwrap();
    let rule = "@id(\"exec\") permit(principal, action == Tribune::Action::\"exec\", resource);";
    std::fs::write(trial.path().join("policy/exec.cedar"), rule).unwrap();
    let said = daemon.ok(&["law", "backtest", "--with", dir]);
    assert!(said.lines().nth(1).unwrap().starts_with("2 calls that a person denied would run"), "{said}");
    let value = json(&daemon.ok(&["--json", "law", "backtest", "--with", dir]));
    let counts = |kind: &str| value["backtest"][kind]["count"].clone();
    assert_eq!(
        (counts("overridesDenials"), counts("promptsSaved"), counts("newlyAllowed")),
        (json!(2), json!(1), json!(0))
    );
    let suggested = daemon.ok(&["law", "suggest", "--min", "1"]);
    assert!(suggested.starts_with("no rule to suggest"), "{suggested}");
}
