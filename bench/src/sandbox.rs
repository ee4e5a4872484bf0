//! The sandbox: how long a start takes, what an idle one holds, what a walk over files costs inside.

use std::error::Error;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use tribune_contract::{LaunchProfile, Mount, Session};
use tribune_sandbox::{House, Launcher, Streams};

use crate::first_instruction::{self, FOLDER, Moment, NAME};

/// Starts of each kind, one after the other in turns, so that all meet the same machine.
const STARTS: usize = 200;

/// Before each start: what was started before is buried by the kernel, and ours makes the next one ahead. Neither is anybody
/// else's time.
const REST: Duration = Duration::from_millis(20);

/// Sandboxes that are idle at a time.
const IDLE: usize = 20;

/// What most people would use, with as much in it as the bare one has.
const BWRAP: &str = "--unshare-all --die-with-parent --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib \
                     --symlink usr/lib64 /lib64 --proc /proc";

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

/// Of each start, how long it took to the program's first instruction, and until everything of it was gone.
#[derive(Debug)]
struct Starts {
    first: Vec<Duration>,
    over: Vec<Duration>,
}

impl Starts {
    const fn new() -> Self {
        Self { first: Vec::new(), over: Vec::new() }
    }

    fn push(&mut self, (first, over): (Duration, Duration)) {
        self.first.push(first);
        self.over.push(over);
    }
}

fn starts(launcher: &Launcher) -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    first_instruction::write(folder.path())?;
    let inside = format!("{FOLDER}/{NAME}");
    let mut profile = profile(&inside, &[])?;
    profile.mounts =
        vec![Mount::ReadOnly { source: folder.path().to_owned(), target: FOLDER.into(), hide: Vec::new() }];
    let mut bwrap = Command::new("bwrap");
    bwrap.args(BWRAP.split_whitespace());
    bwrap.arg("--ro-bind").arg(folder.path()).args([FOLDER, &inside]);
    let has_bwrap = Command::new("bwrap").arg("--version").stdout(Stdio::null()).status().is_ok();
    let mut plain = Command::new(folder.path().join(NAME));
    let mut baseline = Baseline::start(folder.path())?;
    // The first one starts the process that the others are forked from.
    let (first_of_all, _) = boxed(launcher, &profile)?;
    let [mut by_bare, mut by_us, mut at_once, mut by_bwrap, mut by_none] = [const { Starts::new() }; 5];
    let rest = || std::thread::sleep(REST);
    for _ in 0..STARTS {
        rest();
        by_us.push(boxed(launcher, &profile)?);
        // Right behind another, when none is made ahead.
        at_once.push(boxed(launcher, &profile)?);
        rest();
        by_bare.push(baseline.once()?);
        rest();
        by_none.push(spawned(&mut plain)?);
        if has_bwrap {
            rest();
            by_bwrap.push(spawned(&mut bwrap)?);
        }
    }
    println!(
        "sandbox, {STARTS} starts of each by turns: least and median, and both as ratios to the bare one:"
    );
    let mut all = vec![
        ("a bare clone and pivot_root", by_bare),
        ("ours", by_us),
        ("ours, right behind another", at_once),
    ];
    if has_bwrap {
        all.push(("bwrap --unshare-all, no limits, rules or filter", by_bwrap));
    } else {
        println!("  bwrap is not installed: `apt install bubblewrap` or its like, and run this again");
    }
    all.push(("fork and exec alone", by_none));
    let (firsts, overs): (Vec<_>, Vec<_>) =
        all.into_iter().map(|(who, starts)| ((who, starts.first), (who, starts.over))).unzip();
    println!("  to the first instruction (goal: ours at most 3, and less than bwrap)");
    told(firsts);
    println!("  until everything is gone");
    told(overs);
    println!("  the first of ours, which starts the usher: {first_of_all:.1?}");
    Ok(())
}

fn boxed(launcher: &Launcher, profile: &LaunchProfile) -> Result<(Duration, Duration), Box<dyn Error>> {
    let start = Moment::now();
    let mut child = launcher.launch(profile, Streams::captured())?;
    let mut stdout = child.stdout().ok_or("it has no output")?;
    child.wait()?;
    let over = Moment::now().since(start);
    Ok((Moment::said(&mut stdout)?.since(start), over))
}

fn spawned(command: &mut Command) -> Result<(Duration, Duration), Box<dyn Error>> {
    let start = Moment::now();
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut stdout = child.stdout.take().ok_or("it has no output")?;
    child.wait()?;
    let over = Moment::now().since(start);
    let said = Moment::said(&mut stdout).map_err(|error| format!("{command:?}: {error}"))?;
    Ok((said.since(start), over))
}

/// Prints a line for each, beside the first of them.
fn told(all: Vec<(&str, Vec<Duration>)>) {
    let mut beside = None;
    for (who, mut times) in all {
        times.sort_unstable();
        let (least, median) = (times[0], times[times.len() / 2]);
        let (bare_least, bare_median) = *beside.get_or_insert((least, median));
        let ratio = |a: Duration, b: Duration| a.as_secs_f64() / b.as_secs_f64();
        let (of_least, of_median) = (ratio(least, bare_least), ratio(median, bare_median));
        println!("    {who}: {least:.2?}, {median:.2?}; {of_least:.1}, {of_median:.1}");
    }
}

/// A process with one thread that makes bare sandboxes, one for each line it reads.
struct Baseline {
    process: Child,
    answers: BufReader<ChildStdout>,
}

impl Baseline {
    fn start(folder: &Path) -> Result<Self, Box<dyn Error>> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg("sandbox-bare")
            .arg(folder)
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
            (Some(Ok(first)), Some(Ok(over))) => Ok((first, over)),
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
pub(crate) fn bare(folder: &Path) -> Result<(), Box<dyn Error>> {
    for line in std::io::stdin().lines() {
        line?;
        let (mut said, output) = std::io::pipe()?;
        let start = Moment::now();
        tribune_sandbox::bare((folder, FOLDER), &format!("{FOLDER}/{NAME}"), output)?;
        let over = Moment::now().since(start);
        println!("{} {}", Moment::said(&mut said)?.since(start).as_nanos(), over.as_nanos());
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
