//! A folder of the workspace is swapped with a link to elsewhere, all the time, while the tools use it.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags};
use serde_json::json;

use super::write::outside;
use super::{Fixture, SECRET};

/// How long each tool is tried.
const TIME: Duration = Duration::from_secs(3);

/// A house whose `door/secret.txt` is a harmless file, or one of somebody else's, and who swaps it.
struct Race {
    house: Fixture,
    is_over: Arc<AtomicBool>,
    swapper: std::thread::JoinHandle<()>,
    until: Instant,
    tries: usize,
    good: usize,
    /// How often the name led to the other file for somebody who just opens it.
    led_out: usize,
}

impl Race {
    fn begin() -> Self {
        let house = Fixture::new();
        house.write("door/secret.txt", "harmless\n");
        symlink("../../scout/workspace", house.inside("trap")).unwrap();
        let (door, trap) = (house.inside("door"), house.inside("trap"));
        let is_over = Arc::new(AtomicBool::new(false));
        let swapper = std::thread::spawn({
            let is_over = Arc::clone(&is_over);
            move || {
                while !is_over.load(Ordering::Relaxed) {
                    rustix::fs::renameat_with(CWD, &door, CWD, &trap, RenameFlags::EXCHANGE).unwrap();
                }
            }
        });
        Self { house, is_over, swapper, until: Instant::now() + TIME, tries: 0, good: 0, led_out: 0 }
    }

    /// Calls a tool for as long as there is time. The fixture looks for the secret in every answer.
    async fn run(mut self, tool: &str, input: impl Fn(usize) -> serde_json::Value) {
        let before = outside(&self.house);
        while Instant::now() < self.until {
            self.good += usize::from(!self.house.call(tool, input(self.tries)).await.is_error);
            let naive = fs::read_to_string(self.house.inside("door/secret.txt"));
            self.led_out += usize::from(naive.is_ok_and(|text| text.contains(SECRET)));
            self.tries += 1;
        }
        self.is_over.store(true, Ordering::Relaxed);
        self.swapper.join().unwrap();
        assert_eq!(outside(&self.house), before);
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
    // A letter that both files have, there and back.
    let words = [("h", "H"), ("H", "h"), ("e", "E"), ("E", "e")];
    Race::begin()
        .run("edit", |at| {
            let (old, new) = words[at % words.len()];
            json!({ "path": "door/secret.txt", "old": old, "new": new, "count": 1 })
        })
        .await;
}
