use super::*;

fn names(set: &BTreeSet<String>) -> Vec<&str> {
    set.iter().map(String::as_str).collect()
}

/// What the text leaves open, in words.
fn open(line: &str) -> Vec<String> {
    run_inputs(line).not_bound.iter().map(ToString::to_string).collect()
}

#[test]
fn l8_scripts_are_found_through_wrappers_and_inner_lines() {
    for (line, programs, scripts, folders) in [
        ("sh build.sh", &["sh"][..], &["build.sh"][..], &["."][..]),
        ("/workspace/build.sh x", &["/workspace/build.sh"], &[], &["."]),
        ("timeout 60 ./build.sh", &["./build.sh", "timeout"], &[], &["."]),
        ("env A=1 nice -n 5 nohup ./b.sh", &["./b.sh", "env", "nice", "nohup"], &[], &["."]),
        ("cd sub && sh run.sh", &["cd", "sh"], &["run.sh"], &[".", "./sub"]),
        ("cd a; cd b; ./x", &["./x", "cd"], &[], &[".", "./a", "./b", "./a/b"]),
        ("cd /srv/lib && sh x", &["cd", "sh"], &["x"], &[".", "/srv/lib"]),
        (". ./build.sh", &["."], &["./build.sh"], &["."]),
        ("sh < build.sh", &["sh"], &["build.sh"], &["."]),
        ("sh -c './build.sh --fast'", &["./build.sh", "sh"], &[], &["."]),
        ("bash -euo pipefail -c 'sh build.sh'", &["bash", "sh"], &["build.sh"], &["."]),
        ("sh -c 'cd sub && timeout 5 sh run.sh' x", &["cd", "sh", "timeout"], &["run.sh"], &[".", "./sub"]),
        ("python3 -u main.py", &["python3"], &["main.py"], &["."]),
        ("node index.js | tail -5", &["node", "tail"], &["index.js"], &["."]),
        ("test -f a && sh a", &["sh", "test"], &["a"], &["."]),
        ("sh a.sh && git push", &["git", "sh"], &["a.sh"], &["."]),
    ] {
        let found = run_inputs(line);
        assert_eq!(
            (names(&found.programs), names(&found.scripts)),
            (programs.to_vec(), scripts.to_vec()),
            "{line}"
        );
        assert_eq!(found.folders, folders, "{line}");
        assert_eq!(open(line), Vec::<String>::new(), "{line}");
        assert!(found.loads_code, "{line}");
    }
}

#[test]
fn words_that_may_name_a_file_are_operands() {
    for (line, operand) in [
        ("timeout 5 unknown --config=x.json", "x.json"),
        ("unknown -fx.mk", "x.mk"),
        ("unknown @list", "list"),
        ("unknown -c 'run build.sh'", "build.sh"),
        ("make -f other.mk", "other.mk"),
        ("sh a.sh b.sh", "b.sh"),
        ("bash -lc true", "~/.bash_profile"),
        ("git bisect run ./x", "./x"),
        ("cat build.sh | sh", "build.sh"),
        ("echo build.sh | xargs sh", "build.sh"),
        ("sh \"unclosed build.sh", "build.sh"),
    ] {
        assert!(run_inputs(line).operands.contains(operand), "{line}: {:?}", run_inputs(line).operands);
    }
    for line in
        ["cat a.txt", "ls src", "cp a b", "git add a.txt", "git diff -- src/lib.rs", "cargo test parser"]
    {
        assert_eq!(run_inputs(line).operands, BTreeSet::new(), "{line}");
    }
}

#[test]
fn l8_what_the_text_leaves_open_is_named() {
    for (line, part) in [
        ("cat build.sh | sh", "the input of `sh`"),
        ("sh", "the input of `sh`"),
        ("sh <<X\nsh build.sh\nX", "the input of `sh`"),
        ("(sh) < build.sh", "the input of `sh`"),
        ("sh ./buil*.sh", "words of `sh`"),
        ("sh $x", "words of `sh`"),
        ("sh <(cat build.sh)", "words of `sh`"),
        ("$x build.sh", "a program whose name"),
        ("./buil*.sh", "a program whose name"),
        ("echo build.sh | xargs sh", "words of `xargs`"),
        ("echo ./build.sh | xargs -I{} {}", "words of `xargs`"),
        ("ls | parallel sh", "words of `parallel`"),
        ("find . -exec sh {} +", "words of `find`"),
        ("find . -execdir ./x {} ;", "words of `find`"),
        ("find . $x", "words of `find`"),
        ("tar cf a.tar *", "words of `tar`"),
        ("python3 -c 'import x'", "the code in the words of `python3`"),
        ("python3 -m build", "the code in the words of `python3`"),
        ("perl -e 'exec \"sh\"'", "the code in the words of `perl`"),
        ("awk 'BEGIN { system(\"sh x\") }'", "the code in the words of `awk`"),
        ("sed '1e sh x' a", "the code in the words of `sed`"),
        ("git -c alias.x='!sh build.sh' x", "the code in the words of `git`"),
        ("script -c 'sh build.sh'", "the code in the words of `script`"),
        ("cd $x && sh run.sh", "the folder"),
        ("cd .. && sh run.sh", "the folder"),
        ("cd && sh run.sh", "the folder"),
        ("for i in 1 2; do cd sub; sh run.sh; done", "the folder"),
        ("env -C sub sh run.sh", "the folder"),
        ("PATH=. x", "what `PATH` makes"),
        ("env LD_PRELOAD=./x ls", "what `LD_PRELOAD` makes"),
        ("export BASH_ENV=x; bash y", "what `export` makes"),
        ("alias ls=./x; ls", "what `alias` makes"),
        ("ls() { sh x; }; ls", "what `function` makes"),
        (". ./env.sh && run", "what `.` makes"),
        ("cp a b && sh b", "one part of the line"),
        ("echo rm > b; sh b", "one part of the line"),
        ("git pull && ./build.sh", "one part of the line"),
        ("sh b & cp a b", "one part of the line"),
        ("sh \"unclosed", "not understood"),
    ] {
        let open = open(line);
        assert!(open.iter().any(|open| open.contains(part)), "{line}: {open:?}");
        assert!(!is_bound(line) && run_inputs(line).loads_code, "{line}");
    }
}

#[test]
fn data_lines_are_bound_and_load_nothing() {
    for line in [
        "ls -la src",
        "cat a b 2>/dev/null | grep -n x | wc -l",
        "find . -name '*.rs' -exec grep -l foo {} +",
        "rg foo | xargs wc -l",
        "cp $a *.txt \"$b\"",
        "sed -n '10,20p' a.txt",
        "sed 's/a b/c/g' a.txt",
        "awk '{ print $2 }' a.txt",
        "for f in *.txt; do wc -l \"$f\"; done",
        "python3 --version",
        "cd sub && ls",
        "timeout 5 cat a",
    ] {
        let found = run_inputs(line);
        assert_eq!((open(line), found.loads_code), (Vec::new(), false), "{line}");
    }
    // These are bound by their names, and may load more from the workspace.
    for line in
        ["make", "cargo test", "npm run build", "git status", "pytest tests", "X=1 make test", "npx jest"]
    {
        assert!(is_bound(line) && run_inputs(line).loads_code, "{line}: {:?}", open(line));
    }
}

#[test]
fn limits_leave_the_rest_open() {
    let nested = (0..12).fold("sh x".to_owned(), |line, _| format!("eval {line}"));
    assert!(!is_bound(&nested));
    let many = format!("unknown {}", (0..300).map(|n| format!("w{n} ")).collect::<String>());
    assert!(!is_bound(&many));
    let folders = (0..8).map(|n| format!("cd d{n}; ")).collect::<String>();
    assert!(!is_bound(&format!("{folders} sh x")) && run_inputs(&folders).folders.len() <= MAX_FOLDERS);
}
