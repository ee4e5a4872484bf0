//! Calls of tools that servers of the house's have, joined to what the agent said of them. It is the house that makes such a call,
//! whichever way the agent speaks of it: what it had leave for runs under that leave, what it told of is decided as that call, and
//! what it then tells as done was done here or has no leave.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use super::calls::{Ask, Calls, Standing, Untold};
use super::commands::{Before, Joint};
use super::house_words::{SERVED, Wanted};
use super::leaves::{Leaves, Question};
use super::servers::{Handed, Servers, TOO_MUCH};
use crate::runtime::{Errand, ToolCall, ToolOutcome, Toolbox};

/// Calls of servers' tools that the house makes for an agent at once. Each may wait for a person.
const MAX_AT_ONCE: usize = 16;

/// Calls that went through the house and that the agent has not told of, and that are remembered for when it does, the newest.
const MAX_UNTOLD: usize = 64;

/// The tools of the servers of a turn, by the names that agents have for them.
#[derive(Debug, Default)]
pub(crate) struct Names(Vec<Name>);

#[derive(Debug)]
struct Name {
    known: String,
    /// As the house calls it.
    tool: String,
}

impl Names {
    /// Of the servers that an agent was told of, whatever the law says of them in this turn.
    pub(crate) fn of(servers: Option<&Servers>) -> Self {
        let mut all = Vec::new();
        for called in servers.iter().flat_map(|servers| &servers.tools) {
            let parts = called.strip_prefix(SERVED).and_then(|rest| rest.split_once("__"));
            let Some((server, own)) = parts else { continue };
            all.extend(spellings(server, own).map(|known| Name { known, tool: called.clone() }));
        }
        Self(all)
    }

    /// What a call would have a server do, if it is one of a server's tool and can be nothing else. What has a kind is what that says:
    /// a title is words of the model's, and a server may call itself and its tools like something that the agent does with its own
    /// hands. Only where the input names server and tool, and nothing beside their arguments, it counts for more.
    pub(super) fn wanted(&self, call: &Map<String, Value>) -> Option<Wanted> {
        let is_plain = call.get("kind").is_none_or(|kind| kind == "other");
        let mut like =
            self.like(call).filter(|(_, is_named)| is_plain || *is_named).map(|(wanted, _)| wanted);
        let first = like.next()?;
        like.all(|other| other.tool == first.tool).then_some(first)
    }

    /// Everything that a call could be by its name, whatever it says of itself beside.
    pub(super) fn possible(&self, call: &Map<String, Value>) -> Vec<Wanted> {
        self.like(call).map(|(wanted, _)| wanted).collect()
    }

    /// Tools that are called like a call, and whether its input names them. What shows files or changes is something else.
    fn like(&self, call: &Map<String, Value>) -> impl Iterator<Item = (Wanted, bool)> {
        let list = |name: &str| call.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let is_words =
            list("locations").is_empty() && list("content").iter().all(|item| item["type"] == "content");
        let name =
            call.get("name").or_else(|| call.get("title")).filter(|_| is_words).and_then(Value::as_str);
        let input = match call.get("rawInput") {
            None | Some(Value::Null) => Some(Map::new()),
            Some(Value::Object(input)) => Some(input.clone()),
            Some(_) => None,
        };
        let named = self.0.iter().filter(move |of| name.is_some_and(|name| of.known == name));
        named.filter_map(move |of| {
            let input = input.as_ref()?;
            let arguments = unwrapped(&of.tool, input);
            let wanted = arguments.unwrap_or(input).clone();
            Some((Wanted { tool: of.tool.clone(), input: wanted.into() }, arguments.is_some()))
        })
    }
}

/// How the known agents call a tool of a server. A name that could be two tools is none.
fn spellings(server: &str, tool: &str) -> [String; 4] {
    let plain = format!("{server}_{tool}");
    [format!("{SERVED}{server}__{tool}"), format!("mcp_{plain}"), format!("mcp.{server}.{tool}"), plain]
}

/// The arguments of a call, where an agent tells them beside the server and the tool.
fn unwrapped<'a>(called: &str, input: &'a Map<String, Value>) -> Option<&'a Map<String, Value>> {
    let text = |name: &str| input.get(name)?.as_str();
    let is_it = called.strip_prefix(SERVED)?.split_once("__")? == (text("server")?, text("tool")?);
    input.get("arguments").filter(|_| is_it && input.len() == 3)?.as_object()
}

/// Calls of servers' tools that went through the house, and of which the agent has not told.
#[derive(Debug, Default)]
pub(super) struct Through(VecDeque<Wanted>);

impl Through {
    fn went(&mut self, call: Wanted) {
        if self.0.len() >= MAX_UNTOLD {
            self.0.pop_front();
        }
        self.0.push_back(call);
    }

    /// Whether this is one of them. It is one call's.
    pub(super) fn take(&mut self, told: &Wanted) -> bool {
        let at = self.0.iter().position(|went| went == told);
        let at = at.or_else(|| self.0.iter().position(|went| went.covers(told)));
        at.is_some_and(|at| self.0.remove(at).is_some())
    }
}

impl Calls {
    /// Leave for exactly this call of a server's tool: its id in the record, and the call that it is part of. It is taken out.
    fn take_served(&mut self, wanted: &Wanted) -> Option<(String, String)> {
        self.all().find_map(|(id, call)| Some((call.take(|given| given == wanted)?, id.clone())))
    }

    /// The call that tells of this and that nobody was asked about.
    fn told_served(&mut self, wanted: &Wanted, workspace: &str) -> Option<String> {
        let is_it = |of: &[Wanted]| matches!(of, [only] if wanted.covers(only));
        let mut told = self.all().filter(|(_, call)| {
            call.asks.is_empty() && !call.is_over && !call.is_run_here() && is_it(&call.wanted(workspace))
        });
        told.next().map(|(id, _)| id.clone())
    }

    /// How the newest question about exactly this stands.
    fn asked_served(&mut self, wanted: &Wanted) -> Option<Standing> {
        let asks = self.all().filter(|(_, call)| !call.is_over).flat_map(|(_, call)| &call.asks);
        let of_it = asks.filter(|ask| ask.wanted.contains(wanted));
        of_it.max_by_key(|ask| ask.number).map(|ask| ask.standing.clone())
    }
}

impl<Q: Question> Leaves<Q> {
    /// The agent calls a tool of a server.
    fn wants_served(&mut self, wanted: &Wanted) -> Result<Before, Untold> {
        if let Some((own, call)) = self.calls.take_served(wanted) {
            return Ok(Before::Allowed(own, Joint::new(call, None)));
        }
        if let Some(id) = self.calls.told_served(wanted, &self.workspace) {
            let number = self.asks;
            self.asks += 1;
            self.calls.asked(&id, Ask::new(number, vec![wanted.clone()], "", ""))?;
            let Some(call) = self.calls.get(&id) else { return Ok(Before::Nothing) };
            let own = call.ids(&id, 1).concat();
            return Ok(Before::Told(own, Joint::new(id, Some(number))));
        }
        Ok(match self.calls.asked_served(wanted) {
            Some(Standing::Waits) => Before::Waits,
            Some(Standing::Refused(why)) => Before::Refused(why),
            Some(Standing::Allowed) | None => Before::Nothing,
        })
    }
}

/// The calls of servers' tools that the house makes in one turn.
pub(crate) struct AtServers {
    tools: Arc<dyn Toolbox>,
    /// None where the session has no servers, and when the turn takes no more.
    handed: Option<mpsc::Receiver<Handed>>,
    underway: FuturesUnordered<BoxFuture<'static, Came>>,
    /// Calls so far that have no other id.
    called: usize,
}

/// What came of a call.
pub(crate) struct Came {
    handed: Handed,
    outcome: ToolOutcome,
    joint: Option<Joint>,
}

/// What happens to calls of servers' tools.
pub(crate) enum News {
    Handed(Handed),
    Came(Came),
}

impl AtServers {
    pub(crate) fn new(tools: Arc<dyn Toolbox>, servers: Option<&Servers>) -> Self {
        let handed = servers.map(|servers| servers.hatch.open());
        Self { tools, handed, underway: FuturesUnordered::new(), called: 0 }
    }

    /// Waits for the next thing that happens; for ever if nothing can.
    pub(crate) async fn next(&mut self) -> News {
        let Self { handed, underway, .. } = self;
        let handed = async {
            match handed {
                Some(handed) => handed.recv().await,
                None => None,
            }
        };
        tokio::select! {
            biased;
            // What came of a call is known before the next is looked at.
            Some(came) = underway.next() => News::Came(came),
            Some(handed) = handed => News::Handed(handed),
            else => std::future::pending().await,
        }
    }

    /// Takes no more calls, and waits for none: whoever made one is told so.
    pub(crate) fn end(&mut self) {
        self.handed = None;
        self.underway.clear();
    }

    /// Does what follows.
    pub(crate) fn take<Q: Question>(&mut self, news: News, leaves: &mut Leaves<Q>) -> Result<(), Untold> {
        match news {
            News::Handed(handed) => self.make(handed, leaves),
            News::Came(Came { handed, outcome, joint }) => {
                if let Some(joint) = joint {
                    let Handed { tool, arguments, .. } = &handed;
                    leaves.runs(&joint, &Wanted { tool: tool.clone(), input: arguments.clone() });
                }
                // Whoever called may be gone.
                let _ = handed.answer.send(outcome);
                Ok(())
            }
        }
    }

    /// Has a call made: under the leave that there is for exactly that, or as a call that is decided now.
    fn make<Q: Question>(&mut self, handed: Handed, leaves: &mut Leaves<Q>) -> Result<(), Untold> {
        let refuse = |handed: Handed, why: &str| {
            let _ = handed.answer.send(ToolOutcome::error(why));
            Ok(())
        };
        let wanted = Wanted { tool: handed.tool.clone(), input: handed.arguments.clone() };
        let Wanted { tool: name, input } = wanted.clone();
        if self.underway.len() >= MAX_AT_ONCE {
            leaves.through.went(wanted);
            return refuse(handed, TOO_MUCH);
        }
        let (errand, joint) = match leaves.wants_served(&wanted)? {
            Before::Allowed(own, joint) => (Errand::Allowed(own), Some(joint)),
            Before::Told(id, joint) => (Errand::Call(ToolCall { id, name, input }), Some(joint)),
            // It was answered here, whatever the agent calls that when it tells of it.
            Before::Waits => {
                leaves.through.went(wanted);
                return refuse(
                    handed,
                    "leave for this call was asked and is not given yet: wait for the answer",
                );
            }
            Before::Refused(why) => {
                leaves.through.went(wanted);
                return refuse(handed, &why);
            }
            Before::Nothing => {
                leaves.through.went(wanted);
                self.called += 1;
                (Errand::Call(ToolCall { id: format!("served-{}", self.called), name, input }), None)
            }
        };
        let tools = Arc::clone(&self.tools);
        self.underway.push(Box::pin(async move {
            let outcome = match errand {
                Errand::Call(call) => tools.call(call).await,
                Errand::Allowed(own) => tools.carry_out(&own).await,
            };
            Came { handed, outcome, joint }
        }));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names(tools: &[&str]) -> Names {
        let tools = tools.iter().map(|&tool| tool.to_owned()).collect();
        Names::of(Some(&Servers { all: Vec::new(), tools, hatch: Arc::default(), edition: 1 }))
    }

    fn found(names: &Names, call: Value) -> Option<(String, Value)> {
        let Value::Object(call) = call else { panic!() };
        names.wanted(&call).map(|wanted| (wanted.tool, wanted.input))
    }

    #[test]
    fn a_tool_is_known_by_the_names_that_agents_have_for_it() {
        let names = names(&["mcp__git-hub__get_issue", "read", "mcp__broken"]);
        let input = json!({ "n": 1 });
        let wrapped = json!({ "server": "git-hub", "tool": "get_issue", "arguments": input });
        for name in
            ["mcp__git-hub__get_issue", "mcp_git-hub_get_issue", "git-hub_get_issue", "mcp.git-hub.get_issue"]
        {
            let known = Some(("mcp__git-hub__get_issue".to_owned(), input.clone()));
            assert_eq!(found(&names, json!({ "title": name, "kind": "other", "rawInput": input })), known);
            assert_eq!(found(&names, json!({ "title": name, "kind": "other", "rawInput": wrapped })), known);
            // The name of the tool counts for more than what the call is called.
            assert_eq!(found(&names, json!({ "name": name, "title": "x", "rawInput": input })), known);
            assert_eq!(found(&names, json!({ "name": "x", "title": name, "rawInput": input })), None);
        }
        let told = json!({ "title": "git-hub_get_issue" });
        assert_eq!(found(&names, told), Some(("mcp__git-hub__get_issue".to_owned(), json!({}))));
        for other in ["get_issue", "git-hub", "read", "mcp__broken", "broken", ""] {
            assert_eq!(found(&names, json!({ "title": other, "rawInput": input })), None, "{other}");
        }
        let title = "git-hub_get_issue";
        for more in [
            json!({ "title": title, "locations": [{ "path": "/workspace/a" }] }),
            json!({ "title": title, "content": [{ "type": "diff", "path": "/workspace/a", "newText": "" }] }),
            json!({ "title": title, "rawInput": "n" }),
        ] {
            assert_eq!(found(&names, more.clone()), None, "{more}");
        }
    }

    /// A server may call itself and its tool as it likes, and so like something that the agent does with its own hands.
    #[test]
    fn l1_a_tool_of_the_agents_own_is_not_taken_for_a_servers() {
        let names = names(&["mcp__run__shell_command"]);
        let input = json!({ "command": "rm -r ." });
        let call = |title: &str, kind: &str| json!({ "title": title, "kind": kind, "rawInput": input });
        assert_eq!(found(&names, call("run_shell_command", "execute")), None);
        let named = json!({ "name": "run_shell_command", "kind": "execute", "rawInput": input });
        assert_eq!(found(&names, named), None);
        assert!(found(&names, call("run_shell_command", "other")).is_some());
        // Titles are words of a model's, however much they look like a server's.
        for title in ["mcp.run.shell_command", "mcp__run__shell_command", "mcp_run_shell_command"] {
            assert_eq!(found(&names, call(title, "execute")), None);
            let wrapped = json!({ "server": "run", "tool": "shell_command", "arguments": input });
            let named = json!({ "title": title, "kind": "execute", "rawInput": wrapped });
            assert_eq!(found(&names, named), Some(("mcp__run__shell_command".to_owned(), input.clone())));
            let more =
                json!({ "server": "run", "tool": "shell_command", "arguments": input, "command": "x" });
            assert_eq!(found(&names, json!({ "title": title, "kind": "execute", "rawInput": more })), None);
        }
    }

    #[test]
    fn a_name_that_could_be_two_tools_is_none() {
        let names = names(&["mcp__a__b_c", "mcp__a_b__c"]);
        assert_eq!(found(&names, json!({ "title": "a_b_c" })), None);
        assert_eq!(found(&names, json!({ "title": "mcp_a_b_c" })), None);
        let known = found(&names, json!({ "title": "mcp__a_b__c" }));
        assert_eq!(known.map(|(tool, _)| tool).as_deref(), Some("mcp__a_b__c"));
    }

    #[test]
    fn what_went_through_is_one_calls() {
        let wanted = |n: u64| Wanted { tool: "mcp__a__b".to_owned(), input: json!({ "n": n }) };
        let mut through = Through::default();
        for n in 0..=MAX_UNTOLD as u64 {
            through.went(wanted(n));
        }
        assert!(!through.take(&wanted(0)), "the oldest is forgotten");
        assert!(through.take(&wanted(1)) && !through.take(&wanted(1)));
        let other = Wanted { tool: "mcp__a__c".to_owned(), input: json!({ "n": 2 }) };
        assert!(!through.take(&other));
        // One that says nothing of its arguments is any of that tool.
        let bare = Wanted { tool: "mcp__a__b".to_owned(), input: json!({}) };
        assert!(through.take(&bare) && !through.take(&wanted(2)) && through.take(&wanted(3)));
    }
}
