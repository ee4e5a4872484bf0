//! What the operator keeps from agents.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::json;

use super::Fixture;
use crate::tools::Code;

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
            assert_eq!(done.code, Some(Code::Refused), "{tool} {path}: {}", done.outcome.content);
            assert!(done.outcome.content.contains("is hidden here"), "{}", done.outcome.content);
        }
    }
    for path in [".env", "new/.Env", "keys/private/deep/key", "keys/private/new"] {
        for (tool, input) in [
            ("write", json!({ "path": path, "content": "mine\n" })),
            ("edit", json!({ "path": path, "old": "needle", "new": "mine" })),
        ] {
            assert_eq!(house.done(tool, input).await.code, Some(Code::Refused), "{tool} {path}");
        }
    }
    assert!(!house.inside("new").exists());
    assert_eq!(fs::read_to_string(house.inside(".env")).unwrap(), "needle\n");
    let found = house.good("search", json!({ "query": "needle" })).await;
    assert_eq!(found, "env:1: needle\nkeys/public:1: needle\n");
    assert_eq!(house.good("read", json!({ "path": "keys/public" })).await, "needle\n");
    house.good("write", json!({ "path": "keys/public", "content": "mine\n" })).await;
}
