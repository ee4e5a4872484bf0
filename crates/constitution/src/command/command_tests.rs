use super::*;

const BYPASS: &str = include_str!("corpus/bypass.txt");
const BENIGN: &str = include_str!("corpus/benign.txt");
const REFUSED: &str = include_str!("corpus/refused.txt");

/// The pairs of a corpus file: a grant and a command.
fn pairs(corpus: &str) -> Vec<(String, String)> {
    let pair = |line: &str| {
        let (grant, command) = line.split_once('\t').unwrap_or_else(|| panic!("no tab: {line}"));
        (unescaped(grant), unescaped(command))
    };
    corpus.lines().filter(|line| !line.starts_with("# ") && !line.is_empty()).map(pair).collect()
}

fn unescaped(text: &str) -> String {
    let mut chars = text.chars();
    let mut out = String::new();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('0') => out.push('\0'),
            Some('u') => {
                let code: String = chars.by_ref().take_while(|&c| c != '}').filter(|&c| c != '{').collect();
                out.push(char::from_u32(u32::from_str_radix(&code, 16).unwrap()).unwrap());
            }
            Some(c) if c != '\\' => out.extend(['\\', c]),
            Some(c) => out.push(c),
            None => out.push('\\'),
        }
    }
    out
}

fn grant(text: &str) -> CommandGrant {
    CommandGrant::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn covered(grants: &[&str], command: &str) -> bool {
    let grants: Vec<CommandGrant> = grants.iter().map(|text| grant(text)).collect();
    parse(command).is_ok_and(|parsed| covers_all(&grants, &parsed))
}

fn ran(command: &str) -> Vec<String> {
    programs(&parse(command).unwrap_or_else(|error| panic!("{command}: {error}")))
}

fn refusal(text: &str) -> String {
    CommandGrant::parse(text).unwrap_err().to_string()
}

#[test]
fn no_bypass_is_covered() {
    let pairs = pairs(BYPASS);
    assert!(pairs.len() >= 150, "{}", pairs.len());
    let through: Vec<_> = pairs.iter().filter(|(grant, command)| covered(&[grant], command)).collect();
    assert_eq!(through, Vec::<&(String, String)>::new());
}

#[test]
fn everything_harmless_is_covered() {
    let pairs = pairs(BENIGN);
    assert!(pairs.len() >= 60, "{}", pairs.len());
    for (text, command) in &pairs {
        let grant = grant(text);
        assert!(grant.covers(&parse(command).unwrap()), "{text} ⇥ {command}");
        // A grant is stored as its text.
        assert_eq!(self::grant(&grant.to_string()), grant, "{text}");
    }
}

#[test]
fn no_wildcard_stands_for_a_started_program() {
    let patterns = REFUSED.lines().filter(|line| !line.starts_with("# ") && !line.is_empty());
    let accepted: Vec<_> = patterns.filter(|text| CommandGrant::parse(text).is_ok()).collect();
    assert_eq!(accepted, Vec::<&str>::new());
    assert_eq!(
        refusal("rustup doc *"),
        "what the words of `rustup doc` do is not known here, so none of them can be left open: name every word, or write `= ` and the exact line"
    );
}

#[test]
fn chains_need_a_grant_for_each_part() {
    assert!(covered(&["git status", "cargo test *"], "git status && cargo test a ; git status"));
    assert!(covered(&["cat **", "wc -l"], "cat a.txt 2>/dev/null | wc -l"));
    assert!(!covered(&["git status", "cargo test *"], "git status && cargo build"));
    assert!(!covered(&["git status", "cargo test *"], "git status || cargo test a"));
    assert!(!covered(&["git status", "cargo test *"], "git status\ncargo test a"));
    assert!(!covered(&["git status", "cargo test *"], "git status & cargo test a"));
    // An exact grant is for a whole line.
    assert!(!covered(&["= sh", "echo **"], "echo rm | sh"));
    assert!(!covered(&["= cd src", "ls"], "cd src && ls"));
    assert!(covered(&["ls **"], "ls a ; ls b") && !grant("ls **").covers(&parse("ls a ; ls b").unwrap()));
}

#[test]
fn wide_patterns_are_refused_with_what_to_write() {
    for (text, said) in [
        ("", "the grant is empty: write a command such as `cargo test *`"),
        ("**", "a wildcard cannot stand for the program: name it"),
        ("* status", "a wildcard cannot stand for the program: name it"),
        ("env *", "`env` can start any other program or run code: write `= ` and the exact line"),
        (
            "/usr/bin/python3.11 x.py",
            "`/usr/bin/python3.11` can start any other program or run code: write `= ` and the exact line",
        ),
        (
            "./build.sh *",
            "`./build.sh` is a file that can be rewritten: name every word, or write `= ` and the exact line",
        ),
        (
            "target/debug/tool **",
            "`target/debug/tool` is a file that can be rewritten: name every word, or write `= ` and the exact line",
        ),
        ("cd *", "`cd` changes the shell for the commands after it: write `= ` and the exact line"),
        ("curl *", "`curl` sends to other machines: name every word, or write `= ` and the exact line"),
        (
            "git **",
            "what `git` does is decided by its first word: write that word instead of a wildcard, as in `git … *`",
        ),
        (
            "git bisect **",
            "`git … bisect` can start other programs or work elsewhere: write `= ` and the exact line",
        ),
        (
            "find . -exec *",
            "`find … -exec` can start other programs or work elsewhere: write `= ` and the exact line",
        ),
        ("ls ** a", "`**` can only be the last word: write `*` for one word"),
        (
            "ls *.rs",
            "`*.rs`: a wildcard is a whole word, `*` or `dir/*`: write that, or `= ` and the exact line",
        ),
        ("ls /*", "`/*`: a wildcard is a whole word, `*` or `dir/*`: write that, or `= ` and the exact line"),
        ("'ls' *", "the program `ls` is quoted or contains unusual characters: write its plain name"),
        (
            "ls | wc",
            "a pattern is one command without shell structure: grant its parts one by one, or write `= ` and the exact line",
        ),
    ] {
        assert_eq!(refusal(text), said, "{text}");
    }
    for text in [
        "sh *",
        "bash x",
        "sudo ls",
        "xargs rm",
        "busybox ls",
        "ssh host *",
        "node x",
        "awk *",
        "sed p *",
        "time ls",
        "docker run x",
        "npx x",
        "git -c a=b status",
        "git --exec-path=x status",
        "git config **",
        "cargo **",
        "cargo +nightly **",
        "git --namespace x **",
        "git --no-pager **",
        "tar **",
        "tar xIf * *",
        "tar --to-c=x xf a",
        "rsync -e x a b",
        "rsync **",
        "scp **",
        "make **",
        "npm exec *",
        "cargo run *",
        "eval x",
        "export A=b",
        "X=1 ls",
        "ls > x",
        "ls $x",
        "ls ~",
        "ls {a,b}",
        "ls ../*",
        "ls */*",
        "ls src/**",
        "ls a?",
        "ls & ls",
        "if",
        "alias x=y",
        ". x",
        "source x",
        "printf -v x *",
        "less x",
        "vim x",
        "$x",
        "ls\nls",
        "l\u{455} *",
        "/usr/bin/env *",
        "./env *",
        "python3 *",
        "perl5.36 x",
        "parallel x",
        "watch ls",
        "su x",
        "command ls",
        "exec ls",
        "-x *",
    ] {
        assert!(CommandGrant::parse(text).is_err(), "{text}");
    }
}

/// An unknown program may start others, so words are left open only for known programs.
#[test]
fn l3_an_unknown_program_gets_no_wildcard() {
    for program in [
        "eatmydata",
        "torify",
        "sshpass",
        "proot",
        "wine",
        "wasmtime",
        "ansible-playbook",
        "pager",
        "pytest",
        "nodemon",
        "rename",
        "some-tool",
        "./ls",
        "bin/git",
        "/opt/x/bin/cargo",
        "/workspace/grep",
    ] {
        for words in ["*", "**", "dir/*", "run *"] {
            let text = format!("{program} {words}");
            assert!(CommandGrant::parse(&text).is_err(), "{text}");
        }
    }
    for (granted, command) in
        [("some-tool check --all", "some-tool check --all"), ("./build.sh quick", "./build.sh quick")]
    {
        assert!(covered(&[granted], command), "{granted}");
    }
    assert!(covered(&["/usr/bin/ls *"], "/usr/bin/ls src"), "a program of the machine by its path");
    assert_eq!(suggest_grants(&parse("some-tool fix a.txt").unwrap()), ["some-tool fix a.txt"]);
    assert!(ran("eatmydata rm x").contains(&UNKNOWN.to_owned()));
}

#[test]
fn programs_are_seen_through_wrappers() {
    for (command, expected) in [
        ("git status", &["git"][..]),
        ("/usr/bin/git status && ./x", &["./x", "git"]),
        ("env -i X=1 nice -n 5 timeout -k 1 5 rm x", &["env", "nice", "rm", "timeout"]),
        ("time rm x", &["rm"]),
        ("/usr/bin/time -f %e rm x", &["rm", "time"]),
        ("sudo -u root A=b rm x", &["rm", "sudo"]),
        ("sh -c 'ls; rm x'", &["ls", "rm", "sh"]),
        ("bash -lc \"curl x | sh -c 'rm y'\"", &["bash", "curl", "rm", "sh"]),
        ("bash <<< 'rm x'", &["?", "bash"]),
        ("bash x.sh", &["bash", "x.sh"]),
        (". ./x.sh; source y.sh", &[".", "./x.sh", "source", "y.sh"]),
        ("find . -name x -exec rm {} + -execdir sh -c 'cat y' \\;", &["cat", "find", "rm", "sh"]),
        ("ls | xargs -n 1 rm", &["ls", "rm", "xargs"]),
        ("echo $(rm x) `cat y` <(wc z)", &["cat", "echo", "rm", "wc"]),
        ("$X y", &["?"]),
        ("eval rm x", &["eval", "rm"]),
        ("eval $x", &["?", "eval"]),
        ("python3 -c 'x'", &["?", "python3"]),
        ("git -c alias.x='!rm y' x", &["git", "rm"]),
        ("git -c core.pager=less log", &["?", "git", "less"]),
        ("git fetch --upload-pack='sh -c id' o", &["git", "id", "sh"]),
        ("GIT_SSH_COMMAND='nc x' git fetch", &["git", "nc"]),
        ("ssh -p 22 -o ProxyCommand='nc a b' host rm x", &["nc", "rm", "ssh"]),
        ("watch -n 1 'ls | wc'", &["ls", "watch", "wc"]),
        ("busybox rm x", &["busybox", "rm"]),
        ("env -S 'rm x'", &["env", "rm"]),
        ("git -C /repo status", &["git"]),
        ("su root -c 'rm x'", &["rm", "su"]),
        ("su - root -c 'rm x'", &["rm", "su"]),
        ("su", &["?", "su"]),
        ("sudo -i", &["?", "sudo"]),
        ("ssh host", &["?", "ssh"]),
        ("tar --checkpoint-action=exec='rm x' -cf y z", &["rm", "tar"]),
        ("rsync -e 'nc x' a b", &["nc", "rsync"]),
        ("zip a b -T -TT id", &["id", "zip"]),
        ("zip a b -T -TT 'sudo x'", &["sudo", "x", "zip"]),
        ("zip -rTTid a b", &["id", "zip"]),
        ("split --filter='rm x' a", &["rm", "split"]),
        ("gcc -wrapper ./f.sh a.c", &["./f.sh", "gcc"]),
        ("go build -toolexec=./f.sh x", &["./f.sh", "go"]),
        ("install -s --strip-program=./f.sh a b", &["./f.sh", "install"]),
        ("rustc -C linker=./f.sh a.rs", &["./f.sh", "rustc"]),
        ("rustc -Clinker=./f.sh -C opt-level=3 a.rs", &["./f.sh", "rustc"]),
        ("rsync -ave 'nc x' a b", &["nc", "rsync"]),
        ("rustup run stable rm x", &["?", "rustup"]),
        ("npm create evil", &["?", "npm"]),
        ("make test", &["make"]),
        ("LD_PRELOAD=./x.so ls", &["./x.so", "ls"]),
        ("trap 'rm x' EXIT", &["rm", "trap"]),
        ("if a; then b; elif c; then d; else e; fi", &["a", "b", "c", "d", "e"]),
        ("for x in 1 2; do a; done; while b; do c; done", &["a", "b", "c"]),
        ("case x in a|b) c;; (d) e;; esac", &["c", "e"]),
        ("f() { a; }; f", &["a", "f"]),
        ("cat <<EOF | b\n$(c)\nEOF\nd", &["b", "c", "cat", "d"]),
        ("cat <<EOF\n${x:-\nEOF\nrm x", &[]),
        ("cat <<'EOF'\n$(c)\nEOF", &["cat"]),
        ("[[ $(a) == b ]] && ((x = $(c))) || ! d", &["a", "c", "d"]),
        ("exec nohup setsid stdbuf -o L rm x", &["exec", "nohup", "rm", "setsid", "stdbuf"]),
    ] {
        match expected {
            [] => assert!(parse(command).is_err(), "{command}"),
            expected => assert_eq!(ran(command), expected, "{command}"),
        }
    }
}

/// A subcommand that starts what further words name is seen behind options of the program itself.
#[test]
fn l3_global_options_hide_no_subcommand() {
    for (program, before, launching) in [
        (
            "git",
            &["-C .", "--no-pager -C sub", "--git-dir=x", "--git-dir x --work-tree .", "-p -P"][..],
            "bisect run ./x",
        ),
        ("git", &["-C .", "--no-pager", "--bare"], "submodule foreach ./x"),
        ("cargo", &["-q", "+nightly", "-q --locked -v", "--color always", "--color=never -Zx"], "run"),
        ("npm", &["--silent", "-s", "--prefix d", "--prefix=d -q"], "exec x"),
        ("npm", &["--silent", "--loglevel error"], "init evil"),
        ("pnpm", &["-r", "-C d", "--filter x"], "exec x"),
        ("yarn", &["--cwd d", "-s"], "dlx x"),
        ("go", &["-C d"], "run x.go"),
        ("uv", &["--project d", "-q"], "run x"),
        ("rustup", &["-v", "--quiet"], "run stable x"),
        ("mvn", &["-q", "-f pom.xml"], "exec:exec"),
    ] {
        for options in before.iter().chain(&[""]) {
            for wrapper in ["", "env ", "timeout 5 "] {
                let line = format!("{wrapper}{program} {options} {launching}");
                assert!(ran(&line).contains(&UNKNOWN.to_owned()), "{line}: {:?}", ran(&line));
            }
        }
    }
    for line in ["git clone -u ./x y", "git clone -u./x y", "git clone -qu ./x y", "git -C . clone -u ./x y"]
    {
        assert_eq!(ran(line), ["./x", "git"], "{line}");
    }
    assert!(refusal("git clone -u ./x *").contains("other programs"));
    // What these start is known from their own words.
    for line in [
        "git --no-pager log bisect",
        "git -C . status",
        "git push -u origin main",
        "git add -u",
        "cargo -q test run",
        "cargo --locked build",
        "npm --silent run exec",
        "tar -cf FILE.tar x",
    ] {
        assert_eq!(ran(line).len(), 1, "{line}: {:?}", ran(line));
    }
}

/// A rule that forbids `rm`, or permits `ls` alone, is not evaded by how a line is written: the line names the
/// program, or `?` for an unknown one.
#[test]
fn l3_no_spelling_hides_a_program() {
    for command in [
        "r\"m\" x",
        "\\rm x",
        "/bin//rm x",
        "/usr/bin/./rm x",
        "/usr/../bin/rm x",
        "../../../bin/rm x",
        "/proc/self/root/bin/rm x",
        "bash -ce 'rm x'",
        "bash -c -e 'rm x'",
        "bash -c -- 'rm x'",
        "bash -co errexit 'rm x'",
        "bash --rcfile a -c 'rm x'",
        "fish -C 'rm x' y",
        "sh <<E\nrm x\nE",
        "env -iS 'rm x'",
        "env -vS'rm x'",
        "env --split-string='rm x'",
        "env -i rm x",
        "env --unset A rm x",
        "sudo -iu root rm x",
        "setpriv --reuid 1000 rm x",
        "nice --adj 5 rm x",
        "echo rm x | xargs -I@ @",
        "echo rm x | xargs -I {} sh -c {}",
        "echo rm x | xargs env",
        "echo -exec rm x | xargs find .",
        "echo x | xargs -0n1 rm",
        "parallel ::: 'rm x'",
        "alias ls='rm x'\nls",
        "export PATH=/tmp; ls",
        "declare -x PATH+=:. && ls",
        "env PATH=/tmp ls",
        "printf -v PATH /tmp; ls",
        "hash -p /tmp/x ls; ls",
        "enable -f ./x.so ls; ls",
        "complete -C 'rm x' ls",
        "f() { rm x; }; f",
        "trap 'rm x' EXIT",
        "trap -- 'rm x' EXIT",
        "fd -Hx rm",
        "fd --exec=rm",
        "find . -exec rm {} +",
        "eval 'r''m x'",
        "command -p rm x",
        "X=1 rm x",
        "coproc rm x",
        "! rm x",
        "time rm x",
    ] {
        let ran = ran(command);
        assert!(ran.iter().any(|name| name == "rm" || name == UNKNOWN), "{command}: {ran:?}");
    }
}

#[test]
fn structures_are_named() {
    use Structure::*;
    for (command, expected) in [
        ("ls a", &[][..]),
        ("a | b && c; d", &[Pipe, And, Sequence]),
        ("a || b\nc &", &[Or, Newline, Background]),
        ("! a", &[Negation]),
        ("(a) && { b; }", &[And, Sequence, Subshell, Group]),
        ("a $(b) <(c)", &[CommandSubstitution, ProcessSubstitution]),
        ("a <<< b", &[HereString, Redirection]),
        ("a $x * {a,b} ~ $((1))", &[Arithmetic, Parameter, Glob, Brace, Tilde]),
        ("x=(a b) y=c", &[Array, Assignment]),
        ("a $'b' # c", &[SpecialQuote, Comment]),
        ("a \\\n b", &[Continuation]),
        ("a >/dev/null 2>&1", &[]),
        ("a > b", &[Redirection]),
    ] {
        let found: Vec<Structure> = parse(command).unwrap().structures().iter().copied().collect();
        assert_eq!(found, expected, "{command}");
    }
}

#[test]
fn bounds_hold() {
    assert_eq!(parse(&"a".repeat(1 << 20)), Err(CommandSyntaxError::TooLong { bytes: 1 << 20 }));
    for (open, close) in
        [("$(a ", ")"), ("(", ")"), ("( ", ")"), ("${x:-", "}"), ("{ ", ";}"), ("\"$(", ")\""), ("<(", ")")]
    {
        let deep = format!("a {}b{}", open.repeat(2000), close.repeat(2000));
        assert!(parse(&deep).is_err(), "{open}");
    }
    assert_eq!(
        parse(&format!("{}a{}", "( ".repeat(2000), " )".repeat(2000))),
        Err(CommandSyntaxError::TooDeep)
    );
    let wrapped = format!("{}rm x", "env ".repeat(3000));
    assert!(ran(&wrapped).contains(&UNKNOWN.to_owned()));
    assert_eq!(parse(" \n\t# nothing"), Err(CommandSyntaxError::Empty));
}

#[test]
fn unknown_syntax_is_an_error() {
    for hidden in [
        "ls\u{a0}x",
        "ls \u{3000}x",
        "ls x\0",
        "ls\rx",
        "ls \u{202e}x",
        "ls \u{200b}",
        "echo '\u{1b}[2K'",
        "ls \u{2028}x",
    ] {
        assert!(matches!(parse(hidden), Err(CommandSyntaxError::Invisible { .. })), "{hidden:?}");
    }
    for alike in ["l\u{455} x", "ls \u{2013}la", "ls -\u{430}", "ls \u{2212}a", "echo $(l\u{455})"] {
        assert!(matches!(parse(alike), Err(CommandSyntaxError::LookAlike { .. })), "{alike:?}");
    }
    for odd in [
        "l\\\ns",
        "echo $\\\n(rm)",
        "echo \"$\\\n(rm)\"",
        "x=(a)b",
        "x[0]=a",
        "ls $[1]",
        "ls +(a)",
        "ls 'a",
        "ls \"a",
        "ls `a",
        "ls $(a",
        "ls )",
        "ls ;;",
        "ls && ",
        "ls |",
        "| ls",
        "&& ls",
        "; ls",
        "ls > ",
        "if ls",
        "fi",
        "do",
        "{ ls",
        "a b ()",
        "cat <<EOF",
        "cat <<EOF\nx",
        "cat <<$x\n$x",
        "echo ${ ls; }",
        "echo $(( ls; ))",
        "\"${x:-'}'}\"",
        "(ls) ls",
        "ls & & ls",
        "99999999999>x",
        "ls \\",
    ] {
        assert!(matches!(parse(odd), Err(CommandSyntaxError::Syntax { .. })), "{odd:?}");
    }
    // Words after the program may be in any script.
    assert_eq!(ran("git commit -m 'Größe, \u{6f22}\u{5b57}'"), ["git"]);
}

#[test]
fn suggestions_are_narrow() {
    for (command, expected) in [
        ("git status", &["git status"][..]),
        ("cargo test parser", &["cargo test parser", "cargo test *"]),
        ("cargo  test 'parser' 2>&1", &["cargo test parser", "cargo test *"]),
        ("cat src/lib.rs", &["cat src/lib.rs", "cat src/*"]),
        ("cat /etc/passwd", &["cat /etc/passwd", "cat /etc/*"]),
        ("cat ../x", &["cat ../x"]),
        ("ls -la", &["ls -la"]),
        ("grep 'a b' src", &["grep 'a b' src", "grep 'a b' *"]),
        ("curl example.org", &["curl example.org"]),
        ("sh x.sh", &["= sh x.sh"]),
        ("env X=1 ls a", &["= env X=1 ls a"]),
        ("ls a && ls b", &["= ls a && ls b"]),
        ("ls *.rs", &["= ls *.rs"]),
        ("git bisect run x", &["= git bisect run x"]),
        ("\"ls\" a", &["= ls a"]),
    ] {
        assert_eq!(suggest_grants(&parse(command).unwrap()), expected, "{command}");
    }
}
