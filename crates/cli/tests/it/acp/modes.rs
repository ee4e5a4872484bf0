//! Approval modes of agents, and agents on a folder: modes in the roster, and `tribune run NAME`.

use std::process::Output;

use serde_json::{Value, json};
use tribune_storage::home::Home;
use tribune_storage::store::Reader;
use tribune_storage::verdict_log::Verdicts;

use super::{Rig, Setting, run, write};
use crate::fixture::Place;

/// Every call needs an approval or is denied.
const STRICT: &str = r#"@id("no-secrets") forbid(principal, action in [Tribune::Action::"write", Tribune::Action::"edit"], resource)
    when { context has path && context.path like "secrets/*" };"#;

fn read(call: &str) -> Value {
    json!({ "ask": { "toolCallId": call, "title": "Read", "kind": "read", "rawInput": { "path": "/workspace/notes.txt" } } })
}

#[tokio::test(flavor = "multi_thread")]
async fn l1_a_mode_is_decided_by_the_law_and_stands_in_its_facts() {
    for (mode, said) in [
        ("approve-all", "[yes][yes][no][yes]"),
        ("approve-reads", "[no][no][no][yes]"),
        ("deny-all", "[no][no][no][no]"),
    ] {
        let roster = format!(",\"mode\":\"{mode}\"");
        let mut rig = Rig::new(Setting { law: STRICT, roster: &roster, ..Setting::default() }).await;
        let acts = json!([
            write("a", "a.txt", "x"),
            run("r", "touch b.txt"),
            write("s", "secrets/key", "x"),
            read("n"),
        ]);
        let played = rig.plays(acts).await;
        assert_eq!(played.text, said, "{mode}: {played:#?}");
        assert_eq!(rig.workspace("a.txt").is_some(), mode == "approve-all", "{mode}");
        if mode == "approve-all" {
            // Autorun files still need an approval.
            let mut operator = rig.operator().await;
            let running = rig.begins(json!([write("e", ".envrc", "x")])).await;
            let waiting = Rig::waiting(&mut operator).await;
            Rig::decide(&mut operator, &waiting[0], "deny").await;
            assert_eq!(rig.ended(running).await.text, "[no]");
        } else {
            let forced = rig.plays(json!([{ "do": { "run": "echo x > c.txt" } }])).await;
            assert_eq!(rig.workspace("c.txt"), None, "{mode}: {forced:#?}");
        }
        let place = rig.end();
        let reader = Reader::open(&Home::at(place.home())).unwrap();
        let judged = Verdicts::from(&reader, 0).map(|judged| judged.unwrap().record.unwrap());
        let own: Vec<_> = judged.filter(|record| record.facts.agent == "coder").collect();
        assert!(
            !own.is_empty()
                && own
                    .iter()
                    .all(|record| record.facts.approval_mode.map(|mode| mode.as_str()) == Some(mode))
        );
    }
}

fn on(place: &Place, folder: &str, args: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } =
        place.command(args).current_dir(place.path(folder)).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn l1_an_agent_works_on_a_folder_of_the_operators_and_nowhere_else() {
    let place = Rig::set_up(Setting::default());
    for name in ["project", "other"] {
        std::fs::create_dir(place.path(name)).unwrap();
        std::fs::write(place.path(name).join("notes.txt"), name).unwrap();
    }
    for (args, why) in [
        (&["run", "played", "--", "--yolo"][..], "drives it over ACP"),
        (&["run", "--net", "a.example", "played"], "egress.agents"),
        (&["run", "--env", "A=b", "played"], "its profile"),
        (&["run", "claude"], "tribune agents install claude"),
        (&["run", "--mode", "approve-all", "--", "true"], "for agents"),
        (&["run", "--mode", "everything", "played"], "approve-reads"),
    ] {
        let (code, _, err) = on(&place, "project", args);
        assert!(code != 0 && err.contains(why), "{args:?}: {err}");
    }
    let hex = |acts: Value| acts.to_string().bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    let acts = hex(json!([write("a", "a.txt", "x"), { "do": { "run": "cat notes.txt; ls /workspace" } }]));
    for folder in ["project", "other"] {
        let (code, out, err) = on(&place, folder, &["run", "played", "--", &acts]);
        assert_eq!(code, 0, "{out} {err}");
        assert!(out.contains("[yes]") && out.contains(folder), "{out} {err}");
        assert_eq!(std::fs::read_to_string(place.path(folder).join("a.txt")).unwrap(), "x");
    }
    // The same agent the next time, and another agent for another mode.
    let count = || place.ok(&["agents", "list"]).lines().filter(|line| line.contains("played-")).count();
    assert_eq!(count(), 2);
    on(&place, "project", &["run", "played", "--", &acts]);
    assert_eq!(count(), 2);
    let more = hex(json!([write("b", "b.txt", "x"), { "do": { "run": "echo x > c.txt" } }]));
    let (_, out, err) = on(&place, "project", &["run", "--workspace", "read-only", "played", "--", &more]);
    assert!(out.contains("[no]"), "{out} {err}");
    assert!(!place.path("project").join("b.txt").exists() && !place.path("project").join("c.txt").exists());
    assert_eq!(count(), 3);
    place.ok(&["down"]);
}
