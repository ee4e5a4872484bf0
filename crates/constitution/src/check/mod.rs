//! Lints for a law: finds what is wrong or has no effect in its texts before they are in force.

mod impossible_values;
mod redundant_rules;
mod rules;

use std::fmt;

use serde::Serialize;

use crate::bundle::{Constitution, ConstitutionError};
use crate::json5::{self, TextError};
use crate::mandate::Mandate;
use crate::manifest::{ToolEffect, ToolManifest};
use crate::prompt::ChannelClass;
use crate::settings::SETTINGS_FILE;
use crate::suggest_name::nearest;
use crate::texts::LawTexts;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The texts are refused.
    Error,
    /// The texts are valid, but a part of them has not the effect that it seems to have.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// Something to fix. Line and column count from 1.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct LawFinding {
    pub file: String,
    pub line: usize,
    pub column: usize,
    pub severity: Severity,
    /// A sentence that ends with the next step.
    pub message: String,
}

impl LawFinding {
    fn of_text(TextError { file, line, column, message }: TextError, severity: Severity) -> Self {
        Self { file, line, column, severity, message }
    }
}

impl fmt::Display for LawFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, severity, message } = self;
        write!(f, "{file}:{line}:{column}: {severity}: {message}")
    }
}

/// Checks the texts; `known_tools` are the tools of the program. Sorted by file and position.
pub fn check(texts: &LawTexts, known_tools: &[&str]) -> Vec<LawFinding> {
    let mut findings = match Constitution::new(texts.clone(), known_tools) {
        Ok(law) => {
            let mut findings = rules::check_rules(&law);
            findings.extend(check_manifests(&law, known_tools));
            findings.extend(check_unlabelled_tools(&law, known_tools));
            findings.extend(check_exceptions(&law));
            findings.extend(check_channels(&law));
            findings
        }
        Err(error) => findings_of(error),
    };
    findings.sort();
    findings
}

/// Rules for an agent that is not among `agents`, the agents of the roster. The roster is not part of the law.
pub fn check_agents(law: &Constitution, agents: &[&str]) -> Vec<LawFinding> {
    rules::check_agents(law, agents)
}

/// The findings for texts that are refused.
fn findings_of(error: ConstitutionError) -> Vec<LawFinding> {
    let severity = Severity::Error;
    let whole = |file: &str, line: usize, message: String| {
        vec![LawFinding { file: file.to_owned(), line, column: 1, severity, message }]
    };
    match error {
        ConstitutionError::Several(errors) => errors.into_iter().flat_map(findings_of).collect(),
        ConstitutionError::Text(error) => vec![LawFinding::of_text(error, severity)],
        ConstitutionError::Mandate { name, error } => {
            // The finding has the line already.
            let (line, message) = (error.line(), error.to_string());
            let message = message.strip_prefix(&format!("line {line}: ")).unwrap_or(&message);
            let (file, column) = (format!("mandates/{name}.md"), error.column());
            vec![LawFinding { file, line, column, severity, message: message.to_owned() }]
        }
        ConstitutionError::TooManyMandates => whole("mandates", 1, error.to_string()),
        ConstitutionError::TooManyManifests => whole("manifests", 1, error.to_string()),
        ConstitutionError::Footer { line } => whole("constitution.md", line, error.to_string()),
        ConstitutionError::TooLarge { .. } | ConstitutionError::Empty | ConstitutionError::Canonical(_) => {
            whole("constitution.md", 1, error.to_string())
        }
    }
}

/// Whether calls of the tool need an approval that a permit can waive.
fn needs_approval(manifest: Option<&ToolManifest>) -> bool {
    manifest.is_some_and(|manifest| match manifest.effect {
        ToolEffect::SideEffect => true,
        ToolEffect::ReadOnly | ToolEffect::DraftOnly => false,
    })
}

fn check_manifests(law: &Constitution, known_tools: &[&str]) -> Vec<LawFinding> {
    let own = law.texts().manifests.keys().map(String::as_str);
    let strange = own.filter(|tool| !known_tools.contains(tool) && ToolManifest::built_in(tool).is_none());
    let finding = |tool: &str| {
        let meant = nearest(tool, known_tools)
            .map_or_else(String::new, |name| format!(" did you mean `{name}`? Otherwise"));
        LawFinding {
            file: format!("manifests/{tool}.json"),
            line: 1,
            column: 1,
            severity: Severity::Warning,
            message: format!(
                "there is no tool `{tool}` in this program:{meant} keep the manifest only if another server provides the tool"
            ),
        }
    };
    strange.map(finding).collect()
}

/// Tools of mandates without a manifest, which only `defaultAllow` permits. One may be misspelt.
fn check_unlabelled_tools(law: &Constitution, known_tools: &[&str]) -> Vec<LawFinding> {
    if !law.settings().default_allow {
        return Vec::new();
    }
    let of_mandate = |(name, mandate): (&String, &Mandate)| {
        let unlabelled = mandate.tools().iter().filter(|tool| law.manifest(tool).is_none());
        let finding = |tool: &String| {
            let meant = nearest(tool, known_tools)
                .map_or_else(String::new, |name| format!(", or did you mean `{name}`?"));
            let text = law.texts().mandates.get(name).map_or("", String::as_str);
            let list = text.lines().position(|line| line.trim_start().starts_with("tools"));
            LawFinding {
                file: format!("mandates/{name}.md"),
                line: list.map_or(1, |line| line + 1),
                column: 1,
                severity: Severity::Warning,
                message: format!(
                    "nobody has said what `{tool}` can do, and `defaultAllow` lets it pass: describe it in manifests/{tool}.json{meant}"
                ),
            }
        };
        unlabelled.map(finding).collect::<Vec<_>>()
    };
    law.mandates().iter().flat_map(of_mandate).collect()
}

/// Exceptions for calls that need no approval anyway.
fn check_exceptions(law: &Constitution) -> Vec<LawFinding> {
    let Some(text) = &law.texts().law else { return Vec::new() };
    let all = law.settings().exceptions.iter().enumerate();
    let idle =
        all.filter(|(_, own)| !needs_approval(law.manifest(&own.tool)) && own.min_input_trust.is_none());
    idle.map(|(index, own)| {
        let message = format!(
            "is for `{}`, whose calls need no approval, so the exception `{}` covers nothing: remove it, or name a tool with side effects",
            own.tool, own.id
        );
        let place = json5::error_at_path(SETTINGS_FILE, text, &format!("exceptions[{index}].tool"), message);
        LawFinding::of_text(place, Severity::Warning)
    })
    .collect()
}

/// Channels that are assigned a built-in class but keep a stricter one.
fn check_channels(law: &Constitution) -> Vec<LawFinding> {
    let Some(text) = &law.texts().law else { return Vec::new() };
    let found = law.settings().channels.classes.iter().filter_map(|(channel, name)| {
        let wanted = ChannelClass::named(name)?.as_str();
        let kept = ChannelClass::from_settings(Some(channel), law.settings()).as_str();
        let message = format!(
            "gives up what `{kept}` insists on, so the channel stays `{kept}`: name that class, or one of your own"
        );
        let place =
            || json5::error_at_path(SETTINGS_FILE, text, &format!("channels.classes.{channel}"), message);
        (wanted != kept).then(|| LawFinding::of_text(place(), Severity::Warning))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::texts;

    #[test]
    fn channels_that_cannot_be_relaxed_are_found() {
        let law = "{\n  channels: { classes: { telegram: \"cli_local\", teapot: \"internal\", cli: \"local\" } },\n}";
        let found = check(&LawTexts { law: Some(law.to_owned()), ..texts() }, &[]);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "policy/law.json5:2:26: warning: `channels.classes.telegram` gives up what `external_message` insists on, so the channel stays `external_message`: name that class, or one of your own"
            ]
        );
    }

    #[test]
    fn an_error_is_found_once_at_its_position() {
        let mut texts = LawTexts { law: Some("{\n  approvals: {\n".to_owned()), ..LawTexts::built_in() };
        texts.mandates.insert("dev".to_owned(), "---\n tools: read, deploy,  raed\n---\n".to_owned());
        texts.manifests.insert("deploy".to_owned(), "{\n  \"id\": \"deploy\"".to_owned());
        let rule = "@id(\"a\") forbid(principal, action == Tribune::Action::\"deploy\", resource);";
        texts.policies.insert("a.cedar".to_owned(), rule.to_owned());
        let found = check(&texts, &["read"]);
        let places: Vec<(&str, usize, usize)> =
            found.iter().map(|finding| (finding.file.as_str(), finding.line, finding.column)).collect();
        let wanted =
            [("mandates/dev.md", 2, 24), ("manifests/deploy.json", 2, 17), ("policy/law.json5", 2, 15)];
        assert_eq!(places, wanted, "{found:?}");
    }

    #[test]
    fn rules_for_an_unknown_agent_are_found() {
        let mut texts = LawTexts::built_in();
        let rule = |agent: &str| {
            let action = "action == Tribune::Action::\"read\"";
            format!(
                "@id(\"{agent}\")\nforbid(principal == Tribune::Agent::\"{agent}\", {action}, resource);\n"
            )
        };
        texts.policies.insert("a.cedar".to_owned(), rule("dev") + &rule("dve"));
        let law = Constitution::new(texts, &["read"]).unwrap();
        let found: Vec<String> =
            check_agents(&law, &["dev", "main"]).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "policy/a.cedar:3:1: warning: the rule `dve` is for the agent `dve`, which is not in the roster: did you mean `dev`? The agents are dev, main"
            ]
        );
    }

    #[test]
    fn exceptions_without_use_are_found() {
        let law = "{\n  exceptions: [{ id: \"a\", tool: \"read\", limit: { count: 1, perSeconds: 1 } }],\n}";
        let found = check(&LawTexts { law: Some(law.to_owned()), ..texts() }, &[]);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "policy/law.json5:2:27: warning: `exceptions[0].tool` is for `read`, whose calls need no approval, so the exception `a` covers nothing: remove it, or name a tool with side effects"
            ]
        );
    }

    #[test]
    fn unreachable_rules_and_manifests_are_found() {
        let mut texts = LawTexts::built_in();
        let rule = "@id(\"a\") forbid(principal, action == Tribune::Action::\"exec\", resource);";
        texts.policies.insert("a.cedar".to_owned(), rule.to_owned());
        let manifest = serde_json::to_string(&ToolManifest {
            id: "raed".into(),
            ..ToolManifest::built_in("read").unwrap()
        });
        texts.manifests.insert("raed".to_owned(), manifest.unwrap());
        let found: Vec<String> = check(&texts, &["read"]).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "manifests/raed.json:1:1: warning: there is no tool `raed` in this program: did you mean `read`? Otherwise keep the manifest only if another server provides the tool",
                "policy/a.cedar:1:1: warning: the rule `a` is never reached: no mandate allows a tool that it is for; add the tool to a mandate, or remove the rule",
            ]
        );
        texts.mandates.insert("x".to_owned(), "---\ntools: fly\n---\n".to_owned());
        let found = check(&texts, &[]);
        assert!(
            found[0].to_string().starts_with("mandates/x.md:2:8: error: unknown tool `fly`"),
            "{found:?}"
        );
    }

    #[test]
    fn tools_that_only_default_allow_permits_are_found() {
        let mut texts = LawTexts { law: Some("{ defaultAllow: true }".to_owned()), ..LawTexts::built_in() };
        texts.mandates.insert("dev".to_owned(), "---\ntools: read, raed\n---\n".to_owned());
        let found: Vec<String> = check(&texts, &["read"]).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "mandates/dev.md:2:1: warning: nobody has said what `raed` can do, and `defaultAllow` lets it pass: describe it in manifests/raed.json, or did you mean `read`?"
            ]
        );
    }
}
