//! `tribune chat`: one message, a line per message, or a conversation.
//!
//! What the agent says goes to standard output and nothing else does, so that it can be piped on. What it does, and what
//! the law says to it, goes to standard error. [`connection`] is the connection, [`view`] what is shown, [`slash`] the commands,
//! [`slash_tribune`] how the law stands.

mod connection;
mod slash;
mod slash_tribune;
mod view;

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;

use clap::Args;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines, Stdin};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tribune_agents::{AgentId, SessionKey, StopReason};
use tribune_host::Home;
use tribune_host::registry::MAIN_AGENT;

use self::connection::{Talk, Turned};
use self::slash::After;
use self::view::View;
pub(crate) use self::view::rules;
use crate::daemon;
use crate::error::{CliError, Outcome};
use crate::output::{Format, Output};

/// Characters of a user's name in a session key.
const USER_CHARS: usize = 64;

/// Lines typed ahead while a turn runs.
const TYPED_AHEAD: usize = 100;

/// Talk to an agent.
///
/// With a message: one turn, whose answer is printed. Without: a conversation; or, if standard input is not a terminal,
/// one turn per line of it.
///
/// The answer goes to standard output; calls, denials and the line at the end of a turn go to standard error. Ctrl-C
/// cancels the turn, and a second one leaves. A connection that is lost is taken up again where it broke off.
///
/// Exit codes: 0 answered, 1 the turn failed, 130 the turn was cancelled.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tribune chat\n  tribune chat \"what is in my workspace?\"\n  tribune chat --agent scribe /play read\n  printf 'one\\ntwo\\n' | tribune chat\n  tribune chat --json hello | jq .type"
)]
pub(crate) struct ChatArgs {
    /// Whom to talk to [default: the session's agent, or main].
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// Which conversation to go on with [default: agent:AGENT:cli:local:dm:USER].
    #[arg(long, value_name = "KEY")]
    session: Option<String>,
    /// Talk to this model, instead of the agent's own [example: moonshot:kimi-k1-128k].
    #[arg(long, value_name = "PROVIDER:MODEL")]
    model: Option<String>,
    /// What to say. Several words are joined with spaces; words that begin with a dash go behind `--`.
    #[arg(allow_negative_numbers = true)]
    message: Vec<String>,
}

impl ChatArgs {
    /// A conversation with this agent; with words, one turn.
    pub(crate) const fn with(agent: String, message: Vec<String>) -> Self {
        Self { agent: Some(agent), session: None, model: None, message }
    }
}

pub(crate) fn run(args: &ChatArgs, home: &Home, output: &mut Output) -> Result<Outcome, CliError> {
    run_in(args, None, home, output)
}

/// The same with an agent that works in this folder, if there is one, instead of its own.
pub(crate) fn run_in(
    args: &ChatArgs,
    folder: Option<PathBuf>,
    home: &Home,
    output: &mut Output,
) -> Result<Outcome, CliError> {
    let key = session_key(args)?;
    let runtime = daemon::runtime()?;
    let done = runtime.block_on(async {
        let mut chat = Chat {
            talk: Talk::open(home, key, (args.model.clone(), folder)).await?,
            view: View::new(output),
            interrupts: signal(SignalKind::interrupt()).map_err(CliError::System)?,
            input: BufReader::new(tokio::io::stdin()).lines(),
            typed: Vec::new(),
        };
        let outcome = match (args.message.join(" "), io::stdin().is_terminal()) {
            // What the house answers itself is answered here too; everything else is for the agent, word for word.
            (message, _) if slash_tribune::is_meant(&message) => {
                slash_tribune::show(&mut chat.talk, &mut chat.view).await.map(|()| Outcome::Done)
            }
            (message, _) if !args.message.is_empty() => chat.say(&message, Typing::Not).await.map(outcome_of),
            (_, true) => chat.converse().await,
            (_, false) => chat.take_lines().await,
        };
        chat.talk.close().await;
        outcome
    });
    // A line of standard input may still be waited for, in a thread that cannot be woken.
    runtime.shutdown_background();
    done
}

/// The session that was asked for.
fn session_key(args: &ChatArgs) -> Result<SessionKey, CliError> {
    let wrong = |error: tribune_agents::session::NameError| CliError::Input(error.to_string());
    if let Some(key) = &args.session {
        let key: SessionKey = key.parse().map_err(wrong)?;
        if args.agent.as_ref().is_some_and(|agent| agent != key.agent().as_str()) {
            return Err(CliError::Input(
                "--agent is not the agent in --session: give one of them".to_owned(),
            ));
        }
        return Ok(key);
    }
    let agent: AgentId = args.agent.as_deref().unwrap_or(MAIN_AGENT).parse().map_err(wrong)?;
    let user = std::env::var("USER").unwrap_or_default();
    SessionKey::direct(&agent, "cli", "local", &peer(&user)).map_err(wrong)
}

/// A user's name as a session key takes it.
fn peer(user: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._+@=-".contains(c);
    let name: String = user.chars().take(USER_CHARS).map(|c| if fits(c) { c } else { '-' }).collect();
    match name.trim_start_matches('.') {
        "" => "operator".to_owned(),
        name => name.to_owned(),
    }
}

struct Chat<'a> {
    talk: Talk<'a>,
    view: View<'a>,
    interrupts: Signal,
    input: Lines<BufReader<Stdin>>,
    /// Lines that were typed while a turn ran, newest first.
    typed: Vec<String>,
}

/// Whether lines are read while a turn runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Typing {
    /// `/cancel` cancels, `/approve` and `/deny` decide, everything else waits for its turn.
    Heard,
    Not,
}

/// What comes next at the prompt.
enum Next {
    Line(String),
    /// Ctrl-C, Ctrl-D or the end of the input.
    End,
}

impl Chat<'_> {
    /// A conversation with a person.
    async fn converse(&mut self) -> Result<Outcome, CliError> {
        self.view.greeting(self.talk.key());
        loop {
            self.view.prompt();
            let line = match self.next_line().await? {
                Next::Line(line) => line,
                Next::End => break,
            };
            if line.trim().is_empty() {
                continue;
            }
            match self.answer(&line, Typing::Heard).await {
                Ok(Answered::Turn(Turned::Left) | Answered::Quit) => break,
                Ok(Answered::Turn(Turned::Ended(_)) | Answered::Command) => {}
                // What one message runs into need not end the conversation.
                Err(error @ (CliError::Daemon(_) | CliError::NoDaemon(_) | CliError::Input(_))) => {
                    self.view.failed(&error.to_string())
                }
                Err(error) => return Err(error),
            }
        }
        self.view.goodbye(self.talk.key());
        Ok(Outcome::Done)
    }

    /// A message per line, until there are no more. The worst end of a turn is the end of all.
    async fn take_lines(&mut self) -> Result<Outcome, CliError> {
        let mut worst = Outcome::Done;
        loop {
            let line = match self.next_line().await? {
                Next::Line(line) => line,
                Next::End => return Ok(worst),
            };
            if line.trim().is_empty() {
                continue;
            }
            match self.answer(&line, Typing::Not).await? {
                Answered::Quit => return Ok(worst),
                Answered::Command => {}
                Answered::Turn(turned) => match outcome_of(turned) {
                    // Whoever cancels one of many wants none of the others either.
                    Outcome::Cancelled => return Ok(Outcome::Cancelled),
                    Outcome::Failed => worst = Outcome::Failed,
                    Outcome::Done | Outcome::Broken | Outcome::Incomplete | Outcome::Code(_) => {}
                },
            }
        }
    }

    async fn answer(&mut self, line: &str, typing: Typing) -> Result<Answered, CliError> {
        match slash::run(line.trim(), &mut self.talk, &mut self.view).await? {
            After::Stay => Ok(Answered::Command),
            After::Quit => Ok(Answered::Quit),
            After::Say => self.say(line, typing).await.map(Answered::Turn),
        }
    }

    async fn say(&mut self, text: &str, typing: Typing) -> Result<Turned, CliError> {
        tokio::select! {
            asked = self.talk.ask(text, &mut self.view) => asked?,
            _ = self.interrupts.recv() => return Ok(Turned::Left),
        }
        let mut told_to_end = false;
        let mut hearing = typing;
        loop {
            tokio::select! {
                turned = self.talk.listen(&mut self.view) => return turned,
                _ = self.interrupts.recv() => {
                    if told_to_end {
                        self.view.end_line();
                        return Ok(Turned::Left);
                    }
                    told_to_end = true;
                    self.talk.cancel(&mut self.view).await;
                }
                line = self.input.next_line(), if hearing == Typing::Heard => match line? {
                    Some(line) if line.trim() == "/cancel" => self.talk.cancel(&mut self.view).await,
                    Some(line) if slash::decision(&line).is_some() => {
                        if let Some((decision, id)) = slash::decision(&line) {
                            self.talk.decide(&id, decision, &mut self.view).await;
                        }
                    }
                    Some(line) if self.typed.len() < TYPED_AHEAD => self.typed.insert(0, line),
                    Some(_) => {}
                    None => hearing = Typing::Not,
                },
            }
        }
    }

    async fn next_line(&mut self) -> Result<Next, CliError> {
        if let Some(line) = self.typed.pop() {
            return Ok(Next::Line(line));
        }
        loop {
            tokio::select! {
                line = self.input.next_line() => {
                    return Ok(line?.map_or(Next::End, Next::Line));
                }
                _ = self.interrupts.recv() => return Ok(Next::End),
                // Keeps the connection alive, and notices its end.
                () = self.talk.idle(&mut self.view) => {}
            }
        }
    }
}

enum Answered {
    Turn(Turned),
    Command,
    Quit,
}

const fn outcome_of(turned: Turned) -> Outcome {
    match turned {
        Turned::Left | Turned::Ended(StopReason::Cancelled) => Outcome::Cancelled,
        Turned::Ended(StopReason::Error | StopReason::Interrupted) => Outcome::Failed,
        Turned::Ended(StopReason::EndTurn | StopReason::MaxTokens | StopReason::Refusal) => Outcome::Done,
    }
}

impl View<'_> {
    fn greeting(&mut self, key: &SessionKey) {
        self.note(&format!("{key}\nSay something, or /help. Ctrl-C cancels a turn, Ctrl-D leaves."));
    }

    fn goodbye(&mut self, key: &SessionKey) {
        self.note(&format!("Goodbye. The session stays open: tribune chat --session {key}"));
    }

    /// Where the next line is typed. Programs need none.
    fn prompt(&mut self) {
        if self.format() == Format::Text && io::stderr().is_terminal() {
            self.murmur("› ");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::peer;

    #[test]
    fn any_user_name_becomes_a_part_of_a_session_key() {
        for (user, expected) in
            [("", "operator"), ("ada", "ada"), ("a:b c/ü", "a-b-c--"), ("...", "operator"), (".x", "x")]
        {
            assert_eq!(peer(user), expected, "{user:?}");
            let key = format!("agent:main:cli:local:dm:{}", peer(user));
            assert!(key.parse::<tribune_agents::SessionKey>().is_ok(), "{key}");
        }
    }
}
