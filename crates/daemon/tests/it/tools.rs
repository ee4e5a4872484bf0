//! The tools of a daemon.

use serde_json::json;
use tribune_config::{Config, Sandbox};
use tribune_testkit::{TempHome, TestDaemon, assert_sound, config, run_turn};

#[tokio::test(flavor = "multi_thread")]
async fn daemon_offers_the_configured_tools() {
    for (sandbox, expected) in [
        // No weaker tool takes its place: this program cannot make a sandbox.
        (Sandbox::Full, "the sandbox cannot be started"),
        (Sandbox::Landlock, "the sandbox cannot be started"),
        (Sandbox::Off, "exit code 0\n[stdout]\nfrom the file\n"),
    ] {
        let home = TempHome::new();
        home.write("mandates/free.md", "---\ntools: write, exec, gateway\n---\n");
        home.write("policy/law.json5", "{ overrides: { exec: \"off\", gateway: \"off\" } }");
        home.write("data/agent-roster.jsonl", "{\"id\":\"main\",\"mandate\":\"free\"}\n");
        let config = Config { sandbox, ..config() };
        let daemon = TestDaemon::start_at(home, &config).await;
        let mut client = daemon.operator().await;
        let key = "agent:main:local:me:dm:me";
        client.call("session.init", &json!({ "session_key": key })).await.unwrap();
        let script = "!call write {\"path\":\"a\",\"content\":\"from the file\\n\"}\n!call exec {\"command\":\"cat a\"}\n!call gateway {\"action\":\"status\"}";
        let (events, _) = run_turn(&mut client, key, script).await.unwrap();
        let results = events.iter().filter(|event| event["type"] == "tool_result");
        let results: Vec<&str> = results.map(|event| event["content"].as_str().unwrap()).collect();
        assert_eq!(results[0], "made `a`, 14 bytes");
        assert!(results[1].starts_with(expected), "{results:?}");
        assert!(results[2].contains("\"draining\":false"), "{results:?}");
        assert_sound(&daemon.stop().await.home);
    }
}
