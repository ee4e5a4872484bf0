//! Parses rule files: gives every rule its id and position, and validates it against the schema in strict mode.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr as _;

use cedar_policy::{
    ActionConstraint, Effect, EntityUid, Policy, PolicyId, PolicySet, Schema, ValidationError,
    ValidationMode, ValidationWarning, Validator,
};
use miette::Diagnostic;

use super::attribute_usage::AttributeUsage;
use super::prefilter::Prefilter;
use super::scope::Scope;
use super::source_span::{SourcePosition, annotations, position};
use crate::json5::TextError;
use crate::suggest_name::suggestion;
use crate::text::sanitize;

/// Bytes of all rules together: a megabyte is more than anyone reviews.
pub const MAX_RULE_BYTES: usize = 1024 * 1024;

/// Rules of one law.
pub const MAX_RULES: usize = 4096;

/// Bytes of a rule's id: a word in verdicts.
const MAX_ID_BYTES: usize = 96;

/// Errors of one set of files: as many as a person fixes before the next run.
const MAX_ERRORS: usize = 100;

/// One rule of the operator.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(crate) id: String,
    pub(crate) file: String,
    pub(crate) position: SourcePosition,
    /// Whether the id is derived from the file's name.
    pub(crate) is_unnamed: bool,
    pub(crate) forbids: bool,
    pub(crate) scope: Scope,
    pub(crate) policy: Policy,
    /// The rule alone.
    pub(crate) set: PolicySet,
    pub(crate) usage: AttributeUsage,
    pub(crate) prefilter: Prefilter,
    /// The position of each annotation, by name.
    pub(crate) annotations: BTreeMap<String, SourcePosition>,
    /// Cedar's warnings about the valid rule.
    pub(crate) warnings: Vec<TextError>,
    /// Whether Cedar knows that it matches nothing.
    pub(crate) is_impossible: bool,
}

/// Parses all files, by name. Either every rule is valid, or the errors say what is not.
pub(crate) fn load(files: &BTreeMap<String, String>, schema: &Schema) -> Result<Vec<Rule>, Vec<TextError>> {
    let bytes: usize = files.values().map(String::len).sum();
    if bytes > MAX_RULE_BYTES {
        let message =
            format!("the rules have {bytes} bytes together: shorten them to at most {MAX_RULE_BYTES}");
        return Err(vec![TextError { file: "policy".to_owned(), line: 1, column: 1, message }]);
    }
    let validator = Validator::new(schema.clone());
    let (mut rules, mut errors) = (Vec::new(), Vec::new());
    let mut ids = BTreeSet::new();
    for (name, text) in files {
        let file = format!("policy/{name}");
        for mut rule in parse_file(&file, name, text, &mut errors) {
            errors.extend(validate(text, &mut rule, &validator));
            if !ids.insert(rule.id.clone()) {
                let message =
                    format!("the id `{}` is given twice: rename one of the rules", sanitize(&rule.id));
                let SourcePosition { line, column } = rule.position;
                let file = file.clone();
                errors.push(TextError { file, line, column, message });
            }
            rules.push(rule);
        }
        if rules.len() > MAX_RULES {
            let message = format!("there are more than {MAX_RULES} rules: merge or remove some");
            errors.push(TextError { file, line: 1, column: 1, message });
            break;
        }
    }
    errors.truncate(MAX_ERRORS);
    if errors.is_empty() { Ok(rules) } else { Err(errors) }
}

/// The rules of a file. Their errors go to `errors`; a rule with an error is still checked for further ones.
fn parse_file(file: &str, name: &str, text: &str, errors: &mut Vec<TextError>) -> Vec<Rule> {
    let set = match PolicySet::from_str(text) {
        Ok(set) => set,
        Err(faults) => {
            errors.extend(faults.iter().map(|error| text_error(file, text, error)));
            return Vec::new();
        }
    };
    for template in set.templates() {
        let start = text.find(&template.to_cedar()).unwrap_or(0);
        let SourcePosition { line, column } = position(text, start);
        let message =
            "templates (`?principal`, `?resource`) are not used here: write the rule out".to_owned();
        errors.push(TextError { file: file.to_owned(), line, column, message });
    }
    // Cedar numbers the rules of a text: policy0, policy1, …
    let mut policies: Vec<(usize, &Policy)> = set
        .policies()
        .map(|policy| {
            let number = policy.id().to_string();
            (number.trim_start_matches("policy").parse().unwrap_or(usize::MAX), policy)
        })
        .collect();
    policies.sort_by_key(|(number, _)| *number);
    let stem = name.strip_suffix(".cedar").unwrap_or(name);
    let (mut rules, mut from) = (Vec::new(), 0);
    for (ordinal, (_, policy)) in policies.into_iter().enumerate() {
        let own = policy.to_cedar().unwrap_or_default();
        let start = text.get(from..).and_then(|rest| rest.find(&own)).map_or(from, |at| from + at);
        from = start + own.len();
        let own_position = position(text, start);
        let SourcePosition { line, column } = own_position;
        let annotations =
            annotations(&own).into_iter().map(|(name, at)| (name, position(text, start + at))).collect();
        let is_unnamed = policy.annotation("id").is_none();
        let id = policy.annotation("id").map_or_else(|| format!("{stem}.{}", ordinal + 1), str::to_owned);
        let word = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if !(1..=MAX_ID_BYTES).contains(&id.len()) || !id.bytes().all(word) {
            let message = format!(
                "`{}` cannot name a rule: use letters, digits, `_`, `-` and `.`, at most {MAX_ID_BYTES}",
                sanitize(&id)
            );
            errors.push(TextError { file: file.to_owned(), line, column, message });
        }
        let own = policy.new_id(PolicyId::new(&id));
        let Ok(set) = PolicySet::from_policies([own.clone()]) else {
            let message =
                "the rule cannot be taken by itself: write it as one `permit` or `forbid`".to_owned();
            errors.push(TextError { file: file.to_owned(), line, column, message });
            continue;
        };
        rules.push(Rule {
            policy: own,
            set,
            id,
            file: file.to_owned(),
            position: own_position,
            is_unnamed,
            forbids: policy.effect() == Effect::Forbid,
            scope: Scope::of(policy),
            usage: AttributeUsage::of(policy),
            prefilter: Prefilter::of(policy),
            annotations,
            warnings: Vec::new(),
            is_impossible: false,
        });
    }
    rules
}

/// The errors of a rule. Its warnings are stored in it.
fn validate(text: &str, rule: &mut Rule, validator: &Validator) -> Vec<TextError> {
    let result = validator.validate(&rule.set, ValidationMode::Strict);
    let own = |diagnostic: &dyn Diagnostic| {
        let mut own = text_error(&rule.file, text, diagnostic);
        if diagnostic.labels().is_none() {
            (own.line, own.column) = (rule.position.line, rule.position.column);
        }
        own
    };
    let mut errors = Vec::new();
    for error in result.validation_errors() {
        let own = match error {
            ValidationError::UnrecognizedActionId(_) => {
                explain_unknown_action(&own(error), rule, validator.schema())
            }
            other => own(other),
        };
        // Cedar repeats the error for every tool in the scope.
        if !errors.contains(&own) {
            errors.push(own);
        }
    }
    let (is_impossible, strange): (Vec<_>, Vec<_>) = result
        .validation_warnings()
        .partition(|warning| matches!(warning, ValidationWarning::ImpossiblePolicy(_)));
    let warnings = strange.into_iter().map(|warning| own(warning)).collect();
    (rule.warnings, rule.is_impossible) = (warnings, !is_impossible.is_empty());
    errors
}

/// Cedar suggests any of the nearest names; this suggestion is always the same.
fn explain_unknown_action(text_error: &TextError, rule: &Rule, schema: &Schema) -> TextError {
    let mut names: Vec<String> = schema.actions().map(|action| action.id().unescaped().to_owned()).collect();
    names.sort_unstable();
    let known = |name: &&EntityUid| !names.iter().any(|own| own == name.id().unescaped());
    let in_scope = match &rule.scope.action {
        ActionConstraint::Any => &[],
        ActionConstraint::Eq(own) => std::slice::from_ref(own),
        ActionConstraint::In(any) => any.as_slice(),
    };
    let Some(unknown) = in_scope.iter().find(known) else { return text_error.clone() };
    let unknown = unknown.id().unescaped();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let message = format!(
        "there is no tool or group `{}`: {}",
        sanitize(unknown),
        suggestion(unknown, &names, "tools and groups")
    );
    TextError { message, ..text_error.clone() }
}

/// An error of Cedar with its position and its help text.
fn text_error(file: &str, text: &str, error: &dyn Diagnostic) -> TextError {
    let offset = error.labels().and_then(|mut labels| labels.next()).map_or(0, |label| label.offset());
    let SourcePosition { line, column } = position(text, offset);
    let mut message = error.to_string();
    // The first words name the rule by a number that means nothing to its author.
    if let Some((head, rest)) = message.split_once(", ")
        && head.starts_with("for policy ")
    {
        message = rest.to_owned();
    }
    if let Some((head, rest)) = message.split_once(" for Tribune::Action::\"")
        && let Some((_, tail)) = rest.split_once('"')
    {
        message = format!("{head}{tail}");
    }
    if let Some(help) = error.help() {
        message = format!("{message}: {help}");
    }
    let message = message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    TextError { file: file.to_owned(), line, column, message }
}
