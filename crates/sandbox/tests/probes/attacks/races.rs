//! Names that are swapped repeatedly while they are used.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags};
use tribune_sandbox::Isolation::{Landlock, Root, WorkspaceMasks};

use crate::probes::bait::{Bait, HUSH, taste};
use crate::probes::probe::{Outcome, Probe};

const GROUP: &str = "Races";

/// How long each race runs.
const TIME: Duration = Duration::from_secs(3);

pub(crate) const PROBES: &[Probe] = &[
    Probe::new(
        GROUP,
        "link_race",
        "swap a folder with a symlink to the host and read through it",
        &[Root, Landlock],
        link_race,
    ),
    Probe::new(
        GROUP,
        "hidden_race",
        "swap a hidden file with another and read both names",
        &[WorkspaceMasks],
        hidden_race,
    ),
    Probe::new(
        GROUP,
        "frozen_race",
        "swap a repository with another folder and change its configuration",
        &[WorkspaceMasks],
        frozen_race,
    ),
    Probe::new(
        GROUP,
        "envrc_race",
        "swap .envrc with another file and write both names",
        &[WorkspaceMasks],
        envrc_race,
    ),
];

/// Swaps two names in one thread and attempts the attack in another, until it succeeds or the time is over.
fn race(one: &Path, other: &Path, mut attempt: impl FnMut() -> bool) -> Outcome {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let _ = rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE);
            }
        });
        let (until, mut tries) = (Instant::now() + TIME, 0_u32);
        let mut came = false;
        while !came && Instant::now() < until {
            came = attempt();
            tries += 1;
        }
        is_over.store(true, Ordering::Relaxed);
        Outcome::when(came, format!("{tries} tries"))
    })
}

fn link_race(bait: &Bait) -> Outcome {
    let (door, link) = (bait.workspace.join("door"), bait.workspace.join("link"));
    std::fs::create_dir(&door).unwrap();
    std::fs::write(door.join("secret"), "harmless").unwrap();
    for host in bait.on_host("") {
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(host, &link).unwrap();
    }
    race(&door, &link, || taste(door.join("secret")).is_ok_and(|text| text == HUSH))
}

fn hidden_race(bait: &Bait) -> Outcome {
    let (hidden, plain) = (bait.workspace.join(".env"), bait.workspace.join("plain"));
    let shows = |path: &Path| taste(path).is_ok_and(|text| text == HUSH);
    race(&hidden, &plain, || shows(&hidden) || shows(&plain))
}

fn frozen_race(bait: &Bait) -> Outcome {
    let (sub, other) = (bait.workspace.join("sub"), bait.workspace.join("other"));
    std::fs::create_dir_all(other.join(".git")).unwrap();
    std::fs::write(other.join(".git/config"), "of its own").unwrap();
    race(&sub, &other, || {
        let _ = std::fs::write(other.join(".git/config"), HUSH);
        taste(sub.join(".git/config")).is_ok_and(|text| text == HUSH)
    })
}

fn envrc_race(bait: &Bait) -> Outcome {
    let (envrc, plain) = (bait.workspace.join(".envrc"), bait.workspace.join("plain"));
    race(&envrc, &plain, || {
        let _ = std::fs::write(&plain, HUSH);
        taste(&envrc).is_ok_and(|text| text == HUSH)
    })
}
