//! `tribune chat`: one message, one message per line of input, or a conversation.
//!
//! Only the agent's answer goes to standard output, so that it can be piped. Tool calls and verdicts go to standard
//! error. [`connection`] talks to the daemon, [`view`] prints, [`slash`] runs the commands, [`slash_tribune`] shows the
//! state of the law.

mod connection;
mod slash;
mod slash_tribune;
mod view;

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;

use clap::Args;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines, Stdin};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tribune_registry::MAIN_AGENT;
use tribune_runtime::{AgentId, SessionKey, StopReason};
use tribune_storage::home::Home;

use self::connection::{ChatConnection, SessionOverrides, WaitEnd};
use self::slash::SlashOutcome;
use self::view::ChatView;
use crate::daemon;
use crate::error::{CliError, CommandOutcome};
use crate::output::{Format, Output};

/// Characters of a user's name in a session key.
const USER_CHARS: usize = 64;

/// Lines that are queued while a turn runs.
const TYPED_AHEAD: usize = 100;

/// Talk to an agent.
///
/// With a message: runs one turn and prints the answer. Without a message: starts a conversation, or runs one turn per
/// line if standard input is not a terminal.
///
/// The answer goes to standard output; tool calls, denials and the closing line of a turn go to standard error. Ctrl-C
/// cancels the turn, a second Ctrl-C quits. A lost connection is restored where it broke off.
///
/// Exit codes: 0 answered, 1 the turn failed, 130 the turn was cancelled.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tribune chat\n  tribune chat \"what is in my workspace?\"\n  tribune chat --agent writer /play read\n  printf 'one\\ntwo\\n' | tribune chat\n  tribune chat --json hello | jq .type"
)]
pub(crate) struct ChatArgs {
    /// The agent to talk to [default: the session's agent, or main].
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// The session to continue [default: agent:AGENT:cli:local:dm:USER].
    #[arg(long, value_name = "KEY")]
    session: Option<String>,
    /// Use this model instead of the agent's own [example: moonshot:kimi-k1-128k].
    #[arg(long, value_name = "PROVIDER:MODEL")]
    model: Option<String>,
    /// The message. Several words are joined with spaces; put words that begin with a dash after `--`.
    #[arg(allow_negative_numbers = true)]
    message: Vec<String>,
}

impl ChatArgs {
    /// A conversation with this agent; with a message, one turn.
    pub(crate) const fn with(agent: String, message: Vec<String>) -> Self {
        Self { agent: Some(agent), session: None, model: None, message }
    }
}

pub(crate) fn run(args: &ChatArgs, home: &Home, output: &mut Output) -> Result<CommandOutcome, CliError> {
    run_in(args, None, home, output)
}

/// Runs the chat with an agent that works in this folder instead of its own workspace.
pub(crate) fn run_in(
    args: &ChatArgs,
    folder: Option<PathBuf>,
    home: &Home,
    output: &mut Output,
) -> Result<CommandOutcome, CliError> {
    let key = session_key(args)?;
    let runtime = daemon::runtime()?;
    let done = runtime.block_on(async {
        let mut chat = Chat {
            connection: ChatConnection::open(
                home,
                key,
                SessionOverrides { model: args.model.clone(), workspace: folder },
            )
            .await?,
            view: ChatView::new(output),
            interrupts: signal(SignalKind::interrupt()).map_err(CliError::System)?,
            input: BufReader::new(tokio::io::stdin()).lines(),
            typed: Vec::new(),
        };
        let outcome = match (args.message.join(" "), io::stdin().is_terminal()) {
            // `/tribune` is answered here; every other message goes to the agent unchanged.
            (message, _) if slash_tribune::is_slash_tribune(&message) => {
                slash_tribune::show(&mut chat.connection, &mut chat.view).await.map(|()| CommandOutcome::Done)
            }
            (message, _) if !args.message.is_empty() => {
                chat.say(&message, InputDuringTurn::Ignored).await.map(outcome_of)
            }
            (_, true) => chat.converse().await,
            (_, false) => chat.take_lines().await,
        };
        chat.connection.close().await;
        outcome
    });
    // A thread may still be blocked on standard input, and cannot be woken.
    runtime.shutdown_background();
    done
}

/// The session that the arguments name.
fn session_key(args: &ChatArgs) -> Result<SessionKey, CliError> {
    let wrong = |error: tribune_runtime::session::NameError| CliError::Input(error.to_string());
    if let Some(key) = &args.session {
        let key: SessionKey = key.parse().map_err(wrong)?;
        if args.agent.as_ref().is_some_and(|agent| agent != key.agent().as_str()) {
            return Err(CliError::Input(
                "--agent and --session name different agents: give only one of them".to_owned(),
            ));
        }
        return Ok(key);
    }
    let agent: AgentId = args.agent.as_deref().unwrap_or(MAIN_AGENT).parse().map_err(wrong)?;
    let user = std::env::var("USER").unwrap_or_default();
    SessionKey::direct(&agent, "cli", "local", &user_part(&user)).map_err(wrong)
}

/// A user's name with only the characters that a session key accepts.
fn user_part(user: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._+@=-".contains(c);
    let name: String = user.chars().take(USER_CHARS).map(|c| if fits(c) { c } else { '-' }).collect();
    match name.trim_start_matches('.') {
        "" => "operator".to_owned(),
        name => name.to_owned(),
    }
}

struct Chat<'a> {
    connection: ChatConnection<'a>,
    view: ChatView<'a>,
    interrupts: Signal,
    input: Lines<BufReader<Stdin>>,
    /// Lines that were typed while a turn ran, newest first.
    typed: Vec<String>,
}

/// Whether lines are read while a turn runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InputDuringTurn {
    /// `/cancel` cancels, `/approve` and `/deny` decide, every other line is queued.
    Read,
    Ignored,
}

/// What the prompt returns.
enum PromptInput {
    Line(String),
    /// Ctrl-C, Ctrl-D or the end of the input.
    End,
}

impl Chat<'_> {
    /// A conversation with a person.
    async fn converse(&mut self) -> Result<CommandOutcome, CliError> {
        self.view.greeting(self.connection.key());
        loop {
            self.view.prompt();
            let line = match self.next_line().await? {
                PromptInput::Line(line) => line,
                PromptInput::End => break,
            };
            if line.trim().is_empty() {
                continue;
            }
            match self.answer(&line, InputDuringTurn::Read).await {
                Ok(LineOutcome::Turn(WaitEnd::Detached) | LineOutcome::Quit) => break,
                Ok(LineOutcome::Turn(WaitEnd::Ended(_)) | LineOutcome::Command) => {}
                // An error of one message does not end the conversation.
                Err(error @ (CliError::Daemon(_) | CliError::NoDaemon(_) | CliError::Input(_))) => {
                    self.view.failed(&error.to_string())
                }
                Err(error) => return Err(error),
            }
        }
        self.view.goodbye(self.connection.key());
        Ok(CommandOutcome::Done)
    }

    /// Runs one turn per line of input. The worst end of a turn is the outcome.
    async fn take_lines(&mut self) -> Result<CommandOutcome, CliError> {
        let mut worst = CommandOutcome::Done;
        loop {
            let line = match self.next_line().await? {
                PromptInput::Line(line) => line,
                PromptInput::End => return Ok(worst),
            };
            if line.trim().is_empty() {
                continue;
            }
            match self.answer(&line, InputDuringTurn::Ignored).await? {
                LineOutcome::Quit => return Ok(worst),
                LineOutcome::Command => {}
                LineOutcome::Turn(turned) => match outcome_of(turned) {
                    // A cancelled turn cancels the remaining lines too.
                    CommandOutcome::Cancelled => return Ok(CommandOutcome::Cancelled),
                    CommandOutcome::Failed => worst = CommandOutcome::Failed,
                    CommandOutcome::Done
                    | CommandOutcome::Broken
                    | CommandOutcome::Incomplete
                    | CommandOutcome::Code(_) => {}
                },
            }
        }
    }

    async fn answer(&mut self, line: &str, input: InputDuringTurn) -> Result<LineOutcome, CliError> {
        match slash::run(line.trim(), &mut self.connection, &mut self.view).await? {
            SlashOutcome::Handled => Ok(LineOutcome::Command),
            SlashOutcome::Quit => Ok(LineOutcome::Quit),
            SlashOutcome::SendToAgent => self.say(line, input).await.map(LineOutcome::Turn),
        }
    }

    async fn say(&mut self, text: &str, input: InputDuringTurn) -> Result<WaitEnd, CliError> {
        tokio::select! {
            asked = self.connection.start_turn(text, &mut self.view) => asked?,
            _ = self.interrupts.recv() => return Ok(WaitEnd::Detached),
        }
        let mut cancel_sent = false;
        let mut input = input;
        loop {
            tokio::select! {
                turned = self.connection.follow_turn(&mut self.view) => return turned,
                _ = self.interrupts.recv() => {
                    if cancel_sent {
                        self.view.end_line();
                        return Ok(WaitEnd::Detached);
                    }
                    cancel_sent = true;
                    self.connection.cancel(&mut self.view).await;
                }
                line = self.input.next_line(), if input == InputDuringTurn::Read => match line? {
                    Some(line) if line.trim() == "/cancel" => self.connection.cancel(&mut self.view).await,
                    Some(line) if slash::decision(&line).is_some() => {
                        if let Some((decision, id)) = slash::decision(&line) {
                            self.connection.decide(&id, decision, &mut self.view).await;
                        }
                    }
                    Some(line) if self.typed.len() < TYPED_AHEAD => self.typed.insert(0, line),
                    Some(_) => {}
                    None => input = InputDuringTurn::Ignored,
                },
            }
        }
    }

    async fn next_line(&mut self) -> Result<PromptInput, CliError> {
        if let Some(line) = self.typed.pop() {
            return Ok(PromptInput::Line(line));
        }
        loop {
            tokio::select! {
                line = self.input.next_line() => {
                    return Ok(line?.map_or(PromptInput::End, PromptInput::Line));
                }
                _ = self.interrupts.recv() => return Ok(PromptInput::End),
                // Keeps the connection alive, and notices its end.
                () = self.connection.wait_idle(&mut self.view) => {}
            }
        }
    }
}

enum LineOutcome {
    Turn(WaitEnd),
    Command,
    Quit,
}

const fn outcome_of(turned: WaitEnd) -> CommandOutcome {
    match turned {
        WaitEnd::Detached | WaitEnd::Ended(StopReason::Cancelled) => CommandOutcome::Cancelled,
        WaitEnd::Ended(StopReason::Error | StopReason::Interrupted) => CommandOutcome::Failed,
        WaitEnd::Ended(StopReason::EndTurn | StopReason::MaxTokens | StopReason::Refusal) => {
            CommandOutcome::Done
        }
    }
}

impl ChatView<'_> {
    fn greeting(&mut self, key: &SessionKey) {
        self.note(&format!("{key}\nType a message, or /help. Ctrl-C cancels a turn, Ctrl-D quits."));
    }

    fn goodbye(&mut self, key: &SessionKey) {
        self.note(&format!("The session stays open. Continue it with: tribune chat --session {key}"));
    }

    /// Prints the prompt, on a terminal only.
    fn prompt(&mut self) {
        if self.format() == Format::Text && io::stderr().is_terminal() {
            self.print_raw("› ");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::user_part;

    #[test]
    fn user_names_are_made_valid_for_session_keys() {
        for (user, expected) in
            [("", "operator"), ("ada", "ada"), ("a:b c/ü", "a-b-c--"), ("...", "operator"), (".x", "x")]
        {
            assert_eq!(user_part(user), expected, "{user:?}");
            let key = format!("agent:main:cli:local:dm:{}", user_part(user));
            assert!(key.parse::<tribune_runtime::SessionKey>().is_ok(), "{key}");
        }
    }
}
