//! The limitations of each agent. The guide has a table of them: each line is tested here, and the table has no other
//! line.

use super::{Agent, AgentDaemon, ModelOrder};
use crate::acp::FREE;

/// The lines of the guide's table: the profile, and its limitation.
const TABLE: [(&str, &str); 7] = [
    ("claude", "asking about an edit of a file that it was not let read"),
    ("codex", "`read`"),
    ("gemini", "tools of MCP servers"),
    ("gemini", "fetching a page"),
    ("gemini", "going on after its process was killed, each time"),
    ("opencode", "searching in files, on a machine without `rg`"),
    ("opencode", "going on after its process was killed"),
];

#[test]
fn the_guide_lists_what_these_tests_find() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/cli-agents.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let section = guide.split("\n## ").find(|section| section.starts_with("What cannot be tried")).unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|row| {
        let mut cells = row.trim_matches('|').split(" | ").map(str::trim);
        let (profile, what, why) = (cells.next().unwrap(), cells.next().unwrap(), cells.next().unwrap());
        assert!(!why.is_empty() && cells.next().is_none(), "{row}");
        (profile.trim_matches('`'), what)
    });
    assert_eq!(cells.collect::<Vec<_>>(), TABLE);
}

/// The law allows the edit, so only the program itself can refuse it.
async fn edits_nothing_unread(agent: Agent) {
    let no_reading = r#"@id("no-reading") forbid(principal, action == Tribune::Action::"read", resource);"#;
    let mut daemon = AgentDaemon::open(agent, &format!("{FREE}\n{no_reading}")).await;
    let said = daemon.does(&[ModelOrder::Edit("notes.txt", "notes", "changed")]).await;
    assert_eq!(daemon.rig.workspace("notes.txt").as_deref(), Some("notes\n"), "{said:#?}");
    assert!(daemon.model_heard("has not been read yet"), "{said:#?}");
    // The same after it was allowed to read.
    let mut daemon = AgentDaemon::open(agent, FREE).await;
    let said = daemon
        .does(&[ModelOrder::Read("notes.txt"), ModelOrder::Edit("notes.txt", "notes", "changed")])
        .await;
    assert_eq!(daemon.rig.workspace("notes.txt").as_deref(), Some("changed\n"), "{said:#?}");
    daemon.rig.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn claude_edits_nothing_that_it_did_not_read() {
    edits_nothing_unread(Agent::Claude).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn codex_reads_with_a_command() {
    let mut daemon = AgentDaemon::open(Agent::Codex, FREE).await;
    let said = daemon.does(&[ModelOrder::Read("notes.txt")]).await;
    let verdicts = daemon.verdicts();
    assert!(verdicts.contains(&("exec".to_owned(), "allow".to_owned())), "{said:#?}");
    assert!(verdicts.iter().all(|(tool, _)| tool != "read"), "{verdicts:?}");
    daemon.rig.end();
}

/// It asks and is allowed, but does not use the sandbox's proxy.
#[tokio::test(flavor = "multi_thread")]
async fn gemini_fetches_no_page() {
    let mut daemon = AgentDaemon::open(Agent::Gemini, FREE).await;
    let said = daemon.does(&[ModelOrder::Fetch("http://page.example/words")]).await;
    let verdicts = daemon.verdicts();
    assert!(verdicts.contains(&("web_fetch".to_owned(), "allow".to_owned())), "{verdicts:?} {said:#?}");
    assert!(daemon.model_heard("Error"), "{said:#?}");
    daemon.rig.end();
}

/// It may search, but does not ship the program for it.
#[tokio::test(flavor = "multi_thread")]
async fn opencode_searches_with_a_program_that_it_does_not_bring() {
    let mut daemon = AgentDaemon::open(Agent::Opencode, FREE).await;
    let said = daemon.rig.hears(r#"[[call grep {"pattern":"no*tes"}]]"#).await;
    let verdicts = daemon.verdicts();
    assert!(verdicts.contains(&("search".to_owned(), "allow".to_owned())), "{verdicts:?} {said:#?}");
    let has_rg = std::process::Command::new("sh").args(["-c", "command -v rg"]).output().unwrap();
    assert_eq!(daemon.model_heard("notes.txt"), has_rg.status.success(), "{said:#?}");
    daemon.rig.end();
}
