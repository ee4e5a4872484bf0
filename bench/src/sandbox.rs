//! The sandbox: how long a start takes, what an idle one holds, what a walk over files costs inside.

use std::error::Error;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use tribune_contract::{LaunchProfile, Session};
use tribune_sandbox::{House, Launcher, Streams};

/// Starts of each kind, one after the other in turns, so that all meet the same machine.
const STARTS: usize = 100;

/// What is started.
const PROGRAM: &str = "/usr/bin/true";

/// Sandboxes that are idle at a time.
const IDLE: usize = 20;

/// What most people would use.
const BWRAP: [&str; 17] = [
    "bwrap",
    "--unshare-all",
    "--die-with-parent",
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--proc",
    "/proc",
];

const WALK: &str = "find /usr/share -type f | wc -l";

pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    let launcher = Launcher::this_program(House::of(Path::new("bench")));
    starts(&launcher)?;
    idle(&launcher)?;
    walk(&launcher)
}

fn profile(program: &str, args: &[&str]) -> Result<LaunchProfile, Box<dyn Error>> {
    let mut profile = LaunchProfile::new(Session::new("bench")?, program);
    profile.args = args.iter().map(|arg| (*arg).to_owned()).collect();
    Ok(profile)
}

fn starts(launcher: &Launcher) -> Result<(), Box<dyn Error>> {
    let profile = profile(PROGRAM, &[])?;
    let has_bwrap = Command::new("bwrap").arg("--version").stdout(Stdio::null()).status().is_ok();
    let mut baseline = Baseline::start()?;
    let (mut bare, mut bare_over) = (vec![], vec![]);
    let (mut running, mut over, mut plain, mut bwrap) = (vec![], vec![], vec![], vec![]);
    let timed = |command: &mut Command| -> Result<Duration, Box<dyn Error>> {
        let start = Instant::now();
        let status = command.status()?;
        if status.success() { Ok(start.elapsed()) } else { Err(format!("{command:?}: {status}").into()) }
    };
    // The first one starts the process that the others are forked from.
    let start = Instant::now();
    launcher.launch(&profile, Streams::captured())?.wait()?;
    let first = start.elapsed();
    for _ in 0..STARTS {
        let start = Instant::now();
        let child = launcher.launch(&profile, Streams::captured())?;
        running.push(start.elapsed());
        child.wait()?;
        over.push(start.elapsed());
        let (until_it_runs, until_it_is_over) = baseline.once()?;
        bare.push(until_it_runs);
        bare_over.push(until_it_is_over);
        plain.push(timed(&mut Command::new(PROGRAM))?);
        if has_bwrap {
            bwrap.push(timed(Command::new(BWRAP[0]).args(&BWRAP[1..]).arg(PROGRAM))?);
        }
    }
    println!("sandbox, {STARTS} starts of {PROGRAM}, least, median, and the median as a ratio:");
    let median = told("a bare clone and pivot_root, until the program runs", &mut bare, None);
    told("ours, until the program runs", &mut running, Some(median));
    let median = told("a bare clone and pivot_root, until everything is gone", &mut bare_over, None);
    told("ours, until everything is gone", &mut over, Some(median));
    if has_bwrap {
        told("bwrap --unshare-all, until everything is gone", &mut bwrap, Some(median));
    } else {
        println!("  bwrap is not installed: `apt install bubblewrap` or its like, and run this again");
    }
    told("fork and exec alone", &mut plain, Some(median));
    println!("  the first of ours, until everything is gone: {first:.1?}");
    Ok(())
}

/// Prints a line, and returns the median.
fn told(what: &str, times: &mut [Duration], beside: Option<Duration>) -> Duration {
    times.sort_unstable();
    let (least, median) = (times[0], times[times.len() / 2]);
    let ratio = beside.map_or(1.0, |beside| median.as_secs_f64() / beside.as_secs_f64());
    println!("  {what}: {least:.1?}, {median:.1?}, {ratio:.1}");
    median
}

/// A process with one thread that makes bare sandboxes, one for each line it reads.
struct Baseline {
    process: Child,
    answers: BufReader<ChildStdout>,
}

impl Baseline {
    fn start() -> Result<Self, Box<dyn Error>> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg("sandbox-bare")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = process.stdout.take().ok_or("it has no output")?;
        Ok(Self { process, answers: BufReader::new(stdout) })
    }

    fn once(&mut self) -> Result<(Duration, Duration), Box<dyn Error>> {
        self.process.stdin.as_mut().ok_or("it has no input")?.write_all(b"\n")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        let mut nanos = answer.split_whitespace().map(|number| number.parse().map(Duration::from_nanos));
        match (nanos.next(), nanos.next()) {
            (Some(Ok(ran)), Some(Ok(over))) => Ok((ran, over)),
            _ => Err(format!("the baseline says `{}`", answer.trim()).into()),
        }
    }
}

impl Drop for Baseline {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// What the process of a [`Baseline`] does.
pub(crate) fn bare() -> Result<(), Box<dyn Error>> {
    for line in std::io::stdin().lines() {
        line?;
        let (ran, over) = tribune_sandbox::bare(PROGRAM)?;
        println!("{} {}", ran.as_nanos(), over.as_nanos());
    }
    Ok(())
}

fn idle(launcher: &Launcher) -> Result<(), Box<dyn Error>> {
    let profile = profile("/bin/sleep", &["600"])?;
    let mut children = Vec::new();
    for _ in 0..IDLE {
        children.push(launcher.launch(&profile, Streams::captured())?);
    }
    let kilobytes: u64 = children.iter().map(|child| held(child.id())).sum();
    println!(
        "  an idle one holds {} KB beside its program (launcher and process 1)",
        kilobytes / IDLE as u64
    );
    Ok(())
}

/// Kilobytes of a launcher and of its process 1, shared pages in parts.
fn held(launcher: u32) -> u64 {
    let read = |path: String| std::fs::read_to_string(path).unwrap_or_default();
    let children = read(format!("/proc/{launcher}/task/{launcher}/children"));
    let pids = children.split_whitespace().filter_map(|pid| pid.parse().ok()).chain([launcher]);
    let of = |pid: u32| {
        let rollup = read(format!("/proc/{pid}/smaps_rollup"));
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
        line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0)
    };
    pids.map(of).sum()
}

fn walk(launcher: &Launcher) -> Result<(), Box<dyn Error>> {
    let profile = profile("/bin/sh", &["-c", WALK])?;
    let (mut inside, mut outside) = (vec![], vec![]);
    for _ in 0..10 {
        let start = Instant::now();
        Command::new("/bin/sh").args(["-c", WALK]).stdout(Stdio::null()).status()?;
        outside.push(start.elapsed());
        let mut child = launcher.launch(&profile, Streams::captured())?;
        let start = Instant::now();
        if let Some(mut stdout) = child.stdout() {
            stdout.read_to_string(&mut String::new())?;
        }
        inside.push(start.elapsed());
    }
    inside.sort_unstable();
    outside.sort_unstable();
    let ratio = inside[inside.len() / 2].as_secs_f64() / outside[outside.len() / 2].as_secs_f64();
    println!("  a walk over /usr/share inside: {ratio:.2} of outside");
    Ok(())
}
