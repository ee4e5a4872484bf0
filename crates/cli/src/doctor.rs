//! `tribune doctor`: checks a home and its machine, and changes nothing.

mod canaries;
mod models;
mod sandbox;

use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, statvfs};
use rustix::process::{Resource, getrlimit};
use serde_json::{Value, json};
use tribune_config::Config;
use tribune_constitution::{Constitution, DEFAULT_MANDATE};
use tribune_daemon::daemon::{DaemonInfo, check_standing};
use tribune_governance::policy_files;
use tribune_ledger::{Checkpoint, Timestamp};
use tribune_registry::{BACKENDS, Roster};
use tribune_runtime::SessionState;
use tribune_runtime::rehearsal::Scenes;
use tribune_storage::clock::{Clock as _, SystemClock};
use tribune_storage::home::Home;
use tribune_storage::store;
use tribune_storage::store::StoreError;
use tribune_storage::store::{EntryFilter, Reader, SessionFilter, SessionRow};
use tribune_storage::vault::Vault;

use crate::daemon;
use crate::error::{CliError, CommandOutcome};
use crate::hints::with_home;
use crate::output::{Output, Paint, clean, count};
use crate::version::VERSION;

/// Free disk space below which the doctor warns, and below which the daemon may stop at any time.
const WARN_FREE_BYTES: u64 = 1 << 30;
const MIN_FREE_BYTES: u64 = 64 << 20;

/// Descriptors that the daemon needs in addition to its connections: databases, logs, workspaces.
const OTHER_DESCRIPTORS: u64 = 256;

/// Sessions that are read at a time.
const SESSIONS_AT_ONCE: usize = 1_000;

/// A correct clock shows a later time.
const EARLIEST: &str = "2026-01-01T00:00:00.000000Z";

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckStatus {
    Ok,
    Warn,
    Fail,
}

/// One line of the report.
#[derive(Debug)]
struct DoctorLine {
    name: &'static str,
    status: CheckStatus,
    sentence: String,
}

/// The result of a check, with the sentence that explains it.
#[derive(Debug)]
struct Diagnosis {
    status: CheckStatus,
    sentence: String,
}

fn fine(sentence: impl Into<String>) -> Diagnosis {
    Diagnosis { status: CheckStatus::Ok, sentence: sentence.into() }
}

fn warn(sentence: impl Into<String>) -> Diagnosis {
    Diagnosis { status: CheckStatus::Warn, sentence: sentence.into() }
}

fn fail(sentence: impl Into<String>) -> Diagnosis {
    Diagnosis { status: CheckStatus::Fail, sentence: sentence.into() }
}

/// The options of `tribune doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct DoctorArgs {
    /// Start each kind of sandbox, and report what this machine supports and what it lacks.
    #[arg(long)]
    sandbox: bool,
}

pub(crate) fn run(args: &DoctorArgs, home: &Home, output: &mut Output) -> Result<CommandOutcome, CliError> {
    let config = Config::load(&home.root().join("config.json5"));
    // If the settings cannot be read, the other checks assume the defaults.
    let assumed = config.as_ref().map_or_else(|_| Config::default(), Clone::clone);
    if args.sandbox {
        let mut findings = sandbox::all(home, assumed.sandbox);
        if let Err(error) = &config {
            findings.retain(|(name, _)| *name != "settings");
            findings.push(("config", fail(error.to_string())));
        }
        return print_report(home, findings, output);
    }
    if fs::metadata(home.root()).is_ok_and(|found| !found.is_dir()) {
        // Nothing can be inside a file, so one line is enough.
        return print_report(home, vec![("versions", versions()), ("home", home_folder(home))], output);
    }
    let law = policy_files::load(home.root(), &tribune_tools::NAMES);
    let mut findings = vec![
        ("versions", versions()),
        ("home", home_folder(home)),
        ("config", settings(home, config.map(drop).map_err(|error| error.to_string()))),
        ("port", port(&assumed, daemon::is_running(home))),
        ("keys", keys(home)),
        ("ledger", ledger(home)),
        ("vault", vault(home)),
        ("law", law.as_ref().map_or_else(|error| fail(error.to_string()), constitution)),
        ("roster", roster(home, law.as_ref().ok(), &assumed)),
        ("sessions", sessions(home, law.as_ref().ok())),
        ("scenes", scenes(home)),
        ("models", models::check(home)),
        ("sandbox", sandbox::check(home, assumed.sandbox)),
        ("disk", disk(home)),
        ("clock", clock(newest_entry(home), SystemClock.now())),
        ("descriptors", descriptors(&assumed)),
    ];
    findings.extend(canaries::check(home).map(|found| ("canaries", found)));
    print_report(home, findings, output)
}

fn print_report(
    home: &Home,
    findings: Vec<(&'static str, Diagnosis)>,
    output: &mut Output,
) -> Result<CommandOutcome, CliError> {
    let finding = |(name, diagnosis): (_, Diagnosis)| DoctorLine {
        name,
        status: diagnosis.status,
        sentence: with_home(home, &diagnosis.sentence),
    };
    let findings: Vec<DoctorLine> = findings.into_iter().map(finding).collect();
    let value = Value::Array(findings.iter().map(DoctorLine::value).collect());
    output.verdict(
        |paint| findings.iter().map(|finding| finding.line(paint)).collect::<Vec<_>>().join("\n"),
        &value,
    )?;
    let broken = findings.iter().any(|finding| finding.status == CheckStatus::Fail);
    Ok(if broken { CommandOutcome::Broken } else { CommandOutcome::Done })
}

impl DoctorLine {
    fn value(&self) -> Value {
        let verdict = match self.status {
            CheckStatus::Ok => "ok",
            CheckStatus::Warn => "warn",
            CheckStatus::Fail => "fail",
        };
        json!({ "name": self.name, "verdict": verdict, "message": self.sentence })
    }

    fn line(&self, paint: Paint) -> String {
        let word = match self.status {
            CheckStatus::Ok => paint.good("ok  "),
            CheckStatus::Warn => paint.unsure("warn"),
            CheckStatus::Fail => paint.bad("FAIL"),
        };
        format!("{word} {}: {}", self.name, clean(&self.sentence))
    }
}

fn versions() -> Diagnosis {
    let built_in = store::versions();
    match built_in.cipher {
        Some(cipher) => fine(format!("tribune {VERSION}, SQLite {}, SQLCipher {cipher}", built_in.sqlite)),
        None => fail(format!(
            "tribune {VERSION}, SQLite {} without a cipher: no vault can be opened; install another build",
            built_in.sqlite
        )),
    }
}

fn home_folder(home: &Home) -> Diagnosis {
    let path = home.root().display();
    let found = match fs::metadata(home.root()) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return warn(format!("{path} does not exist yet: `tribune init` or `tribune up` creates it"));
        }
        Err(error) => return fail(format!("{path} cannot be read ({error}): check its path and owner")),
        Ok(found) => found,
    };
    let mode = found.permissions().mode() & 0o7777;
    if !found.is_dir() {
        fail(format!("{path} is a file, not a folder: name another home with --home or TRIBUNE_HOME"))
    } else if access(home.root(), Access::WRITE_OK | Access::EXEC_OK).is_err() {
        fail(format!("{path} cannot be written by this user: change its owner or mode"))
    } else if mode & 0o077 != 0 {
        warn(format!("{path} has mode {mode:04o}, so other users can read it: run `chmod 700 {path}`"))
    } else {
        fine(format!("{path}, mode {mode:04o}, writable"))
    }
}

fn settings(home: &Home, config: Result<(), String>) -> Diagnosis {
    let path = home.root().join("config.json5");
    match config {
        Err(error) => fail(error),
        Ok(()) if path.exists() => fine(format!("{} is valid", path.display())),
        Ok(()) => fine("no config.json5: every setting has its default (`tribune init` writes them down)"),
    }
}

fn port(config: &Config, daemon: Option<DaemonInfo>) -> Diagnosis {
    if let Some(DaemonInfo { pid, address, .. }) = daemon {
        return fine(format!("{address} is used by the daemon of this home (pid {pid})"));
    }
    let address = config.gateway.address;
    match TcpListener::bind(address) {
        Ok(_) if address.port() == 0 => fine(format!("{} has a free port", address.ip())),
        Ok(_) => fine(format!("{address} is free")),
        Err(error) if error.kind() == ErrorKind::AddrInUse => fail(format!(
            "{address} is used by another program: stop it, or choose another port with --port or gateway.address"
        )),
        Err(error) => fail(format!(
            "the daemon cannot listen on {address} ({error}): choose another address with gateway.address"
        )),
    }
}

fn keys(home: &Home) -> Diagnosis {
    let paths = ["keys/ledger.key", "keys/vault.key", "run/token", "run/guest-token"]
        .map(|name| home.root().join(name));
    let mut there = 0;
    for path in &paths {
        let mode = match fs::metadata(path) {
            Ok(found) => found.permissions().mode() & 0o7777,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return fail(format!("{} cannot be read ({error})", path.display())),
        };
        if mode & 0o077 != 0 {
            let path = path.display();
            return fail(format!(
                "{path} has mode {mode:04o}, so other users could read it: run `chmod 600 {path}`, and replace the key if they may have done so"
            ));
        }
        there += 1;
    }
    match there {
        0 => fine("none yet: `tribune up` creates them"),
        _ => fine(format!("{} readable only by their owner", count(there, "file,", "files, all"))),
    }
}

fn ledger(home: &Home) -> Diagnosis {
    let look = || -> Result<Diagnosis, StoreError> {
        let reader = Reader::open(home)?;
        let (size, key) = (reader.size()?, reader.key_in_force()?);
        let checkpoint = match Checkpoint::open(&reader.checkpoint()?, &key) {
            Ok(checkpoint) => checkpoint,
            Err(error) => {
                return Ok(fail(format!(
                    "the checkpoint is not valid ({error}): run `tribune ledger verify`"
                )));
            }
        };
        if checkpoint.size != size {
            return Ok(fail(format!(
                "the ledger has {size} entries, but {} are signed: run `tribune ledger verify`",
                checkpoint.size
            )));
        }
        if !tribune_storage::keys::secret_path(home).exists() {
            return Ok(fail(
                "the key that signs the ledger is missing: restore keys/ledger.key from a backup",
            ));
        }
        Ok(fine(format!(
            "{}, all under the checkpoint (`tribune ledger verify` checks each)",
            count(size, "entry", "entries")
        )))
    };
    match look() {
        Ok(found) => found,
        Err(StoreError::NoLedger(_)) => fine("none yet: `tribune up` creates one"),
        Err(error) => fail(error.to_string()),
    }
}

fn vault(home: &Home) -> Diagnosis {
    let (database, key) = (home.root().join("vault.db"), home.keys().join("vault.key"));
    let bytes = fs::metadata(&database).map(|found| found.len()).ok();
    match (bytes, key.exists()) {
        (None, _) => fine("none yet: `tribune up` creates one"),
        (Some(_), false) => fail(format!(
            "{} exists without its key: restore keys/vault.key from a backup; without the key all conversations are lost",
            database.display()
        )),
        (Some(bytes), true) => match Vault::check(home) {
            Ok(()) => fine(format!("{}, and its key opens it", size(bytes))),
            Err(error) => fail(error.to_string()),
        },
    }
}

fn constitution(law: &Constitution) -> Diagnosis {
    fine(format!("{}, {}", law.hash(), count(law.mandates().len() as u64, "mandate", "mandates")))
}

fn roster_path(home: &Home) -> PathBuf {
    home.root().join("data").join("agent-roster.jsonl")
}

fn roster(home: &Home, law: Option<&Constitution>, config: &Config) -> Diagnosis {
    let path = roster_path(home);
    let roster = match Roster::load(&path) {
        Ok(roster) => roster,
        Err(error) => return fail(error.to_string()),
    };
    if let Err(error) = check_standing(roster.standing().count(), config) {
        return fail(error.to_string());
    }
    if let Some(agent) = roster.iter().find(|agent| !BACKENDS.contains(&agent.backend.as_str())) {
        return fail(format!(
            "agent `{}` needs the backend `{}`, which this build does not have: name another one ({}) in its roster line",
            agent.id,
            agent.backend,
            BACKENDS.join(", ")
        ));
    }
    let without_mandate =
        law.and_then(|law| roster.iter().find(|agent| !law.mandates().contains_key(&agent.mandate)));
    match without_mandate {
        Some(agent) => fail(format!(
            "agent `{}` has the mandate `{}`, which does not exist: write mandates/{1}.md, or name another mandate",
            agent.id, agent.mandate
        )),
        None if !path.exists() => fine("none yet: `tribune up` creates one"),
        None => fine(count(roster.len() as u64, "agent", "agents")),
    }
}

/// Finds open sessions that cannot run a turn.
fn sessions(home: &Home, law: Option<&Constitution>) -> Diagnosis {
    let roster = Roster::load(&roster_path(home)).unwrap_or_default();
    let look = || -> Result<Diagnosis, StoreError> {
        let (reader, mut filter) = (Reader::open(home)?, SessionFilter::default());
        let (mut open, mut unserved, mut first) = (0_u64, 0_u64, None);
        loop {
            let page = reader.sessions(&filter, SESSIONS_AT_ONCE)?;
            filter.after = page.last().map(|row| row.key.clone());
            for row in page.iter().filter(|row| row.state != SessionState::Closed) {
                open += 1;
                if let Some(why) = missing_term(row, &roster, law) {
                    unserved += 1;
                    first.get_or_insert_with(|| format!("`{}`: {why}", row.key));
                }
            }
            if page.len() < SESSIONS_AT_ONCE {
                break;
            }
        }
        Ok(match first {
            Some(first) => warn(format!(
                "{} run no turns, the first is {first}: close them with `tribune sessions close KEY`, or restore what is missing",
                count(unserved, "open session can", "open sessions can")
            )),
            None => fine(format!("{open} open")),
        })
    };
    match look() {
        Ok(found) => found,
        Err(StoreError::NoLedger(_)) => fine("none yet"),
        Err(_) => warn("they cannot be checked until the ledger can be read"),
    }
}

/// What a session lacks to run a turn. The roster line of its agent decides; an agent without a line gets the default
/// mandate.
fn missing_term(row: &SessionRow, roster: &Roster, law: Option<&Constitution>) -> Option<String> {
    let agent = row.agent_id.parse().ok().and_then(|id| roster.agent(&id));
    let backend = agent.map_or(&row.terms.backend, |agent| &agent.backend);
    let mandate = agent.map_or(DEFAULT_MANDATE, |agent| &agent.mandate);
    if !BACKENDS.contains(&backend.as_str()) {
        return Some(format!("there is no backend `{backend}`"));
    }
    let is_gone = law.is_some_and(|law| law.mandate(mandate).is_none());
    is_gone.then(|| format!("there is no mandate `{mandate}`"))
}

fn scenes(home: &Home) -> Diagnosis {
    match Scenes::builtin_and(&home.root().join("scenes")) {
        Ok(_) => fine("every scene can be played"),
        Err(error) => fail(error.to_string()),
    }
}

fn disk(home: &Home) -> Diagnosis {
    // A home that does not exist yet will be on the disk of its nearest existing ancestor.
    let there: Option<PathBuf> = std::path::absolute(home.root())
        .ok()
        .and_then(|path| path.ancestors().find(|path| path.is_dir()).map(Path::to_owned));
    match there.map(statvfs) {
        Some(Ok(disk)) => free_space(disk.f_bavail.saturating_mul(disk.f_frsize)),
        _ => warn("the free space cannot be determined"),
    }
}

fn free_space(free: u64) -> Diagnosis {
    let text = format!("{} free", size(free));
    match free {
        ..MIN_FREE_BYTES => fail(format!("{text}: recording will stop soon; free some space")),
        MIN_FREE_BYTES..WARN_FREE_BYTES => warn(format!("{text}: free some space soon")),
        WARN_FREE_BYTES.. => fine(text),
    }
}

fn newest_entry(home: &Home) -> Option<Timestamp> {
    let newest = Reader::open(home).ok()?.tail(&EntryFilter::default(), 1).ok()?;
    newest.last().map(|stored| stored.entry.timestamp)
}

fn clock(newest: Option<Timestamp>, now: Timestamp) -> Diagnosis {
    match (EARLIEST.parse::<Timestamp>(), newest) {
        (Ok(earliest), _) if now < earliest => {
            fail(format!("it shows {now}, which is in the past: set the machine's clock"))
        }
        (_, Some(newest)) if now < newest => warn(format!(
            "it shows {now}, which is before the newest ledger entry ({newest}): set the machine's clock"
        )),
        _ => fine(now.to_string()),
    }
}

fn descriptors(config: &Config) -> Diagnosis {
    let limit = getrlimit(Resource::Nofile).maximum;
    let needed = config.gateway.max_connections as u64 + OTHER_DESCRIPTORS;
    match limit {
        Some(limit) if limit < needed => warn(format!(
            "this user may open {limit} files, but gateway.maxConnections needs {needed}: raise the limit (ulimit -Hn), or lower the setting"
        )),
        Some(limit) => fine(format!("up to {limit}")),
        None => fine("no limit"),
    }
}

fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn clock_is_checked_against_the_calendar_and_the_ledger() {
        let now = at("2026-11-15T12:00:00.000000Z");
        let later = at("2026-11-15T12:00:00.000001Z");
        assert_eq!(clock(None, now).status, CheckStatus::Ok);
        assert_eq!(clock(Some(now), now).status, CheckStatus::Ok);
        assert_eq!(clock(Some(later), now).status, CheckStatus::Warn);
        assert_eq!(clock(None, at("2025-12-31T23:59:59.999999Z")).status, CheckStatus::Fail);
    }

    #[test]
    fn free_space_is_judged_at_its_bounds() {
        let statuses = [0, MIN_FREE_BYTES - 1, MIN_FREE_BYTES, WARN_FREE_BYTES - 1, WARN_FREE_BYTES]
            .map(|free| free_space(free).status);
        assert_eq!(
            statuses,
            [CheckStatus::Fail, CheckStatus::Fail, CheckStatus::Warn, CheckStatus::Warn, CheckStatus::Ok]
        );
    }

    #[test]
    fn sizes_use_the_unit_that_fits() {
        let sizes = [5, 1 << 10, 3 << 19, 5 << 30].map(size);
        assert_eq!(sizes, ["5 bytes", "1.0 KiB", "1.5 MiB", "5.0 GiB"]);
    }
}
