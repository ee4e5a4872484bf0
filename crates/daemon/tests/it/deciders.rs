//! Every change of who may decide or act is an entry of the ledger, with who did it.

use serde_json::{Value, json};
use tribune_testkit::{TempHome, TestDaemon, assert_sound, config};

/// What, whom and who, of the changes in the ledger, oldest first.
async fn recorded(daemon: &TestDaemon) -> Vec<String> {
    let mut operator = daemon.operator().await;
    let asked = json!({ "entity_id": "roster:deciders", "limit": 1000 });
    let tail = operator.call("ledger.tail", &asked).await.unwrap();
    let line = |entry: &Value| {
        let entry = &entry["entry"];
        let word = |name: &str| entry["payload"][name].as_str().unwrap().to_owned();
        assert_eq!((&entry["quality"], &entry["actor"]), (&json!("change"), &json!(word("by"))));
        format!("{} {} {} by {}", word("change"), word("kind"), word("id"), word("by"))
    };
    tail["entries"].as_array().unwrap().iter().map(line).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_of_deciders_is_an_entry_with_its_author() {
    let daemon = TestDaemon::start().await;
    assert_eq!(recorded(&daemon).await, Vec::<String>::new(), "a new home has nothing to record");
    let mut operator = daemon.operator().await;
    operator.call("approver.add", &json!({ "id": "ada", "roles": ["release"] })).await.unwrap();
    operator.call("approver.add", &json!({ "id": "bob" })).await.unwrap();
    operator.call("agent.add", &json!({ "agent_id": "clerk" })).await.unwrap();
    // What is refused is not recorded.
    for (method, params) in [
        ("approver.add", json!({ "id": "ada" })),
        ("approver.add", json!({ "id": "main" })),
        ("approver.remove", json!({ "id": "carl" })),
        ("agent.add", json!({ "agent_id": "clerk" })),
        ("agent.add", json!({ "agent_id": "bad", "pubkey": "none" })),
    ] {
        operator.call(method, &params).await.unwrap_err();
    }
    let left = operator.call("approver.remove", &json!({ "id": "bob" })).await.unwrap();
    assert_eq!(
        (&left["approvers"][0]["id"], &left["approvers"][0]["changed_by"]),
        (&json!("ada"), &json!("operator"))
    );
    assert_eq!(left["approvers"].as_array().unwrap().len(), 1);
    let newest = &left["changes"][0];
    assert_eq!(
        (&newest["change"], &newest["kind"], &newest["id"]),
        (&json!("removed"), &json!("approver"), &json!("bob"))
    );
    let mut expected: Vec<String> = [
        "added approver ada by operator",
        "added approver bob by operator",
        "added agent clerk by operator",
        "removed approver bob by operator",
    ]
    .map(str::to_owned)
    .to_vec();
    assert_eq!(recorded(&daemon).await, expected);
    drop(operator);

    // What is changed in the files while no daemon runs is found at the next start, once.
    let home = daemon.stop().await;
    let approvers = home.read("data/approvers.json");
    home.write("data/approvers.json", &approvers.replace("release", "security"));
    let roster = home.read("data/agent-roster.jsonl");
    let kept: String =
        roster.lines().filter(|line| !line.contains("clerk")).map(|line| format!("{line}\n")).collect();
    home.write("data/agent-roster.jsonl", &format!("{kept}{{\"id\":\"mole\"}}\n"));
    expected.extend(
        ["changed approver ada by file", "added agent mole by file", "removed agent clerk by file"]
            .map(str::to_owned),
    );
    let mut home = home;
    for _ in 0..2 {
        let daemon = TestDaemon::start_at(home, &config()).await;
        assert_eq!(recorded(&daemon).await, expected);
        home = daemon.stop().await;
    }
    assert_sound(&home.home);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_an_older_home_are_recorded_at_its_first_start() {
    let home = TempHome::new();
    let ada = json!([{ "id": "ada", "roles": [], "token_hash": "00".repeat(32) }]);
    home.write("data/approvers.json", &ada.to_string());
    home.write("data/agent-roster.jsonl", "{\"id\":\"main\",\"standing\":true}\n");
    let daemon = TestDaemon::start_at(home, &config()).await;
    assert_eq!(recorded(&daemon).await, ["added approver ada by file", "added agent main by file"]);
    assert_sound(&daemon.stop().await.home);
}
