//! `tribune agents`: lists and adds agents. Asks the daemon if one runs; otherwise reads and writes the roster file.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tribune_client::RpcClient;
use tribune_constitution::suggest_name::nearest;
use tribune_constitution::{ApprovalMode, Constitution, DEFAULT_MANDATE};
use tribune_daemon::daemon::write_if_missing;
use tribune_governance::policy_files;
use tribune_providers::ModelRef;
use tribune_registry::{Approvers, BACKENDS, DEFAULT_ROSTER, Roster, RosterAgent, backend_for};
use tribune_runtime::AgentId;
use tribune_storage::home::Home;
use tribune_storage::store::Heartbeat;
use tribune_storage::store::Reader;

use crate::agent_test::{self, TestArgs};
use crate::daemon;
use crate::error::{CliError, CommandOutcome};
use crate::hints::next_command;
use crate::install::{self, InstallArgs};
use crate::output::{Output, Paint, cell, clean, table};
use crate::providers::inventory::from_here;

#[derive(Debug, Subcommand)]
pub(crate) enum AgentsCommand {
    /// List the agents.
    List,
    /// Show one agent: what runs it, and which tools it may call.
    Show {
        /// The agent's id.
        id: String,
    },
    /// Add an agent.
    ///
    /// Its mandate decides what it may do: a file in mandates/, or `default`. Without a daemon this command writes
    /// data/agent-roster.jsonl, which you can also edit by hand.
    #[command(
        after_help = "Examples:\n  tribune agents add writer\n  tribune agents add writer --name Writer --mandate default --standing\n  tribune agents add thinker --model moonshot:kimi-k1-128k\n  tribune agents add coder --profile claude --model anthropic:claude-sonnet-5 --mandate dev"
    )]
    Add(AddAgentArgs),
    /// Install the program of a CLI agent, as its profile names it.
    ///
    /// npm of this machine installs the exact version that the profile names into programs/ in the home folder. Package
    /// scripts are not run.
    #[command(
        after_help = "Examples:\n  tribune agents install claude\n  tribune agents install gemini --dry-run"
    )]
    Install(InstallArgs),
    /// Test an agent: does the gate stop it, and does it answer?
    ///
    /// First a scripted model makes the agent try something harmless that the law refuses. The agent passes if it asks,
    /// is refused, and does not do it. An agent that does it anyway is not run any more. Then the agent's own model
    /// answers one question, which may cost a few tokens. Each step is printed with its time.
    ///
    /// Exit codes: 0 all steps passed, 1 a step failed.
    #[command(
        after_help = "Examples:\n  tribune agents test coder\n  tribune agents test coder --canary-only --json"
    )]
    Test(TestArgs),
    /// Create a pass: a token with which an agent's programs use its model, or ask the gate about its calls.
    ///
    /// The token is printed once. A pass for `models` opens the model proxy and nothing else, for the one model that
    /// the roster gives the agent. A pass for the `gate` opens /v1/gate/ and nothing else, for sessions of the agent:
    /// give it to a harness that runs its own calls, so that it does not hold the token that approves them. A pass
    /// expires after its time, or when the daemon stops.
    #[command(
        after_help = "Examples:\n  tribune agents pass writer\n  tribune agents pass writer --for gate\n  tribune agents pass writer --minutes 480 --json"
    )]
    Pass {
        /// The agent's id.
        id: String,
        /// How long the pass is valid, up to a day.
        #[arg(long, value_name = "MINUTES")]
        minutes: Option<u32>,
        /// What the pass opens.
        #[arg(long = "for", value_name = "WHAT", default_value = "models", value_parser = ["models", "gate"])]
        scope: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct AddAgentArgs {
    /// Its permanent id: lowercase letters, digits, `-` and `_`.
    id: String,
    /// A display name.
    #[arg(long)]
    name: Option<String>,
    /// What runs its turns: `rehearsal` (scripted), `native` (a model), `acp` or `claude_code` (a CLI agent) [default:
    /// that of --profile, native with --model, else rehearsal].
    #[arg(long)]
    backend: Option<String>,
    /// The profile of a CLI agent: claude, claude-code, codex, gemini, opencode, or a file of yours in profiles/.
    #[arg(long, value_name = "ID")]
    profile: Option<String>,
    /// Its model; `tribune models` lists the models.
    #[arg(long, value_name = "PROVIDER:MODEL")]
    model: Option<String>,
    /// The mandate that says what it may do.
    #[arg(long, default_value = DEFAULT_MANDATE)]
    mandate: String,
    /// How much it may do without asking, within its mandate: `ask` (effects that cannot be undone wait for a person),
    /// `approve-all` (nothing waits; what the law forbids stays forbidden), `approve-reads` (only reading), `deny-all`
    /// [default: as the law says].
    #[arg(long, value_parser = asking)]
    mode: Option<ApprovalMode>,
    /// Open a session for it when the daemon starts, and keep it open.
    #[arg(long)]
    standing: bool,
    /// Its public key: `ed25519:` and 64 hex digits. A client that proves this key acts as this agent.
    #[arg(long, value_name = "KEY")]
    pubkey: Option<String>,
    /// An agent whose messages it gets, or `*` for all agents of the roster; may be repeated. Without it, it gets none.
    #[arg(long, value_name = "ID")]
    accepts_from: Vec<String>,
}

pub(crate) fn run(
    command: AgentsCommand,
    home: &Home,
    output: &mut Output,
) -> Result<CommandOutcome, CliError> {
    daemon::runtime()?.block_on(async {
        match daemon::connect(home).await {
            Ok(client) => over_rpc(client, command, home, output).await,
            Err(CliError::NoDaemon(_)) => {
                without_daemon(command, home, output).await.map(|()| CommandOutcome::Done)
            }
            Err(error) => Err(error),
        }
    })
}

async fn over_rpc(
    mut client: RpcClient,
    command: AgentsCommand,
    home: &Home,
    output: &mut Output,
) -> Result<CommandOutcome, CliError> {
    let mut outcome = CommandOutcome::Done;
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
            let AddAgentArgs {
                id,
                name,
                backend,
                profile,
                model,
                mandate,
                mode,
                standing,
                pubkey,
                accepts_from,
            } = add;
            let mode = mode.map(ApprovalMode::as_str);
            let params = json!({
                "agent_id": id, "name": name, "backend": backend, "profile": profile, "model": model,
                "mandate": mandate, "mode": mode, "standing": standing, "pubkey": pubkey,
                "accepts_from": accepts_from,
            });
            let agent = client.call("agent.add", &params).await?;
            added(&agent, home, output)?;
            let inventory = client.call("provider.list", &json!({})).await?;
            warn_of_fault(&inventory, &agent, home, output);
        }
        AgentsCommand::Install(args) => install::run(&args, home, output).await?,
        AgentsCommand::Test(args) => outcome = agent_test::run(&mut client, &args, output).await?,
        AgentsCommand::Pass { id, minutes, scope } => {
            let params = json!({ "agent_id": id, "minutes": minutes, "for": scope });
            let pass = client.call("proxy.pass", &params).await?;
            output.result(|_| pass_text(&pass), &pass)?;
        }
    }
    client.close().await;
    Ok(outcome)
}

async fn without_daemon(command: AgentsCommand, home: &Home, output: &mut Output) -> Result<(), CliError> {
    let path = home.root().join("data").join("agent-roster.jsonl");
    let law = policy_files::load(home.root(), &tribune_tools::NAMES)?;
    // A home without a ledger has no heartbeats.
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
                    "`{}` is the id of an approver, and an agent must not decide its own calls: choose another id",
                    agent.id
                )));
            }
            home.prepare().map_err(tribune_storage::store::StoreError::from)?;
            let data = home.root().join("data");
            DirBuilder::new().recursive(true).mode(0o700).create(&data).map_err(CliError::file(&data))?;
            // Otherwise the daemon would find a roster without the agent `main`, with which every home starts.
            write_if_missing(&path, DEFAULT_ROSTER.as_bytes())?;
            let id = agent.id.clone();
            let roster = Roster::add(&path, agent)?;
            let agents = agents_of(&roster, &law, &seen);
            let agent = find(&agents, id.as_str()).cloned().unwrap_or_default();
            added(&agent, home, output)?;
            if let Ok((_, inventory)) = from_here(home) {
                // INVARIANT: it holds only names, numbers and texts, which serialize to JSON.
                warn_of_fault(&serde_json::to_value(inventory).unwrap_or_default(), &agent, home, output);
            }
        }
        AgentsCommand::Install(args) => install::run(&args, home, output).await?,
        AgentsCommand::Test(_) => {
            return Err(CliError::Input(format!(
                "the daemon tests its agents, and none is running: start one with `{}`",
                next_command(home, "up")
            )));
        }
        AgentsCommand::Pass { .. } => {
            return Err(CliError::Input(format!(
                "a pass is valid while its daemon runs, and none is running: start one with `{}`",
                next_command(home, "up")
            )));
        }
    }
    Ok(())
}

/// Parses the name of a mode.
pub(crate) fn asking(word: &str) -> Result<ApprovalMode, String> {
    let known = || format!("use one of {}", ApprovalMode::ALL.map(ApprovalMode::as_str).join(", "));
    ApprovalMode::parse(word).ok_or_else(known)
}

fn pass_text(pass: &Value) -> String {
    let agent = cell(&pass["agent_id"]);
    let may = match pass["model"].as_str() {
        Some(model) => format!("{agent} may use {} with it", clean(model)),
        None => format!("a harness may ask the gate about calls of {agent} with it"),
    };
    format!(
        "pass: {}\n{may} for {} minutes; it is shown only now",
        cell(&pass["token"]),
        cell(&pass["minutes"])
    )
}

/// Builds the roster line, if the law and this build know what it names.
fn checked(add: AddAgentArgs, law: &Constitution, home: &Home) -> Result<RosterAgent, CliError> {
    let AddAgentArgs { id, name, backend, profile, model, mandate, mode, standing, pubkey, accepts_from } =
        add;
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
    Ok(RosterAgent { id, name, backend, profile, model, mandate, mode, standing, pubkey, accepts_from })
}

/// The roster in the form of the daemon's `agent.list`.
fn agents_of(roster: &Roster, law: &Constitution, seen: &[Heartbeat]) -> Value {
    let agent = |agent: &RosterAgent| {
        let tools = law.mandate(&agent.mandate).map(|mandate| mandate.tools().to_vec()).unwrap_or_default();
        let seen = seen.iter().find(|seen| seen.agent_id == agent.id.as_str());
        json!({
            "agent_id": agent.id, "name": agent.name, "backend": agent.backend, "profile": agent.profile,
            "model": agent.model,
            "mandate": agent.mandate, "mode": agent.mode, "tools": tools, "standing": agent.standing, "pubkey": agent.pubkey,
            "accepts_from": agent.accepts_from, "rostered": true, "last_seen": seen.map(|seen| &seen.last_seen),
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
    let accepted: Vec<String> = agent["accepts_from"].as_array().into_iter().flatten().map(cell).collect();
    let accepted = if accepted.is_empty() { "no messages".to_owned() } else { accepted.join(", ") };
    lines.push(line("gets from", accepted));
    lines.push(line("sessions", cell(&agent["sessions"])));
    lines.push(line("turns", cell(&agent["turns"])));
    lines.push(line("last seen", cell(&agent["last_seen"])));
    if agent["rostered"] == false {
        lines.push("not in the roster: an unregistered agent, under the default mandate".to_owned());
    }
    lines.join("\n")
}

/// Prints what an added agent still lacks to use its model.
fn warn_of_fault(inventory: &Value, agent: &Value, home: &Home, output: &Output) {
    let mut all = inventory["agents"].as_array().into_iter().flatten();
    let Some(fault) =
        all.find(|known| known["agent_id"] == agent["agent_id"]).and_then(|own| own["fault"].as_str())
    else {
        return;
    };
    let id = cell(&agent["agent_id"]);
    output.notice(&format!("{id} has no usable model yet: {}", clean(fault)));
    let model = agent["model"].as_str().and_then(|model| model.parse().ok());
    let is_known_here = |model| from_here(home).is_ok_and(|(providers, _)| providers.resolve(&model).is_ok());
    if daemon::is_running(home).is_some()
        && model.clone().is_some_and(|model: ModelRef| !is_in(inventory, &model))
        && model.is_some_and(is_known_here)
    {
        output.notice(&format!(
            "config.json5 has the model, but the daemon started before it was added: run `{}` and `{}`",
            next_command(home, "down"),
            next_command(home, "up")
        ));
    } else {
        output.notice(&format!(
            "list the models with `{}`, or add one with `{}`",
            next_command(home, "models"),
            next_command(home, "providers add")
        ));
    }
}

/// Whether the daemon's inventory has the model.
fn is_in(inventory: &Value, model: &ModelRef) -> bool {
    let providers = inventory["providers"].as_array().into_iter().flatten();
    let mut models = providers.flat_map(|provider| provider["models"].as_array().into_iter().flatten());
    models.any(|known| known["model"] == model.to_string())
}

fn added(agent: &Value, home: &Home, output: &mut Output) -> Result<(), CliError> {
    let id = cell(&agent["agent_id"]);
    let chat = next_command(home, &format!("chat --agent {id}"));
    output.result(
        |_| {
            format!(
                "added {id} with the mandate {}, which allows: {}\ntalk to it with: {chat}",
                cell(&agent["mandate"]),
                tools(agent),
            )
        },
        agent,
    )?;
    Ok(())
}
