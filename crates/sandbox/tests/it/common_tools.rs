//! Common tools work inside without exceptions for them.

use std::process::Command;

use tribune_contract::{LaunchProfile, Mount};

use crate::support::{OverlayWorkspace, Test, profile, shell};

pub(crate) const TESTS: &[Test] = &[
    ("gcc", gcc),
    ("git", git),
    ("python_multiprocessing", python_multiprocessing),
    ("node_workers", node_workers),
    ("web_server_and_client", web_server_and_client),
    ("cargo_build", cargo_build),
    ("terminals", terminals),
];

fn python(code: &str) -> LaunchProfile {
    profile("/usr/bin/python3", &["-c", code])
}

fn gcc() {
    let overlay = OverlayWorkspace::with(&[(
        "hello.c",
        "#include <stdio.h>\nint main(void) { puts(\"compiled\"); }\n",
    )]);
    assert_eq!(overlay.run(shell("gcc -O1 -o hello hello.c && ./hello")).ok(), "compiled\n");
}

fn git() {
    let overlay = OverlayWorkspace::with(&[("file", "one\n")]);
    let line = "git init -q . && git config user.email a@b && git config user.name n && git add . && \
                git commit -qm first && echo two >> file && git commit -qam second && git gc -q && \
                git clone -q . ../tmp/clone && git -C /tmp/clone log --format=%s";
    assert_eq!(overlay.run(shell(line)).ok(), "second\nfirst\n");
}

fn python_multiprocessing() {
    let code = "import multiprocessing as m\n\
        if __name__ == '__main__':\n  p = m.Pool(4); print(sum(p.map(abs, range(-100, 0)))); p.close(); p.join()\n";
    let overlay = OverlayWorkspace::with(&[("pool.py", code)]);
    assert_eq!(overlay.run(profile("/usr/bin/python3", &["pool.py"])).ok(), "5050\n");
}

fn node_workers() {
    let code = "const {Worker, isMainThread, parentPort} = require('worker_threads');\n\
        if (isMainThread) { const w = new Worker(__filename); w.on('message', m => { \n\
          console.log(m, require('child_process').execSync('echo child').toString().trim()); }); }\n\
        else parentPort.postMessage('worker');\n";
    let overlay = OverlayWorkspace::with(&[("workers.js", code)]);
    assert_eq!(overlay.run(profile("/usr/bin/node", &["workers.js"])).ok(), "worker child\n");
}

fn web_server_and_client() {
    let code = "import http.server, threading, urllib.request\n\
        s = http.server.ThreadingHTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)\n\
        threading.Thread(target=s.serve_forever, daemon=True).start()\n\
        print(urllib.request.urlopen(f'http://localhost:{s.server_port}/page').read().decode())\n";
    let overlay = OverlayWorkspace::with(&[("page", "served")]);
    assert_eq!(overlay.run(python(code)).ok(), "served\n");
}

fn cargo_build() {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().unwrap();
    let sysroot = String::from_utf8(sysroot.stdout).unwrap().trim().to_owned();
    let manifest = "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
    let overlay = OverlayWorkspace::with(&[
        ("Cargo.toml", manifest),
        ("src/main.rs", "fn main() { println!(\"built\"); }\n"),
    ]);
    let mut profile = shell("cargo run -q --offline");
    profile.mounts =
        vec![Mount::ReadOnly { source: sysroot.into(), target: "/opt/rust".into(), hide: Vec::new() }];
    profile.env.insert("PATH".into(), "/opt/rust/bin:/usr/bin:/bin".into());
    assert_eq!(overlay.run(profile).ok(), "built\n");
}

fn terminals() {
    let code = "import os, pty\n\
        pid, fd = pty.fork()\n\
        if pid == 0: os.write(1, b'on a terminal' if os.isatty(1) else b'not'); os.read(0, 1)\n\
        print(os.read(fd, 100).decode().strip())\n";
    assert_eq!(OverlayWorkspace::with(&[]).run(python(code)).ok(), "on a terminal\n");
}
