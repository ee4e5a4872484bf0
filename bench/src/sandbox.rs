//! The sandbox: how long a start takes, what an idle one holds, what a walk over files costs inside.

use std::error::Error;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tribune_contract::{LaunchProfile, Session};
use tribune_sandbox::{House, Launcher, Streams};

/// Starts of each kind, one after the other in turns, so that all meet the same machine.
const STARTS: usize = 100;

/// Sandboxes that are idle at a time.
const IDLE: usize = 20;

/// The same namespaces, and nothing in them.
const UNSHARE: [&str; 10] = [
    "unshare",
    "--user",
    "--map-root-user",
    "--mount",
    "--net",
    "--ipc",
    "--uts",
    "--cgroup",
    "--pid",
    "--fork",
];

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
    let profile = profile("/bin/true", &[])?;
    let has_bwrap = Command::new("bwrap").arg("--version").stdout(Stdio::null()).status().is_ok();
    let (mut running, mut over, mut plain, mut bare, mut bwrap) = (vec![], vec![], vec![], vec![], vec![]);
    let timed = |command: &mut Command| -> Result<Duration, Box<dyn Error>> {
        let start = Instant::now();
        let status = command.status()?;
        if status.success() { Ok(start.elapsed()) } else { Err(format!("{command:?}: {status}").into()) }
    };
    for _ in 0..STARTS {
        let start = Instant::now();
        let child = launcher.launch(&profile, Streams::captured())?;
        running.push(start.elapsed());
        child.wait()?;
        over.push(start.elapsed());
        plain.push(timed(&mut Command::new("/bin/true"))?);
        bare.push(timed(Command::new(UNSHARE[0]).args(&UNSHARE[1..]).arg("/bin/true"))?);
        if has_bwrap {
            bwrap.push(timed(Command::new(BWRAP[0]).args(&BWRAP[1..]).arg("/bin/true"))?);
        }
    }
    println!("sandbox, {STARTS} starts of /bin/true, least and median:");
    let bare = told("the same namespaces with unshare(1)", &mut bare, None);
    told("fork and exec alone", &mut plain, Some(bare));
    told("ours, until the program runs", &mut running, Some(bare));
    told("ours, until everything is gone", &mut over, Some(bare));
    if has_bwrap {
        told("bwrap --unshare-all", &mut bwrap, Some(bare));
    } else {
        println!("  bwrap is not installed");
    }
    Ok(())
}

/// Prints a line, and returns the median.
fn told(what: &str, times: &mut [Duration], beside: Option<Duration>) -> Duration {
    times.sort_unstable();
    let (least, median) = (times[0], times[times.len() / 2]);
    let ratio = beside.map_or(1.0, |beside| median.as_secs_f64() / beside.as_secs_f64());
    println!("  {what}: {least:.1?}, {median:.1?}, {ratio:.1} of unshare(1)");
    median
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
