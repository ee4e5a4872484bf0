//! Names that the operator hides from agents.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::json;
use tribune_records::outcome::ToolErrorCode;

use crate::attacks::Fixture;

#[tokio::test]
async fn hidden_names_are_neither_read_nor_written() {
    let fixture = Fixture::new().with(|tools| tools.hiding(&[".env".to_owned(), "keys/private".to_owned()]));
    for file in [".env", "app/.ENV", "keys/private/deep/key", "keys/public", "env"] {
        fixture.write(file, "needle\n");
    }
    symlink(".env", fixture.inside("link")).unwrap();
    symlink("keys/private", fixture.inside("way")).unwrap();
    for path in
        [".env", "app/.ENV", "app/../.env", "keys/private/deep/key", "keys/private", "link", "way/deep/key"]
    {
        for (tool, input) in
            [("read", json!({ "path": path })), ("search", json!({ "path": path, "query": "needle" }))]
        {
            let done = fixture.done(tool, input).await;
            assert_eq!(done.code, Some(ToolErrorCode::Refused), "{tool} {path}: {}", done.outcome.content);
            assert!(done.outcome.content.contains("is hidden here"), "{}", done.outcome.content);
        }
    }
    for path in [".env", "new/.Env", "keys/private/deep/key", "keys/private/new"] {
        for (tool, input) in [
            ("write", json!({ "path": path, "content": "mine\n" })),
            ("edit", json!({ "path": path, "old": "needle", "new": "mine" })),
        ] {
            assert_eq!(fixture.done(tool, input).await.code, Some(ToolErrorCode::Refused), "{tool} {path}");
        }
    }
    assert!(!fixture.inside("new").exists());
    assert_eq!(fs::read_to_string(fixture.inside(".env")).unwrap(), "needle\n");
    let found = fixture.good("search", json!({ "query": "needle" })).await;
    assert_eq!(found, "env:1: needle\nkeys/public:1: needle\n");
    assert_eq!(fixture.good("read", json!({ "path": "keys/public" })).await, "needle\n");
    fixture.good("write", json!({ "path": "keys/public", "content": "mine\n" })).await;
}

#[tokio::test]
async fn targets_of_hidden_names_and_links_are_hidden_by_their_own_names_too() {
    let hide = [".env", "config/secrets"].map(str::to_owned);
    let fixture = Fixture::new().with(|tools| tools.hiding(&hide));
    for file in ["conf/prod", "conf/by-sandbox", "elsewhere/secrets/key", "elsewhere/plain", "prod"] {
        fixture.write(file, "needle\n");
    }
    for (to, link) in [
        ("conf/prod", ".env"),
        ("/workspace/conf/by-sandbox", "conf/.env"),
        ("elsewhere", "config"),
        ("/etc/passwd", "elsewhere/.env"),
    ] {
        symlink(to, fixture.inside(link)).unwrap();
    }
    for path in [
        ".env",
        "conf/prod",
        "conf/by-sandbox",
        "config/secrets/key",
        "elsewhere/secrets/key",
        "elsewhere/secrets",
        "config/../elsewhere/./secrets/key",
    ] {
        for (tool, input) in
            [("read", json!({ "path": path })), ("search", json!({ "path": path, "query": "needle" }))]
        {
            let done = fixture.done(tool, input).await;
            assert!(
                done.outcome.content.contains("is hidden here"),
                "{tool} {path}: {}",
                done.outcome.content
            );
        }
    }
    for path in ["conf/prod", "elsewhere/secrets/new"] {
        let done = fixture.done("write", json!({ "path": path, "content": "mine\n" })).await;
        assert!(done.outcome.content.contains("is hidden here"), "{path}: {}", done.outcome.content);
    }
    let found = fixture.good("search", json!({ "query": "needle" })).await;
    assert_eq!(found, "elsewhere/plain:1: needle\nprod:1: needle\n");
    assert_eq!(fixture.good("read", json!({ "path": "config/plain" })).await, "needle\n");
}

/// The unresolved path is checked as well: a link in it may have been created after the workspace was scanned.
#[test]
fn an_unresolved_path_is_checked() {
    let hidden = crate::hide_rules::HideRules::new(&["config/secrets".to_owned()]);
    for path in ["config/secrets/key", "./config//secrets", "x/../Config/secrets/key", "config/x/../secrets"]
    {
        assert!(hidden.covers_spoken(path), "{path}");
    }
    for path in ["config", "config/secrets/..", "secrets/key", "../config"] {
        assert!(!hidden.covers_spoken(path), "{path}");
    }
}
