//! The sandbox: start latency, memory of an idle one, and the cost of a file walk inside.

use std::error::Error;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use tribune_contract::{LaunchProfile, Mount, SandboxName};
use tribune_sandbox::{InstanceId, ProgramStreams, SandboxLauncher};

use crate::first_instruction::{self, FOLDER, MonotonicTime, NAME};

/// Starts of each kind. The kinds alternate, so that all run under the same load.
const STARTS: usize = 200;

/// A pause before each start: the kernel cleans up the previous process, and the launcher prewarms the next sandbox.
/// Neither belongs to the measured start.
const PAUSE: Duration = Duration::from_millis(20);

/// Idle sandboxes at the same time.
const IDLE: usize = 20;

/// Bubblewrap, the common alternative, with the same mounts as the bare sandbox.
const BWRAP: &str = "--unshare-all --die-with-parent --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib \
                     --symlink usr/lib64 /lib64 --proc /proc";

const WALK: &str = "find /usr/share -type f | wc -l";

pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    let launcher = SandboxLauncher::this_program(InstanceId::of_state_folder(Path::new("bench")));
    starts(&launcher)?;
    idle(&launcher)?;
    walk(&launcher)
}

fn profile(program: &str, args: &[&str]) -> Result<LaunchProfile, Box<dyn Error>> {
    let mut profile = LaunchProfile::new(SandboxName::new("bench")?, program);
    profile.args = args.iter().map(|arg| (*arg).to_owned()).collect();
    Ok(profile)
}

/// How long one start took.
#[derive(Debug)]
struct StartTimes {
    /// To the first instruction of the program.
    first: Duration,
    /// Until all its processes were gone.
    over: Duration,
}

/// The times of all starts of one kind.
#[derive(Debug)]
struct Starts {
    first: Vec<Duration>,
    over: Vec<Duration>,
}

/// A row to print: what was started, and its times.
struct ResultRow {
    label: &'static str,
    times: Vec<Duration>,
}

impl Starts {
    const fn new() -> Self {
        Self { first: Vec::new(), over: Vec::new() }
    }

    fn push(&mut self, times: StartTimes) {
        self.first.push(times.first);
        self.over.push(times.over);
    }
}

fn starts(launcher: &SandboxLauncher) -> Result<(), Box<dyn Error>> {
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
    // The first start also starts the fork server.
    let first_of_all = start_sandbox(launcher, &profile)?.first;
    let [mut by_bare, mut by_us, mut at_once, mut by_bwrap, mut by_none] = [const { Starts::new() }; 5];
    let pause = || std::thread::sleep(PAUSE);
    for _ in 0..STARTS {
        pause();
        by_us.push(start_sandbox(launcher, &profile)?);
        // Directly after another start, when no sandbox is prewarmed.
        at_once.push(start_sandbox(launcher, &profile)?);
        pause();
        by_bare.push(baseline.once()?);
        pause();
        by_none.push(start_process(&mut plain)?);
        if has_bwrap {
            pause();
            by_bwrap.push(start_process(&mut bwrap)?);
        }
    }
    println!(
        "sandbox, {STARTS} starts of each, alternating: least and median, and both as ratios to the bare one:"
    );
    let mut all = vec![
        ("a bare clone and pivot_root", by_bare),
        ("ours", by_us),
        ("ours, directly after another", at_once),
    ];
    if has_bwrap {
        all.push(("bwrap --unshare-all, no limits, rules or filter", by_bwrap));
    } else {
        println!(
            "  bwrap is not installed: install it, for example with `apt install bubblewrap`, and run this again"
        );
    }
    all.push(("fork and exec alone", by_none));
    let (firsts, overs): (Vec<_>, Vec<_>) = all
        .into_iter()
        .map(|(label, starts)| {
            (ResultRow { label, times: starts.first }, ResultRow { label, times: starts.over })
        })
        .unzip();
    println!("  to the first instruction (goal: ours at most 3, and less than bwrap)");
    print_rows(firsts);
    println!("  until everything is gone");
    print_rows(overs);
    println!("  the first of ours, which starts the fork server: {first_of_all:.1?}");
    Ok(())
}

fn start_sandbox(launcher: &SandboxLauncher, profile: &LaunchProfile) -> Result<StartTimes, Box<dyn Error>> {
    let start = MonotonicTime::now();
    let mut child = launcher.launch(profile, ProgramStreams::captured())?;
    let mut stdout = child.stdout().ok_or("it has no output")?;
    child.wait()?;
    let over = MonotonicTime::now().since(start);
    Ok(StartTimes { first: MonotonicTime::read_from(&mut stdout)?.since(start), over })
}

fn start_process(command: &mut Command) -> Result<StartTimes, Box<dyn Error>> {
    let start = MonotonicTime::now();
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut stdout = child.stdout.take().ok_or("it has no output")?;
    child.wait()?;
    let over = MonotonicTime::now().since(start);
    let first = MonotonicTime::read_from(&mut stdout).map_err(|error| format!("{command:?}: {error}"))?;
    Ok(StartTimes { first: first.since(start), over })
}

/// Prints a line per row, with its ratios to the first row.
fn print_rows(rows: Vec<ResultRow>) {
    let mut baseline = None;
    for ResultRow { label, mut times } in rows {
        times.sort_unstable();
        let (least, median) = (times[0], times[times.len() / 2]);
        let (bare_least, bare_median) = *baseline.get_or_insert((least, median));
        let ratio = |a: Duration, b: Duration| a.as_secs_f64() / b.as_secs_f64();
        let (of_least, of_median) = (ratio(least, bare_least), ratio(median, bare_median));
        println!("    {label}: {least:.2?}, {median:.2?}; {of_least:.1}, {of_median:.1}");
    }
}

/// A single-threaded process that makes a bare sandbox for each line it reads.
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

    fn once(&mut self) -> Result<StartTimes, Box<dyn Error>> {
        self.process.stdin.as_mut().ok_or("it has no input")?.write_all(b"\n")?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        let mut nanos = answer.split_whitespace().map(|number| number.parse().map(Duration::from_nanos));
        match (nanos.next(), nanos.next()) {
            (Some(Ok(first)), Some(Ok(over))) => Ok(StartTimes { first, over }),
            _ => Err(format!("the baseline process wrote `{}`", answer.trim()).into()),
        }
    }
}

impl Drop for Baseline {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// Runs in the process of a [`Baseline`].
pub(crate) fn bare(folder: &Path) -> Result<(), Box<dyn Error>> {
    for line in std::io::stdin().lines() {
        line?;
        let (mut input, output) = std::io::pipe()?;
        let start = MonotonicTime::now();
        tribune_sandbox::run_baseline(folder, FOLDER, &format!("{FOLDER}/{NAME}"), output)?;
        let over = MonotonicTime::now().since(start);
        println!("{} {}", MonotonicTime::read_from(&mut input)?.since(start).as_nanos(), over.as_nanos());
    }
    Ok(())
}

fn idle(launcher: &SandboxLauncher) -> Result<(), Box<dyn Error>> {
    let profile = profile("/bin/sleep", &["600"])?;
    let mut children = Vec::new();
    for _ in 0..IDLE {
        children.push(launcher.launch(&profile, ProgramStreams::captured())?);
    }
    let kilobytes: u64 = children.iter().map(|child| memory_of(child.id())).sum();
    println!(
        "  an idle one holds {} KB without its program (launcher and process 1)",
        kilobytes / IDLE as u64
    );
    Ok(())
}

/// Kilobytes of a launcher and of its process 1, as proportional set size.
fn memory_of(launcher: u32) -> u64 {
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

fn walk(launcher: &SandboxLauncher) -> Result<(), Box<dyn Error>> {
    let profile = profile("/bin/sh", &["-c", WALK])?;
    let (mut inside, mut outside) = (vec![], vec![]);
    for _ in 0..10 {
        let start = Instant::now();
        Command::new("/bin/sh").args(["-c", WALK]).stdout(Stdio::null()).status()?;
        outside.push(start.elapsed());
        let mut child = launcher.launch(&profile, ProgramStreams::captured())?;
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
