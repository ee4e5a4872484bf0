//! What each agent does under each law. One agent after the other would take minutes, so each has tests of its own.

use super::{Agent, House, Order, PLANTED, SECRET};
use crate::acp::{ASK, FREE, Rig, processes, until};
use crate::sandboxed_commands::mark;

/// Everything is free but this.
fn but(forbidden: &str) -> String {
    format!("{FREE}\n{forbidden}")
}

const NO_CHANGES: &str = r#"@id("no-changes") forbid(principal, action in [Tribune::Action::"write", Tribune::Action::"edit"], resource);"#;
const NO_COMMANDS: &str =
    r#"@id("no-commands") forbid(principal, action == Tribune::Action::"exec", resource);"#;
const NO_LOOKING: &str = r#"@id("no-looking") forbid(principal, action in [Tribune::Action::"read", Tribune::Action::"exec"], resource);"#;

/// Writes down every variable, every command line and every file that may hold a key.
const LOOK_AROUND: &str = "env > seen.txt; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline >> seen.txt 2>/dev/null; \
                           grep -arsE 'fixture-|puts-its-own' /home /tmp /etc /run >> seen.txt; true";

/// Plain words, a file, a command: what the law lets happen happens, and is in the ledger.
async fn works(agent: Agent) {
    let mut house = House::open(agent, FREE).await;
    let said = house.rig.hears("hello").await;
    assert_eq!(said.stop, "end_turn", "{said:#?}");
    assert!(said.text.contains(tribune_testkit::upstream::model::GREETING), "{said:#?}");

    let wrote = house.does(&[Order::Write("made.txt", "by an agent")]).await;
    assert_eq!(
        house.rig.workspace("made.txt").as_deref().map(str::trim_end),
        Some("by an agent"),
        "{wrote:#?}"
    );
    let ran = house.does(&[Order::Run("cp notes.txt copy.txt && echo done")]).await;
    assert_eq!(house.rig.workspace("copy.txt").as_deref(), Some("notes\n"), "{ran:#?}");
    let read = house.does(&[Order::Read("notes.txt")]).await;
    assert!(house.model_heard("notes"), "{read:#?}");

    let verdicts = house.verdicts();
    for tool in ["exec", if agent == Agent::Codex { "exec" } else { "read" }] {
        assert!(verdicts.contains(&(tool.to_owned(), "allow".to_owned())), "{tool}: {verdicts:?}");
    }
    let changed =
        |(tool, said): &(String, String)| matches!(tool.as_str(), "write" | "edit") && said == "allow";
    assert!(verdicts.iter().any(changed), "{verdicts:?}");
    // The house's key goes up, and is nowhere in the box.
    for request in house.model.requests() {
        assert!(format!("{:?}", request.headers).contains(SECRET), "{}", request.path);
    }
    let looked = house.does(&[Order::Run(LOOK_AROUND)]).await;
    let seen =
        std::fs::read(house.rig.place.home().join("agents/coder/workspace/seen.txt")).unwrap_or_default();
    let seen = String::from_utf8_lossy(&seen);
    assert!(seen.contains("the-house-puts-its-own-in"), "its own key is none: {looked:#?}");
    assert!(!seen.contains(SECRET));
    house.rig.end();
}

/// What the law forbids does not happen, and the ledger says that it was forbidden.
async fn is_refused(agent: Agent) {
    for (law, order, tool) in [
        (NO_CHANGES, Order::Write("made.txt", "by an agent"), ["write", "edit"]),
        (NO_COMMANDS, Order::Run("cp notes.txt made.txt"), ["exec", "exec"]),
        (NO_LOOKING, Order::Read("private.txt"), ["read", "exec"]),
    ] {
        let mut house = House::open(agent, &but(law)).await;
        let said = house.does(&[order]).await;
        assert_eq!(said.of_type("ungoverned").len(), 0, "{said:#?}");
        assert_eq!(house.rig.workspace("made.txt"), None, "{order:?}: {said:#?}");
        assert!(!house.model_heard(PLANTED), "{order:?}");
        let verdicts = house.verdicts();
        let denied = |(name, said): &(String, String)| tool.contains(&name.as_str()) && said == "deny";
        assert!(verdicts.iter().any(denied), "{order:?}: {verdicts:?}");
        // It goes on.
        let after = house.rig.hears("hello").await;
        assert_eq!(after.stop, "end_turn", "{order:?}: {after:#?}");
        house.rig.end();
    }
}

/// A person decides about the exact command; what was decided runs, and nothing else.
async fn waits_for_a_person(agent: Agent) {
    let mut house = House::open(agent, ASK).await;
    let mut operator = house.rig.operator().await;
    for (decision, made) in [("deny", None), ("allow", Some("notes\n"))] {
        let words = house.orders(&[Order::Run("cp notes.txt made.txt")]);
        let running = house.rig.begins_with(&words).await;
        let waiting = Rig::waiting(&mut operator).await;
        let card =
            operator.call("approval.show", &serde_json::json!({ "id": waiting[0]["id"] })).await.unwrap();
        assert_eq!(card["action"]["input"]["command"], "cp notes.txt made.txt", "{card:#}");
        assert_eq!(house.rig.workspace("made.txt"), None);
        house.rig.place.ok(&["approvals", decision, waiting[0]["id"].as_str().unwrap()]);
        let said = house.rig.ended(running).await;
        assert_eq!(house.rig.workspace("made.txt").as_deref(), made, "{decision}: {said:#?}");
    }
    house.rig.end();
}

/// A command runs, the turn is cancelled, and nothing of it is left running; the agent goes on.
async fn is_cancelled(agent: Agent) {
    let mut house = House::open(agent, FREE).await;
    let mut operator = house.rig.operator().await;
    let mark = mark();
    let command = format!("while :; do echo x >> grows.txt; sleep 0.1; done; echo {mark}");
    let is_running = || processes().iter().any(|(.., line)| line.contains(&mark));
    let words = house.orders(&[Order::Run(&command)]);
    let running = house.rig.begins_with(&words).await;
    until("the command began", || house.rig.workspace("grows.txt").is_some() && is_running()).await;
    let params = serde_json::json!({ "session_key": crate::acp::KEY });
    operator.call("session.cancel", &params).await.unwrap();
    let said = house.rig.ended(running).await;
    assert_eq!(said.stop, "cancelled", "{said:#?}");
    until("nothing of the command is left", || !is_running()).await;
    let grown = house.rig.workspace("grows.txt");
    let after = house.rig.hears("hello").await;
    assert_eq!(after.stop, "end_turn", "{after:#?}");
    assert_eq!(house.rig.workspace("grows.txt"), grown, "it writes no more");
    house.rig.end();
}

/// Its process is killed between two turns; the next one starts it anew.
async fn is_started_anew(agent: Agent) {
    let mut house = House::open(agent, FREE).await;
    house.rig.hears("hello").await;
    house.kill_agent().await;
    let after = house.does(&[Order::Write("made.txt", "again")]).await;
    assert_ne!(after.stop, "error", "{after:#?}");
    // Those that begin afresh say so. One of them does or does not, by how much it had written down by then.
    let notices: Vec<&str> =
        after.of_type("notice").iter().filter_map(|notice| notice["code"].as_str()).collect();
    let is_as_told = match agent {
        Agent::Opencode => notices == ["context_lost"],
        Agent::Gemini => notices.is_empty() || notices == ["context_lost"],
        Agent::Claude | Agent::ClaudeCode | Agent::Codex => notices.is_empty(),
    };
    assert!(is_as_told, "{after:#?}");
    assert_eq!(house.rig.workspace("made.txt").as_deref().map(str::trim_end), Some("again"), "{after:#?}");
    house.rig.end();
}

/// The daemon is killed while a command waits. The answer that is given after that lets the same command go, once.
async fn outlives_the_daemon(agent: Agent) {
    let mut house = House::open(agent, ASK).await;
    let mut operator = house.rig.operator().await;
    let words = house.orders(&[Order::Run("echo once >> made.txt")]);
    house.rig.begins_with(&words).await;
    let waiting = Rig::waiting(&mut operator).await;
    drop(operator);
    house.rig = house.rig.killed().await;
    let mut operator = house.rig.operator().await;
    let still = Rig::waiting(&mut operator).await;
    assert_eq!(still[0]["id"], waiting[0]["id"]);
    house.rig.place.ok(&["approvals", "allow", still[0]["id"].as_str().unwrap()]);
    assert_eq!(house.rig.workspace("made.txt"), None, "nobody but the agent carries it out");
    let again = house.rig.hears(&words).await;
    assert_eq!(house.rig.workspace("made.txt").as_deref(), Some("once\n"), "{again:#?}");
    let running = house.rig.begins_with(&words).await;
    let asked = Rig::waiting(&mut operator).await;
    Rig::decide(&mut operator, &asked[0], "deny").await;
    house.rig.ended(running).await;
    assert_eq!(house.rig.workspace("made.txt").as_deref(), Some("once\n"), "and only once");
    house.rig.end();
}

macro_rules! matrix {
    ($($name:ident: $agent:expr),+ $(,)?) => {$(
        mod $name {
            use super::*;

            #[tokio::test(flavor = "multi_thread")]
            async fn l1_works_with_leave() {
                works($agent).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn l1_does_nothing_without_leave() {
                is_refused($agent).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn l2_waits_for_a_person() {
                waits_for_a_person($agent).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn l8_is_cancelled_in_the_middle_of_a_command() {
                is_cancelled($agent).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn is_killed_and_started_anew() {
                is_started_anew($agent).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn l2_an_answer_after_the_daemon_was_killed_counts_once() {
                outlives_the_daemon($agent).await;
            }
        }
    )+};
}

matrix! {
    claude: Agent::Claude,
    claude_code: Agent::ClaudeCode,
    codex: Agent::Codex,
    gemini: Agent::Gemini,
    opencode: Agent::Opencode,
}
