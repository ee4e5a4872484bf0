//! Every agent under every law. Each agent has its own tests, because running all in one would take minutes.

use super::{Agent, AgentDaemon, ModelOrder, PLANTED, SECRET};
use crate::acp::{ASK, FREE, Rig, processes, until};
use crate::sandboxed_commands::mark;

/// A law that allows everything except this.
fn but(forbidden: &str) -> String {
    format!("{FREE}\n{forbidden}")
}

const NO_CHANGES: &str = r#"@id("no-changes") forbid(principal, action in [Tribune::Action::"write", Tribune::Action::"edit"], resource);"#;
const NO_COMMANDS: &str =
    r#"@id("no-commands") forbid(principal, action == Tribune::Action::"exec", resource);"#;
const NO_LOOKING: &str = r#"@id("no-looking") forbid(principal, action in [Tribune::Action::"read", Tribune::Action::"exec"], resource);"#;

/// A command that collects all variables, command lines and files that may hold a key.
const LOOK_AROUND: &str = "env > seen.txt; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline >> seen.txt 2>/dev/null; \
                           grep -arsE 'fixture-|puts-its-own' /home /tmp /etc /run >> seen.txt; true";

/// An answer, a file, a command: what the law allows happens, and the ledger records it.
async fn works(agent: Agent) {
    let mut daemon = AgentDaemon::open(agent, FREE).await;
    let said = daemon.rig.hears("hello").await;
    assert_eq!(said.stop, "end_turn", "{said:#?}");
    assert!(said.text.contains(tribune_testkit::upstream::model::GREETING), "{said:#?}");

    let wrote = daemon.does(&[ModelOrder::Write("made.txt", "by an agent")]).await;
    assert_eq!(
        daemon.rig.workspace("made.txt").as_deref().map(str::trim_end),
        Some("by an agent"),
        "{wrote:#?}"
    );
    let ran = daemon.does(&[ModelOrder::Run("cp notes.txt copy.txt && echo done")]).await;
    assert_eq!(daemon.rig.workspace("copy.txt").as_deref(), Some("notes\n"), "{ran:#?}");
    let read = daemon.does(&[ModelOrder::Read("notes.txt")]).await;
    assert!(daemon.model_heard("notes"), "{read:#?}");

    let verdicts = daemon.verdicts();
    for tool in ["exec", if agent == Agent::Codex { "exec" } else { "read" }] {
        assert!(verdicts.contains(&(tool.to_owned(), "allow".to_owned())), "{tool}: {verdicts:?}");
    }
    let changed =
        |(tool, said): &(String, String)| matches!(tool.as_str(), "write" | "edit") && said == "allow";
    assert!(verdicts.iter().any(changed), "{verdicts:?}");
    // The provider's key goes to the provider, and is nowhere in the sandbox.
    for request in daemon.model.requests() {
        assert!(format!("{:?}", request.headers).contains(SECRET), "{}", request.path);
    }
    let looked = daemon.does(&[ModelOrder::Run(LOOK_AROUND)]).await;
    let seen =
        std::fs::read(daemon.rig.place.home().join("agents/coder/workspace/seen.txt")).unwrap_or_default();
    let seen = String::from_utf8_lossy(&seen);
    assert!(seen.contains(tribune_egress::proxy_env::PLACEHOLDER), "it has no key of its own: {looked:#?}");
    assert!(!seen.contains(SECRET));
    daemon.rig.end();
}

/// What the law forbids does not happen, and the ledger records the denial.
async fn is_refused(agent: Agent) {
    for (law, order, tool) in [
        (NO_CHANGES, ModelOrder::Write("made.txt", "by an agent"), ["write", "edit"]),
        (NO_COMMANDS, ModelOrder::Run("cp notes.txt made.txt"), ["exec", "exec"]),
        (NO_LOOKING, ModelOrder::Read("private.txt"), ["read", "exec"]),
    ] {
        let mut daemon = AgentDaemon::open(agent, &but(law)).await;
        let said = daemon.does(&[order]).await;
        assert_eq!(said.of_type("ungoverned").len(), 0, "{said:#?}");
        assert_eq!(daemon.rig.workspace("made.txt"), None, "{order:?}: {said:#?}");
        assert!(!daemon.model_heard(PLANTED), "{order:?}");
        let verdicts = daemon.verdicts();
        let denied = |(name, said): &(String, String)| tool.contains(&name.as_str()) && said == "deny";
        assert!(verdicts.iter().any(denied), "{order:?}: {verdicts:?}");
        // It continues.
        let after = daemon.rig.hears("hello").await;
        assert_eq!(after.stop, "end_turn", "{order:?}: {after:#?}");
        daemon.rig.end();
    }
}

/// A person decides the exact command; that command runs, and no other.
async fn waits_for_a_person(agent: Agent) {
    let mut daemon = AgentDaemon::open(agent, ASK).await;
    let mut operator = daemon.rig.operator().await;
    for (decision, made) in [("deny", None), ("allow", Some("notes\n"))] {
        let words = daemon.orders(&[ModelOrder::Run("cp notes.txt made.txt")]);
        let running = daemon.rig.begins_with(&words).await;
        let waiting = Rig::waiting(&mut operator).await;
        let card =
            operator.call("approval.show", &serde_json::json!({ "id": waiting[0]["id"] })).await.unwrap();
        assert_eq!(card["action"]["input"]["command"], "cp notes.txt made.txt", "{card:#}");
        assert_eq!(daemon.rig.workspace("made.txt"), None);
        daemon.rig.place.ok(&["approvals", decision, waiting[0]["id"].as_str().unwrap()]);
        let said = daemon.rig.ended(running).await;
        assert_eq!(daemon.rig.workspace("made.txt").as_deref(), made, "{decision}: {said:#?}");
    }
    daemon.rig.end();
}

/// The turn is cancelled while a command runs: no process of it is left, and the agent continues.
async fn is_cancelled(agent: Agent) {
    let mut daemon = AgentDaemon::open(agent, FREE).await;
    let mut operator = daemon.rig.operator().await;
    let mark = mark();
    let command = format!("while :; do echo x >> grows.txt; sleep 0.1; done; echo {mark}");
    let is_running = || processes().iter().any(|(.., line)| line.contains(&mark));
    let words = daemon.orders(&[ModelOrder::Run(&command)]);
    let running = daemon.rig.begins_with(&words).await;
    until("the command began", || daemon.rig.workspace("grows.txt").is_some() && is_running()).await;
    let params = serde_json::json!({ "session_key": crate::acp::KEY });
    operator.call("session.cancel", &params).await.unwrap();
    let said = daemon.rig.ended(running).await;
    assert_eq!(said.stop, "cancelled", "{said:#?}");
    until("nothing of the command is left", || !is_running()).await;
    let grown = daemon.rig.workspace("grows.txt");
    let after = daemon.rig.hears("hello").await;
    assert_eq!(after.stop, "end_turn", "{after:#?}");
    assert_eq!(daemon.rig.workspace("grows.txt"), grown, "it writes no more");
    daemon.rig.end();
}

/// Its process is killed between two turns; the next turn restarts it.
async fn is_started_anew(agent: Agent) {
    let mut daemon = AgentDaemon::open(agent, FREE).await;
    daemon.rig.hears("hello").await;
    daemon.kill_agent().await;
    let after = daemon.does(&[ModelOrder::Write("made.txt", "again")]).await;
    assert_ne!(after.stop, "error", "{after:#?}");
    // Agents that start a new conversation report it. One of them may or may not, depending on what it had stored.
    let notices: Vec<&str> =
        after.of_type("notice").iter().filter_map(|notice| notice["code"].as_str()).collect();
    let is_as_told = match agent {
        Agent::Opencode => notices == ["context_lost"],
        Agent::Gemini => notices.is_empty() || notices == ["context_lost"],
        Agent::Claude | Agent::ClaudeCode | Agent::Codex => notices.is_empty(),
    };
    assert!(is_as_told, "{after:#?}");
    assert_eq!(daemon.rig.workspace("made.txt").as_deref().map(str::trim_end), Some("again"), "{after:#?}");
    daemon.rig.end();
}

/// The daemon is killed while a command waits. A decision after the restart releases the same command, once.
async fn outlives_the_daemon(agent: Agent) {
    let mut daemon = AgentDaemon::open(agent, ASK).await;
    let mut operator = daemon.rig.operator().await;
    let words = daemon.orders(&[ModelOrder::Run("echo once >> made.txt")]);
    daemon.rig.begins_with(&words).await;
    let waiting = Rig::waiting(&mut operator).await;
    drop(operator);
    daemon.rig = daemon.rig.killed().await;
    let mut operator = daemon.rig.operator().await;
    let still = Rig::waiting(&mut operator).await;
    assert_eq!(still[0]["id"], waiting[0]["id"]);
    daemon.rig.place.ok(&["approvals", "allow", still[0]["id"].as_str().unwrap()]);
    assert_eq!(daemon.rig.workspace("made.txt"), None, "only the agent executes it");
    let again = daemon.rig.hears(&words).await;
    assert_eq!(daemon.rig.workspace("made.txt").as_deref(), Some("once\n"), "{again:#?}");
    let running = daemon.rig.begins_with(&words).await;
    let asked = Rig::waiting(&mut operator).await;
    Rig::decide(&mut operator, &asked[0], "deny").await;
    daemon.rig.ended(running).await;
    assert_eq!(daemon.rig.workspace("made.txt").as_deref(), Some("once\n"), "and only once");
    daemon.rig.end();
}

macro_rules! matrix {
    ($($name:ident: $agent:expr),+ $(,)?) => {$(
        mod $name {
            use super::*;

            #[tokio::test(flavor = "multi_thread")]
            async fn l1_works_with_permission() {
                works($agent).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn l1_does_nothing_without_permission() {
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
            async fn is_killed_and_restarted() {
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
