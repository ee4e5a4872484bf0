//! A folder of the workspace is swapped with a link to another one, continuously, while the tools use it.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags};
use serde_json::json;

use super::write::outside;
use super::{Fixture, SECRET};

/// How long each tool is tested.
const TIME: Duration = Duration::from_secs(3);

/// A fixture whose `door/secret.txt` alternates between a harmless file and a file of another agent, and the thread that
/// swaps them.
struct Race {
    fixture: Fixture,
    is_over: Arc<AtomicBool>,
    swapper: std::thread::JoinHandle<()>,
    until: Instant,
    tries: usize,
    good: usize,
    /// How often a plain open of the name led to the other file.
    led_out: usize,
}

impl Race {
    fn begin() -> Self {
        let fixture = Fixture::new();
        fixture.write("door/secret.txt", "harmless\n");
        symlink("../../scout/workspace", fixture.inside("trap")).unwrap();
        let (door, trap) = (fixture.inside("door"), fixture.inside("trap"));
        let is_over = Arc::new(AtomicBool::new(false));
        let swapper = std::thread::spawn({
            let is_over = Arc::clone(&is_over);
            move || {
                while !is_over.load(Ordering::Relaxed) {
                    rustix::fs::renameat_with(CWD, &door, CWD, &trap, RenameFlags::EXCHANGE).unwrap();
                }
            }
        });
        Self { fixture, is_over, swapper, until: Instant::now() + TIME, tries: 0, good: 0, led_out: 0 }
    }

    /// Calls a tool until the time is over. The fixture looks for the secret in every answer.
    async fn run(mut self, tool: &str, input: impl Fn(usize) -> serde_json::Value) {
        let before = outside(&self.fixture);
        while Instant::now() < self.until {
            self.good += usize::from(!self.fixture.call(tool, input(self.tries)).await.is_error);
            let naive = fs::read_to_string(self.fixture.inside("door/secret.txt"));
            self.led_out += usize::from(naive.is_ok_and(|text| text.contains(SECRET)));
            self.tries += 1;
        }
        self.is_over.store(true, Ordering::Relaxed);
        self.swapper.join().unwrap();
        assert_eq!(outside(&self.fixture), before);
        assert!(self.good > 0 && self.led_out > 0, "{} of {}, {}", self.good, self.tries, self.led_out);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_never_leaves_the_workspace() {
    let paths = ["door/secret.txt", "door/../door/secret.txt", "door"];
    Race::begin().run("read", |at| json!({ "path": paths[at % paths.len()] })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_never_leaves_the_workspace() {
    Race::begin().run("search", |_| json!({ "query": "e" })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_never_leaves_the_workspace() {
    let paths = ["door/secret.txt", "door/new.txt", "door/../door/secret.txt", "door/deep/new.txt"];
    Race::begin()
        .run("write", |at| json!({ "path": paths[at % paths.len()], "content": "harmless\n" }))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_never_leaves_the_workspace() {
    // A character that both files contain, there and back.
    let words = [("h", "H"), ("H", "h"), ("e", "E"), ("E", "e")];
    Race::begin()
        .run("edit", |at| {
            let (old, new) = words[at % words.len()];
            json!({ "path": "door/secret.txt", "old": old, "new": new, "count": 1 })
        })
        .await;
}
