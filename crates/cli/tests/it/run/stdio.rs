//! The standard streams of a run.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use rustix::event::{PollFd, PollFlags, Timespec};

use super::{Site, within};
use crate::fixture::cli_output;
use crate::in_process_daemon::RunningCall;

/// More than a pipe holds, and no multiple of the chunk size.
const LARGE: usize = 3_000_001;

#[test]
fn files_go_in_and_out_whole() {
    let site = Site::new();
    let folder = site.daemon.home().folder.path();
    let bytes: Vec<u8> = (0..LARGE).map(|at| (at % 251) as u8).collect();
    std::fs::write(folder.join("in"), &bytes).unwrap();
    std::fs::write(folder.join("out"), "before\n").unwrap();
    let mut command = site.command(&["run", "-q", "--", "sh", "-c", "cat; exit 7"]);
    command.stdin(File::open(folder.join("in")).unwrap());
    command.stdout(File::options().append(true).open(folder.join("out")).unwrap());
    let ran = command.output().unwrap();
    assert_eq!((ran.status.code(), ran.stderr.len()), (Some(7), 0));
    assert!(std::fs::read(folder.join("out")).unwrap() == [b"before\n", &bytes[..]].concat());

    // Both outputs to one file keep their order.
    let both = File::create(folder.join("both")).unwrap();
    let line = "for n in 1 2 3; do echo out$n; echo err$n >&2; done";
    let mut command = site.command(&["run", "-q", "--", "sh", "-c", line]);
    command.stdin(Stdio::null()).stdout(both.try_clone().unwrap()).stderr(both);
    assert!(command.status().unwrap().success());
    let told = std::fs::read_to_string(folder.join("both")).unwrap();
    assert_eq!(told, "out1\nerr1\nout2\nerr2\nout3\nerr3\n");
    site.end();
}

#[test]
fn l7_run_gets_pipes_instead_of_files() {
    let site = Site::new();
    let folder = site.daemon.home().folder.path();
    std::fs::write(folder.join("in"), "input\n").unwrap();
    std::fs::write(folder.join("out"), "as it was\n").unwrap();
    let line = "import os, stat
for stream in range(3):
    print(stat.S_IFMT(os.fstat(stream).st_mode) == stat.S_IFIFO)
    for act in [lambda: os.ftruncate(stream, 0), lambda: os.lseek(stream, 0, 0), lambda: open(f'/proc/self/fd/{stream}', 'r+').truncate(0)]:
        try: act()
        except OSError: continue
        print('done')";
    let mut command = site.command(&["run", "-q", "--", "python3", "-c", line]);
    command.stdin(File::options().read(true).write(true).open(folder.join("in")).unwrap());
    let out = File::options().append(true).open(folder.join("out")).unwrap();
    command.stdout(out.try_clone().unwrap()).stderr(out);
    assert!(command.status().unwrap().success());
    assert_eq!(std::fs::read_to_string(folder.join("out")).unwrap(), "as it was\nTrue\nTrue\nTrue\n");
    assert_eq!(std::fs::read_to_string(folder.join("in")).unwrap(), "input\n");

    for (is_input, name) in [(true, "input"), (false, "output")] {
        let mut command = site.command(&["run", "-q", "--", "ls", "-l", "/proc/self/fd/"]);
        let opened = File::open(folder).unwrap();
        let (stdin, stdout) =
            if is_input { (opened.into(), Stdio::piped()) } else { (Stdio::null(), opened.into()) };
        let refused = cli_output(command.stdin(stdin).stdout(stdout).output().unwrap());
        assert!(refused.code == 64 && refused.out.is_empty(), "{refused:?}");
        assert!(refused.err.contains(&format!("the standard {name} is a folder")), "{refused:?}");
    }
    site.end();
}

#[test]
fn non_blocking_streams_lose_nothing() {
    let site = Site::new();
    let socket = || {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (OwnedFd::from(ours), OwnedFd::from(theirs))
    };
    let pipe = || {
        let (ours, theirs) = std::io::pipe().unwrap();
        (OwnedFd::from(ours), OwnedFd::from(theirs))
    };
    for (ours, theirs) in [socket(), pipe()] {
        rustix::io::ioctl_fionbio(&theirs, true).unwrap();
        let line = format!("head -c {LARGE} /dev/zero && echo whole");
        let mut command = site.command(&["run", "-q", "--", "sh", "-c", &line]);
        command.stdin(Stdio::null()).stdout(theirs.try_clone().unwrap());
        let mut run = command.spawn().unwrap();
        drop(command);
        // The reader starts only when the pipe is full.
        within("it is full", || {
            let mut full = [PollFd::new(&theirs, PollFlags::OUT)];
            rustix::event::poll(&mut full, Some(&Timespec::default())).unwrap() == 0
        });
        drop(theirs);
        let mut told = Vec::new();
        File::from(ours).read_to_end(&mut told).unwrap();
        assert_eq!((told.len(), told.ends_with(b"\0whole\n")), (LARGE + 6, true));
        assert!(run.wait().unwrap().success());
    }
    for (ours, theirs) in [socket(), {
        let (theirs, ours) = pipe();
        (ours, theirs)
    }] {
        rustix::io::ioctl_fionbio(&theirs, true).unwrap();
        let mut ours = File::from(ours);
        let mut command = site.command(&["run", "-q", "--", "sh", "-c", "echo ready; cat"]);
        let run = RunningCall::fed(command.stdin(theirs));
        drop(command);
        for word in ["ready", "one", "two"] {
            if word != "ready" {
                writeln!(ours, "{word}").unwrap();
            }
            run.until_out(word);
        }
        drop(ours);
        assert!(run.end().0.success());
    }
    site.end();
}

#[test]
fn unread_streams_block_nothing() {
    let site = Site::new();
    // A writer that stays silent, and a writer that never stops.
    let (ours, theirs) = UnixStream::pair().unwrap();
    (&ours).write_all(b"one\n").unwrap();
    for (line, input) in
        [("head -n1", std::os::fd::OwnedFd::from(theirs)), ("true", File::open("/dev/zero").unwrap().into())]
    {
        let mut command = site.command(&["run", "-q", "--", "sh", "-c", line]);
        let ran = cli_output(command.stdin(input).output().unwrap());
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
    }
    // A full device ends the program, as it would without a sandbox.
    let mut command = site.command(&["run", "-q", "--", "yes"]);
    command.stdin(Stdio::null()).stdout(File::options().write(true).open("/dev/full").unwrap());
    assert_eq!(command.status().unwrap().code(), Some(141));
    // Lost output is no success, even if the program did not notice.
    let mut command = site.command(&["run", "-q", "--", "echo", "lost"]);
    command.stdin(Stdio::null()).stdout(File::options().write(true).open("/dev/full").unwrap());
    let ran = cli_output(command.output().unwrap());
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("part of the command's output could not be written: No space left"), "{ran:?}");
    // So does a closed reader.
    let mut command = site.command(&["run", "-q", "--", "yes"]);
    let mut run = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    drop(run.stdout.take());
    assert_eq!(run.wait().unwrap().code(), Some(141));
    site.end();
}
