//! Redaction of four kinds of text, as a ratio to copying it.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use tribune_redact::Redactor;

use crate::log::median;

/// Bytes of each text.
const SIZE: usize = 16 << 20;

const ROUNDS: usize = 7;

/// Bytes of a chunk of a stream.
const PIECE: usize = 4096;

/// Bytes between two secrets, so that secrets are one percent of the text.
const APART: usize = 9_900;

const PROSE: &str =
    concat!(include_str!("../../docs/guide/daemon.md"), include_str!("../../docs/guide/law.md"));

const SOURCE: &str = concat!(
    include_str!("../../crates/daemon/src/daemon.rs"),
    include_str!("../../crates/governance/src/turn/lifecycle.rs"),
    include_str!("../../crates/redact/src/scan.rs"),
);

pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    println!("redact: {} MB of each, one core; goal: >= 200 MB/s where there is no secret", SIZE >> 20);
    let redactor = Redactor::new().with_exact_values(vec!["a value that the host knows".to_owned()]);
    let clean = [("prose", filled(PROSE)), ("JSON", filled(&json())), ("source", filled(SOURCE))];
    for (what, text) in &clean {
        if redactor.contains_secret(text) {
            return Err(format!("there is a secret in the {what}").into());
        }
    }
    let planted = ("1 % secrets", planted(&clean[0].1));
    for (what, text) in clean.iter().chain([&planted]) {
        let mut copy = String::with_capacity(text.len());
        let copied = rate(text, || {
            copy.clear();
            copy.push_str(text);
            copy.len()
        });
        let whole = rate(text, || redactor.redact(text).len());
        let streamed = rate(text, || stream(&redactor, text));
        println!(
            "  {what:<12} {whole:>4.0} MB/s, {:.3} of a copy; in pieces of {PIECE} bytes {streamed:>4.0} MB/s, {:.3}",
            whole / copied,
            streamed / copied
        );
    }
    Ok(())
}

/// Megabytes per second, the median of several rounds.
fn rate(text: &str, mut work: impl FnMut() -> usize) -> f64 {
    let rates = (0..ROUNDS).map(|_| {
        let started = Instant::now();
        black_box(work());
        text.len() as f64 / 1e6 / started.elapsed().as_secs_f64()
    });
    median(rates.collect())
}

fn stream(redactor: &Redactor, text: &str) -> usize {
    let mut stream = redactor.stream();
    let pieces: usize = text.as_bytes().chunks(PIECE).map(|piece| stream.push_bytes(piece).len()).sum();
    pieces + stream.finish().len()
}

/// Repeats a text up to the size that is measured.
fn filled(text: &str) -> String {
    text.repeat(SIZE / text.len() + 1)
}

/// JSON lines like those of the ledger.
fn json() -> String {
    (0..500).map(|n| format!("{}\n", serde_json::json!(crate::log::draft(n).payload))).collect()
}

/// Inserts secrets into a text. They are assembled here, so that the repository contains none.
fn planted(text: &str) -> String {
    let secret = format!(" sk{}ant-{} ", "-", "aB3dE5fG7h".repeat(9));
    let mut planted = String::with_capacity(text.len() + text.len() / 99);
    let mut since = 0;
    for word in text.split_inclusive(' ') {
        planted.push_str(word);
        since += word.len();
        if since >= APART {
            planted.push_str(&secret);
            since = 0;
        }
    }
    planted
}
