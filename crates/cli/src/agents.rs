//! `tribune agents`: who there is. The daemon is asked if one runs; otherwise the roster file is read and written here.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tribune_agents::AgentId;
use tribune_agents::provider::ModelRef;
use tribune_client::Client;
use tribune_constitution::nearest::nearest;
use tribune_constitution::{Asking, Constitution, DEFAULT_MANDATE};
use tribune_host::daemon::write_if_missing;
use tribune_host::registry::{Approvers, BACKENDS, DEFAULT_ROSTER, Roster, RosterAgent, backend_for};
use tribune_host::store::Heartbeat;
use tribune_host::{Home, Reader, law};

use crate::agent_test::{self, TestArgs};
use crate::daemon;
use crate::error::{CliError, Outcome};
use crate::install::{self, InstallArgs};
use crate::output::{Output, Paint, clean, table};
use crate::providers::inventory::from_here;
use crate::sessions::cell;
use crate::up::next_command;

#[derive(Debug, Subcommand)]
pub(crate) enum AgentsCommand {
    /// List the agents.
    List,
    /// Show one agent: what runs it, and what it may do.
    Show {
        /// The agent's id.
        id: String,
    },
    /// Add an agent.
    ///
    /// What it may do is its mandate's to say: a file in mandates/, or `default`. Without a daemon this writes
    /// data/agent-roster.jsonl, which you can also edit by hand.
    #[command(
        after_help = "Examples:\n  tribune agents add scribe\n  tribune agents add scribe --name Scribe --mandate default --standing\n  tribune agents add thinker --model moonshot:kimi-k1-128k\n  tribune agents add coder --profile claude --model anthropic:claude-sonnet-5 --mandate dev"
    )]
    Add(AddArgs),
    /// Install the program of an agent of another make, as its profile names it.
    ///
    /// It is got with npm of this machine, in the one version that the profile names, into programs/ in the home folder. Scripts of
    /// packages are not run.
    #[command(
        after_help = "Examples:\n  tribune agents install claude\n  tribune agents install gemini --dry-run"
    )]
    Install(InstallArgs),
    /// Test an agent: does the gate hold it, and does it answer?
    ///
    /// First the agent is made to try something harmless that must be refused, with a model that the house plays: it counts only
    /// if the agent asked, was refused, and did not do it all the same. An agent that does is not run any more. Then it is asked
    /// something, with its own model, which may cost a few tokens. Each step is told with its time.
    ///
    /// Exit codes: 0 all went well, 1 something did not.
    #[command(
        after_help = "Examples:\n  tribune agents test coder\n  tribune agents test coder --canary-only --json"
    )]
    Test(TestArgs),
    /// Give out a pass, with which programs of an agent ask its model through the daemon. It is printed once.
    ///
    /// It opens the model proxy and nothing else, for the one model that the roster gives the agent, and is over with its
    /// time or with the daemon.
    #[command(
        after_help = "Examples:\n  tribune agents pass scribe\n  tribune agents pass scribe --minutes 480 --json"
    )]
    Pass {
        /// The agent's id.
        id: String,
        /// How long it is good, up to a day.
        #[arg(long, value_name = "MINUTES")]
        minutes: Option<u32>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// Its id for life: lowercase letters, digits, `-` and `_`.
    id: String,
    /// What people call it.
    #[arg(long)]
    name: Option<String>,
    /// What runs its turns: `rehearsal` (scripted), `native` (a model), `acp` or `claude_code` (agents of another make)
    /// [default: that of --profile, native with --model, else rehearsal].
    #[arg(long)]
    backend: Option<String>,
    /// How an agent of another make is run: claude, claude-code, codex, gemini, opencode, or one of your own in profiles/.
    #[arg(long, value_name = "ID")]
    profile: Option<String>,
    /// The model it thinks with; `tribune models` lists them.
    #[arg(long, value_name = "PROVIDER:MODEL")]
    model: Option<String>,
    /// Whose law it acts under.
    #[arg(long, default_value = DEFAULT_MANDATE)]
    mandate: String,
    /// How far it is let go within its mandate: `ask` (what cannot be taken back waits for a person), `approve-all` (it does not;
    /// what is forbidden stays so), `approve-reads` (reading and nothing else), `deny-all` [default: as the law says].
    #[arg(long, value_parser = asking)]
    mode: Option<Asking>,
    /// Keep a session of it open from the start.
    #[arg(long)]
    standing: bool,
    /// Its public key, `ed25519:` and 64 hex digits. Whoever proves it is this agent.
    #[arg(long, value_name = "KEY")]
    pubkey: Option<String>,
}

pub(crate) fn run(command: AgentsCommand, home: &Home, output: &mut Output) -> Result<Outcome, CliError> {
    daemon::runtime()?.block_on(async {
        match daemon::connect(home).await {
            Ok(client) => over_rpc(client, command, home, output).await,
            Err(CliError::NoDaemon(_)) => by_hand(command, home, output).await.map(|()| Outcome::Done),
            Err(error) => Err(error),
        }
    })
}

async fn over_rpc(
    mut client: Client,
    command: AgentsCommand,
    home: &Home,
    output: &mut Output,
) -> Result<Outcome, CliError> {
    let mut outcome = Outcome::Done;
    match command {
        AgentsCommand::List => {
            let agents = client.call("agent.list", &json!({})).await?;
            output.result(|paint| list_text(&agents, paint), &agents)?;
        }
        AgentsCommand::Show { id } => {
            let agents = client.call("agent.list", &json!({})).await?;
            show(&agents, &id, output)?;
        }
        AgentsCommand::Add(add) => {
            let AddArgs { id, name, backend, profile, model, mandate, mode, standing, pubkey } = add;
            let mode = mode.map(Asking::as_str);
            let params = json!({
                "agent_id": id, "name": name, "backend": backend, "profile": profile, "model": model,
                "mandate": mandate, "mode": mode, "standing": standing, "pubkey": pubkey,
            });
            let agent = client.call("agent.add", &params).await?;
            added(&agent, home, output)?;
            let survey = client.call("provider.list", &json!({})).await?;
            warn_of_fault(&survey, &agent, home, output);
        }
        AgentsCommand::Install(args) => install::run(&args, home, output).await?,
        AgentsCommand::Test(args) => outcome = agents_test::run(&mut client, &args, output).await?,
        AgentsCommand::Pass { id, minutes } => {
            let pass = client.call("proxy.pass", &json!({ "agent_id": id, "minutes": minutes })).await?;
            output.result(|_| pass_text(&pass), &pass)?;
        }
    }
    client.close().await;
    Ok(outcome)
}

async fn by_hand(command: AgentsCommand, home: &Home, output: &mut Output) -> Result<(), CliError> {
    let path = home.root().join("data").join("agent-roster.jsonl");
    let law = law::load(home.root())?;
    // A home without a log has seen nobody.
    let seen = Reader::open(home).and_then(|reader| reader.heartbeats()).unwrap_or_default();
    match command {
        AgentsCommand::List => {
            let agents = agents_of(&Roster::load(&path)?, &law, &seen);
            output.result(|paint| list_text(&agents, paint), &agents)?;
        }
        AgentsCommand::Show { id } => show(&agents_of(&Roster::load(&path)?, &law, &seen), &id, output)?,
        AgentsCommand::Add(add) => {
            let agent = checked(add, &law, home)?;
            let approvers = Approvers::load(home.root().join("data").join("approvers.json"));
            let approvers = approvers.map_err(|error| CliError::Input(error.to_string()))?;
            if approvers.knows(agent.id.as_str()) {
                return Err(CliError::Input(format!(
                    "`{}` is the name of an approver, who could then decide about itself: choose another name",
                    agent.id
                )));
            }
            home.prepare().map_err(tribune_host::StoreError::from)?;
            let data = home.root().join("data");
            DirBuilder::new().recursive(true).mode(0o700).create(&data).map_err(CliError::file(&data))?;
            // Or the daemon would find a roster without the agent that every home begins with.
            write_if_missing(&path, DEFAULT_ROSTER.as_bytes())?;
            let id = agent.id.clone();
            let roster = Roster::add(&path, agent)?;
            let agents = agents_of(&roster, &law, &seen);
            let agent = find(&agents, id.as_str()).cloned().unwrap_or_default();
            added(&agent, home, output)?;
            if let Ok((_, survey)) = from_here(home) {
                // INVARIANT: names, numbers and texts are JSON.
                warn_of_fault(&serde_json::to_value(survey).unwrap_or_default(), &agent, home, output);
            }
        }
        AgentsCommand::Install(args) => install::run(&args, home, output).await?,
        AgentsCommand::Test(_) => {
            return Err(CliError::Input(format!(
                "an agent is tested by the daemon that runs it, and none does: start one with `{}`",
                next_command(home, "up")
            )));
        }
        AgentsCommand::Pass { .. } => {
            return Err(CliError::Input(format!(
                "a pass is good as long as its daemon runs, and none does: start one with `{}`",
                next_command(home, "up")
            )));
        }
    }
    Ok(())
}

/// A mode by its name.
pub(crate) fn asking(word: &str) -> Result<Asking, String> {
    let known = || format!("use one of {}", Asking::ALL.map(Asking::as_str).join(", "));
    Asking::parse(word).ok_or_else(known)
}

fn pass_text(pass: &Value) -> String {
    format!(
        "pass: {}\n{} may ask {} with it for {} minutes; it is shown only now",
        cell(&pass["token"]),
        cell(&pass["agent_id"]),
        cell(&pass["model"]),
        cell(&pass["minutes"])
    )
}

/// The agent as the roster takes it, if the law and this build know what it names.
fn checked(add: AddArgs, law: &Constitution, home: &Home) -> Result<RosterAgent, CliError> {
    let AddArgs { id, name, backend, profile, model, mandate, mode, standing, pubkey } = add;
    let id: AgentId = id.parse().map_err(|error| CliError::Input(format!("{error}")))?;
    if law.mandate(&mandate).is_none() {
        let known: Vec<&str> = law.mandates().keys().map(String::as_str).collect();
        let known = known.join(", ");
        return Err(CliError::Input(format!("there is no mandate `{mandate}`: this home has {known}")));
    }
    let (backend, profile) =
        backend_for(home, backend, profile, model.as_deref()).map_err(CliError::Input)?;
    if !BACKENDS.contains(&backend.as_str()) {
        let known = BACKENDS.join(", ");
        return Err(CliError::Input(format!("there is no backend `{backend}`: this build has {known}")));
    }
    Ok(RosterAgent { id, name, backend, profile, model, mandate, mode, standing, pubkey })
}

/// The roster in the form in which the daemon gives it.
fn agents_of(roster: &Roster, law: &Constitution, seen: &[Heartbeat]) -> Value {
    let agent = |agent: &RosterAgent| {
        let tools = law.mandate(&agent.mandate).map(|mandate| mandate.tools().to_vec()).unwrap_or_default();
        let seen = seen.iter().find(|seen| seen.agent_id == agent.id.as_str());
        json!({
            "agent_id": agent.id, "name": agent.name, "backend": agent.backend, "profile": agent.profile,
            "model": agent.model,
            "mandate": agent.mandate, "mode": agent.mode, "tools": tools, "standing": agent.standing, "pubkey": agent.pubkey,
            "rostered": true, "last_seen": seen.map(|seen| &seen.last_seen),
            "sessions": seen.map_or(0, |seen| seen.sessions), "turns": seen.map_or(0, |seen| seen.turns),
        })
    };
    json!({ "agents": roster.iter().map(agent).collect::<Vec<Value>>() })
}

fn rows(agents: &Value) -> impl Iterator<Item = &Value> {
    agents["agents"].as_array().into_iter().flatten()
}

fn find<'a>(agents: &'a Value, id: &str) -> Option<&'a Value> {
    rows(agents).find(|agent| agent["agent_id"] == id)
}

/// Agents as a table.
pub(crate) fn list_text(agents: &Value, paint: Paint) -> String {
    let row = |agent: &Value| {
        let mut row = ["agent_id", "name", "backend", "mandate"].map(|name| cell(&agent[name])).to_vec();
        row.push(tools(agent));
        row.extend(["turns", "last_seen"].map(|name| cell(&agent[name])));
        row
    };
    let rows: Vec<Vec<String>> = rows(agents).map(row).collect();
    if rows.is_empty() {
        return "no agents yet: the daemon adds `main` at its first start, and `tribune agents add` adds others".to_owned();
    }
    table(&["ID", "NAME", "BACKEND", "MANDATE", "MAY CALL", "TURNS", "LAST SEEN"], &rows, paint)
}

fn tools(agent: &Value) -> String {
    let tools: Vec<String> = agent["tools"].as_array().into_iter().flatten().map(cell).collect();
    if tools.is_empty() { "nothing".to_owned() } else { tools.join(", ") }
}

fn show(agents: &Value, id: &str, output: &mut Output) -> Result<(), CliError> {
    let Some(agent) = find(agents, id) else {
        let known: Vec<&str> = rows(agents).filter_map(|agent| agent["agent_id"].as_str()).collect();
        return Err(CliError::Input(match nearest(id, &known) {
            Some(meant) => format!("there is no agent `{id}`: did you mean `{meant}`?"),
            None => format!("there is no agent `{id}`: add it with `tribune agents add {id}`"),
        }));
    };
    output.result(|paint| agent_text(agent, paint), agent)?;
    Ok(())
}

fn agent_text(agent: &Value, paint: Paint) -> String {
    let line = |name: &str, value: String| format!("{} {value}", paint.faint(&format!("{name:<10}")));
    let mut lines = vec![line("id", cell(&agent["agent_id"]))];
    lines.extend(["name", "backend", "model", "mandate"].map(|name| line(name, cell(&agent[name]))));
    for name in ["profile", "mode"] {
        if !agent[name].is_null() {
            lines.push(line(name, cell(&agent[name])));
        }
    }
    lines.push(line("may call", tools(agent)));
    lines.push(line("standing", if agent["standing"] == true { "yes".into() } else { "no".into() }));
    lines.push(line("public key", cell(&agent["pubkey"])));
    lines.push(line("sessions", cell(&agent["sessions"])));
    lines.push(line("turns", cell(&agent["turns"])));
    lines.push(line("last seen", cell(&agent["last_seen"])));
    if agent["rostered"] == false {
        lines.push("not in the roster: a stranger, under the default mandate".to_owned());
    }
    lines.join("\n")
}

/// Says what an agent that was added still lacks to think.
fn warn_of_fault(survey: &Value, agent: &Value, home: &Home, output: &Output) {
    let mut all = survey["agents"].as_array().into_iter().flatten();
    let Some(fault) =
        all.find(|known| known["agent_id"] == agent["agent_id"]).and_then(|own| own["fault"].as_str())
    else {
        return;
    };
    let id = cell(&agent["agent_id"]);
    output.aside(&format!("{id} cannot think yet: {}", clean(fault)));
    let model = agent["model"].as_str().and_then(|model| model.parse().ok());
    let is_known_here = |model| from_here(home).is_ok_and(|(providers, _)| providers.resolve(&model).is_ok());
    if daemon::is_running(home).is_some()
        && model.clone().is_some_and(|model: ModelRef| !is_in(survey, &model))
        && model.is_some_and(is_known_here)
    {
        output.aside(&format!(
            "config.json5 has it, but the daemon was started before: run `{}` and `{}`",
            next_command(home, "down"),
            next_command(home, "up")
        ));
    } else {
        output.aside(&format!(
            "`{}` lists the models there are, `{}` adds one",
            next_command(home, "models"),
            next_command(home, "providers add")
        ));
    }
}

/// Whether the daemon knows a model.
fn is_in(survey: &Value, model: &ModelRef) -> bool {
    let providers = survey["providers"].as_array().into_iter().flatten();
    let mut models = providers.flat_map(|provider| provider["models"].as_array().into_iter().flatten());
    models.any(|known| known["model"] == model.to_string())
}

fn added(agent: &Value, home: &Home, output: &mut Output) -> Result<(), CliError> {
    let id = cell(&agent["agent_id"]);
    let chat = next_command(home, &format!("chat --agent {id}"));
    output.result(
        |_| {
            format!(
                "added {id}, under the mandate {}, which allows: {}\ntalk to it with: {chat}",
                cell(&agent["mandate"]),
                tools(agent),
            )
        },
        agent,
    )?;
    Ok(())
}
