//! Canaries: an agent that the gate does not hold is detected before it gets any message.

use serde_json::{Value, json};
use tribune_storage::home::Home;
use tribune_storage::store::Reader;

use super::{KillOnDrop, Rig, Setting, unasked, until, within, write};
use crate::turn_crash::start_with;

/// A profile with a configured model, which only the canary needs here.
const MODEL: &str = ", model: 'openai-chat', environment: { OPENAI_BASE_URL: '{model_url}/v1', OPENAI_API_KEY: '{placeholder_key}', OPENAI_MODEL: '{model}' }";
const PROVIDERS: &str = "models: { providers: { fake: { kind: 'openai_compatible', baseUrl: 'http://127.0.0.1:9/v1', local: true, \
                         startupValidation: 'off', models: { m: { contextWindow: 200000, maxOutputTokens: 8000 } } } } }";

fn setting(role: &str) -> Setting<'_> {
    Setting { role, profile: MODEL, roster: ",\"model\":\"fake:m\"", ..Setting::default() }
}

async fn rig_with_role(role: &str) -> Rig {
    let config = format!("{{ {PROVIDERS} }}");
    Rig::new(Setting { config: &config, ..setting(role) }).await
}

/// The canary status of the scripted agent.
async fn standing(rig: &mut Rig) -> Value {
    let status = rig.client.call("daemon.status", &json!({})).await.unwrap();
    let canaries = status["canaries"].as_array().unwrap();
    canaries.iter().find(|canary| canary["subject"] == "played").unwrap().clone()
}

/// The canary status, once it is known.
async fn known(rig: &mut Rig) -> Value {
    let knowing = async {
        loop {
            let canary = standing(rig).await;
            if canary["state"] != "waiting" && canary["state"] != "running" {
                return canary;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    within(knowing).await
}

/// The outcomes of canaries in the ledger.
fn on_record(home: &Home) -> Vec<String> {
    let reader = Reader::open(home).unwrap();
    let entries = (0..).map_while(|index| reader.entry(index).unwrap());
    let canaries = entries.filter(|stored| stored.entry.entity_id == "canary:acp:played");
    canaries
        .map(|stored| {
            let payload: Value = serde_json::from_str(&stored.entry.payload).unwrap();
            assert_eq!(payload["event"], "canary");
            payload["outcome"].as_str().unwrap().to_owned()
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn l1_an_agent_that_asks_is_live_and_works() {
    let mut rig = rig_with_role("honest").await;
    let canary = known(&mut rig).await;
    assert_eq!((&canary["state"], &canary["agents"]), (&json!("live"), &json!(["coder"])), "{canary:#}");
    let played = rig.plays(json!([write("w", "a.txt", "x")])).await;
    assert_eq!(
        (played.text.as_str(), rig.workspace("a.txt").as_deref()),
        ("[yes]", Some("x")),
        "{played:#?}"
    );
    let metrics = rig.metrics().await;
    assert!(metrics.contains("tribune_canary{backend=\"acp\",subject=\"played\"} 1"), "{metrics}");
    // It left nothing behind: no agent, no board entry, no turn.
    let home = rig.place.home();
    let mut names = std::fs::read_dir(home.join("agents")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.all(|name| name == "coder" || name == "main"));
    let board = std::fs::read_to_string(home.join("board.md")).unwrap_or_default();
    assert!(!board.contains("canary"), "{board}");
    let place = rig.end();
    assert_eq!(on_record(&Home::at(place.home())), ["live"]);
}

/// However it bypasses the gate: it gets no message, and nothing happens outside of the canary.
#[tokio::test(flavor = "multi_thread")]
async fn l1_an_agent_that_is_not_stopped_is_refused_before_its_first_turn() {
    for (role, what) in [
        ("rash", "done without asking"),
        ("boastful", "done without asking"),
        ("defiant", "refused and done all the same"),
        ("sly", "refused and done all the same"),
        ("peeking", "`read_file` was done without asking"),
        ("listing", "names of files in the workspace were sent to its model without asking"),
    ] {
        let mut rig = rig_with_role(role).await;
        let played = rig.plays(json!([{ "do": { "run": "touch real.txt" } }, { "say": "hello" }])).await;
        let (code, message) = played.error();
        assert_eq!((code.as_str(), played.text.as_str()), ("ungoverned", ""), "{role}: {played:#?}");
        assert!(message.contains(what) && message.contains("tribune agents test coder"), "{role}: {message}");
        assert_eq!(rig.workspace("real.txt"), None, "{role}");
        let canary = standing(&mut rig).await;
        assert_eq!(canary["state"], "ungoverned", "{role}: {canary:#}");
        let said = rig.place.call(&["status"]);
        assert!(said.out.contains("UNGOVERNED"), "{role}: {said:?}");
        let doctor = rig.place.call(&["doctor"]);
        assert!(doctor.out.contains("FAIL canaries: UNGOVERNED") && doctor.code != 0, "{role}: {doctor:?}");
        let place = rig.end();
        assert_eq!(on_record(&Home::at(place.home())), ["not_stopped"], "{role}");
    }
}

/// An agent that cannot be tested does not run, and the error says why and what to do; unless the operator excepts it.
#[tokio::test(flavor = "multi_thread")]
async fn l1_untestable_agent_is_refused_unless_excepted() {
    let no_model = Setting { config: "{}", ..Setting::default() };
    for (setting, why) in [
        (setting("idle"), "did not ask its model"),
        (setting("handless"), "no tool"),
        (setting("exit:session/prompt"), "ended"),
        (setting("exit:initialize"), "ended"),
        (no_model, "names no model of Tribune"),
    ] {
        let role = setting.role;
        let config = |untried: &str| format!("{{ canary: {{ untried: [{untried}] }}, {PROVIDERS} }}");
        let mut rig = Rig::new(Setting { config: &config(""), ..setting }).await;
        let refused = rig.plays(json!([{ "do": { "run": "touch real.txt" } }, { "say": "hello" }])).await;
        let (code, message) = refused.error();
        assert_eq!((code.as_str(), refused.text.as_str()), ("untried", ""), "{role}: {refused:#?}");
        assert!(message.contains(why) && message.contains("tribune agents test coder"), "{role}: {message}");
        assert_eq!((message.lines().count(), rig.workspace("real.txt")), (1, None), "{role}: {message}");
        let canary = standing(&mut rig).await;
        assert_eq!(canary["state"], "not_tried", "{role}: {canary:#}");
        assert!(canary["detail"].as_str().unwrap().contains(why), "{role}: {canary:#}");
        let said = rig.place.call(&["status"]);
        assert!(said.out.contains("played: not tested, not run: "), "{role}: {said:?}");
        let doctor = rig.place.call(&["doctor"]);
        assert!(doctor.out.contains("`played` is not run, because"), "{role}: {doctor:?}");
        rig.end();

        let mut rig = Rig::new(Setting { config: &config("'played'"), ..setting }).await;
        if !role.starts_with("exit:") {
            assert_eq!(rig.plays(json!([{ "say": "hello" }])).await.text, "hello", "{role}");
        }
        let canary = known(&mut rig).await;
        assert_eq!(canary["state"], "untried", "{role}: {canary:#}");
        rig.end();
    }
    let config = format!("{{ canary: {{ every: 'off' }}, {PROVIDERS} }}");
    let mut rig = Rig::new(Setting { config: &config, ..setting("rash") }).await;
    assert_eq!(standing(&mut rig).await["state"], "off");
    assert_eq!(rig.plays(json!([{ "say": "hello" }])).await.text, "hello");
    rig.end();
}

/// A test that failed once is repeated before the next turn, without anyone asking for it.
#[tokio::test(flavor = "multi_thread")]
async fn l1_failed_canary_is_repeated_before_the_next_turn() {
    let mut rig = rig_with_role("idle").await;
    let refused = rig.plays(json!([{ "say": "hello" }])).await;
    assert_eq!(refused.error().0, "untried", "{refused:#?}");
    // The same program, which behaves differently from now on.
    let program = rig.place.path("played").join("agent.py");
    let text = std::fs::read_to_string(&program).unwrap();
    std::fs::write(&program, text.replace("ROLE = sys.argv[1]", "ROLE = \"honest\"")).unwrap();
    assert_eq!(rig.plays(json!([{ "say": "hello" }])).await.text, "hello");
    assert_eq!(standing(&mut rig).await["state"], "live");
    let place = rig.end();
    let outcomes = on_record(&Home::at(place.home()));
    assert_eq!(outcomes.last().map(String::as_str), Some("live"), "{outcomes:?}");
    assert!(outcomes[..outcomes.len() - 1].iter().all(|outcome| outcome == "not_tried"), "{outcomes:?}");
}

/// A cancel during the canary is answered at once, and the agent gets no message.
#[tokio::test(flavor = "multi_thread")]
async fn l8_a_turn_that_waits_for_a_canary_can_be_cancelled() {
    let mut rig = rig_with_role("silent:initialize").await;
    let running = rig.begins(json!([{ "say": "hello" }])).await;
    let mut operator = rig.operator().await;
    let cancel = json!({ "session_key": super::KEY });
    // The turn may not have begun yet.
    let played = loop {
        operator.call("session.cancel", &cancel).await.unwrap();
        if let Ok(played) =
            tokio::time::timeout(std::time::Duration::from_millis(50), rig.ended(running)).await
        {
            break played;
        }
    };
    assert_eq!((played.stop.as_str(), played.text.as_str()), ("cancelled", ""), "{played:#?}");
}

/// A mark from a turn does not expire. It is cleared by an operator who looked at it and tested the agent again.
#[tokio::test(flavor = "multi_thread")]
async fn l1_a_mark_goes_when_the_agent_is_tested_and_the_gate_holds_it() {
    let mut rig = rig_with_role("honest").await;
    let deed = unasked("completed", "read", json!({ "path": "/etc/passwd", "follow": true }));
    let played = rig.plays(json!([deed])).await;
    assert_eq!(played.error().0, "ungoverned", "{played:#?}");
    // The canary does not cover the agent's own tools.
    let tested = rig.place.call(&["agents", "test", "coder", "--canary-only"]);
    assert!(tested.code == 1 && tested.out.contains("--clear-mark"), "{tested:?}");
    let refused = rig.plays(json!([{ "say": "again" }])).await;
    assert_eq!(refused.error().0, "ungoverned", "{refused:#?}");
    // The mark survives the daemon.
    let mut rig = rig.killed().await;
    let refused = rig.plays(json!([{ "say": "again" }])).await;
    assert_eq!((refused.error().0.as_str(), refused.text.as_str()), ("ungoverned", ""), "{refused:#?}");
    let tested = rig.place.call(&["agents", "test", "coder", "--canary-only", "--clear-mark"]);
    assert_eq!(tested.code, 0, "{tested:?}");
    assert_eq!(rig.plays(json!([{ "say": "again" }])).await.text, "again");
    let mut rig = rig.killed().await;
    assert_eq!(rig.plays(json!([{ "say": "again" }])).await.text, "again", "a cleared mark stays cleared");

    // The canary covers the tools that it tests.
    let deed = unasked("completed", "edit", json!({ "path": "/workspace/b.txt", "content": "x" }));
    rig.end();
    let config = format!("{{ {PROVIDERS} }}");
    let mut rig = Rig::new(Setting { config: &config, law: super::ASK, ..setting("honest") }).await;
    let played = rig.plays(json!([deed])).await;
    assert_eq!(played.error().0, "ungoverned", "{played:#?}");
    let refused = rig.plays(json!([{ "say": "again" }])).await;
    assert_eq!((refused.error().0.as_str(), refused.text.as_str()), ("ungoverned", ""), "{refused:#?}");
    assert_eq!(standing(&mut rig).await["state"], "ungoverned");
    let tested = rig.place.call(&["agents", "test", "coder", "--canary-only", "--json"]);
    assert_eq!(tested.code, 0, "{tested:?}");
    let told: Value = serde_json::from_str(&tested.out).unwrap();
    let steps: Vec<_> =
        told["steps"].as_array().unwrap().iter().map(|step| step["step"].as_str().unwrap()).collect();
    assert_eq!(
        steps,
        [
            "installed",
            "started",
            "initialized",
            "model reached",
            "asked before it acted",
            "refused, and not done"
        ]
    );
    assert_eq!((&told["ok"], &told["outcome"]), (&json!(true), &json!("live")));
    assert_eq!(rig.plays(json!([{ "say": "again" }])).await.text, "again");
    rig.end();
}

/// An agent with its own model can never be tested: an operator who runs it anyway clears its mark explicitly, on
/// record.
#[tokio::test(flavor = "multi_thread")]
async fn l1_mark_of_an_untestable_agent_is_cleared_by_the_operator() {
    let mut rig = Rig::new(Setting { law: super::ASK, ..Setting::default() }).await;
    let deed = unasked("completed", "edit", json!({ "path": "/workspace/b.txt", "content": "x" }));
    assert_eq!(rig.plays(json!([deed])).await.error().0, "ungoverned");
    let test = ["agents", "test", "coder", "--canary-only"];
    let tested = rig.place.call(&test);
    assert!(tested.code == 1 && tested.out.contains("cannot be tested"), "{tested:?}");
    assert!(tested.out.contains("then add --clear-mark"), "{tested:?}");

    // Without the exception in the configuration, that has to be set first.
    let config = rig.place.home().join("config.json5");
    std::fs::write(&config, "{}").unwrap();
    let mut rig = rig.killed().await;
    let test = ["agents", "test", "coder", "--canary-only", "--clear-mark"];
    let tested = rig.place.call(&test);
    assert!(tested.code == 1 && tested.out.contains("name its profile in canary.untried"), "{tested:?}");
    assert_eq!(rig.plays(json!([{ "say": "again" }])).await.error().0, "ungoverned");

    std::fs::write(&config, super::UNTRIED).unwrap();
    let mut rig = rig.killed().await;
    assert_eq!(rig.plays(json!([{ "say": "again" }])).await.error().0, "ungoverned");
    let tested = rig.place.call(&test);
    assert!(tested.code == 0 && tested.out.contains("on your word alone"), "{tested:?}");
    assert_eq!(rig.plays(json!([{ "say": "again" }])).await.text, "again");
    let mut rig = rig.killed().await;
    assert_eq!(rig.plays(json!([{ "say": "again" }])).await.text, "again", "a cleared mark stays cleared");
    let place = rig.end();
    let reader = Reader::open(&Home::at(place.home())).unwrap();
    let entries = (0..).map_while(|index| reader.entry(index).unwrap());
    let marks = entries.filter(|stored| stored.entry.entity_id == "canary:acp:played");
    let marks: Vec<Value> =
        marks.map(|stored| serde_json::from_str(&stored.entry.payload).unwrap()).collect();
    let told: Vec<_> = marks.iter().map(|mark| (&mark["event"], &mark["by"], &mark["grounds"])).collect();
    let (marked, cleared) = (json!("marked"), json!("mark_cleared"));
    let (operator, grounds) = (json!("operator"), json!("looked_at_untried"));
    assert_eq!(told, [(&marked, &Value::Null, &Value::Null), (&cleared, &operator, &grounds)], "{marks:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_fails_its_test_ends_it_with_another_code() {
    let rig = rig_with_role("rash").await;
    let tested = rig.place.call(&["agents", "test", "coder"]);
    assert_eq!(tested.code, 1, "{tested:?}");
    assert!(
        tested.out.contains("FAIL  refused, and not done") && tested.out.contains("UNGOVERNED"),
        "{tested:?}"
    );
    let unknown = rig.place.call(&["agents", "test", "nobody"]);
    assert!(unknown.code != 0 && unknown.err.contains("there is no such agent"), "{unknown:?}");
    rig.end();
    // The model's address does not answer: the gate holds, and the agent gives no answer.
    let rig = rig_with_role("honest").await;
    let tested = rig.place.call(&["agents", "test", "coder"]);
    assert_eq!(tested.code, 1, "{tested:?}");
    assert!(
        tested.out.contains("FAIL  answered") && tested.out.contains("ok    refused, and not done"),
        "{tested:?}"
    );
    rig.end();
}

/// The built-in backends are tested through their own path to the gate.
#[tokio::test(flavor = "multi_thread")]
async fn l1_builtin_backends_are_tested_too() {
    let place = Rig::set_up(Setting::default());
    let config = format!("{{ {PROVIDERS} }}");
    std::fs::write(place.home().join("config.json5"), config).unwrap();
    let roster = "{\"id\":\"coder\",\"backend\":\"native\",\"model\":\"fake:m\",\"mandate\":\"work\"}\n\
                  {\"id\":\"main\",\"backend\":\"rehearsal\",\"mandate\":\"work\"}\n";
    std::fs::write(place.home().join("data/agent-roster.jsonl"), roster).unwrap();
    let rig = Rig::on(place, &[]).await;
    for agent in ["coder", "main"] {
        let tested = rig.place.call(&["agents", "test", agent, "--canary-only"]);
        assert_eq!(tested.code, 0, "{agent}: {tested:?}");
        assert!(tested.out.contains("ok    asked before it acted"), "{agent}: {tested:?}");
    }
    rig.end();
}

/// A standing agent whose program is missing: the daemon starts, reports it, and serves every other agent.
#[tokio::test(flavor = "multi_thread")]
async fn a_standing_agent_that_is_not_installed_keeps_nobody_waiting() {
    let place = Rig::set_up(Setting::default());
    let roster = "{\"id\":\"coder\",\"backend\":\"acp\",\"profile\":\"claude\",\"mandate\":\"work\",\"standing\":true}\n\
                  {\"id\":\"main\",\"backend\":\"rehearsal\",\"mandate\":\"work\",\"standing\":true}\n";
    std::fs::write(place.home().join("data/agent-roster.jsonl"), roster).unwrap();
    let (child, ..) = start_with(&place, &[]);
    let _child = KillOnDrop(child);
    let log = || {
        let mut found = std::fs::read_dir(place.home().join("logs/gateway")).unwrap().flatten();
        found.any(|file| {
            let text = std::fs::read_to_string(file.path()).unwrap_or_default();
            text.contains("a standing agent cannot be run yet")
                && text.contains("tribune agents install claude")
        })
    };
    until("the daemon's log says so", log).await;
    assert!(place.ok(&["status"]).contains("claude: not tested, not run: "));
    assert_eq!(place.call(&["chat", "hello"]).code, 0);
}
