//! `tribune workspace`: showing and landing changes of sandboxed runs.

use serde_json::json;
use tribune_testkit::{TempHome, config};

use crate::run::{Site, session};

/// A run that made every kind of change to a folder.
const EVERYTHING: &str = "echo two >> a.txt; rm gone.txt; chmod 755 mode.sh; mkdir -p new/deep; echo x > new/deep/f; \
                          ln -s a.txt link; ln -s /etc/passwd out; printf 'a\\0b' > bin; echo evil > .envrc; \
                          mkdir .vscode; echo '{}' > .vscode/tasks.json; mkfifo pipe";

const BARS: &str =
    "@id(\"no-landing\")\nforbid(principal, action == Tribune::Action::\"landing\", resource);\n";

const ASKS: &str = "@id(\"four-eyes\")\nforbid(principal, action == Tribune::Action::\"landing\", resource)\n\
                    unless { context.approved };\n";

fn site() -> Site {
    let site = Site::new();
    site.write("gone.txt", "bye\n");
    site.write("mode.sh", "#!/bin/sh\n");
    site
}

#[test]
fn the_project_is_untouched_until_its_changes_are_landed() {
    let site = site();
    let ran = site.shell("all", EVERYTHING);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.err.contains("13 changes (") && ran.err.contains("3 of them autorun files"), "{ran:?}");
    for word in ["diff all", "land all --all", "discard all"] {
        assert!(ran.err.contains(&format!("tribune workspace {word} --home ")), "{ran:?}");
    }
    assert_eq!(site.read("a.txt").as_deref(), Some("one\n"));
    assert!(site.read("gone.txt").is_some() && site.read(".envrc").is_none());

    let list = site.daemon.ok(&["workspace", "list"]);
    assert!(list.lines().nth(1).unwrap().starts_with("all  13 !3"), "{list}");
    let diff = site.daemon.ok(&["workspace", "diff", "all"]);
    for line in [
        "!A .envrc  (mode 644; autorun file: programs of this machine run it)",
        "!A .vscode  (a folder; mode 755; autorun file: programs of this machine run it)",
        " M a.txt",
        "    +two",
        " A bin  (mode 644; binary, 3 B)",
        " D gone.txt",
        "    -bye",
        " A link  (link to a.txt)",
        " M mode.sh  (mode 644 → 755)",
        " A out  (link to /etc/passwd; points out of the folder: does not land)",
        " A pipe  (a pipe, socket or device)",
    ] {
        assert!(diff.lines().any(|shown| shown == line), "{line:?} is not in\n{diff}");
    }
    let some = site.daemon.ok(&["workspace", "diff", "all", "new", "--stat"]);
    assert!(some.starts_with(" A new  (a folder; mode 755)\n A new/deep") && !some.contains("+x"), "{some}");

    // First by file, then the rest; changes that must not land are left, with a reason.
    assert_eq!(
        site.daemon.ok(&["workspace", "land", "all", "a.txt", "new/deep/f"]),
        "landed a.txt\nlanded new\nlanded new/deep\nlanded new/deep/f\n4 changes landed\n"
    );
    assert_eq!(site.read("a.txt").as_deref(), Some("one\ntwo\n"));
    let rest = site.daemon.call(&["workspace", "land", "all", "--all"]);
    assert_eq!(rest.code, 1, "{rest:?}");
    for part in [
        "landed gone.txt",
        "landed link",
        "left   .envrc: programs of this machine would execute or load it",
        "left   .vscode/tasks.json: programs of this machine would execute or load it",
        "left   out: it is a symlink that leads out of the workspace",
        "left   pipe: it is not a file, folder or symlink",
    ] {
        assert!(rest.out.contains(part), "{part:?} is not in\n{}", rest.out);
    }
    assert!(site.read(".envrc").is_none() && site.read(".vscode/tasks.json").is_none());
    assert!(!site.project().join("out").is_symlink() && !site.project().join("pipe").exists());

    // By its own name, or with --traps.
    assert!(
        site.daemon
            .ok(&["workspace", "land", "all", ".vscode/tasks.json"])
            .contains("landed .vscode/tasks.json")
    );
    assert!(site.read(".envrc").is_none());
    let traps = site.daemon.call(&["workspace", "land", "all", "--all", "--traps"]);
    assert!(traps.out.contains("landed .envrc") && site.read(".envrc").is_some(), "{traps:?}");
    site.daemon.ok(&["workspace", "discard", "all", "out"]);
    assert_eq!(site.daemon.ok(&["workspace", "discard", "all"]), "discarded 1 change of all\n");
    assert!(site.daemon.ok(&["workspace", "list"]).starts_with("no changes wait"));

    // Each land is judged and recorded; paths are not recorded.
    let history = format!("workspace:{}", session("all"));
    let verdicts = site.log(&history, "policy_verdict");
    assert!(
        verdicts.iter().all(|one| one["decision"] == "allow" && one["waivedBy"] == "landing.operator"),
        "{verdicts:?}"
    );
    let events = site.events(&history, "delivery");
    assert_eq!(events, ["landed", "landed", "landed", "landed", "discarded", "discarded"]);
    assert_eq!(verdicts.len(), 4);
    let ended = site.log(&history, "delivery");
    assert_eq!(
        (&ended[0]["landed"], &ended[2]["traps"], &ended[1]["unlanded"]),
        (&json!(4), &json!(2), &json!(5))
    );
    let text = serde_json::to_string(&(verdicts, ended)).unwrap();
    assert!(!text.contains(".envrc") && !text.contains("a.txt"), "{text}");
    site.end();
}

#[test]
fn concurrent_changes_are_not_overwritten() {
    let site = Site::new();
    site.write("b.txt", "one\n");
    site.write("gone.txt", "one\n");
    let line = "echo run > a.txt; echo run > b.txt; echo run > c.txt; rm gone.txt";
    assert_eq!(site.shell("both", line).code, 0);
    site.write("gone.txt", "mine\n");
    site.write("a.txt", "mine\n");
    site.write("c.txt", "mine\n");
    let landed = site.daemon.call(&["workspace", "land", "both", "--all"]);
    assert_eq!(landed.code, 1);
    assert!(landed.out.contains("left   a.txt: it was changed in the workspace since"), "{landed:?}");
    assert_eq!(site.read("b.txt").as_deref(), Some("run\n"));
    for name in ["a.txt", "c.txt"] {
        assert_eq!(site.read(name).as_deref(), Some("mine\n"), "{name}");
        let theirs = landed.out.lines().find_map(|line| {
            line.trim().strip_prefix("the run's version: ").filter(|path| path.ends_with(name))
        });
        assert_eq!(std::fs::read_to_string(theirs.unwrap()).unwrap(), "run\n", "{name}");
    }
    // For a file that the run removed there is no version of the run.
    assert!(
        landed.out.contains("left   gone.txt: it was changed") && !landed.out.contains("/gone.txt"),
        "{landed:?}"
    );
    assert_eq!(site.read("gone.txt").as_deref(), Some("mine\n"));
    site.daemon.ok(&["workspace", "discard", "both"]);
    site.end();
}

#[test]
fn l1_the_law_has_the_last_word_about_landing() {
    let home = TempHome::new();
    home.write("policy/local.cedar", BARS);
    let site = Site::in_home(home, &config());
    assert_eq!(site.shell("barred", "echo two > a.txt").code, 0);
    let landed = site.daemon.call(&["workspace", "land", "barred", "--all"]);
    assert!(landed.code == 1 && landed.err.contains("no-landing"), "{landed:?}");
    assert_eq!(site.read("a.txt").as_deref(), Some("one\n"));
    site.daemon.ok(&["workspace", "discard", "barred"]);
    site.end();
}

#[test]
fn l1_a_landing_that_the_law_asks_about_waits_in_the_inbox() {
    let home = TempHome::new();
    home.write("policy/local.cedar", ASKS);
    let site = Site::in_home(home, &config());
    assert_eq!(site.shell("asked", "echo two > a.txt").code, 0);
    let mut command = site.command(&["workspace", "land", "asked", "--all"]);
    command.current_dir(site.project());
    let landing = crate::in_process_daemon::RunningCall::new(command);
    landing.until_err("waits for a decision: 1 changes to ");
    assert_eq!(site.read("a.txt").as_deref(), Some("one\n"));
    let busy = site.daemon.call(&["workspace", "discard", "asked"]);
    assert!(busy.code == 1 && busy.err.contains("being landed"), "{busy:?}");
    let id = site.question()["id"].as_str().unwrap().to_owned();
    site.daemon.ok(&["approvals", "allow", &id]);
    let (status, out, _) = landing.end();
    assert_eq!((status.code(), out.as_str()), (Some(0), "landed a.txt\n1 change landed\n"));
    assert_eq!(site.read("a.txt").as_deref(), Some("two\n"));
    let history = format!("workspace:{}", session("asked"));
    let decisions: Vec<String> = site
        .log(&history, "policy_verdict")
        .iter()
        .map(|one| one["decision"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(decisions, ["ask", "allow"]);
    site.end();
}

#[test]
fn running_workspace_is_neither_landed_nor_discarded() {
    let site = Site::new();
    let run = site.start(&["--name", "busy", "--", "sh", "-c", "echo two > a.txt; echo ready; sleep 9999"]);
    run.until_out("ready");
    for words in [&["land", "busy", "--all"][..], &["discard", "busy"]] {
        let refused = site.daemon.call(&[&["workspace"], words].concat());
        assert!(refused.code == 1 && refused.err.contains("`busy` is still running"), "{refused:?}");
    }
    assert!(site.daemon.ok(&["workspace", "diff", "busy"]).contains("it is still running"));
    let again = site.run(&["--name", "busy", "--", "true"]);
    assert!(again.code == 125 && again.err.contains("`busy` is running already"), "{again:?}");
    run.signal(rustix::process::Signal::TERM);
    run.end();
    let again = site.run(&["--name", "busy", "--", "true"]);
    assert!(
        again.code == 125 && again.err.contains("has changes that are neither landed nor discarded"),
        "{again:?}"
    );
    site.daemon.ok(&["workspace", "discard", "busy"]);
    assert_eq!(site.run(&["--name", "busy", "--", "true"]).code, 0, "the name is free again");
    site.end();
}

#[test]
fn l3_paths_that_lead_elsewhere_name_nothing() {
    let site = Site::new();
    assert_eq!(site.shell("paths", "echo two > a.txt").code, 0);
    for path in ["../a.txt", "/etc/passwd", ".", "..", "a.txt/../../x"] {
        for word in ["land", "discard", "diff"] {
            let refused = site.daemon.call(&["workspace", word, "paths", path]);
            assert!(
                refused.code == 64 && refused.err.contains("must lead from the root of the workspace"),
                "{path}: {refused:?}"
            );
        }
    }
    let refused = site.daemon.call(&["workspace", "land", "paths", "other"]);
    assert!(refused.code == 64 && refused.err.contains("`other` is not a change of `paths`"), "{refused:?}");
    let refused = site.daemon.call(&["workspace", "diff", "nobody"]);
    assert!(refused.code == 64 && refused.err.contains("tribune workspace list"), "{refused:?}");
    assert_eq!(site.daemon.call(&["workspace", "land", "paths"]).code, 64, "say which");
    assert_eq!(site.daemon.ok(&["workspace", "land", "paths", "./a.txt"]), "landed a.txt\n1 change landed\n");
    site.end();
}

#[test]
fn the_same_over_plain_http() {
    let site = Site::new();
    assert_eq!(site.shell("http", "echo two > a.txt; echo x > b.txt").code, 0);
    let token = std::fs::read_to_string(site.daemon.home().home.root().join("run/token")).unwrap();
    let ask = |path: &str, body: Option<&str>| {
        let mut curl = std::process::Command::new("curl");
        curl.args(["-s", "--noproxy", "*", "-H", &format!("Authorization: Bearer {}", token.trim())]);
        if let Some(body) = body {
            curl.args(["-H", "Content-Type: application/json", "-d", body]);
        }
        let said =
            curl.arg(format!("http://{}/v1/workspaces{path}", site.daemon.address())).output().unwrap();
        serde_json::from_slice::<serde_json::Value>(&said.stdout).unwrap()
    };
    let list = ask("", None);
    assert_eq!(
        (&list["workspaces"][0]["id"], &list["workspaces"][0]["changes"]),
        (&json!("http"), &json!(2)),
        "{list}"
    );
    let diff = ask("/http", None);
    assert_eq!(diff["changes"][0]["patch"], "@@ -1 +1 @@\n-one\n+two\n", "{diff}");
    assert_eq!(ask("/http?texts=false", None)["changes"][0]["patch"], json!(null));
    assert_eq!(
        ask("/http/land", Some("{\"paths\": [\"a.txt\"]}")),
        json!({ "landed": ["a.txt"], "left": [] })
    );
    assert_eq!(ask("/http/discard", Some("{}")), json!({ "discarded": 1 }));
    assert_eq!((site.read("a.txt").as_deref(), site.read("b.txt")), (Some("two\n"), None));
    assert_eq!(ask("/http", None)["error"]["code"], "not_found");
    site.end();
}
