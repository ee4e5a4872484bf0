//! The two pipes to an agent: requests go out and their answers come back, what the agent asks and tells is handed to the turn
//! that listens. While none does, every question of the agent is answered with no.
//!
//! Whatever is wrong with what the agent writes breaks the link, once and for all: the first fault is kept, everyone who waits
//! is told, and whoever keeps the process ends it.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::agent_protocol::{Message, Refusal, Told, Tongue};
use crate::bounded_lines::{Lines, NoLine};
use tribune_runtime::EventKind;
use tribune_runtime::RuntimeError;

/// How long an agent may take for each of its first answers. The slowest of the known ones needed nine seconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Lines of a turn that are no messages: programs that print a warning where they should not are forgiven.
const MAX_GARBAGE: usize = 64;

/// Calls of a turn that are remembered until the next, and bytes of the name of one.
const MAX_KNOWN: usize = 10_000;
const MAX_KNOWN_BYTES: usize = 1024;

/// Messages that wait to be written, and to be heard.
const QUEUE: usize = 32;

/// How long the agent may leave a line of ours unread.
const WRITE_PATIENCE: Duration = Duration::from_secs(30);

/// What the agent says while a turn listens.
#[derive(Debug)]
pub(crate) enum Heard {
    /// Byte by byte, and what it holds.
    Told {
        line: String,
        what: Value,
    },
    Asked {
        id: Value,
        method: String,
        params: Value,
        line: String,
    },
    /// Something beside the protocol.
    Aside {
        method: String,
        line: String,
    },
}

/// Why nothing comes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The agent answers an error.
    Refused(Refusal),
    /// There is no way to the agent any more.
    Broken(String),
    OutOfTime,
}

impl Fault {
    /// In a sentence, of something that the agent was asked.
    pub(crate) fn told(self, method: &str) -> RuntimeError {
        match self {
            Self::Refused(refusal) => {
                RuntimeError::new("agent_refused", format!("the agent refused {method}: {}", refusal.message))
            }
            Self::Broken(why) => {
                let what =
                    format!("there is no way to the agent any more: {why}; the next turn starts it anew");
                RuntimeError::new("agent_ended", what)
            }
            Self::OutOfTime => {
                let what =
                    format!("the agent did not answer {method} within {} s: try again", PATIENCE.as_secs());
                RuntimeError::new("agent_silent", what)
            }
        }
    }
}

/// One agent's pipes; clones share them.
#[derive(Clone)]
pub(crate) struct Link(Arc<Shared>);

/// What somebody hears the agent for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hearing {
    /// What it says when it is started.
    Start,
    Turn,
}

/// What hears the agent. What it did not take counts as said to nobody.
pub(crate) struct Ear {
    link: Link,
    hearing: Hearing,
    /// Of all that were made for this link.
    number: u64,
    heard: mpsc::Receiver<Heard>,
}

impl Ear {
    /// The next thing that is said. Never `None` while the link is there.
    pub(crate) async fn next(&mut self) -> Option<Heard> {
        let heard = self.heard.recv().await?;
        let (Heard::Told { what, .. } | Heard::Asked { params: what, .. }) = &heard else {
            return Some(heard);
        };
        if let Some((id, Told::UnderWay)) = self.link.0.tongue.call(what) {
            let mut known = self.link.known();
            // More than a turn may have: it is ended for that.
            if known.len() < MAX_KNOWN && id.len() <= MAX_KNOWN_BYTES {
                known.insert(id.to_owned());
            }
        }
        Some(heard)
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        // Before anything can be said to nobody: what comes from here on comes after the turn.
        if self.hearing == Hearing::Turn && self.link.0.ears.load(Ordering::Relaxed) == self.number {
            self.link.rest();
        }
        self.heard.close();
        while let Ok(heard) = self.heard.try_recv() {
            match heard {
                Heard::Asked { id, method, .. } => {
                    // If there is no room for the answer, it goes without one and stays where it is.
                    let _ = self.link.0.out.try_send(self.link.0.tongue.refuse_unheard(&id, &method));
                }
                Heard::Told { what, .. } => self.link.note_misdeed(&what),
                Heard::Aside { .. } => {}
            }
        }
    }
}

/// What comes back: an answer and the line that it came in, or a refusal.
type Answered = Result<(Value, String), Refusal>;

struct Shared {
    tongue: &'static dyn Tongue,
    out: mpsc::Sender<String>,
    pending: Mutex<HashMap<u64, oneshot::Sender<Answered>>>,
    next: AtomicU64,
    listener: Mutex<Option<mpsc::Sender<Heard>>>,
    /// How often somebody began to listen.
    ears: AtomicU64,
    /// Lines of this turn that are no messages.
    garbage: AtomicUsize,
    /// A turn is over, and none has begun since. Before the first one an agent may tell of calls of long ago.
    is_resting: AtomicBool,
    /// Calls of the last turn that were under way while it ran.
    known: Mutex<HashSet<String>>,
    /// What the agent did while it should have rested.
    misdeed: Mutex<Option<String>>,
    /// What it said at its start that is to be told with its first turn.
    opening: Mutex<Option<EventKind>>,
    /// Nothing was said since somebody began to listen.
    is_silent: AtomicBool,
    /// It was the agent that ended, before anything else broke the link.
    is_gone: AtomicBool,
    /// The agent said its last word.
    ended: CancellationToken,
    broken: CancellationToken,
    fault: OnceLock<String>,
}

impl Link {
    /// A link, and what has to be run for it to work: one reads, the other writes.
    pub(crate) fn new(
        tongue: &'static dyn Tongue,
        stdin: impl AsyncWrite + Send + Unpin + 'static,
        stdout: impl AsyncRead + Send + Unpin + 'static,
    ) -> (Self, impl Future<Output = ()> + Send, impl Future<Output = ()> + Send) {
        let (out, lines) = mpsc::channel(QUEUE);
        let shared = Arc::new(Shared {
            tongue,
            out,
            pending: Mutex::default(),
            next: AtomicU64::new(1),
            listener: Mutex::default(),
            garbage: AtomicUsize::new(0),
            ears: AtomicU64::new(0),
            is_resting: AtomicBool::new(false),
            known: Mutex::default(),
            misdeed: Mutex::default(),
            opening: Mutex::default(),
            is_silent: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            ended: CancellationToken::new(),
            broken: CancellationToken::new(),
            fault: OnceLock::new(),
        });
        let reading = read(Self(Arc::clone(&shared)), Lines::new(stdout, tongue.max_line_bytes()));
        let writing = write(Self(Arc::clone(&shared)), stdin, lines);
        (Self(shared), reading, writing)
    }

    /// Asks, and waits for the answer as long as first words may take.
    pub(crate) async fn ask(&self, method: &str, params: &Value) -> Result<Value, Fault> {
        self.ask_for_line(method, params).await.map(|(answer, _)| answer)
    }

    /// The same, with the line that it came in.
    pub(crate) async fn ask_for_line(&self, method: &str, params: &Value) -> Result<(Value, String), Fault> {
        tokio::time::timeout(PATIENCE, self.answered(method, params)).await.unwrap_or(Err(Fault::OutOfTime))
    }

    /// Asks, and waits as long as it takes.
    pub(crate) async fn ask_patiently(&self, method: &str, params: &Value) -> Result<Value, Fault> {
        self.answered(method, params).await.map(|(answer, _)| answer)
    }

    async fn answered(&self, method: &str, params: &Value) -> Result<(Value, String), Fault> {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        self.pending().insert(id, answer);
        self.send(self.0.tongue.request(id, method, params)).await;
        tokio::select! {
            biased;
            Ok(answer) = answered => answer.map_err(Fault::Refused),
            () = self.0.broken.cancelled() => Err(Fault::Broken(self.fault())),
        }
    }

    /// Asks, and does not wait: whatever is answered is late.
    pub(crate) async fn ask_in_passing(&self, method: &str, params: &Value) {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        self.send(self.0.tongue.request(id, method, params)).await;
    }

    /// Hears what the agent says from now on, instead of whoever did before.
    pub(crate) fn listen(&self, hearing: Hearing) -> Ear {
        let (say, heard) = mpsc::channel(QUEUE);
        let number = self.0.ears.fetch_add(1, Ordering::Relaxed) + 1;
        self.0.is_resting.store(false, Ordering::Relaxed);
        self.0.garbage.store(0, Ordering::Relaxed);
        self.0.is_silent.store(true, Ordering::Relaxed);
        self.known().clear();
        *self.listener() = Some(say);
        Ear { link: self.clone(), hearing, number, heard }
    }

    /// Nobody listens from now on.
    pub(crate) fn rest(&self) {
        *self.listener() = None;
        self.0.is_resting.store(true, Ordering::Relaxed);
    }

    /// Keeps what was said at the start until somebody can be told.
    pub(crate) fn opens_with(&self, said: Option<EventKind>) {
        *self.0.opening.lock().unwrap_or_else(PoisonError::into_inner) = said;
    }

    /// What was said at the start, for the first who asks.
    pub(crate) fn take_opening(&self) -> Option<EventKind> {
        self.0.opening.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// What the agent did while nobody listened.
    pub(crate) fn misdeed(&self) -> Option<String> {
        self.0.misdeed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Breaks the link, for this reason unless there is an earlier one.
    pub(crate) fn break_off(&self, why: impl Into<String>) {
        let _ = self.0.fault.set(why.into());
        self.0.broken.cancel();
    }

    /// The same when the agent's program is not there any more.
    pub(crate) fn break_as_gone(&self, how: impl Into<String>) {
        if self.0.fault.set(how.into()).is_ok() {
            self.0.is_gone.store(true, Ordering::Relaxed);
        }
        self.0.broken.cancel();
    }

    /// Whether the agent's program ended and said nothing since somebody began to listen: it may not have heard what it was told.
    pub(crate) fn has_gone_unheard(&self) -> bool {
        self.0.is_gone.load(Ordering::Relaxed) && self.0.is_silent.load(Ordering::Relaxed)
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.0.broken.is_cancelled()
    }

    /// Whether the agent says nothing any more: its output is at its end, or the link is broken.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_broken() || self.0.ended.is_cancelled()
    }

    pub(crate) async fn broken(&self) -> String {
        self.0.broken.cancelled().await;
        self.fault()
    }

    /// Waits until the agent's output is at its end.
    pub(crate) async fn ended(&self) {
        self.0.ended.cancelled().await;
    }

    fn fault(&self) -> String {
        self.0.fault.get().cloned().unwrap_or_default()
    }

    pub(crate) async fn send_all(&self, lines: Vec<String>) {
        for line in lines {
            self.send(line).await;
        }
    }

    pub(crate) async fn send(&self, line: String) {
        tokio::select! {
            // Nobody takes it when the link is broken.
            _ = self.0.out.send(line) => {}
            () = self.0.broken.cancelled() => {}
        }
    }

    fn pending(&self) -> std::sync::MutexGuard<'_, HashMap<u64, oneshot::Sender<Answered>>> {
        self.0.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listener(&self) -> std::sync::MutexGuard<'_, Option<mpsc::Sender<Heard>>> {
        self.0.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a line of the agent. False if it is none.
    async fn take(&self, line: String) -> bool {
        let Some(message) = self.0.tongue.parse(&line) else { return false };
        match message {
            Message::Answer { id, result } => {
                let waiting = self.pending().remove(&id);
                match waiting {
                    Some(waiting) => drop(waiting.send(result.map(|result| (result, line)))),
                    // An answer that comes twice, or too late for whoever asked.
                    None if id < self.0.next.load(Ordering::Relaxed) && id > 0 => {}
                    None => self.break_off("it answered a question that nobody had asked"),
                }
            }
            Message::Stray => self.break_off("it answered a question that nobody had asked"),
            Message::Told(what) => self.hand_over(Heard::Told { line, what }).await,
            Message::Asked { id, method, params } => {
                self.hand_over(Heard::Asked { id, method, params, line }).await;
            }
            Message::Aside(method) => self.hand_over(Heard::Aside { method, line }).await,
            Message::Idle => {}
        }
        true
    }

    async fn hand_over(&self, heard: Heard) {
        self.0.is_silent.store(false, Ordering::Relaxed);
        let listener = self.listener().clone();
        let unheard = match listener {
            Some(listener) => tokio::select! {
                // A turn that does not listen slows the agent down.
                sent = listener.send(heard) => sent.err().map(|unsent| unsent.0),
                () = self.0.broken.cancelled() => None,
            },
            None => Some(heard),
        };
        match unheard {
            Some(Heard::Asked { id, method, .. }) => {
                self.send(self.0.tongue.refuse_unheard(&id, &method)).await;
            }
            Some(Heard::Told { what, .. }) => self.note_misdeed(&what),
            Some(Heard::Aside { .. }) | None => {}
        }
    }

    /// Remembers work that was done while no turn ran.
    fn note_misdeed(&self, told: &Value) {
        let is_unknown = self.0.tongue.call(told).is_some_and(|(id, _)| !self.known().contains(id));
        if self.0.is_resting.load(Ordering::Relaxed) && (is_unknown || self.0.tongue.is_work(told)) {
            let mut misdeed = self.0.misdeed.lock().unwrap_or_else(PoisonError::into_inner);
            misdeed.get_or_insert_with(|| "it went on working when its turn was over".to_owned());
        }
    }
}

async fn read(link: Link, mut lines: Lines<impl AsyncRead + Unpin>) {
    let fault = loop {
        let line = tokio::select! {
            line = lines.next() => line,
            () = link.0.broken.cancelled() => return,
        };
        match line {
            Ok(line) if line.trim().is_empty() => {}
            Ok(line) => {
                if !link.take(line).await && link.0.garbage.fetch_add(1, Ordering::Relaxed) >= MAX_GARBAGE {
                    break format!("it writes what is no {}", link.0.tongue.protocol().title());
                }
            }
            // Whoever keeps the process finds out why.
            Err(NoLine::End) => return link.0.ended.cancel(),
            Err(NoLine::TooLong) => {
                let most = link.0.tongue.max_line_bytes();
                break format!("it wrote a line of more than {most} bytes");
            }
            Err(NoLine::Io(error)) => break format!("its output cannot be read ({error})"),
        }
    };
    link.break_off(fault);
}

async fn write(link: Link, mut stdin: impl AsyncWrite + Unpin, mut lines: mpsc::Receiver<String>) {
    loop {
        let line = tokio::select! {
            biased;
            () = link.0.broken.cancelled() => return,
            Some(line) = lines.recv() => line,
        };
        let writing = async {
            stdin.write_all(line.as_bytes()).await?;
            stdin.write_all(b"\n").await?;
            stdin.flush().await
        };
        match tokio::time::timeout(WRITE_PATIENCE, writing).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return link.break_as_gone(format!("it takes no more input ({error})")),
            Err(_) => return link.break_off("it does not read what it is told"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncBufReadExt as _, BufReader, DuplexStream};

    use super::*;

    /// A link, and the agent's ends of its pipes.
    fn linked() -> (Link, DuplexStream, BufReader<DuplexStream>) {
        let (ours_in, theirs_in) = tokio::io::duplex(1 << 16);
        let (theirs_out, ours_out) = tokio::io::duplex(1 << 16);
        let (link, reading, writing) = Link::new(&crate::acp::Acp, ours_in, ours_out);
        tokio::spawn(reading);
        tokio::spawn(writing);
        (link, theirs_out, BufReader::new(theirs_in))
    }

    async fn told(from: &mut BufReader<DuplexStream>) -> Value {
        let mut line = String::new();
        from.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap()
    }

    #[tokio::test]
    async fn answers_find_their_question_and_others_are_no_harm() {
        let (link, mut agent, mut input) = linked();
        let asking = link.clone();
        let asked = tokio::spawn(async move { asking.ask("m", &json!({})).await });
        let id = told(&mut input).await["id"].clone();
        let twice = format!("{{\"id\":{id},\"result\":7}}\n{{\"id\":{id},\"result\":8}}\nwarning: x\n\n");
        agent.write_all(twice.as_bytes()).await.unwrap();
        assert_eq!(asked.await.unwrap(), Ok(json!(7)));
        assert!(!link.is_broken());
        agent.write_all(b"{\"id\":99,\"result\":1}\n").await.unwrap();
        assert_eq!(link.broken().await, "it answered a question that nobody had asked");
        assert!(matches!(link.ask("m", &json!({})).await, Err(Fault::Broken(_))));
    }

    #[tokio::test]
    async fn who_asks_while_nobody_listens_is_told_no() {
        let (link, mut agent, mut input) = linked();
        agent.write_all(b"{\"id\":\"a\",\"method\":\"session/request_permission\"}\n").await.unwrap();
        assert_eq!(told(&mut input).await["result"]["outcome"]["outcome"], "cancelled");
        agent.write_all(b"{\"id\":0,\"method\":\"fs/write_text_file\"}\n").await.unwrap();
        let refused = told(&mut input).await;
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(0), &json!(-32603)));
        assert_eq!(link.misdeed(), None);
        let of = |id: &str, kind: &str, status: &str| {
            let call = json!({ "sessionUpdate": kind, "toolCallId": id, "status": status });
            format!("{}\n", json!({ "method": "session/update", "params": { "update": call } }))
        };
        let update = |kind: &str, status: &str| of("t", kind, status);
        // A conversation of long ago is told again; then a turn ends, and its last word comes late.
        agent.write_all(update("tool_call", "completed").as_bytes()).await.unwrap();
        agent.write_all(b"{\"id\":1,\"method\":\"x\"}\n").await.unwrap();
        told(&mut input).await;
        let mut ear = link.listen(Hearing::Turn);
        agent.write_all(update("tool_call", "in_progress").as_bytes()).await.unwrap();
        ear.next().await.unwrap();
        link.rest();
        drop(ear);
        agent.write_all(update("tool_call_update", "completed").as_bytes()).await.unwrap();
        agent.write_all(b"{\"id\":1,\"method\":\"x\"}\n").await.unwrap();
        told(&mut input).await;
        assert_eq!(link.misdeed(), None);
        agent.write_all(of("another", "tool_call_update", "completed").as_bytes()).await.unwrap();
        agent.write_all(b"{\"id\":1,\"method\":\"x\"}\n").await.unwrap();
        told(&mut input).await;
        assert!(link.misdeed().is_some(), "a call that no turn knew");
    }

    /// A turn took its answer, and nobody has said yet that it is over.
    #[tokio::test]
    async fn what_a_turn_did_not_take_was_said_behind_it() {
        let (link, mut agent, mut input) = linked();
        let ear = link.listen(Hearing::Turn);
        let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "t", "status": "completed" });
        let line = json!({ "method": "session/update", "params": { "update": call } });
        agent.write_all(format!("{line}\n{{\"id\":1,\"method\":\"x\"}}\n").as_bytes()).await.unwrap();
        drop(ear);
        told(&mut input).await;
        assert!(link.misdeed().is_some());
    }

    #[tokio::test]
    async fn work_that_begins_while_nobody_listens_is_noticed() {
        for status in ["pending", "in_progress", "completed"] {
            let (link, mut agent, mut input) = linked();
            link.rest();
            let call = json!({ "sessionUpdate": "tool_call", "toolCallId": "t", "status": status });
            let line = json!({ "method": "session/update", "params": { "update": call } });
            agent.write_all(format!("{line}\n{{\"id\":1,\"method\":\"x\"}}\n").as_bytes()).await.unwrap();
            told(&mut input).await;
            assert!(link.misdeed().is_some(), "{status}");
        }
    }

    #[tokio::test]
    async fn an_agent_that_only_babbles_or_never_ends_a_line_is_cut_off() {
        let (link, mut agent, _input) = linked();
        agent.write_all("no message\n".repeat(MAX_GARBAGE + 1).as_bytes()).await.unwrap();
        assert_eq!(link.broken().await, "it writes what is no ACP");
        let (link, mut agent, _input) = linked();
        let endless = tokio::spawn(async move { while agent.write_all(&[b'x'; 1 << 16]).await.is_ok() {} });
        assert!(link.broken().await.starts_with("it wrote a line of more than"));
        endless.await.unwrap();
        let (link, agent, _input) = linked();
        drop(agent);
        link.ended().await;
        link.break_off("first");
        link.break_off("second");
        assert_eq!(link.broken().await, "first");
    }
}
