//! What decides what a command runs is in its approval, or named as not bound: a changed file never runs unseen.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tribune_governance::turn::CallDependencies;
use tribune_records::approval::action::{ABSENT, Files};
use tribune_records::approval::grant::pinned_files;
use tribune_records::workspace_roots::WorkspaceRoots;
use tribune_runtime::ToolCall;

use crate::attacks::Fixture;
use crate::exec::FileView;
use crate::{Exited, Launch, LaunchError, Launcher, UnsandboxedLauncher};

/// Lines are seen as in the default sandbox, and none is started.
struct NoLauncher;

#[async_trait]
impl Launcher for NoLauncher {
    fn view(&self) -> FileView {
        FileView::Sandbox
    }

    async fn launch(&self, _launch: Launch) -> Result<Exited, LaunchError> {
        Err(LaunchError::NotProvided)
    }
}

fn ground() -> WorkspaceRoots {
    WorkspaceRoots::own("main".parse().unwrap())
}

fn call(line: &str) -> ToolCall {
    ToolCall { id: "1".to_owned(), name: "exec".to_owned(), input: json!({ "command": line }) }
}

fn bound(fixture: &Fixture, line: &str) -> CallDependencies {
    fixture.tools.dependencies_of(&ground(), &call(line), &CancellationToken::new())
}

/// What a grant for the line would be bound to.
fn granted(fixture: &Fixture, line: &str) -> Option<Files> {
    fixture.tools.granted_files_of(&ground(), &call(line)).map(pinned_files)
}

fn fixture() -> Fixture {
    Fixture::new().with(|tools| tools.with_launcher(Arc::new(NoLauncher)))
}

fn script(fixture: &Fixture, name: &str, text: &str) {
    fixture.write(name, text);
    fs::set_permissions(fixture.inside(name), fs::Permissions::from_mode(0o755)).unwrap();
}

/// The files that lines of the corpus run.
const SCRIPTS: [&str; 6] =
    ["build.sh", "real.sh", "sub/run.sh", "sub/deep/x.sh", "sub/inner-real.sh", "with space.sh"];

fn write_scripts(fixture: &Fixture, word: &str) {
    for name in SCRIPTS {
        script(fixture, name, &format!("#!/bin/sh\necho {word} > \"$OUT\"\n"));
    }
    fixture.write("rules.mk", format!("all:\n\t@echo {word} > \"$(OUT)\"\n"));
    fixture.write("main.py", format!("import helper\nprint('{word}')\n"));
    fixture.write("helper.py", format!("print('{word}')\n"));
    fixture.write("conf/build.toml", format!("run = '{word}'\n"));
    fixture.write("list", format!("build.sh {word}\n"));
}

fn corpus_fixture() -> Fixture {
    let fixture = fixture();
    write_scripts(&fixture, "harmless");
    for (target, link) in [
        ("/workspace/real.sh", "link.sh"),
        ("real.sh", "near.sh"),
        ("/workspace/sub", "folder"),
        ("inner-real.sh", "sub/inner.sh"),
        ("../real.sh", "sub/up.sh"),
        ("/workspace/near.sh", "twice.sh"),
    ] {
        symlink(target, fixture.inside(link)).unwrap();
    }
    fixture
}

/// Ways to name a script in a line, each with the file that it is.
const NAMES: [(&str, &str); 12] = [
    ("build.sh", "build.sh"),
    ("./build.sh", "build.sh"),
    ("/workspace/build.sh", "build.sh"),
    ("sub/run.sh", "sub/run.sh"),
    ("/workspace/./sub/../build.sh", "build.sh"),
    ("sub/deep/../run.sh", "sub/run.sh"),
    ("link.sh", "real.sh"),
    ("./near.sh", "real.sh"),
    ("folder/run.sh", "sub/run.sh"),
    ("sub/inner.sh", "sub/inner-real.sh"),
    ("sub/up.sh", "real.sh"),
    ("twice.sh", "real.sh"),
];

/// Lines that run the file which `{}` names.
const FORMS: [&str; 44] = [
    "sh {}",
    "bash -x {}",
    "bash -eu {} --fast a b",
    "timeout 60 sh {}",
    "timeout -k 5 60 nice -n 5 sh {}",
    "env sh {}",
    "env -i X=1 sh {}",
    "nohup sh {}",
    "setsid sh {}",
    "stdbuf -o0 sh {}",
    "exec sh {}",
    "command sh {}",
    "time -p sh {}",
    "busybox sh {}",
    "unknown-wrapper sh {}",
    "sh -c 'sh {}'",
    "bash -lc 'sh {}'",
    "sh -c 'exec timeout 5 sh {} x'",
    "eval 'sh {}'",
    "eval sh {}",
    "sh < {}",
    "bash -s < {}",
    "env sh < {}",
    "cat {} | sh",
    "cat {} | tee log | bash -s x",
    "echo {} | xargs sh",
    "echo {} | xargs -I% sh %",
    "find . -exec sh {} \\;",
    "ls {} && sh {}",
    "sh {} || true",
    "sh {}; echo done",
    "! sh {}",
    "(sh {})",
    "{ sh {}; }",
    "if true; then sh {}; fi",
    "for i in 1; do sh {}; done",
    "f() { sh {}; }; f",
    "sh {} &",
    "x={}; sh $x",
    "sh $(echo {})",
    "sh <<< 'sh {}'",
    "cp {} copy && sh copy",
    "trap 'sh {}' EXIT",
    "A=b sh {} > log 2>&1",
];

/// Lines that run a file in other ways, each with the file.
const OTHERS: [(&str, &str); 40] = [
    ("/workspace/build.sh", "build.sh"),
    ("./build.sh --fast", "build.sh"),
    ("nice ./build.sh", "build.sh"),
    (". ./build.sh", "build.sh"),
    ("source ./build.sh", "build.sh"),
    (". /workspace/link.sh", "real.sh"),
    ("cd sub && sh run.sh", "sub/run.sh"),
    ("cd sub && ./run.sh", "sub/run.sh"),
    ("cd sub/deep; sh x.sh", "sub/deep/x.sh"),
    ("cd sub; cd deep; sh x.sh", "sub/deep/x.sh"),
    ("cd /workspace/sub && sh run.sh", "sub/run.sh"),
    ("cd folder && sh run.sh", "sub/run.sh"),
    ("sh -c 'cd sub && sh run.sh'", "sub/run.sh"),
    ("pushd sub && sh run.sh", "sub/run.sh"),
    ("cd sub && cd .. && sh build.sh", "build.sh"),
    ("env -C sub sh run.sh", "sub/run.sh"),
    ("sh ./buil*.sh", "build.sh"),
    ("sh ./b?ild.sh", "build.sh"),
    ("./bu[i]ld.sh", "build.sh"),
    ("sh {build,x}.sh", "build.sh"),
    ("sh 'with space.sh'", "with space.sh"),
    ("sh with\\ space.sh", "with space.sh"),
    ("find . -name build.sh -exec sh {} +", "build.sh"),
    ("find . -name '*.sh' -execdir sh {} \\;", "build.sh"),
    ("ls *.sh | xargs -n1 sh", "build.sh"),
    ("xargs sh < list", "list"),
    ("make -f rules.mk", "rules.mk"),
    ("make -s -f rules.mk all", "rules.mk"),
    ("python3 main.py", "main.py"),
    ("python3 -u main.py x", "main.py"),
    ("python3 main.py", "helper.py"),
    ("python3 -m helper", "helper.py"),
    ("python3 -c 'import helper'", "helper.py"),
    ("python3 < main.py", "main.py"),
    ("unknown --config=conf/build.toml", "conf/build.toml"),
    ("unknown -c 'sh build.sh'", "build.sh"),
    ("awk 'BEGIN { system(\"sh build.sh\") }'", "build.sh"),
    ("sed '1e sh build.sh' list", "build.sh"),
    ("git -c alias.x='!sh build.sh' x", "build.sh"),
    ("tar cf a.tar --checkpoint=1 --checkpoint-action=exec='sh build.sh' list", "build.sh"),
];

fn corpus() -> Vec<(String, &'static str)> {
    let formed =
        FORMS.iter().flat_map(|form| NAMES.iter().map(|(name, file)| (form.replace("{}", name), *file)));
    formed.chain(OTHERS.map(|(line, file)| (line.to_owned(), file))).collect()
}

/// Every line of the corpus is approved, then its file is changed to another content of the same size.
#[test]
fn l8_no_line_of_the_corpus_runs_a_changed_file() {
    let fixture = corpus_fixture();
    let lines = corpus();
    assert!(lines.len() >= 400, "{}", lines.len());
    let approved: Vec<_> =
        lines.iter().map(|(line, _)| (bound(&fixture, line), granted(&fixture, line))).collect();
    for ((line, file), (before, grant)) in lines.iter().zip(&approved) {
        assert_eq!(bound(&fixture, line), *before, "unchanged, it is the same call: {line}");
        // A grant names the file, or there is none.
        let names_it = |files: &Files| files.get(*file).is_some_and(|hash| hash != ABSENT);
        let by_python = *file == "helper.py" || *file == "rules.mk";
        assert!(grant.as_ref().is_none_or(|files| by_python || names_it(files)), "{line}: {grant:?}");
    }
    write_scripts(&fixture, "changed!");
    let mut after: BTreeMap<&str, CallDependencies> = BTreeMap::new();
    for ((line, file), (before, grant)) in lines.iter().zip(&approved) {
        let now = after.entry(line).or_insert_with(|| bound(&fixture, line));
        assert_ne!((&now.files, &now.tree), (&before.files, &before.tree), "{line} would run another {file}");
        if *file != "helper.py" {
            assert!(grant.is_none() || granted(&fixture, line) != *grant, "a grant covers {line}");
        }
    }
}

/// A line is bound as the sandbox will see its names, and not as this machine does.
#[test]
fn names_are_resolved_as_in_the_sandbox() {
    let fixture = corpus_fixture();
    for (line, file) in
        [("sh /workspace/build.sh", "build.sh"), ("sh link.sh", "real.sh"), ("sh sub/up.sh", "real.sh")]
    {
        let found = bound(&fixture, line);
        let hash = blake3::hash(&fs::read(fixture.inside(file)).unwrap()).to_hex().to_string();
        assert_eq!(found.files.get(file), Some(&hash), "{line}: {:?}", found.files);
        assert!(found.texts.contains_key(file) && found.not_bound.is_empty(), "{line}");
    }
    // Its path on this machine leads nowhere there.
    let outside = format!("sh {}", fixture.inside("build.sh").display());
    assert!(!bound(&fixture, &outside).not_bound.is_empty());
    let system = bound(&fixture, "sh build.sh");
    assert!(
        system.files.keys().any(|name| name.starts_with("/usr/") || name.starts_with("/bin/")),
        "{system:?}"
    );
}

/// A file of this machine that the sandbox does not show is not read for an approval, whatever leads to it.
#[test]
fn l1_files_outside_the_sandbox_are_never_read() {
    let fixture = corpus_fixture();
    let secret = fixture.folder.path().join("secret.txt");
    let hash = blake3::hash(&fs::read(&secret).unwrap()).to_hex().to_string();
    symlink(&secret, fixture.inside("out.sh")).unwrap();
    symlink("../secret.txt", fixture.inside("up.sh")).unwrap();
    symlink(fixture.folder.path(), fixture.inside("home")).unwrap();
    let absolute = secret.display().to_string();
    for name in ["out.sh", "up.sh", "home/secret.txt", "../secret.txt", "../../../secret.txt", &absolute] {
        for line in
            ["sh {}", "{}", "cat {} | sh", "sh < {}", ". {}", "cd .. && sh {}", "unknown {}", "sh -c 'sh {}'"]
        {
            let found = bound(&fixture, &line.replace("{}", name));
            let seen = format!("{:?} {:?}", found.files, found.texts);
            assert!(!seen.contains("the secret") && !seen.contains(&hash), "{line} {name}: {seen}");
        }
    }
    // A file with a second name may be one of this machine: its text is not kept.
    fs::hard_link(&secret, fixture.inside("hard.sh")).unwrap();
    let found = bound(&fixture, "sh hard.sh");
    assert!(found.files.contains_key("hard.sh") && !found.texts.contains_key("hard.sh"), "{found:?}");
    // What the operator hides is not read either.
    let fixture = fixture.with(|tools| tools.hiding(&["*.pem".to_owned()]));
    fixture.write("key.pem", "hidden");
    let found = bound(&fixture, "sh key.pem");
    assert!(found.texts.is_empty() && !found.not_bound.is_empty(), "{found:?}");
}

#[test]
fn special_and_oversized_files_are_not_read() {
    let fixture = fixture();
    rustix::fs::mkfifoat(rustix::fs::CWD, fixture.inside("pipe"), rustix::fs::Mode::RUSR).unwrap();
    fs::File::create(fixture.inside("huge")).unwrap().set_len((512 << 20) + 1).unwrap();
    for name in ["pipe", "/dev/zero", "/proc/self/environ", "huge", "gone", "/"] {
        let found = bound(&fixture, &format!("sh {name}"));
        assert!(!found.not_bound.is_empty() && found.texts.is_empty(), "{name}: {found:?}");
        assert_eq!(granted(&fixture, &format!("sh {name}")), None, "{name}");
    }
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    fixture.write("build.sh", "");
    let found = fixture.tools.dependencies_of(&ground(), &call("sh build.sh"), &cancelled);
    assert!(!found.files.contains_key("build.sh"), "{found:?}");
}

/// A program for data needs no stamp of the tree; one that may load code has one, which sees every kind of change.
#[test]
fn the_stamp_sees_every_change_of_the_tree() {
    let fixture = corpus_fixture();
    assert_eq!(bound(&fixture, "ls -la | grep x").tree, None);
    let stamp = || bound(&fixture, "make").tree.unwrap();
    let mut last = stamp();
    assert_eq!(stamp(), last);
    type Change = fn(&Fixture);
    let changes: [(&str, Change); 7] = [
        ("same size", |fixture| fixture.write("list", "build.sh  altered\n")),
        ("its time set back", |fixture| {
            let path = fixture.inside("list");
            let old = fs::metadata(&path).unwrap().modified().unwrap();
            fs::write(&path, "build.sh ALTERED!\n").unwrap();
            fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
        }),
        ("a new file", |fixture| fixture.write("Makefile", "all:\n")),
        ("a new mode", |fixture| {
            fs::set_permissions(fixture.inside("list"), fs::Permissions::from_mode(0o700)).unwrap();
        }),
        ("another link", |fixture| {
            fs::remove_file(fixture.inside("near.sh")).unwrap();
            symlink("build.sh", fixture.inside("near.sh")).unwrap();
        }),
        ("moved", |fixture| fs::rename(fixture.inside("real.sh"), fixture.inside("sub/real.sh")).unwrap()),
        ("gone", |fixture| fs::remove_file(fixture.inside("helper.py")).unwrap()),
    ];
    for (what, change) in changes {
        change(&fixture);
        let now = stamp();
        assert_ne!(now, last, "{what}");
        last = now;
    }
    // Twice within one tick of the clock.
    for round in 0..20 {
        fixture.write("list", format!("a{round:03}"));
        let before = stamp();
        fixture.write("list", format!("b{round:03}"));
        assert_ne!(stamp(), before, "{round}");
    }
}

/// The corpus means what it says: without a change these lines run the file.
#[tokio::test]
async fn forms_of_the_corpus_run_their_file() {
    let fixture = Fixture::new().with(|tools| tools.with_launcher(Arc::new(UnsandboxedLauncher)));
    let mut ran = 0;
    for form in FORMS {
        script(&fixture, "build.sh", "#!/bin/sh\necho harmless > out\n");
        let _ = fs::remove_file(fixture.inside("out"));
        let _ = fixture.tools.run(crate::attacks::admitted(&call(&form.replace("{}", "./build.sh")))).await;
        ran += usize::from(fs::read_to_string(fixture.inside("out")).is_ok_and(|out| out == "harmless\n"));
    }
    // Some programs are not on every machine, and `<<<` is not in every shell.
    assert!(ran >= 38, "{ran} of {}", FORMS.len());
}
