//! The calls of one turn, by the agent's own ids. What is told of a call in several messages is put together, and so is every
//! question about it: whichever way the agent came to speak of it, what was allowed and what is told as done are compared.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::executed_calls::Through;
use crate::mcp_tool_names::Names;
use crate::normalize::{self, Wanted};

/// Calls of one turn that are remembered.
const MAX_CALLS: usize = 10_000;

/// Bytes of what is kept of what is told of them.
const MAX_TOLD_BYTES: usize = 32 << 20;

/// Bytes of an agent's own id for a call.
const MAX_OWN_ID: usize = 1024;

/// Bytes of an id that the record can have.
const MAX_ID: usize = 100;

/// Fields of a call that are put together.
const FIELDS: [&str; 8] =
    ["title", "name", "kind", "status", "rawInput", "rawOutput", "locations", "content"];

#[derive(Debug, Default)]
pub(crate) struct Calls {
    calls: HashMap<String, Call>,
    bytes: usize,
    /// Tools of servers that the house runs.
    names: Names,
}

/// One call of the agent's.
#[derive(Debug, Default)]
pub(crate) struct Call {
    told: Map<String, Value>,
    /// What it is, if it is a call of a server's tool.
    served: Option<Wanted>,
    /// What of that it could be by its name alone.
    like_served: Vec<Wanted>,
    /// For each field, the length of the line that it came in: no less than it takes.
    sizes: [usize; FIELDS.len()],
    /// The newest line that told of it.
    line: String,
    /// Questions about it, oldest first.
    pub(crate) asks: Vec<Ask>,
    /// Parts of it that were told as done and have their place in the record.
    pub(crate) settled: Vec<Wanted>,
    /// The house ran a command for it.
    is_run_here: bool,
    /// Its end was told.
    pub(crate) is_over: bool,
    /// It was told as under way.
    is_begun: bool,
    /// Parts that were put on record so far, to give each an id.
    parts: usize,
}

/// A question about a call.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) number: usize,
    pub(crate) wanted: Vec<Wanted>,
    /// The ways in which it was asked. One leave answers one question of each.
    pub(crate) ways: Vec<&'static str>,
    pub(crate) standing: Standing,
    /// Parts of it that leave was given for and nobody told what came of, by their ids in the record.
    pub(crate) given: Vec<(String, Wanted)>,
    /// Bytes of the line that it came in.
    size: usize,
}

/// How a question stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    Waits,
    Allowed,
    Refused(String),
}

/// Whether something that is told begins a call or goes on with one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Telling {
    Begins,
    GoesOn,
}

/// Why what is told of a call cannot be taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Untold {
    /// It has no id, or none that could be one.
    Nameless,
    TooMuch,
}

impl Calls {
    /// In a turn that is told of these tools of servers.
    pub(crate) fn new(names: Names) -> Self {
        Self { names, ..Self::default() }
    }

    /// Every call, by the agent's own id.
    pub(crate) fn all(&mut self) -> impl Iterator<Item = (&String, &mut Call)> {
        self.calls.iter_mut()
    }

    /// Takes in what a line tells of a call.
    pub(crate) fn tell(&mut self, update: &Value, line: &str, telling: Telling) -> Result<String, Untold> {
        let is_id = |id: &&str| (1..=MAX_OWN_ID).contains(&id.len());
        let id = update["toolCallId"].as_str().filter(is_id).ok_or(Untold::Nameless)?;
        if self.calls.len() >= MAX_CALLS && !self.calls.contains_key(id) {
            return Err(Untold::TooMuch);
        }
        let call = self.calls.entry(id.to_owned()).or_default();
        self.bytes = self.bytes.saturating_sub(call.bytes(id));
        if telling == Telling::Begins && call.is_over {
            // The id of a call that is over is used for another one.
            *call = Call { parts: call.parts, ..Call::default() };
        }
        call.take_in(update, line);
        call.served = self.names.wanted(&call.told);
        call.like_served = self.names.possible(&call.told);
        self.bytes += call.bytes(id);
        if self.bytes > MAX_TOLD_BYTES {
            return Err(Untold::TooMuch);
        }
        Ok(id.to_owned())
    }

    pub(crate) fn get(&mut self, id: &str) -> Option<&mut Call> {
        self.calls.get_mut(id)
    }

    /// Keeps a question about a call.
    pub(crate) fn asked(&mut self, id: &str, ask: Ask) -> Result<(), Untold> {
        self.bytes += ask.size;
        if self.bytes > MAX_TOLD_BYTES {
            return Err(Untold::TooMuch);
        }
        if let Some(call) = self.get(id) {
            call.asks.push(ask);
        }
        Ok(())
    }

    /// Calls that were begun, and of which nobody asked before or since.
    pub(crate) fn begun_unasked(&self) -> Vec<String> {
        let begun =
            |call: &Call| call.asks.is_empty() && !call.is_over && call.status() == Some("in_progress");
        self.calls.iter().filter(|(_, call)| begun(call)).map(|(id, _)| id.clone()).collect()
    }

    /// Everything that leave was given for and that nobody told the end of, by its ids in the record. It is taken out.
    pub(crate) fn take_unreported(&mut self) -> Vec<(String, Wanted)> {
        self.calls.values_mut().flat_map(Call::take_given).collect()
    }

    /// The part of a call that leave was given for and that writes exactly this. It is taken out.
    pub(crate) fn take_written(&mut self, written: &Wanted) -> Option<String> {
        let (path, content) = (&written.input["path"], &written.input["content"]);
        let is_it = |wanted: &Wanted| match wanted.tool.as_str() {
            "write" => wanted.input["path"] == *path && wanted.input["content"] == *content,
            "edit" => wanted.input["path"] == *path && wanted.input["new"] == *content,
            _ => false,
        };
        self.calls.values_mut().find_map(|call| call.take(is_it))
    }

    /// Leave for this command: its id in the record, and the call that it is part of. It is taken out.
    pub(crate) fn take_command(&mut self, command: &Wanted) -> Option<(String, String)> {
        self.calls.iter_mut().find_map(|(id, call)| {
            let own = call.take(|given| given.covers(command))?;
            call.is_run_here = true;
            Some((own, id.clone()))
        })
    }

    /// The call that tells of this command and that nobody was asked about.
    pub(crate) fn told_command(&self, command: &Wanted, workspace: &str) -> Option<String> {
        let is_it = |call: &Call| {
            call.asks.is_empty()
                && !call.is_over
                && !call.is_run_here
                && matches!(call.wanted(workspace).as_slice(), [only] if only.covers(command))
        };
        self.calls.iter().find(|(_, call)| is_it(call)).map(|(id, _)| id.clone())
    }

    /// How the newest question about this command stands.
    pub(crate) fn asked_command(&self, command: &Wanted) -> Option<&Standing> {
        let is_it = |ask: &&Ask| ask.wanted.iter().any(|wanted| wanted.covers(command));
        let asks = self.calls.values().filter(|call| !call.is_over).flat_map(|call| &call.asks);
        asks.filter(is_it).max_by_key(|ask| ask.number).map(|ask| &ask.standing)
    }
}

impl Ask {
    pub(crate) fn new(number: usize, wanted: Vec<Wanted>, way: &'static str, line: &str) -> Self {
        let (ways, given) = (vec![way], Vec::new());
        Self { number, wanted, ways, standing: Standing::Waits, given, size: line.len() }
    }
}

impl Call {
    fn take_in(&mut self, update: &Value, line: &str) {
        for (field, size) in FIELDS.into_iter().zip(&mut self.sizes) {
            match update.get(field) {
                None | Some(Value::Null) => {}
                // An input that is empty says nothing against one that was told before.
                Some(Value::Object(input)) if input.is_empty() && self.told.contains_key(field) => {}
                // Agents rename their calls as they go. What was asked about keeps the name under which it was.
                Some(_) if field == "title" && !self.asks.is_empty() => {}
                Some(value) => {
                    *size = line.len();
                    self.told.insert(field.to_owned(), value.clone());
                }
            }
        }
        self.is_begun |= self.status() == Some("in_progress");
        line.clone_into(&mut self.line);
    }

    /// Whether it was told as under way.
    pub(crate) const fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// Bytes that are kept of it, about.
    fn bytes(&self, id: &str) -> usize {
        let asks: usize = self.asks.iter().map(|ask| ask.size).sum();
        id.len() + self.line.len() + self.sizes.iter().sum::<usize>() + asks
    }

    pub(crate) fn status(&self) -> Option<&str> {
        self.told.get("status").and_then(Value::as_str)
    }

    pub(crate) fn line(&self) -> &str {
        &self.line
    }

    /// What it would do, in the house's words.
    pub(crate) fn wanted(&self, workspace: &str) -> Vec<Wanted> {
        self.served.clone().map_or_else(|| normalize::wanted(&self.told, workspace), |served| vec![served])
    }

    /// The same of a call that the agent asks about.
    pub(crate) fn asked(&self, workspace: &str) -> Vec<Wanted> {
        // Nobody can be asked about arguments that are not told.
        let served = self.served.clone().filter(|_| self.told.contains_key("rawInput"));
        served.map_or_else(|| normalize::asked(&self.told, workspace), |served| vec![served])
    }

    /// Whether it is a call of a server's tool that the house has answered, by what it could be. Then it has its place in the record.
    pub(crate) fn went_through(&mut self, through: &mut Through, workspace: &str) -> bool {
        let went = self.like_served.iter().find(|like| through.take(like)).cloned();
        let is_it = went.is_some();
        if is_it {
            let parts = self.wanted(workspace);
            self.settled.extend(went.into_iter().chain(parts));
        }
        is_it
    }

    /// The same, if it was no call of a server's tool, whatever it is called.
    pub(crate) fn in_its_own_words(&self, workspace: &str) -> Vec<Wanted> {
        normalize::asked(&self.told, workspace)
    }

    /// It is asked about: what was told of its end is of the time before.
    pub(crate) fn begin_question(&mut self) {
        if std::mem::take(&mut self.is_over) {
            self.told.remove("status");
            self.settled.clear();
        }
    }

    /// What it says that it did, to be held against what leave was given for.
    pub(crate) fn done(&self, workspace: &str) -> Vec<Wanted> {
        self.served.clone().map_or_else(|| normalize::done(&self.told, workspace), |served| vec![served])
    }

    /// Whether the house did something for it.
    pub(crate) const fn is_run_here(&self) -> bool {
        self.is_run_here
    }

    /// The house ran a command, and this call is how the agent tells of it.
    pub(crate) fn run_here(&mut self, command: Wanted) {
        self.is_run_here = true;
        self.settled.push(command);
    }

    /// It was not run after all.
    pub(crate) fn not_run_here(&mut self, command: &Wanted) {
        self.is_run_here = false;
        self.settled.retain(|settled| !settled.covers(command));
    }

    /// Whether it has its place in the record, or says no more of it than what has.
    pub(crate) fn has_settled(&self, part: &Wanted) -> bool {
        self.settled.iter().any(|settled| settled.covers(part)) || self.is_told_of_here(part)
    }

    /// Whether a part of it says no more than what the house ran for it: the name of a command, or words around one that nobody
    /// here knows. Another command is another command.
    pub(crate) fn is_told_of_here(&self, part: &Wanted) -> bool {
        let is_empty = |raw: &Value| raw.is_null() || raw.as_object().is_some_and(Map::is_empty);
        let is_titled = self.told.get("rawInput").is_none_or(is_empty);
        self.is_run_here
            && self.told.get("kind").is_some_and(|kind| kind == "execute")
            && (is_titled || part.is_foreign())
    }

    /// Leave that was given for what is told as done, by its id in the record. It is taken out.
    pub(crate) fn take(&mut self, is_it: impl Fn(&Wanted) -> bool) -> Option<String> {
        let ask = self.asks.iter_mut().find(|ask| ask.given.iter().any(|(_, wanted)| is_it(wanted)))?;
        let at = ask.given.iter().position(|(_, wanted)| is_it(wanted))?;
        let (id, wanted) = ask.given.remove(at);
        self.settled.push(wanted);
        Some(id)
    }

    /// All leave that was given, by its ids in the record. It is taken out.
    pub(crate) fn take_given(&mut self) -> Vec<(String, Wanted)> {
        let given: Vec<(String, Wanted)> =
            self.asks.iter_mut().flat_map(|ask| std::mem::take(&mut ask.given)).collect();
        // What the house is to do, it has not done.
        let by_agent = given.iter().map(|(_, wanted)| wanted).filter(|wanted| !wanted.is_served());
        self.settled.extend(by_agent.cloned());
        given
    }

    /// Ids for the record, one for each part of a question about it.
    pub(crate) fn ids(&mut self, id: &str, parts: usize) -> Vec<String> {
        let word = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        let id = match id.len() <= MAX_ID && id.bytes().all(word) {
            true => id.to_owned(),
            // Told apart by what it is made of.
            false => format!("call-{:016x}", fingerprint(id)),
        };
        let first = self.parts;
        self.parts += parts;
        let name = |n: usize| if n == 0 { id.clone() } else { format!("{id}.{}", n + 1) };
        (first..first + parts).map(name).collect()
    }

    /// What the agent says came of it.
    pub(crate) fn outcome(&self) -> String {
        let items = self.told.get("content").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let mut said = String::new();
        for item in items {
            let text = match item["type"].as_str() {
                Some("content") => item["content"]["text"].as_str().unwrap_or_default().to_owned(),
                Some("diff") => format!("changed {}", item["path"].as_str().unwrap_or("a file")),
                _ => continue,
            };
            if !said.is_empty() {
                said.push('\n');
            }
            said.push_str(&text);
        }
        match (said.is_empty(), self.told.get("rawOutput")) {
            (false, _) => said,
            (true, Some(Value::String(raw))) => raw.clone(),
            (true, Some(raw)) => raw.to_string(),
            (true, None) => "the agent did not say what came of it".to_owned(),
        }
    }

    /// What it is called, for sentences.
    pub(crate) fn title(&self) -> String {
        let title = self.told.get("title").and_then(Value::as_str).unwrap_or("a call");
        title.chars().filter(|c| !c.is_control()).take(80).collect()
    }
}

/// FNV-1a: ids need not be secret, only the same for the same call.
fn fingerprint(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_question_without_a_path_is_joined_to_what_was_told_before() {
        let mut calls = Calls::default();
        let told = json!({ "toolCallId": "t", "kind": "read", "rawInput": { "filePath": "/workspace/a" } });
        calls.tell(&told, "line 1", Telling::Begins).unwrap();
        let asked = json!({ "toolCallId": "t", "kind": "read", "rawInput": {} });
        let id = calls.tell(&asked, "line 2", Telling::GoesOn).unwrap();
        let call = calls.get(&id).unwrap();
        assert_eq!(call.asked("/workspace")[0].input, json!({ "path": "a" }));
        assert_eq!(call.line(), "line 2");
        assert_eq!(call.ids("t", 2), ["t", "t.2"]);
        assert_eq!(call.ids("t", 1), ["t.3"]);
        assert!(call.ids("böse id", 1)[0].starts_with("call-"));
        let long = "x".repeat(MAX_OWN_ID + 1);
        for nameless in
            [json!({ "kind": "read" }), json!({ "toolCallId": "" }), json!({ "toolCallId": long })]
        {
            assert_eq!(calls.tell(&nameless, "", Telling::Begins), Err(Untold::Nameless));
        }
    }

    #[test]
    fn what_takes_room_counts_whatever_it_says() {
        let mut calls = Calls::default();
        // What takes the place of something else takes no more room; what comes beside it does.
        let long = "x".repeat(MAX_TOLD_BYTES / 4 - 100);
        let titled = |id: &str| json!({ "toolCallId": id, "title": "x" });
        for _ in 0..10 {
            calls.tell(&titled("x"), &long, Telling::GoesOn).unwrap();
        }
        calls.tell(&titled("y"), &long, Telling::GoesOn).unwrap();
        assert_eq!(calls.tell(&titled("z"), &long, Telling::GoesOn), Err(Untold::TooMuch));
        // Lines of which nothing is known are kept too.
        let mut calls = Calls::default();
        let unknown =
            |n: usize| calls.tell(&json!({ "toolCallId": n.to_string(), "_x": 1 }), &long, Telling::GoesOn);
        let told: Vec<_> = (0..5).map(unknown).collect();
        assert_eq!(told[4], Err(Untold::TooMuch), "{told:?}");
        // So are questions.
        let mut calls = Calls::default();
        let id = calls.tell(&titled("x"), "", Telling::Begins).unwrap();
        let ask = |n| Ask::new(n, Vec::new(), "", &long);
        let asked: Vec<_> = (0..5).map(|n| calls.asked(&id, ask(n))).collect();
        assert_eq!(asked[4], Err(Untold::TooMuch));
    }

    #[test]
    fn a_file_is_written_under_the_leave_for_exactly_that() {
        let mut calls = Calls::default();
        let diff = json!({ "type": "diff", "path": "/workspace/a", "newText": "n" });
        let told = json!({ "toolCallId": "t", "kind": "edit", "content": [diff] });
        let id = calls.tell(&told, "", Telling::Begins).unwrap();
        let wanted = calls.get(&id).unwrap().wanted("/workspace").remove(0);
        let mut ask = Ask::new(0, vec![wanted.clone()], "", "");
        ask.given.push(("t".to_owned(), wanted));
        calls.asked(&id, ask).unwrap();
        let other = normalize::written("/workspace/a", "m", "/workspace");
        assert_eq!(calls.take_written(&other), None);
        let same = normalize::written("/workspace/a", "n", "/workspace");
        assert_eq!(calls.take_written(&same).as_deref(), Some("t"));
        assert_eq!(calls.take_written(&same), None, "once");
    }
}
