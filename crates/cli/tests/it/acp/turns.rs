//! Turns of a CLI agent under law: it answers, asks, acts, is cancelled, dies and is restarted.

use serde_json::json;

use super::{ASK, Rig, Setting, run, until, write};
use crate::sandboxed_commands::{mark, sleeping};

#[tokio::test(flavor = "multi_thread")]
async fn l1_agent_answers_and_acts_with_permission() {
    let mut rig = Rig::new(Setting::default()).await;
    let first = rig.plays(json!([{ "say": "hello " }, { "say": "you" }, "turns"])).await;
    assert_eq!((first.text.as_str(), first.stop.as_str()), ("hello youturn 1", "end_turn"));
    let usage = first.of_type("usage_update");
    assert_eq!((&usage[0]["input_tokens"], &usage[0]["output_tokens"]), (&json!(11), &json!(7)));

    let acted =
        rig.plays(json!([write("w1", "made.txt", "by hand"), run("r1", "cat made.txt notes.txt")])).await;
    assert_eq!(acted.text, "[yes][yes]", "{acted:#?}");
    assert_eq!(rig.workspace("made.txt").as_deref(), Some("by hand"));
    let results = acted.of_type("tool_result");
    assert_eq!(results[1]["content"], "by handnotes", "{results:?}");
    let calls = acted.of_type("tool_call");
    assert_eq!((&calls[0]["name"], &calls[0]["input"]["path"]), (&json!("write"), &json!("made.txt")));
    assert_eq!(calls[1]["input"], json!({ "command": "cat made.txt notes.txt" }));

    // Unknown members are passed on unchanged.
    let told = rig.plays(json!([{ "update": { "sessionUpdate": "weather", "sun": 1 } }])).await;
    let updates = told.of_type("agent_update");
    assert_eq!(updates[0]["kind"], "weather");
    let line = updates[0]["line"].as_str().unwrap();
    assert!(
        line.starts_with("{\"jsonrpc\": \"2.0\", \"method\": \"session/update\"")
            && line.contains("\"sun\": 1")
    );
    rig.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn l2_a_person_decides_what_the_law_asks_about() {
    let mut rig = Rig::new(Setting { law: ASK, ..Setting::default() }).await;
    let mut operator = rig.operator().await;
    for (decision, said, file) in
        [("allow_once", "[yes]", Some("one")), ("deny", "[no]", Some("one")), ("deny_stop", "", Some("one"))]
    {
        let content = if decision == "allow_once" { "one" } else { "two" };
        let running = rig.begins(json!([write("w", "a.txt", content)])).await;
        let waiting = Rig::waiting(&mut operator).await;
        let card = operator.call("approval.show", &json!({ "id": waiting[0]["id"] })).await.unwrap();
        assert_eq!(card["action"]["input"], json!({ "path": "a.txt", "content": content }));
        Rig::decide(&mut operator, &waiting[0], decision).await;
        let played = rig.ended(running).await;
        assert!(played.text.starts_with(said), "{decision}: {played:#?}");
        assert_eq!(rig.workspace("a.txt").as_deref(), file, "{decision}");
    }
    rig.end();
}

/// A repeated request is a new request.
#[tokio::test(flavor = "multi_thread")]
async fn l2_permission_answers_one_request() {
    let mut rig = Rig::new(Setting { law: ASK, ..Setting::default() }).await;
    let mut operator = rig.operator().await;
    let mut ask = write("w", "a.txt", "x");
    ask.as_object_mut().unwrap().remove("do");
    let running = rig.begins(json!([ask, ask])).await;
    let first = Rig::waiting(&mut operator).await;
    Rig::decide(&mut operator, &first[0], "allow_once").await;
    let second = loop {
        let waiting = Rig::waiting(&mut operator).await;
        if waiting[0]["id"] != first[0]["id"] {
            break waiting;
        }
    };
    Rig::decide(&mut operator, &second[0], "deny").await;
    assert_eq!(rig.ended(running).await.text, "[yes][no]");
    rig.end();
}

/// Several files are several calls: either all are executed or none.
#[tokio::test(flavor = "multi_thread")]
async fn an_edit_of_several_files_is_asked_about_file_by_file() {
    let law = r#"
        @id("free") permit(principal, action in Tribune::Action::"side_effect", resource);
        @id("not-b") forbid(principal, action == Tribune::Action::"write", resource) when { context has path && context.path == "b.txt" };
    "#;
    let mut rig = Rig::new(Setting { law, ..Setting::default() }).await;
    let diff = |name: &str| json!({ "type": "diff", "path": format!("/workspace/{name}"), "newText": "n" });
    let ask = json!({ "toolCallId": "e", "kind": "edit", "title": "patch", "content": [diff("a.txt"), diff("b.txt")] });
    let played = rig.plays(json!([{ "ask": ask, "do": { "run": "echo n > a.txt; echo n > b.txt" } }])).await;
    assert_eq!((played.text.as_str(), played.stop.as_str()), ("[no]", "end_turn"), "{played:#?}");
    assert_eq!((rig.workspace("a.txt"), rig.workspace("b.txt")), (None, None));
    rig.end();
}

/// An agent that requests permission and then lets Tribune write the file is asked about once.
#[tokio::test(flavor = "multi_thread")]
async fn l2_file_write_uses_the_given_permission() {
    let profile = ", capabilities: { fs: { writeTextFile: true } }";
    let mut rig = Rig::new(Setting { law: ASK, profile, ..Setting::default() }).await;
    let mut operator = rig.operator().await;
    let wanted = |content: &str| json!({ "path": "/workspace/a.txt", "content": content });
    let ask = json!({ "toolCallId": "e", "kind": "edit", "title": "Write a.txt",
                      "content": [{ "type": "diff", "path": "/workspace/a.txt", "newText": "asked" }] });
    let acts = json!([
        { "ask": ask },
        { "fs": ["fs/write_text_file", wanted("asked")] },
        { "fs": ["fs/write_text_file", wanted("something else")] },
        { "fs": ["fs/read_text_file", { "path": "/workspace/a.txt" }] },
    ]);
    let running = rig.begins(acts).await;
    let first = Rig::waiting(&mut operator).await;
    Rig::decide(&mut operator, &first[0], "allow_once").await;
    let second = loop {
        let waiting = Rig::waiting(&mut operator).await;
        if waiting[0]["id"] != first[0]["id"] {
            break waiting;
        }
    };
    assert_eq!(rig.workspace("a.txt").as_deref(), Some("asked"), "written under the first permission");
    Rig::decide(&mut operator, &second[0], "deny").await;
    let played = rig.ended(running).await;
    assert_eq!(rig.workspace("a.txt").as_deref(), Some("asked"));
    assert!(
        played.text.starts_with("[yes][null][") && played.text.contains("denied by operator"),
        "{played:#?}"
    );
    assert!(played.text.contains("not offered here"), "reading was not advertised: {played:#?}");
    rig.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn l8_a_cancelled_turn_ends_and_the_agent_goes_on() {
    let mut rig = Rig::new(Setting { law: ASK, ..Setting::default() }).await;
    let mut operator = rig.operator().await;
    let running = rig.begins(json!([{ "hang": true }, { "say": "never" }])).await;
    rig.hangs().await;
    operator.call("session.cancel", &json!({ "session_key": super::KEY })).await.unwrap();
    let played = rig.ended(running).await;
    assert_eq!((played.stop.as_str(), played.text.contains("never")), ("cancelled", false), "{played:#?}");
    // The cancel also answers a waiting request.
    let running = rig.begins(json!([write("w", "a.txt", "x")])).await;
    Rig::waiting(&mut operator).await;
    operator.call("session.cancel", &json!({ "session_key": super::KEY })).await.unwrap();
    let played = rig.ended(running).await;
    assert_eq!(played.stop, "cancelled");
    assert_eq!(rig.workspace("a.txt"), None);
    let after = rig.plays(json!(["turns"])).await;
    assert_eq!((after.text.as_str(), after.of_type("notice").len()), ("turn 3", 0), "{after:#?}");
    rig.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_that_dies_is_restarted_and_resumes_its_conversation() {
    for (role, turn, notices) in [("", "turn 2", 0), ("forgetful", "turn 1", 1)] {
        let mut rig = Rig::new(Setting { role, ..Setting::default() }).await;
        let died = rig.plays(json!([{ "say": "so " }, { "exit": 3 }])).await;
        let (code, message) = died.error();
        assert_eq!((code.as_str(), died.text.as_str()), ("agent_ended", "so "));
        assert!(message.contains("ended with code 3") && message.contains("going down"), "{message}");
        let after = rig.plays(json!(["turns"])).await;
        assert_eq!(
            (after.text.as_str(), after.of_type("notice").len()),
            (turn, notices),
            "{role}: {after:#?}"
        );
        if notices == 1 {
            assert_eq!(after.of_type("notice")[0]["code"], "context_lost");
        }
        rig.end();
    }
}

/// It is killed between two turns and gets a message at once: the conversation continues.
#[tokio::test(flavor = "multi_thread")]
async fn agent_killed_between_turns_is_restarted_unnoticed() {
    let mut rig = Rig::new(Setting::default()).await;
    for turn in 1..=20_u32 {
        let said = rig.plays(json!(["turns"])).await;
        assert_eq!(said.of_type("error").len(), 0, "{said:#?}");
        assert!(said.text == format!("turn {turn}"), "{said:#?}");
        let own = rig.agent_processes();
        assert!(!own.is_empty());
        for pid in own {
            let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
            // It may have ended together with another process.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
    rig.end();
}

/// Instruction files look empty to it, and git in its sandbox does not record them as emptied.
#[tokio::test(flavor = "multi_thread")]
async fn git_in_the_sandbox_keeps_hidden_files() {
    let place = Rig::set_up(Setting::default());
    let profile = place.home().join("profiles/played.json5");
    let text = std::fs::read_to_string(&profile).unwrap();
    std::fs::write(&profile, text.replace("hide: ['.played']", "hide: ['.played', 'AGENTS.md']")).unwrap();
    let folder = place.home().join("agents/coder/workspace");
    std::fs::create_dir_all(folder.join("deep")).unwrap();
    for file in ["AGENTS.md", "deep/AGENTS.md"] {
        std::fs::write(folder.join(file), "words for agents\n").unwrap();
    }
    let git = |words: &[&str]| {
        let named = ["-c", "user.name=x", "-c", "user.email=x@x"];
        let run = std::process::Command::new("git").current_dir(&folder).args(named).args(words).output();
        let run = run.unwrap();
        assert!(run.status.success(), "{run:?}");
        String::from_utf8(run.stdout).unwrap()
    };
    git(&["init", "-q"]);
    git(&["add", "."]);
    git(&["commit", "-qm", "first"]);
    let mut rig = Rig::on(place, &[]).await;
    let command = "wc -c < AGENTS.md; echo more >> notes.txt; \
                   git -c user.name=y -c user.email=y@y commit -qam second; git show --stat --format=%s HEAD";
    let acts = json!([run("c", command)]);
    let said = rig.plays(acts).await;
    let results = said.of_type("tool_result");
    let result = results.last().unwrap()["content"].as_str().unwrap();
    assert!(result.starts_with("0\n"), "it sees nothing of them: {result}");
    assert!(
        result.contains("second") && result.contains("notes.txt") && !result.contains("AGENTS"),
        "{result}"
    );
    assert_eq!(git(&["show", "HEAD:AGENTS.md"]), "words for agents\n");
    assert_eq!(git(&["show", "HEAD:deep/AGENTS.md"]), "words for agents\n");
    rig.end();
}

/// More sessions than agents may run: each continues where it was.
#[tokio::test(flavor = "multi_thread")]
async fn more_sessions_than_agents_may_run_go_on_one_after_the_other() {
    let config = "{ canary: { untried: ['played'] }, cliAgents: { maxRunning: 2 } }";
    let mut rig = Rig::new(Setting { config, ..Setting::default() }).await;
    let keys: Vec<String> = (0..4).map(|peer| format!("agent:coder:rpc:local:dm:peer-{peer}")).collect();
    for key in &keys {
        rig.client.call("session.init", &json!({ "session_key": key })).await.unwrap();
    }
    for turn in 1..=3 {
        for key in &keys {
            let running = rig.begins_in(key, json!(["turns"])).await;
            let said = rig.ended(running).await;
            assert_eq!(said.text, format!("turn {turn}"), "{key}: {said:#?}");
            assert!(rig.agent_processes().len() <= 2, "{:?}", rig.agent_processes());
        }
    }
    rig.end();
}

/// The daemon is killed while a call waits. A decision after the restart releases the same call, once.
#[tokio::test(flavor = "multi_thread")]
async fn l2_an_answer_after_the_daemon_was_killed_releases_the_call_once() {
    let mut rig = Rig::new(Setting { law: ASK, ..Setting::default() }).await;
    let mark = mark();
    let mut operator = rig.operator().await;
    rig.begins(json!([{ "child": mark }, write("w", "a.txt", "x")])).await;
    let waiting = Rig::waiting(&mut operator).await;
    assert_eq!(sleeping(&mark).len(), 1);
    drop(operator);
    let mut rig = rig.killed().await;
    until("nothing of the agent is left", || sleeping(&mark).is_empty()).await;
    let mut operator = rig.operator().await;
    let still = Rig::waiting(&mut operator).await;
    assert_eq!(still[0]["id"], waiting[0]["id"]);
    Rig::decide(&mut operator, &still[0], "allow_once").await;
    assert_eq!(rig.workspace("a.txt"), None, "only the agent executes it");
    let again = rig.plays(json!(["turns", write("w", "a.txt", "x")])).await;
    assert_eq!(again.text, "turn 2[yes]", "{again:#?}");
    assert_eq!(rig.workspace("a.txt").as_deref(), Some("x"));
    let running = rig.begins(json!([write("w", "a.txt", "x")])).await;
    let asked = Rig::waiting(&mut operator).await;
    Rig::decide(&mut operator, &asked[0], "deny").await;
    assert_eq!(rig.ended(running).await.text, "[no]");
    rig.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn l7_sandbox_has_the_workspace_and_nothing_of_the_home() {
    let mut rig = Rig::new(Setting::default()).await;
    let secret = rig.place.home().join("secret.txt").display().to_string();
    let token = rig.place.home().join("run/token").display().to_string();
    let acts = json!([
        { "do": { "read": secret } }, { "do": { "read": token } },
        { "do": { "run": "env | cut -d= -f1 | sort | tr '\\n' ' '" } },
        { "do": { "run": "id -u; ls -A $HOME; cut -d: -f1 -s /proc/net/dev | tr -d ' '" } },
    ]);
    let looked = rig.plays(acts).await;
    assert!(!looked.text.contains("hush") && !looked.text.contains("trb_"), "{}", looked.text);
    assert!(!looked.text.contains("TRIBUNE_HOME") && looked.text.contains("HTTPS_PROXY"), "{}", looked.text);
    assert!(looked.text.contains("lo\n") && !looked.text.contains("eth"), "{}", looked.text);
    rig.end();
}

/// With a mandate without writing tools, no file changes whatever the agent does.
#[tokio::test(flavor = "multi_thread")]
async fn l3_read_only_mandate_makes_the_workspace_read_only() {
    let mut rig = Rig::new(Setting { tools: "read", ..Setting::default() }).await;
    let acts = json!([
        write("w", "a.txt", "x"),
        { "do": { "run": "echo x > b.txt; rm -f notes.txt; echo y >> notes.txt; mkdir d; ls" } },
    ]);
    let played = rig.plays(acts).await;
    assert!(played.text.starts_with("[no]"), "{played:#?}");
    let names: Vec<_> = std::fs::read_dir(rig.place.home().join("agents/coder/workspace")).unwrap().collect();
    assert_eq!((names.len(), rig.workspace("notes.txt").as_deref()), (1, Some("notes")));
    rig.end();
}

/// With a mandate without a tool for files, the agent sees none: it could send them to its model without a call.
#[tokio::test(flavor = "multi_thread")]
async fn l3_a_mandate_without_files_mounts_no_workspace() {
    let mut rig = Rig::new(Setting { tools: "web_fetch", ..Setting::default() }).await;
    let played =
        rig.plays(json!([{ "do": { "run": "ls -A /workspace; cat notes.txt; echo x > b.txt; pwd" } }])).await;
    assert!(played.text.contains("/workspace\n"), "{played:#?}");
    for there in ["notes.txt\n", "b.txt\n"] {
        assert!(!played.text.contains(there), "{played:#?}");
    }
    assert_eq!((rig.workspace("b.txt"), rig.workspace("notes.txt").as_deref()), (None, Some("notes")));
    rig.end();
}

/// The answer to a permission request has no place for a reason, so that the next prompt begins with it, once.
#[tokio::test(flavor = "multi_thread")]
async fn l8_reason_of_a_denial_is_in_the_next_prompt() {
    let place = Rig::set_up(Setting { law: super::ASK, ..Setting::default() });
    std::fs::write(place.home().join("policy/law.json5"), "{}").unwrap();
    let mut rig = Rig::on(place, &[]).await;
    let mut operator = rig.operator().await;
    let running = rig.begins(json!([run("r", "touch made.txt")])).await;
    let waiting = Rig::waiting(&mut operator).await;
    let params = json!({ "id": waiting[0]["id"], "decision": "deny", "reason": "not on a Friday" });
    operator.call("approval.decide", &params).await.unwrap();
    assert_eq!(rig.ended(running).await.text, "[no]");
    let told = rig.plays(json!(["prompt"])).await.text;
    assert!(told.contains("touch made.txt: denied by operator: not on a Friday"), "{told}");
    let later = rig.plays(json!(["prompt"])).await.text;
    assert!(!later.contains("not on a Friday"), "{later}");
    rig.end();
}
