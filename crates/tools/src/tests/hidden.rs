//! What the operator keeps from agents.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::json;
use tribune_records::outcome::ToolErrorCode;

use crate::attacks::Fixture;

#[tokio::test]
async fn what_is_hidden_is_neither_read_nor_written() {
    let house = Fixture::new().with(|tools| tools.hiding(&[".env".to_owned(), "keys/private".to_owned()]));
    for file in [".env", "app/.ENV", "keys/private/deep/key", "keys/public", "env"] {
        house.write(file, "needle\n");
    }
    symlink(".env", house.inside("link")).unwrap();
    symlink("keys/private", house.inside("way")).unwrap();
    for path in
        [".env", "app/.ENV", "app/../.env", "keys/private/deep/key", "keys/private", "link", "way/deep/key"]
    {
        for (tool, input) in
            [("read", json!({ "path": path })), ("search", json!({ "path": path, "query": "needle" }))]
        {
            let done = house.done(tool, input).await;
            assert_eq!(done.code, Some(ToolErrorCode::Refused), "{tool} {path}: {}", done.outcome.content);
            assert!(done.outcome.content.contains("is hidden here"), "{}", done.outcome.content);
        }
    }
    for path in [".env", "new/.Env", "keys/private/deep/key", "keys/private/new"] {
        for (tool, input) in [
            ("write", json!({ "path": path, "content": "mine\n" })),
            ("edit", json!({ "path": path, "old": "needle", "new": "mine" })),
        ] {
            assert_eq!(house.done(tool, input).await.code, Some(ToolErrorCode::Refused), "{tool} {path}");
        }
    }
    assert!(!house.inside("new").exists());
    assert_eq!(fs::read_to_string(house.inside(".env")).unwrap(), "needle\n");
    let found = house.good("search", json!({ "query": "needle" })).await;
    assert_eq!(found, "env:1: needle\nkeys/public:1: needle\n");
    assert_eq!(house.good("read", json!({ "path": "keys/public" })).await, "needle\n");
    house.good("write", json!({ "path": "keys/public", "content": "mine\n" })).await;
}

#[tokio::test]
async fn what_hidden_names_and_links_lead_to_is_hidden_by_its_own_name_too() {
    let hide = [".env", "config/secrets"].map(str::to_owned);
    let house = Fixture::new().with(|tools| tools.hiding(&hide));
    for file in ["conf/prod", "conf/by-box", "elsewhere/secrets/key", "elsewhere/plain", "prod"] {
        house.write(file, "needle\n");
    }
    for (to, link) in [
        ("conf/prod", ".env"),
        ("/workspace/conf/by-box", "conf/.env"),
        ("elsewhere", "config"),
        ("/etc/passwd", "elsewhere/.env"),
    ] {
        symlink(to, house.inside(link)).unwrap();
    }
    for path in [
        ".env",
        "conf/prod",
        "conf/by-box",
        "config/secrets/key",
        "elsewhere/secrets/key",
        "elsewhere/secrets",
        "config/../elsewhere/./secrets/key",
    ] {
        for (tool, input) in
            [("read", json!({ "path": path })), ("search", json!({ "path": path, "query": "needle" }))]
        {
            let done = house.done(tool, input).await;
            assert!(
                done.outcome.content.contains("is hidden here"),
                "{tool} {path}: {}",
                done.outcome.content
            );
        }
    }
    for path in ["conf/prod", "elsewhere/secrets/new"] {
        let done = house.done("write", json!({ "path": path, "content": "mine\n" })).await;
        assert!(done.outcome.content.contains("is hidden here"), "{path}: {}", done.outcome.content);
    }
    let found = house.good("search", json!({ "query": "needle" })).await;
    assert_eq!(found, "elsewhere/plain:1: needle\nprod:1: needle\n");
    assert_eq!(house.good("read", json!({ "path": "config/plain" })).await, "needle\n");
}

/// A path is judged as it was spoken too: what it leads through may have come after the workspace was looked at.
#[test]
fn a_path_is_judged_as_spoken() {
    let hidden = crate::hide_rules::HideRules::new(&["config/secrets".to_owned()]);
    for path in ["config/secrets/key", "./config//secrets", "x/../Config/secrets/key", "config/x/../secrets"]
    {
        assert!(hidden.covers_spoken(path), "{path}");
    }
    for path in ["config", "config/secrets/..", "secrets/key", "../config"] {
        assert!(!hidden.covers_spoken(path), "{path}");
    }
}
