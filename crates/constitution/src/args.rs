//! What a decision knows of a call's arguments: a few bounded attributes, and never their text.
//!
//! A message is known by its recipient, its template and whether it contains a link; a command by the programs that
//! it starts; an address by its host. The rest of the arguments is not in the facts, and so not in the ledger.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::address::{UrlTarget, contains_address, contains_link};
use crate::tool_names::{EGRESS, LAND, MCP, MCP_SERVER};
use crate::{command, paths};

/// Bytes of a path: the limit of the operating system's kernel.
const MAX_PATH_BYTES: usize = 4096;

/// Bytes of a name, a recipient, a template or an action.
const MAX_WORD_BYTES: usize = 256;

/// Distinct programs of one command.
const MAX_PROGRAMS: usize = 32;

/// Larger sizes are equal to a rule. Up to this one, every JSON reader represents the number exactly.
const MAX_BYTES: u64 = (1 << 53) - 1;

/// The attributes of a call's arguments; absent where the tool has no such argument.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct CallArgs {
    /// Relative to the workspace, or to `folder`, without `.` and `..`; absolute if it is outside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The additional folder of the session that contains the path, if the workspace does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Whether the path leaves its folder, judged by the text alone. Symbolic links are the tool's to refuse.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outside: Option<bool>,
    /// Whether host programs execute or load a file of this name, such as a git hook or an editor's task.
    #[serde(rename = "obeyed", skip_serializing_if = "is_false")]
    pub is_autorun: bool,
    /// In lowercase, without a trailing dot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheme: Option<String>,
    /// In uppercase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The names of the programs that a command starts, without their directories.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub programs: Option<Vec<String>>,
    /// Whether the whole command was understood.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parsed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recipient: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recipient_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// Whether a text that is sent contains a link; for a tool without a manifest, whether anything in its arguments
    /// looks like an address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub links: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attachments: Option<bool>,
    /// The size of the content that is written or sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The action, for tools that have several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The object of the action: a memory's key, a job, a device, an agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether an attribute exceeds its bounds or has a wrong type, so that no rule can check it. Such a call is
    /// denied: what a rule cannot see must not pass it.
    #[serde(skip_serializing_if = "is_false")]
    pub malformed: bool,
    /// The attributes that a tool of another harness seems to have in a form that rules cannot check: a list of
    /// paths, an address that parsers disagree about, two keys for the same thing. A rule that reads one of them
    /// denies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unseen: Vec<String>,
}

/// What the shell parser knows of a command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommandFacts {
    pub programs: Vec<String>,
    /// Whether the whole command was understood.
    pub parsed: bool,
}

impl CallArgs {
    /// The attributes with `change` applied to every text.
    #[must_use]
    pub fn map_texts(mut self, change: impl Fn(&str) -> String) -> Self {
        let Self {
            path,
            folder,
            host,
            scheme,
            method,
            programs,
            recipient,
            recipient_type,
            template,
            action,
            name,
            ..
        } = &mut self;
        for text in [path, folder, host, scheme, method, recipient, recipient_type, template, action, name]
            .into_iter()
            .flatten()
            .chain(programs.iter_mut().flatten())
        {
            *text = change(text);
        }
        self
    }

    /// Notes whether anything in the arguments of a tool without a manifest looks like an address.
    pub fn note_addresses(&mut self, input: &Value) {
        self.links = Some(contains_address(input));
    }

    /// Whether every text is as short as this module makes it. Facts can come from elsewhere, and rules match their
    /// patterns against each text once per agent and label behind a call.
    pub(crate) fn is_bounded(&self) -> bool {
        let Self {
            path,
            folder,
            host,
            scheme,
            method,
            recipient,
            recipient_type,
            template,
            action,
            name,
            ..
        } = self;
        let words = [host, scheme, method, recipient, recipient_type, template, action, name];
        let programs = self.programs.as_deref().unwrap_or_default();
        [path, folder].into_iter().flatten().all(|path| path.len() <= MAX_PATH_BYTES)
            && programs.len() <= MAX_PROGRAMS
            && words.into_iter().flatten().chain(programs).all(|word| word.len() <= MAX_WORD_BYTES)
    }

    /// Derives the attributes of a call of `tool`. `command` is what the shell parser knows of the command that
    /// `exec` runs; without it the command counts as not understood.
    pub fn derive(tool: &str, input: &Value, command: Option<&CommandFacts>) -> Self {
        let own = ArgumentGroup::of_built_in_tool(tool);
        let mut builder = ArgsBuilder { input, strict: own.is_some(), args: Self::default() };
        for part in own.unwrap_or(&ArgumentGroup::OF_EXTERNAL_TOOLS) {
            match part {
                ArgumentGroup::Path => builder.path(),
                ArgumentGroup::Folder | ArgumentGroup::AnyAddress => {}
                ArgumentGroup::Address => builder.address(),
                ArgumentGroup::Method(default) => builder.method(*default),
                ArgumentGroup::Command => builder.command(command),
                ArgumentGroup::Program => builder.program(),
                ArgumentGroup::Recipient => builder.recipient(),
                ArgumentGroup::Message => builder.message(),
                ArgumentGroup::Verb => builder.verb(),
                ArgumentGroup::Size(keys) => builder.size(keys),
            }
        }
        builder.args
    }

    /// The names, as in rules, of the attributes that a call of `tool` can have.
    pub(crate) fn attributes(tool: &str) -> BTreeSet<&'static str> {
        let parts = ArgumentGroup::of_built_in_tool(tool).unwrap_or(&ArgumentGroup::OF_EXTERNAL_TOOLS);
        parts.iter().flat_map(|part| part.attributes()).copied().collect()
    }
}

/// Attributes that are derived together.
#[derive(Debug)]
enum ArgumentGroup {
    Path,
    /// Set by the caller, which knows the folders of the session.
    Folder,
    Address,
    /// With the default method for a call that names none.
    Method(Option<&'static str>),
    Command,
    /// The one program under the key `command`, by its name.
    Program,
    Recipient,
    Message,
    Verb,
    /// Set by the caller for tools without a manifest.
    AnyAddress,
    /// The size of the values under these keys.
    Size(&'static [&'static str]),
}

impl ArgumentGroup {
    /// For tools that are not built in.
    const OF_EXTERNAL_TOOLS: [Self; 6] =
        [Self::Path, Self::Address, Self::Method(None), Self::Recipient, Self::Verb, Self::AnyAddress];

    /// The groups of a built-in tool; `None` for any other tool.
    fn of_built_in_tool(tool: &str) -> Option<&'static [Self]> {
        Some(match tool {
            "read" | "search" => &[Self::Path, Self::Folder],
            "write" | "edit" => &[Self::Path, Self::Folder, Self::Size(&["content", "new", "text"])],
            "web_fetch" => &[Self::Address, Self::Method(Some("GET"))],
            EGRESS => &[Self::Address, Self::Method(None), Self::Verb],
            "web_search" => &[Self::Size(&["query"])],
            "browser" => &[Self::Address, Self::Verb],
            "exec" => &[Self::Command],
            "message" | "send_message" => &[Self::Recipient, Self::Message, Self::Verb],
            MCP => &[Self::Verb, Self::Size(&["arguments"])],
            MCP_SERVER => &[Self::Verb, Self::Program],
            "memory" => &[Self::Verb, Self::Size(&["content", "value", "text"])],
            "cron" | "gateway" | "nodes" | "spawn" | LAND => &[Self::Verb],
            _ => return None,
        })
    }

    /// By their names in rules.
    const fn attributes(&self) -> &'static [&'static str] {
        match self {
            Self::Path => &["outside", "path"],
            Self::Folder => &["folder"],
            Self::Address => &["host", "port", "scheme"],
            Self::Method(_) => &["method"],
            Self::Command => &["bytes", "parsed", "programs"],
            Self::Program => &["programs"],
            Self::Recipient => &["recipient", "recipient_type"],
            Self::Message => &["attachments", "bytes", "links", "template"],
            Self::Verb => &["action", "name"],
            Self::AnyAddress => &["links"],
            Self::Size(_) => &["bytes"],
        }
    }
}

/// Derives the attributes of one call.
struct ArgsBuilder<'a> {
    input: &'a Value,
    /// Whether the tool is built in, so that a value of another type is an error and not another meaning of the
    /// key.
    strict: bool,
    args: CallArgs,
}

impl<'a> ArgsBuilder<'a> {
    /// The values of `keys`, in their order, without `null`.
    fn values(&self, keys: &[&str]) -> impl Iterator<Item = &'a Value> {
        let input = self.input;
        keys.iter().filter_map(move |key| input.get(key)).filter(|value| !value.is_null())
    }

    /// Marks attributes that cannot be derived. The arguments of a built-in tool are malformed then; in another
    /// tool's the key may have another meaning.
    fn mark_unseen(&mut self, attributes: &[&str]) {
        if self.strict {
            self.args.malformed = true;
        } else {
            self.args.unseen.extend(attributes.iter().map(|name| (*name).to_owned()));
        }
    }

    /// The text under one of `keys`, which are synonyms. With two of them present, the tool may use either.
    fn text(&mut self, attributes: &[&str], keys: &[&str], max_bytes: usize) -> Option<&'a str> {
        let value = self.values(keys).next()?;
        let alone = self.values(keys).nth(1).is_none();
        match value.as_str() {
            Some(text) if text.len() <= max_bytes && alone => return Some(text),
            Some(text) if text.len() > max_bytes => self.args.malformed = true,
            Some(_) | None => self.mark_unseen(attributes),
        }
        None
    }

    /// A name. A name that does not look as it is written could be mistaken for another.
    fn word(&mut self, attribute: &str, keys: &[&str]) -> Option<String> {
        let word = self.text(&[attribute], keys, MAX_WORD_BYTES)?;
        if word.chars().any(|c| c.is_control() || command::is_hidden(c)) || word.trim() != word {
            self.args.malformed = true;
            return None;
        }
        Some(word.to_owned())
    }

    fn path(&mut self) {
        let names = ["path", "file", "folder"];
        let Some(path) = self.text(&["path", "outside"], &names, MAX_PATH_BYTES) else { return };
        let (path, outside) = paths::normalize(path);
        (self.args.path, self.args.outside) = (Some(path), Some(outside));
    }

    fn address(&mut self) {
        const PARTS: [&str; 3] = ["host", "port", "scheme"];
        let Some(url) = self.text(&PARTS, &["url"], usize::MAX) else { return };
        let Some(address) = UrlTarget::parse(url) else { return self.mark_unseen(&PARTS) };
        self.args.host = Some(address.host);
        self.args.port = Some(address.port);
        self.args.scheme = Some(address.scheme);
    }

    fn method(&mut self, default: Option<&str>) {
        let method = self.word("method", &["method"]).or_else(|| default.map(str::to_owned));
        self.args.method = method.map(|method| method.to_ascii_uppercase());
    }

    fn command(&mut self, facts: Option<&CommandFacts>) {
        let unknown = CommandFacts::default();
        let CommandFacts { programs, parsed } = facts.unwrap_or(&unknown);
        let mut programs: Vec<String> = programs.clone();
        if !parsed {
            // A command that was not understood can start any program, so no list of programs is complete.
            programs.push(command::UNKNOWN.to_owned());
        }
        programs.sort_unstable();
        programs.dedup();
        let fit = programs.len() <= MAX_PROGRAMS && programs.iter().all(|name| name.len() <= MAX_WORD_BYTES);
        if fit {
            self.args.programs = Some(programs);
        } else {
            self.args.malformed = true;
        }
        self.args.parsed = Some(*parsed);
        // A command that is no text must not pass a rule that reads programs.
        self.args.malformed |= self.input.get("command").is_none_or(|line| !line.is_string());
        self.size(&["command"]);
    }

    fn program(&mut self) {
        let Some(command) = self.text(&["programs"], &["command"], MAX_PATH_BYTES) else { return };
        let name = command.rsplit('/').next().unwrap_or_default();
        let is_plain = !name.chars().any(|c| c.is_control() || command::is_hidden(c)) && name.trim() == name;
        if (1..=MAX_WORD_BYTES).contains(&name.len()) && is_plain {
            self.args.programs = Some(vec![name.to_owned()]);
        } else {
            self.args.malformed = true;
        }
    }

    fn recipient(&mut self) {
        // A mail address ignores case. Several in one text could hide behind the first.
        let recipient = self.word("recipient", &["recipient", "to"]);
        self.args.recipient = match recipient {
            Some(mail) if mail.contains('@') => {
                let several = mail.contains(|c: char| c.is_whitespace() || ",;<>\"()".contains(c));
                if several {
                    self.mark_unseen(&["recipient"]);
                }
                (!several).then(|| mail.to_lowercase())
            }
            other => other,
        };
        self.args.recipient_type = self.word("recipient_type", &["recipientType"]);
    }

    fn message(&mut self) {
        const BODY: [&str; 4] = ["text", "body", "message", "content"];
        self.args.template = self.word("template", &["template"]);
        // A body that is no text can contain anything.
        let linked = |body: &Value| body.as_str().is_none_or(contains_link);
        let links = self.values(&BODY).any(linked);
        let attached = |value: &Value| value.as_array().is_none_or(|list| !list.is_empty());
        let attachments = self.values(&["attachments", "attachment", "media", "files"]).any(attached);
        (self.args.links, self.args.attachments) = (Some(links), Some(attachments));
        self.size(&BODY);
    }

    fn verb(&mut self) {
        self.args.action = self.word("action", &["action"]);
        self.args.name = self.word("name", &["name", "key", "job", "agent", "node"]);
    }

    fn size(&mut self, keys: &[&str]) {
        let bytes = |value: &Value| value.as_str().map_or_else(|| value.to_string().len(), str::len);
        let found: Vec<usize> = self.values(keys).map(bytes).collect();
        if !found.is_empty() {
            let sum = u64::try_from(found.iter().sum::<usize>()).unwrap_or(MAX_BYTES);
            self.args.bytes = Some(sum.min(MAX_BYTES));
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_false(value: &bool) -> bool {
    !*value
}

#[cfg(test)]
#[path = "args_tests.rs"]
mod tests;
