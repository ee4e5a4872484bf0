use super::*;

fn said(call: Value) -> Vec<(String, Value)> {
    let Value::Object(call) = call else { panic!() };
    planned_calls(&call, "/workspace").into_iter().map(|wanted| (wanted.tool, wanted.input)).collect()
}

fn one(call: Value) -> (String, Value) {
    let mut all = said(call);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

#[test]
fn calls_get_the_names_that_the_law_knows() {
    let raw = |kind: &str, raw: Value| one(json!({ "kind": kind, "title": "t", "rawInput": raw }));
    assert_eq!(
        raw("read", json!({ "file_path": "/workspace/a/b" })),
        ("read".into(), json!({ "path": "a/b" }))
    );
    assert_eq!(
        raw("read", json!({ "filePath": "/usr/share/doc/x" })),
        ("read".into(), json!({ "path": "/usr/share/doc/x" }))
    );
    let located = json!({ "kind": "read", "rawInput": {}, "locations": [{ "path": "/workspace" }] });
    assert_eq!(one(located), ("read".into(), json!({ "path": "." })));
    assert_eq!(
        raw("execute", json!({ "command": "ls -la" })),
        ("exec".into(), json!({ "command": "ls -la" }))
    );
    let list = json!({ "command": ["/bin/bash", "-lc", "echo $HOME"], "cwd": "/workspace/sub" });
    assert_eq!(raw("execute", list), ("exec".into(), json!({ "command": "echo $HOME", "cwd": "sub" })));
    let words = json!({ "command": ["rm", "it's", "x y"] });
    assert_eq!(raw("execute", words), ("exec".into(), json!({ "command": "rm 'it'\\''s' 'x y'" })));
    assert_eq!(
        one(json!({ "kind": "execute", "title": "`git status`" })).1,
        json!({ "command": "git status" })
    );
    assert_eq!(raw("fetch", json!({ "url": "https://a.example" })).0, "web_fetch");
    assert_eq!(raw("fetch", json!({ "query": "cats" })), ("web_search".into(), json!({ "query": "cats" })));
    let prompt = json!({ "prompt": "read (https://a.example/x) please" });
    assert_eq!(raw("fetch", prompt), ("web_fetch".into(), json!({ "url": "https://a.example/x" })));
    assert_eq!(
        raw("search", json!({ "pattern": "x", "path": "/workspace/d" })).1,
        json!({ "query": "x", "path": "d" })
    );
    assert_eq!(raw("delete", json!({ "path": "/workspace/a b" })).1, json!({ "command": "rm -- 'a b'" }));
    assert!(said(json!({ "kind": "think", "title": "hm" })).is_empty());
}

#[test]
fn every_file_of_an_edit_is_a_call() {
    let diff =
        |path: &str, old: Value| json!({ "type": "diff", "path": path, "oldText": old, "newText": "n" });
    let mut call = json!({
        "kind": "edit", "locations": [{ "path": "/workspace/b" }, { "path": "/workspace/a" }],
        "content": [diff("/workspace/a", Value::Null), diff("/workspace/b", json!("o"))],
    });
    assert_eq!(
        said(call.clone()),
        [
            ("write".to_owned(), json!({ "path": "a", "content": "n" })),
            ("edit".to_owned(), json!({ "path": "b", "old": "o", "new": "n" })),
        ]
    );
    // A file that is named without its change: the result is unknown.
    call["locations"][0]["path"] = json!("/workspace/c");
    let (tool, input) = one(call);
    assert_eq!((tool.as_str(), &input["_locations"][0]["path"]), ("cli.unnamed", &json!("/workspace/c")));
    let many: Vec<Value> = (0..65).map(|n| diff(&format!("/workspace/{n}"), Value::Null)).collect();
    let (tool, input) = one(json!({ "kind": "edit", "name": "patch", "content": many }));
    assert_eq!((tool.as_str(), input["_content"].as_array().unwrap().len()), ("cli.patch", 65));
}

#[test]
fn an_edit_is_shown_whole_or_is_not_understood() {
    let edit = |raw: Value| one(json!({ "kind": "edit", "name": "Edit", "rawInput": raw }));
    let path = "/workspace/a";
    assert_eq!(
        edit(json!({ "file_path": path, "old_string": "o", "new_string": "n" })),
        ("edit".to_owned(), json!({ "path": "a", "old": "o", "new": "n" }))
    );
    assert_eq!(
        edit(json!({ "file_path": path, "content": "" })),
        ("write".to_owned(), json!({ "path": "a", "content": "" }))
    );
    for raw in [
        json!({ "file_path": path, "edits": [{ "old_string": "o", "new_string": "n" }] }),
        json!({ "file_path": path, "new_string": "n" }),
        json!({ "file_path": path, "old_string": "o", "new_string": "n", "replace_all": true }),
        json!({ "file_path": path, "content": "c", "file_text": "d" }),
        json!({ "file_path": path, "path": "/workspace/b", "content": "c" }),
        json!({ "file_path": path, "content": "c", "mode": "append" }),
        json!({ "file_path": "/tmp/a", "content": "c" }),
        json!({ "file_path": path }),
    ] {
        let (tool, input) = edit(raw.clone());
        assert_eq!((tool.as_str(), &input["file_path"]), ("cli.Edit", &raw["file_path"]), "{raw}");
    }
}

#[test]
fn l1_one_file_has_one_name() {
    let path = |path: &str| one(json!({ "kind": "read", "name": "Read", "rawInput": { "file_path": path } }));
    for same in [
        "secrets/key",
        "./secrets//key",
        "/workspace/secrets/key",
        "//workspace/secrets/key",
        "/./workspace/./secrets/key/",
        "file:///workspace/secrets/key",
    ] {
        assert_eq!(path(same), ("read".into(), json!({ "path": "secrets/key" })), "{same}");
    }
    for unplaced in [
        "/workspace/../workspace/secrets/key",
        "../workspace/secrets/key",
        "link/../secrets/key",
        "/proc/self/cwd/secrets/key",
        "/proc/self/root/workspace/secrets/key",
        "/dev/fd/3",
        "/home/session/link/key",
        "/tmp/link",
        "/var/tmp/link",
        "/usr/../workspace/secrets/key",
        "/workspaces/x",
        "~/x",
        "file:///workspace/secrets%2Fkey",
        "a\0b",
    ] {
        assert_eq!(path(unplaced).0, "cli.Read", "{unplaced}");
    }
    // Each of several files is asked about.
    let several =
        json!({ "kind": "read", "rawInput": { "path": "a" }, "locations": [{ "path": "/workspace/b" }] });
    let reads = [json!({ "path": "a" }), json!({ "path": "b" })].map(|input| ("read".to_owned(), input));
    assert_eq!(said(several), reads);
}

#[test]
fn l1_a_command_is_understood_to_its_last_word() {
    let run = |raw: Value| one(json!({ "kind": "execute", "title": "ls", "name": "Bash", "rawInput": raw }));
    for raw in [
        json!({ "command": "git", "args": ["push", "--force"] }),
        json!({ "command": "ls", "env": { "BASH_ENV": "x" } }),
        json!({ "command": "sh", "stdin": "rm -rf ." }),
        json!({ "command": "ls", "shell": "/workspace/x" }),
        json!({ "command": "", "cmd": "rm -rf ." }),
        json!({ "command": "ls", "cmd": "rm -rf ." }),
        json!({ "script": "rm -rf ." }),
        json!({ "command": ["ls", { "x": 1 }] }),
        json!({ "command": [] }),
        json!({ "command": 5 }),
        json!({ "command": "ls", "cwd": "/proc/self/cwd/secrets" }),
        json!({ "command": "ls", "cwd": "a", "workdir": "b" }),
        json!("rm -rf ."),
    ] {
        assert_eq!(run(raw.clone()).0, "cli.Bash", "{raw}");
    }
    let shell = |shell: &str| run(json!({ "command": [shell, "-lc", "ls"] })).1;
    for of_the_system in ["bash", "/bin/sh", "/usr/bin/zsh"] {
        assert_eq!(shell(of_the_system), json!({ "command": "ls" }));
    }
    assert_eq!(shell("/workspace/x/bash"), json!({ "command": "/workspace/x/bash -lc ls" }));
    assert_eq!(shell("./bash"), json!({ "command": "./bash -lc ls" }));
    let beside =
        json!({ "command": "ls", "description": "x", "timeout": 5, "working_directory": "/workspace/sub" });
    assert_eq!(run(beside), ("exec".into(), json!({ "command": "ls", "cwd": "sub" })));
}

#[test]
fn every_address_is_a_call_and_what_is_sent_there_is_seen() {
    let fetch = |raw: Value| said(json!({ "kind": "fetch", "name": "Fetch", "rawInput": raw }));
    let urls = ["https://a.example/x", "http://b.example"];
    let two = fetch(json!({ "prompt": format!("compare {} and <{}>", urls[0], urls[1]) }));
    assert_eq!(two, urls.map(|url| ("web_fetch".to_owned(), json!({ "url": url }))));
    for raw in [
        json!({ "url": "https://a.example", "method": "POST", "body": "secret" }),
        json!({ "url": "https://a.example", "uri": "https://b.example" }),
        json!({ "prompt": "no address" }),
    ] {
        assert_eq!(fetch(raw.clone())[0].0, "cli.Fetch", "{raw}");
    }
}

#[test]
fn a_permission_covers_the_same_call_only() {
    let all = [
        NormalizedCall::new("write", json!({ "path": "a", "content": "x" })),
        NormalizedCall::new("read", json!({ "path": "a" })),
        NormalizedCall::new("read", json!({ "path": "b" })),
        NormalizedCall::new("exec", json!({ "command": "ls" })),
        NormalizedCall::new("exec", json!({ "command": "ls", "cwd": "sub" })),
        NormalizedCall::new("exec", json!({ "command": "rm -rf src" })),
        NormalizedCall::new("web_fetch", json!({ "url": "https://a.example" })),
        NormalizedCall::new("cli.Task", json!({ "a": 1 })),
        NormalizedCall::new("cli.Task", json!({ "a": 2 })),
    ];
    for (n, given) in all.iter().enumerate() {
        for (m, done) in all.iter().enumerate() {
            assert_eq!(given.covers(done), n == m, "{given:?} {done:?}");
        }
    }
    let edit = NormalizedCall::new("edit", json!({ "path": "a", "old": "o", "new": "n" }));
    assert!(edit.covers(&all[0]) && all[0].covers(&edit), "a change of the same file");
    let told = NormalizedCall::new("cli.Task", json!({ "a": 1, "_content": ["what came of it"] }));
    assert!(all[7].covers(&told) && !all[8].covers(&told));
}

#[test]
fn a_finished_edit_is_known_by_its_files() {
    let told = |call: Value| -> Vec<(String, Value)> {
        let Value::Object(call) = call else { panic!() };
        claimed_calls(&call, "/workspace")
            .into_iter()
            .map(|done| (done.tool, done.input["path"].clone()))
            .collect()
    };
    let words = json!([{ "type": "content", "content": { "type": "text", "text": "Wrote it." } }]);
    let raw = json!({ "filepath": "/workspace/a", "diff": "+x" });
    let edited = json!({ "kind": "edit", "title": "a", "rawInput": raw, "content": words, "locations": [{ "path": "/workspace/b" }] });
    assert_eq!(told(edited), [("write".to_owned(), json!("a")), ("write".to_owned(), json!("b"))]);
    let elsewhere = json!({ "kind": "edit", "name": "Edit", "locations": [{ "path": "/proc/self/cwd/a" }] });
    assert_eq!(told(elsewhere)[0].0, "cli.Edit");
    let more = json!({ "kind": "execute", "name": "Bash", "rawInput": { "command": "ls", "args": ["x"] } });
    assert_eq!(told(more)[0].0, "cli.Bash");
}

/// Reports of real agents, and reports that leave open what would happen.
#[test]
fn l1_every_kind_is_understood_to_its_last_word() {
    let told =
        |kind: &str, raw: Value| said(json!({ "kind": kind, "name": "Tool", "title": "t", "rawInput": raw }));
    let file = "/workspace/a";
    for (kind, raw) in [
        ("read", json!({ "path": file, "paths": ["/workspace/b"] })),
        ("read", json!({ "file_path": file, "path": ["/workspace/b"] })),
        ("read", json!({ "path": file, "follow": true })),
        ("search", json!({ "pattern": "x", "path": file, "paths": ["/workspace/b"] })),
        ("search", json!({ "pattern": "x", "query": "y" })),
        ("search", json!({ "path": file })),
        ("delete", json!({ "path": file, "recursive": true })),
        ("delete", json!({ "path": file, "file_path": "/workspace/b" })),
        ("move", json!({ "path": file })),
        (
            "move",
            json!({ "from": file, "to": "/workspace/b", "source": file, "destination": "/workspace/c" }),
        ),
        ("move", json!({ "from": file, "to": "/workspace/b", "overwrite": true })),
        ("fetch", json!({ "prompt": "https://a.example", "method": "POST", "body": "x" })),
        ("fetch", json!({ "query": "cats", "urls": ["https://a.example"] })),
    ] {
        let found = told(kind, raw.clone());
        assert_eq!((found.len(), found[0].0.as_str()), (1, "cli.Tool"), "{kind}: {raw}");
    }
    for (kind, raw, tool, input) in [
        ("read", json!({ "file_path": file, "offset": 1, "limit": 5 }), "read", json!({ "path": "a" })),
        (
            "read",
            json!({ "file_path": file, "start_line": 1, "end_line": 2 }),
            "read",
            json!({ "path": "a" }),
        ),
        (
            "search",
            json!({ "pattern": "x", "path": "/workspace", "include": "*.txt" }),
            "search",
            json!({ "query": "x", "path": "." }),
        ),
        ("search", json!({ "pattern": "*.txt" }), "search", json!({ "query": "*.txt" })),
        ("move", json!({ "from": file, "to": "/workspace/b" }), "exec", json!({ "command": "mv -- a b" })),
        ("move", json!({ "path": file, "destination": "b" }), "exec", json!({ "command": "mv -- a b" })),
    ] {
        assert_eq!(told(kind, raw.clone()), [(tool.to_owned(), input)], "{kind}: {raw}");
    }
    let glob = |pattern: &str| {
        one(json!({ "kind": "search", "name": "Glob", "rawInput": { "pattern": pattern } })).0
    };
    assert_eq!(
        (glob("**/*.rs"), glob("/etc/*"), glob("../x/*")),
        ("search".into(), "cli.Glob".into(), "cli.Glob".into())
    );
}

#[test]
fn l1_a_shown_change_matches_its_input() {
    let diff = |old: Value, new: &str| json!([{ "type": "diff", "path": "/workspace/a", "oldText": old, "newText": new }]);
    let edit = |raw: Value, content: Value| {
        one(json!({ "kind": "edit", "name": "Edit", "rawInput": raw, "content": content })).0
    };
    let path = "/workspace/a";
    let patch = "Index: a\n===\n--- a\n+++ a\n@@ -1,1 +1,1 @@\n-notes\n+nodes\n";
    for (raw, content) in [
        (
            json!({ "file_path": path, "old_string": "notes", "new_string": "nodes" }),
            diff(json!("notes"), "nodes"),
        ),
        (
            json!({ "file_path": path, "old_string": "notes", "new_string": "nodes" }),
            diff(json!("my notes\n"), "my nodes\n"),
        ),
        (json!({ "filepath": path, "diff": patch }), diff(json!("notes\n"), "nodes\n")),
        (
            json!({ "file_path": path, "old_string": "o", "new_string": "n", "replace_all": false }),
            diff(json!("o"), "n"),
        ),
    ] {
        assert_eq!(edit(raw.clone(), content), "edit", "{raw}");
    }
    assert_eq!(edit(json!({ "file_path": path, "content": "x" }), diff(Value::Null, "x")), "write");
    for (raw, content) in [
        (json!({ "file_path": path, "content": "EVIL" }), diff(json!("notes"), "n")),
        (json!({ "file_path": path, "old_string": "o", "new_string": "n" }), diff(json!("notes"), "nodes")),
        (
            json!({ "file_path": path, "old_string": "o", "new_string": "n", "replace_all": true }),
            diff(json!("o"), "n"),
        ),
        (
            json!({ "filePath": path, "oldString": "o", "newString": "n", "replaceAll": true }),
            diff(json!("o o"), "n n"),
        ),
        (json!({ "filepath": path, "diff": patch }), diff(json!("notes\n"), "other\n")),
        (json!({ "file_path": path, "content": "x", "mode": "append" }), diff(Value::Null, "x")),
        (json!({ "patch": "*** Update File: secrets/key" }), diff(Value::Null, "x")),
        (json!({ "file_path": path, "edits": [1] }), diff(Value::Null, "x")),
    ] {
        assert_eq!(edit(raw.clone(), content), "cli.Edit", "{raw}");
    }
}

/// Gemini CLI reports nothing but a title.
#[test]
fn l1_a_search_that_only_the_title_describes_has_its_folder() {
    let search = |title: &str| {
        one(json!({ "kind": "search", "name": "grep_search", "title": title, "locations": [] }))
    };
    let found = |input: Value| ("search".to_owned(), input);
    assert_eq!(search("'n'"), found(json!({ "query": "n" })));
    assert_eq!(search("'n' within ./"), found(json!({ "query": "n", "path": "." })));
    assert_eq!(search("'n' in *.txt within secrets"), found(json!({ "query": "n", "path": "secrets" })));
    for unclear in [
        "'it's within x'",
        "'a' within b' within secrets",
        "'a' within b within c",
        "'n' within ../x",
        "n within .",
        "''",
        "Searching the web for: \"cats\"",
    ] {
        assert_eq!(search(unclear).0, "cli.grep_search", "{unclear}");
    }
    let listed = json!({ "kind": "search", "name": "list_directory", "title": "src", "locations": [] });
    assert_eq!(one(listed), ("read".to_owned(), json!({ "path": "src" })));
    let cut = json!({ "kind": "fetch", "name": "web_fetch", "title": "Processing: \"https://a.example https://b...\"" });
    assert_eq!(one(cut).0, "cli.web_fetch");
}

#[test]
fn l1_a_thought_is_text_and_nothing_else() {
    let text = json!({ "type": "content", "content": { "type": "text", "text": "hm" } });
    assert!(
        said(json!({ "kind": "think", "title": "hm", "rawInput": {}, "content": [text], "locations": [] }))
            .is_empty()
    );
    for more in [
        json!({ "content": [{ "type": "diff", "path": "/workspace/a", "newText": "x" }] }),
        json!({ "content": [{ "type": "terminal", "terminalId": "1" }] }),
        json!({ "locations": [{ "path": "/workspace/a" }] }),
        json!({ "rawInput": { "patch": "x" } }),
        json!({ "rawInput": { "description": "d", "prompt": "p", "subagent_type": "s" } }),
        json!({ "rawInput": "rm" }),
    ] {
        let mut call = json!({ "kind": "think", "name": "Hm" });
        call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert_eq!(one(call).0, "cli.Hm", "{more}");
    }
}

#[test]
fn an_incomplete_report_is_not_harmless() {
    assert_eq!(one(json!({ "kind": "read", "title": "Read" })).0, "cli.Read");
    assert_eq!(
        one(json!({ "kind": "edit", "name": "Write", "rawInput": { "content": "x" } })).0,
        "cli.Write"
    );
    assert_eq!(one(json!({ "kind": "delete" })).0, "cli.unnamed");
    // A tool of the agent's own never has the name of a host tool.
    assert_eq!(one(json!({ "kind": "other", "name": "read", "rawInput": { "path": "x" } })).0, "cli.read");
    assert_eq!(one(json!({ "title": "Do a thing!" })).0, "cli.Do_a_thing_");
    assert_eq!(
        one(json!({ "kind": "think", "name": "Hm", "rawInput": { "command": "rm -rf ." } })).0,
        "cli.Hm"
    );
    let long = json!({ "kind": "invented", "name": "x".repeat(200) });
    assert_eq!(one(long).0.len(), MAX_NAME);
}

#[test]
fn a_call_is_shown_as_what_it_does_and_cut_between_words() {
    let shown = |tool: &str, input: Value| NormalizedCall::new(tool, input).display("the whole");
    assert_eq!(shown("exec", json!({ "command": "ls\n-l" })), "ls -l");
    assert_eq!(shown("write", json!({ "path": "a b", "content": "x" })), "write a b");
    assert_eq!(shown("web_fetch", json!({ "url": "https://a.example/" })), "web_fetch https://a.example/");
    assert_eq!(shown("cli.own", json!({ "command": "ls" })), "the whole");
    let long = format!("curl {} {}", "x".repeat(60), "secret-".repeat(5));
    assert_eq!(shown("exec", json!({ "command": long })), format!("curl {} …", "x".repeat(60)));
}
