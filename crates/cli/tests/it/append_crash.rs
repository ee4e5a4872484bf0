//! A process that appends notes at full speed is killed at random times; every acknowledged note survives.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;
use std::time::Duration;

use tribune_ledger::verify::Integrity;
use tribune_storage::home::Home;
use tribune_storage::store::Reader;
use tribune_storage::store::StoreError;
use tribune_storage::{audit, store};

use crate::fixture::Place;

const KILLS: u64 = 200;

/// Kills per home; then a new home starts, so that the start of a ledger is hit as well.
const KILLS_PER_HOME: u64 = 20;

#[test]
fn l2_acknowledged_notes_survive_kills() {
    let mut random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0_u8) | 1;
    println!("seed {random}");
    let mut roll = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let (mut place, mut acknowledged) = (Place::new(), Vec::new());
    let mut total = 0;
    for kill in 0..KILLS {
        if kill % KILLS_PER_HOME == 0 {
            place = Place::new();
            acknowledged.clear();
        }
        let before = acknowledged.len();
        // A quarter is killed around the start, the rest during the work.
        match roll(4) {
            0 => append_until_killed(&place, 0, Duration::from_micros(roll(30_000)), &mut acknowledged),
            _ => append_until_killed(
                &place,
                1 + roll(1_500) as usize,
                Duration::from_micros(roll(3_000)),
                &mut acknowledged,
            ),
        }
        total += acknowledged.len() - before;
        check(&place, &acknowledged, kill);
    }
    println!("{KILLS} kills, {total} acknowledged entries, none lost");
    assert!(total > 10_000, "the campaign must have work to lose: {total}");
}

/// Writes notes as fast as they are accepted, and kills the process shortly after `answers` answers.
fn append_until_killed(
    place: &Place,
    answers: usize,
    longer: Duration,
    acknowledged: &mut Vec<(u64, String)>,
) {
    let mut command = place.command(&["ledger", "note", "--lines"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || {
        // Ends when the reader is killed.
        for n in 0..100_000 {
            if writeln!(stdin, "note {n} {}", "x".repeat(200)).is_err() {
                break;
            }
        }
    });
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut take = |line: String| {
        // A line that the kill cut off is no answer.
        if let Some((index, cid)) = line.split_once(' ').filter(|(_, cid)| cid.len() == 67) {
            acknowledged.push((index.parse().unwrap(), cid.to_owned()));
        }
    };
    for _ in 0..answers {
        take(lines.next().unwrap().unwrap());
    }
    // Not a wait for an event: the kill must fall at a random time.
    std::thread::sleep(longer);
    child.kill().unwrap();
    lines.map_while(Result::ok).for_each(take);
    child.wait().unwrap();
    feeder.join().unwrap();
}

fn check(place: &Place, acknowledged: &[(u64, String)], kill: u64) {
    let home = Home::at(place.home());
    let reader = match Reader::open(&home) {
        Ok(reader) => reader,
        Err(StoreError::NoLedger(_)) if acknowledged.is_empty() => return,
        Err(error) => panic!("kill {kill}: {error}"),
    };
    for (index, cid) in acknowledged {
        let stored =
            reader.entry(*index).unwrap().unwrap_or_else(|| panic!("kill {kill}: entry {index} is lost"));
        assert_eq!(stored.entry.cid.to_string(), *cid, "kill {kill}: entry {index} is another");
    }
    let key = reader.key_in_force().unwrap();
    let report = audit::verify_home(&reader, &key, Vec::new(), &mut |_| {}).unwrap();
    assert_eq!(report.integrity, Integrity::Sound, "kill {kill}");
    drop(reader);
    assert_eq!(store::check_views(&home, &mut |_| {}).unwrap().fault, None, "kill {kill}");
}
