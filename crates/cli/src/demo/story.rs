//! The story: each step does something over RPC, checks what came of it, and tells it.

use std::time::Instant;

use serde_json::{Map, Value, json};
use tribune_client::{Client, ClientError, Incoming};
use tribune_host::{Reader, audit, keys, store};
use tribune_ledger::VerifierKey;
use tribune_ledger::verify::{Completeness, HeldCheckpoint, Integrity};

use super::demo_home::Stage;
use crate::daemon;
use crate::error::CliError;
use crate::output::{Format, Output, clean, excerpt, short_cid};

const MAIN: &str = "agent:main:cli:local:dm:you";
const SCRIBE: &str = "agent:scribe:cli:local:dm:you";

const FILE: &str = "welcome.txt";
const FILE_TEXT: &str = "The law is the same for every agent, and so is the record.";
const LETTER: &str = "The harbour is open again. Please note it.";

/// Words after which the slow answer is cancelled.
const WORDS_BEFORE_CANCEL: usize = 3;

/// The slow answer takes twenty seconds; one that was cancelled ends well before.
const CANCELLED_WITHIN_MS: u128 = 5_000;

/// Columns of the text.
const WIDTH: usize = 88;

/// Why the story ended early.
#[derive(Debug)]
pub(super) enum Mishap {
    /// Something is not as it should be.
    Strange(String),
    /// The reader asked for it.
    Stopped,
    Output(CliError),
}

impl From<std::io::Error> for Mishap {
    fn from(error: std::io::Error) -> Self {
        Self::Output(error.into())
    }
}

impl From<ClientError> for Mishap {
    fn from(error: ClientError) -> Self {
        Self::Strange(error.to_string())
    }
}

impl From<CliError> for Mishap {
    fn from(error: CliError) -> Self {
        match error {
            CliError::Output(_) => Self::Output(error),
            other => Self::Strange(other.to_string()),
        }
    }
}

impl From<store::StoreError> for Mishap {
    fn from(error: store::StoreError) -> Self {
        Self::Strange(error.to_string())
    }
}

fn strange(what: impl Into<String>) -> Mishap {
    Mishap::Strange(what.into())
}

/// Holds the story to its word.
fn ensure(is_so: bool, what: impl FnOnce() -> String) -> Result<(), Mishap> {
    if is_so { Ok(()) } else { Err(Mishap::Strange(what())) }
}

pub(super) struct Story<'a> {
    stage: &'a Stage,
    output: &'a mut Output,
    facts: Map<String, Value>,
    chapter: u32,
    /// The key and the checkpoint of the beginning, which the end is held against.
    kept: Option<(VerifierKey, HeldCheckpoint)>,
}

/// A turn that was played.
struct Played {
    events: Vec<Value>,
    result: Value,
}

impl Played {
    fn of_type(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.events.iter().filter(move |event| event["type"] == kind)
    }

    fn text(&self) -> String {
        self.of_type("text_delta").filter_map(|event| event["text"].as_str()).collect()
    }

    fn turn(&self) -> &str {
        self.result["turn"].as_str().unwrap_or_default()
    }

    /// The verdict about a call, and its entry's CID.
    fn verdict(&self, tool: &str) -> Option<(&Value, &str)> {
        let about_call =
            |entry: &&Value| entry["payload"]["tool"] == tool && !entry["payload"]["input_hash"].is_null();
        let entry = self.of_type("policy_gate").map(|event| &event["entry"]).find(about_call)?;
        Some((&entry["payload"], entry["cid"].as_str()?))
    }

    fn ended_with(&self, stop_reason: &str) -> Result<(), Mishap> {
        let found = &self.result["stop_reason"];
        ensure(*found == stop_reason, || format!("a turn ended with {found} and not with {stop_reason}"))
    }
}

impl<'a> Story<'a> {
    pub(super) fn new(stage: &'a Stage, output: &'a mut Output) -> Self {
        Self { stage, output, facts: Map::new(), chapter: 0, kept: None }
    }

    pub(super) fn into_facts(self) -> Map<String, Value> {
        self.facts
    }

    /// Everything that needs the daemon.
    pub(super) async fn tell(&mut self) -> Result<(), Mishap> {
        self.say(
            "Tribune runs AI agents under law. This is a real daemon with a real ledger in a throw-away home; only \
             the model is replaced by an agent that plays a script. It takes a few seconds.",
            "",
        )?;
        let mut client = daemon::connect(self.stage.home()).await?;
        self.begin(&mut client).await?;
        self.read(&mut client).await?;
        self.shell(&mut client).await?;
        self.letter(&mut client).await?;
        self.change_of_mind(&mut client).await?;
        client.close().await;
        Ok(())
    }

    async fn begin(&mut self, client: &mut Client) -> Result<(), Mishap> {
        self.stage.furnish(FILE, FILE_TEXT)?;
        client.call("session.init", &json!({ "session_key": MAIN })).await?;
        let checkpoint = client.call("ledger.checkpoint", &json!({})).await?;
        let note = checkpoint["note"].as_str().unwrap_or_default().to_owned();
        let path = keys::public_path(self.stage.home());
        let key = audit::read_small(&path).map_err(CliError::file(&path))?;
        let key: VerifierKey = key.trim_end().parse().map_err(|_| strange("the log's key cannot be read"))?;
        let (name, size) = (key.name().to_owned(), checkpoint["size"].clone());
        self.kept = Some((key, HeldCheckpoint { label: "the checkpoint of the beginning".to_owned(), note }));
        self.fact("beginning", json!({ "log": name, "entries": size }));
        self.chapter(
            "A log begins.",
            &format!(
                "The daemon made a key and began the log `{name}`. It signs the log as it grows. Its signature over \
                 the first {size} entries is put aside: at the end the whole log must still contain them."
            ),
        )
    }

    async fn read(&mut self, client: &mut Client) -> Result<(), Mishap> {
        let played = turn(client, MAIN, "/play read").await?;
        played.ended_with("end_turn")?;
        let result = played.of_type("tool_result").next().ok_or_else(|| strange("the read had no result"))?;
        let content = result["content"].as_str().unwrap_or_default();
        ensure(result["is_error"] == false && content.contains(FILE_TEXT), || {
            format!("the read gave something else: {}", excerpt(content, 200))
        })?;
        ensure(played.text().contains(FILE_TEXT), || "the agent did not say what it read".to_owned())?;
        let (verdict, cid) = played.verdict("read").ok_or_else(|| strange("the read was not judged"))?;
        ensure(verdict["decision"] == "allow", || "the read was not allowed".to_owned())?;
        let rule = rules(verdict);
        self.fact(
            "read",
            json!({ "turn": played.turn(), "verdict": cid, "rules": verdict["rules"], "content": content }),
        );
        self.chapter(
            "A file is read.",
            &format!(
                "The agent `main` asked for `read {{\"path\":\"{FILE}\"}}`. Its mandate lists that tool, so the rule \
                 {rule} let it pass, and it read: \"{FILE_TEXT}\" The verdict was on disk before the file was opened: \
                 {}.",
                short_cid(cid)
            ),
        )
    }

    async fn shell(&mut self, client: &mut Client) -> Result<(), Mishap> {
        let played = turn(client, MAIN, "/play denied-shell").await?;
        played.ended_with("end_turn")?;
        let (verdict, cid) =
            played.verdict("exec").ok_or_else(|| strange("the shell call was not judged"))?;
        ensure(verdict["decision"] == "deny", || "the shell call was not denied".to_owned())?;
        let (rule, reason) = (rules(verdict), word(verdict, "reason"));
        ensure(!rule.is_empty() && !reason.is_empty(), || {
            "the denial names no rule or no reason".to_owned()
        })?;
        let refused = played.of_type("tool_result").all(|result| result["is_error"] == true);
        ensure(refused && played.text().contains(&rule), || {
            "the agent was not told of the denial".to_owned()
        })?;
        self.fact(
            "denied",
            json!({ "turn": played.turn(), "verdict": cid, "rules": verdict["rules"], "reason": verdict["reason"] }),
        );
        self.chapter(
            "A shell is denied.",
            &format!(
                "Then it asked for `exec {{\"command\":\"cat /etc/shadow\"}}`. The law said no, by the rule {rule}: \
                 {reason}. Nothing was run. The agent was told why, and the log knows it too: {}.",
                short_cid(cid)
            ),
        )
    }

    async fn letter(&mut self, client: &mut Client) -> Result<(), Mishap> {
        client.call("agent.add", &json!({ "agent_id": "scribe", "name": "Scribe" })).await?;
        let input = json!({ "to": "scribe", "text": LETTER });
        let sent = turn(client, MAIN, &format!("!call send_message {input}\n!expect ok\n!say Sent.")).await?;
        sent.ended_with("end_turn")?;
        client.call("session.init", &json!({ "session_key": SCRIBE })).await?;
        let received = turn(client, SCRIBE, "Is there any mail?").await?;
        received.ended_with("end_turn")?;
        let arrived = received.of_type("mailbox_injected").map(|event| &event["entry"]);
        let arrived = arrived.filter(|entry| entry["payload"]["from"] == "main").collect::<Vec<_>>();
        let [entry] = arrived.as_slice() else {
            return Err(strange(format!("{} letters arrived, and not one", arrived.len())));
        };
        ensure(received.text().contains(LETTER), || "the letter's words did not arrive".to_owned())?;
        let again = turn(client, SCRIBE, "And now?").await?;
        ensure(again.of_type("mailbox_injected").next().is_none(), || "the letter arrived twice".to_owned())?;
        let cid = entry["cid"].as_str().unwrap_or_default();
        self.fact(
            "letter",
            json!({ "sent_in": sent.turn(), "received_in": received.turn(), "entry": cid, "text": LETTER }),
        );
        self.chapter(
            "A letter arrives.",
            &format!(
                "A second agent, `scribe`, joined the roster. `main` wrote to it: \"{LETTER}\" The next turn of \
                 `scribe` began with the letter, once, on record as {}. The record holds a commitment to the words, \
                 not the words.",
                short_cid(cid)
            ),
        )
    }

    async fn change_of_mind(&mut self, client: &mut Client) -> Result<(), Mishap> {
        let run = client.send("turn.run", &input(MAIN, "/play slow")).await?;
        let mut played = Played { events: Vec::new(), result: Value::Null };
        let mut cancelled_at = None;
        while played.result.is_null() {
            match client.next().await? {
                Incoming::Notification(said) => played.events.push(said.params["event"].clone()),
                Incoming::Answer(of, answer) if of == run => played.result = answer?,
                Incoming::Answer(_, answer) => {
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
            "A mind is changed.",
            &format!(
                "`main` began an answer of twenty seconds. After \"{}\" the turn was cancelled, and it ended {took} ms \
                 later. It is on record as cancelled, with what was said until then: {}.",
                excerpt(said.trim(), 60),
                short_cid(played.turn())
            ),
        )
    }

    /// The end, when nobody holds the home any more: what was told is what is on disk. Gives the number of entries.
    pub(super) fn prove(&mut self) -> Result<u64, Mishap> {
        let home = self.stage.home();
        let (key, held) = self.kept.take().ok_or_else(|| strange("the beginning was not kept"))?;
        let report = audit::verify_home(&Reader::open(home)?, &key, vec![held], &mut |_| {})?;
        match &report.integrity {
            Integrity::Sound => {}
            Integrity::Broken(findings) => {
                let findings: Vec<String> =
                    findings.iter().map(|finding| clean(&finding.to_string())).collect();
                return Err(strange(format!("the log does not verify: {}", findings.join("; "))));
            }
        }
        let size = match &report.completeness {
            Completeness::Shown { size, .. } => *size,
            Completeness::NotChecked | Completeness::Failed(_) => {
                return Err(strange("the log does not contain its beginning"));
            }
        };
        let views = store::check_views(home, &mut |_| {})?;
        if let Some(fault) = views.fault {
            return Err(strange(format!("the views are not what the entries give: {fault}")));
        }
        let entries = report.entries;
        ensure(views.entries == entries, || "the views count other entries than the log".to_owned())?;
        self.fact(
            "verified",
            json!({ "integrity": "sound", "entries": entries, "complete_since": size, "views": "sound" }),
        );
        self.chapter(
            "All of it is proved.",
            &format!(
                "The daemon has stopped. Each of the {entries} entries was hashed again and compared with the signed \
                 log, which still contains the {size} of the beginning. The tables made from the entries were made \
                 anew and came out the same. Change one letter of any entry, and this step says so."
            ),
        )?;
        Ok(entries)
    }

    fn fact(&mut self, name: &str, value: Value) {
        self.facts.insert(name.to_owned(), value);
    }

    fn chapter(&mut self, title: &str, text: &str) -> Result<(), Mishap> {
        self.chapter += 1;
        let number = self.chapter;
        self.say(&format!("{number}. {title} {text}"), "   ")
    }

    /// A paragraph, for people only.
    fn say(&mut self, text: &str, indent: &str) -> Result<(), Mishap> {
        match self.output.format() {
            Format::Text => Ok(self.output.stream(&format!("{}\n\n", wrapped(text, indent)))?),
            Format::Json => Ok(()),
        }
    }
}

/// What to do with what was seen.
pub(super) fn what_next(kept: Option<&str>) -> String {
    match kept {
        None => "Try next:\n  tribune init          make a home of your own\n  tribune up            start its daemon\n  tribune chat          talk to its agent; /scenes lists what it can play\n  tribune ledger tail   see what was logged".to_owned(),
        Some(home) => format!(
            "The home is kept. Try next:\n  tribune --home {home} ledger tail\n  tribune --home {home} ledger verify\n  tribune --home {home} up\n  rm -r {home}"
        ),
    }
}

async fn turn(client: &mut Client, key: &str, text: &str) -> Result<Played, Mishap> {
    let result = client.call("turn.run", &input(key, text)).await?;
    let events = client.take_kept().into_iter().map(|said| said.params["event"].clone()).collect();
    Ok(Played { events, result })
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

/// A paragraph in lines of a width that reads well, all but the first indented.
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
