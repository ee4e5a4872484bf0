//! The steps of the demo. Each does something over RPC, checks the result, and describes it.

use std::time::Instant;

use serde_json::{Map, Value, json};
use tribune_client::{ClientError, RpcClient, RpcIncoming};
use tribune_ledger::VerifierKey;
use tribune_ledger::verify::{Completeness, HeldCheckpoint, Integrity};
use tribune_storage::store::Reader;
use tribune_storage::{audit, keys, store};

use super::demo_home::DemoHome;
use crate::daemon;
use crate::error::CliError;
use crate::output::{Format, Output, clean, excerpt, short_cid};

const MAIN: &str = "agent:main:cli:local:dm:you";
const CLERK: &str = "agent:clerk:cli:local:dm:you";

const FILE: &str = "welcome.txt";
const FILE_TEXT: &str = "The law is the same for every agent, and so is the record.";
const MESSAGE: &str = "The harbour is open again. Please note it.";

/// Words after which the slow answer is cancelled.
const WORDS_BEFORE_CANCEL: usize = 3;

/// The slow answer takes twenty seconds; a cancelled one ends well before.
const CANCELLED_WITHIN_MS: u128 = 5_000;

/// Width of the text in columns.
const WIDTH: usize = 88;

/// Why the demo ended early.
#[derive(Debug)]
pub(super) enum DemoError {
    /// A result was not as expected.
    Unexpected(String),
    /// The user stopped it.
    Stopped,
    Output(CliError),
}

impl From<std::io::Error> for DemoError {
    fn from(error: std::io::Error) -> Self {
        Self::Output(error.into())
    }
}

impl From<ClientError> for DemoError {
    fn from(error: ClientError) -> Self {
        Self::Unexpected(error.to_string())
    }
}

impl From<CliError> for DemoError {
    fn from(error: CliError) -> Self {
        match error {
            CliError::Output(_) => Self::Output(error),
            other => Self::Unexpected(other.to_string()),
        }
    }
}

impl From<store::StoreError> for DemoError {
    fn from(error: store::StoreError) -> Self {
        Self::Unexpected(error.to_string())
    }
}

fn unexpected(what: impl Into<String>) -> DemoError {
    DemoError::Unexpected(what.into())
}

/// Fails the demo if a check does not hold.
fn ensure(is_so: bool, what: impl FnOnce() -> String) -> Result<(), DemoError> {
    if is_so { Ok(()) } else { Err(DemoError::Unexpected(what())) }
}

pub(super) struct Story<'a> {
    demo_home: &'a DemoHome,
    output: &'a mut Output,
    facts: Map<String, Value>,
    chapter: u32,
    /// The key and the checkpoint from the start, which the end is verified against.
    kept: Option<(VerifierKey, HeldCheckpoint)>,
}

/// A finished turn.
struct PlayedTurn {
    events: Vec<Value>,
    result: Value,
}

impl PlayedTurn {
    fn of_type(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.events.iter().filter(move |event| event["type"] == kind)
    }

    fn text(&self) -> String {
        self.of_type("text_delta").filter_map(|event| event["text"].as_str()).collect()
    }

    fn turn(&self) -> &str {
        self.result["turn"].as_str().unwrap_or_default()
    }

    /// The verdict about a call, and the CID of its entry.
    fn verdict(&self, tool: &str) -> Option<(&Value, &str)> {
        let about_call =
            |entry: &&Value| entry["payload"]["tool"] == tool && !entry["payload"]["input_hash"].is_null();
        let entry = self.of_type("policy_gate").map(|event| &event["entry"]).find(about_call)?;
        Some((&entry["payload"], entry["cid"].as_str()?))
    }

    fn ended_with(&self, stop_reason: &str) -> Result<(), DemoError> {
        let found = &self.result["stop_reason"];
        ensure(*found == stop_reason, || format!("a turn ended with {found} and not with {stop_reason}"))
    }
}

impl<'a> Story<'a> {
    pub(super) fn new(demo_home: &'a DemoHome, output: &'a mut Output) -> Self {
        Self { demo_home, output, facts: Map::new(), chapter: 0, kept: None }
    }

    pub(super) fn into_facts(self) -> Map<String, Value> {
        self.facts
    }

    /// Runs the steps that need the daemon.
    pub(super) async fn run(&mut self) -> Result<(), DemoError> {
        self.print(
            "Tribune runs AI agents under law. This is a real daemon with a real ledger in a temporary home; only \
             the model is replaced by a scripted agent. It takes a few seconds.",
            "",
        )?;
        let mut client = daemon::connect(self.demo_home.home()).await?;
        self.start_ledger(&mut client).await?;
        self.read_file(&mut client).await?;
        self.denied_shell(&mut client).await?;
        self.mailbox_message(&mut client).await?;
        self.cancelled_turn(&mut client).await?;
        client.close().await;
        Ok(())
    }

    async fn start_ledger(&mut self, client: &mut RpcClient) -> Result<(), DemoError> {
        self.demo_home.write_workspace_file(FILE, FILE_TEXT)?;
        client.call("session.init", &json!({ "session_key": MAIN })).await?;
        let checkpoint = client.call("ledger.checkpoint", &json!({})).await?;
        let note = checkpoint["note"].as_str().unwrap_or_default().to_owned();
        let path = keys::public_path(self.demo_home.home());
        let key = audit::read_small(&path).map_err(CliError::file(&path))?;
        let key: VerifierKey =
            key.trim_end().parse().map_err(|_| unexpected("the ledger's key cannot be read"))?;
        let (name, size) = (key.name().to_owned(), checkpoint["size"].clone());
        self.kept = Some((key, HeldCheckpoint { label: "the checkpoint from the start".to_owned(), note }));
        self.fact("beginning", json!({ "log": name, "entries": size }));
        self.chapter(
            "A ledger starts.",
            &format!(
                "The daemon created a key and started the ledger `{name}`, which it signs as it grows. Its signature over \
                 the first {size} entries is kept: at the end the whole ledger must still contain them."
            ),
        )
    }

    async fn read_file(&mut self, client: &mut RpcClient) -> Result<(), DemoError> {
        let played = turn(client, MAIN, "/play read").await?;
        played.ended_with("end_turn")?;
        let result =
            played.of_type("tool_result").next().ok_or_else(|| unexpected("the read had no result"))?;
        let content = result["content"].as_str().unwrap_or_default();
        ensure(result["is_error"] == false && content.contains(FILE_TEXT), || {
            format!("the read returned something else: {}", excerpt(content, 200))
        })?;
        ensure(played.text().contains(FILE_TEXT), || "the agent did not repeat what it read".to_owned())?;
        let (verdict, cid) = played.verdict("read").ok_or_else(|| unexpected("the read was not judged"))?;
        ensure(verdict["decision"] == "allow", || "the read was not allowed".to_owned())?;
        let rule = rules(verdict);
        self.fact(
            "read",
            json!({ "turn": played.turn(), "verdict": cid, "rules": verdict["rules"], "content": content }),
        );
        self.chapter(
            "An agent reads a file.",
            &format!(
                "The agent `main` asked for `read {{\"path\":\"{FILE}\"}}`. Its mandate lists that tool, so the rule \
                 {rule} allowed it, and it read: \"{FILE_TEXT}\" The verdict was on disk before the file was opened: \
                 {}.",
                short_cid(cid)
            ),
        )
    }

    async fn denied_shell(&mut self, client: &mut RpcClient) -> Result<(), DemoError> {
        let played = turn(client, MAIN, "/play denied-shell").await?;
        played.ended_with("end_turn")?;
        let (verdict, cid) =
            played.verdict("exec").ok_or_else(|| unexpected("the shell call was not judged"))?;
        ensure(verdict["decision"] == "deny", || "the shell call was not denied".to_owned())?;
        let (rule, reason) = (rules(verdict), word(verdict, "reason"));
        ensure(!rule.is_empty() && !reason.is_empty(), || {
            "the denial names no rule or no reason".to_owned()
        })?;
        let refused = played.of_type("tool_result").all(|result| result["is_error"] == true);
        ensure(refused && played.text().contains(&rule), || "the agent did not get the denial".to_owned())?;
        self.fact(
            "denied",
            json!({ "turn": played.turn(), "verdict": cid, "rules": verdict["rules"], "reason": verdict["reason"] }),
        );
        self.chapter(
            "The law denies a shell command.",
            &format!(
                "Then it asked for `exec {{\"command\":\"cat /etc/shadow\"}}`. The law denied it with the rule {rule}: \
                 {reason}. Nothing ran. The agent got the reason, and the ledger recorded it: {}.",
                short_cid(cid)
            ),
        )
    }

    async fn mailbox_message(&mut self, client: &mut RpcClient) -> Result<(), DemoError> {
        client
            .call("agent.add", &json!({ "agent_id": "clerk", "name": "Clerk", "accepts_from": ["main"] }))
            .await?;
        let input = json!({ "to": "clerk", "text": MESSAGE });
        let sent = turn(client, MAIN, &format!("!call send_message {input}\n!expect ok\n!say Sent.")).await?;
        sent.ended_with("end_turn")?;
        client.call("session.init", &json!({ "session_key": CLERK })).await?;
        let received = turn(client, CLERK, "Is there any mail?").await?;
        received.ended_with("end_turn")?;
        let arrived = received.of_type("mailbox_injected").map(|event| &event["entry"]);
        let arrived = arrived.filter(|entry| entry["payload"]["from"] == "main").collect::<Vec<_>>();
        let [entry] = arrived.as_slice() else {
            return Err(unexpected(format!("{} messages arrived instead of one", arrived.len())));
        };
        ensure(received.text().contains(MESSAGE), || "the text of the message did not arrive".to_owned())?;
        let again = turn(client, CLERK, "And now?").await?;
        ensure(again.of_type("mailbox_injected").next().is_none(), || {
            "the message arrived twice".to_owned()
        })?;
        let cid = entry["cid"].as_str().unwrap_or_default();
        self.fact(
            "letter",
            json!({ "sent_in": sent.turn(), "received_in": received.turn(), "entry": cid, "text": MESSAGE }),
        );
        self.chapter(
            "An agent writes to another.",
            &format!(
                "A second agent, `clerk`, joined the roster. `main` sent a message to its mailbox: \"{MESSAGE}\" The next turn of \
                 `clerk` began with the message, exactly once; the entry is {}. The ledger holds a commitment to the text, \
                 not the text.",
                short_cid(cid)
            ),
        )
    }

    async fn cancelled_turn(&mut self, client: &mut RpcClient) -> Result<(), DemoError> {
        let run = client.send("turn.run", &input(MAIN, "/play slow")).await?;
        let mut played = PlayedTurn { events: Vec::new(), result: Value::Null };
        let mut cancelled_at = None;
        while played.result.is_null() {
            match client.next().await? {
                RpcIncoming::Notification(said) => played.events.push(said.params["event"].clone()),
                RpcIncoming::Response(of, answer) if of == run => played.result = answer?,
                RpcIncoming::Response(_, answer) => {
                    ensure(answer?["cancelled"] == true, || "there was no turn to cancel".to_owned())?;
                }
            }
            if cancelled_at.is_none() && played.of_type("text_delta").count() >= WORDS_BEFORE_CANCEL {
                client.send("session.cancel", &json!({ "session_key": MAIN })).await?;
                cancelled_at = Some(Instant::now());
            }
        }
        played.ended_with("cancelled")?;
        let took = cancelled_at.map_or(0, |at| at.elapsed().as_millis());
        ensure(took < CANCELLED_WITHIN_MS, || format!("the cancel took {took} ms"))?;
        let said = played.text();
        self.fact("cancelled", json!({ "turn": played.turn(), "said": said, "took_ms": took as u64 }));
        self.chapter(
            "A turn is cancelled.",
            &format!(
                "`main` started an answer of twenty seconds. After \"{}\" the turn was cancelled, and it ended {took} ms \
                 later. The ledger records the turn as cancelled, and the text until then is kept: {}.",
                excerpt(said.trim(), 60),
                short_cid(played.turn())
            ),
        )
    }

    /// Verifies the ledger after the daemon has stopped. Returns the number of entries.
    pub(super) fn verify(&mut self) -> Result<u64, DemoError> {
        let home = self.demo_home.home();
        let (key, held) = self.kept.take().ok_or_else(|| unexpected("the first checkpoint was not kept"))?;
        let report = audit::verify_home(&Reader::open(home)?, &key, vec![held], &mut |_| {})?;
        match &report.integrity {
            Integrity::Sound => {}
            Integrity::Broken(findings) => {
                let findings: Vec<String> =
                    findings.iter().map(|finding| clean(&finding.to_string())).collect();
                return Err(unexpected(format!("the ledger does not verify: {}", findings.join("; "))));
            }
        }
        let size = match &report.completeness {
            Completeness::Shown { size, .. } => *size,
            Completeness::NotChecked | Completeness::Failed(_) => {
                return Err(unexpected("the ledger does not contain its first entries"));
            }
        };
        let views = store::check_views(home, &mut |_| {})?;
        if let Some(fault) = views.fault {
            return Err(unexpected(format!("the views do not match the entries: {fault}")));
        }
        let entries = report.entries;
        ensure(views.entries == entries, || "the views count other entries than the ledger".to_owned())?;
        self.fact(
            "verified",
            json!({ "integrity": "sound", "entries": entries, "complete_since": size, "views": "sound" }),
        );
        self.chapter(
            "All of it is verified.",
            &format!(
                "The daemon has stopped. Each of the {entries} entries was hashed again and compared with the signed \
                 ledger, which still contains the first {size}. The tables derived from the entries were rebuilt \
                 and are identical. Change one character of any entry, and this step fails."
            ),
        )?;
        Ok(entries)
    }

    fn fact(&mut self, name: &str, value: Value) {
        self.facts.insert(name.to_owned(), value);
    }

    fn chapter(&mut self, title: &str, text: &str) -> Result<(), DemoError> {
        self.chapter += 1;
        let number = self.chapter;
        self.print(&format!("{number}. {title} {text}"), "   ")
    }

    /// Prints a paragraph. Text format only.
    fn print(&mut self, text: &str, indent: &str) -> Result<(), DemoError> {
        match self.output.format() {
            Format::Text => Ok(self.output.stream(&format!("{}\n\n", wrapped(text, indent)))?),
            Format::Json => Ok(()),
        }
    }
}

/// What to try next.
pub(super) fn what_next(kept: Option<&str>) -> String {
    match kept {
        None => "Try next:\n  tribune init          create your own home\n  tribune up            start its daemon\n  tribune chat          talk to its agent; /scenes lists what it can play\n  tribune ledger tail   see what was recorded".to_owned(),
        Some(home) => format!(
            "The home is kept. Try next:\n  tribune --home {home} ledger tail\n  tribune --home {home} ledger verify\n  tribune --home {home} up\n  rm -r {home}"
        ),
    }
}

async fn turn(client: &mut RpcClient, key: &str, text: &str) -> Result<PlayedTurn, DemoError> {
    let result = client.call("turn.run", &input(key, text)).await?;
    let events = client.take_notifications().into_iter().map(|said| said.params["event"].clone()).collect();
    Ok(PlayedTurn { events, result })
}

fn input(key: &str, text: &str) -> Value {
    json!({ "session_key": key, "input": { "content": [{ "type": "text", "text": text }] } })
}

fn rules(verdict: &Value) -> String {
    let rules = verdict["rules"].as_array().into_iter().flatten().filter_map(Value::as_str);
    clean(&rules.collect::<Vec<_>>().join(", "))
}

fn word(verdict: &Value, name: &str) -> String {
    clean(verdict[name].as_str().unwrap_or_default())
}

/// Wraps a paragraph; all lines but the first are indented.
fn wrapped(text: &str, indent: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let Some(line) = lines.last_mut() else { break };
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= WIDTH {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(format!("{indent}{word}"));
        }
    }
    lines.join("\n")
}
