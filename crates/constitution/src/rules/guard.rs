//! A quick look whether a rule can match at all, before Cedar is asked.
//!
//! Most rules are simple comparisons (`context has path && context.path like "secrets/*"`), and most calls fail them.
//! What is understood of a rule's condition is kept in a form that is compared in nanoseconds, in the order in which
//! Cedar looks at it; if that is false, so is the rule. Whatever is not understood may be anything, and what passes is
//! for Cedar alone to decide: a guard never makes a rule match.

use cedar_policy::{EntityId, EntityTypeName, EntityUid, Policy, PrincipalConstraint};
use serde_json::Value as Tree;

use super::view::{Value, View};

/// Nesting that is looked into; each level costs stack.
const MAX_DEPTH: usize = 64;

/// What must hold for a rule to match, as far as it is understood.
#[derive(Debug, Clone, Default)]
pub(crate) struct Guard {
    agent: Option<String>,
    conditions: Vec<Condition>,
}

/// Something of the call.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    Context(String),
    Agent(String),
    Session(String),
}

/// A condition. A comparison has no value where the call has no such attribute, which only `Has` may ask.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Condition {
    Unknown,
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
    Not(Box<Condition>),
    Has(Subject),
    Text(Subject, String),
    Flag(Subject, bool),
    Less(Subject, i64),
    AtMost(Subject, i64),
    Like(Subject, Vec<Piece>),
    Contains(Subject, String),
    Set(Subject, Vec<String>),
}

/// A piece of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Wildcard,
}

impl Guard {
    pub(crate) fn of(policy: &Policy) -> Self {
        let mut guard = Self::default();
        if let PrincipalConstraint::Eq(agent) = policy.principal_constraint()
            && let Ok(kind) = "Tribune::Agent".parse::<EntityTypeName>()
        {
            let id = agent.id().unescaped().to_owned();
            let same = agent == EntityUid::from_type_name_and_id(kind, EntityId::new(&id));
            guard.agent = same.then_some(id);
        }
        let tree = policy.to_json().unwrap_or_default();
        let conditions = tree.get("conditions").and_then(Tree::as_array).map_or(&[][..], Vec::as_slice);
        guard.conditions = conditions
            .iter()
            .map(|condition| {
                let body =
                    condition.get("body").map_or(Condition::Unknown, |body| Condition::of(body, MAX_DEPTH));
                match condition.get("kind").and_then(Tree::as_str) {
                    Some("when") => body,
                    Some("unless") => Condition::Not(Box::new(body)),
                    _ => Condition::Unknown,
                }
            })
            .collect();
        guard
    }

    /// Whether the rule may match.
    pub(crate) fn passes(&self, view: &View<'_>) -> bool {
        if self.agent.as_ref().is_some_and(|agent| *agent != view.facts.agent) {
            return false;
        }
        for condition in &self.conditions {
            match condition.holds(view) {
                Some(true) => {}
                Some(false) => return false,
                // What comes behind may be false, but this may fail before it, which is for Cedar to find out.
                None => return true,
            }
        }
        true
    }
}

impl Subject {
    fn of<'a>(&self, view: &View<'a>) -> Option<Value<'a>> {
        match self {
            Self::Context(name) => view.attribute(name),
            Self::Agent(name) => view.of_agent(name),
            Self::Session(name) => view.of_session(name),
        }
    }
}

impl Condition {
    /// `None` where it cannot be told.
    fn holds(&self, view: &View<'_>) -> Option<bool> {
        match self {
            Self::Unknown => None,
            Self::And(left, right) => {
                if left.holds(view)? {
                    right.holds(view)
                } else {
                    Some(false)
                }
            }
            Self::Or(left, right) => {
                if left.holds(view)? {
                    Some(true)
                } else {
                    right.holds(view)
                }
            }
            Self::Not(inner) => inner.holds(view).map(|holds| !holds),
            Self::Has(subject) => Some(subject.of(view).is_some()),
            Self::Text(subject, text) => match subject.of(view)? {
                Value::Text(own) => Some(own == text),
                Value::Flag(_) | Value::Long(_) | Value::Set(_) => None,
            },
            Self::Flag(subject, flag) => match subject.of(view)? {
                Value::Flag(own) => Some(own == *flag),
                Value::Text(_) | Value::Long(_) | Value::Set(_) => None,
            },
            Self::Less(subject, bound) => match subject.of(view)? {
                Value::Long(own) => Some(own < *bound),
                Value::Text(_) | Value::Flag(_) | Value::Set(_) => None,
            },
            Self::AtMost(subject, bound) => match subject.of(view)? {
                Value::Long(own) => Some(own <= *bound),
                Value::Text(_) | Value::Flag(_) | Value::Set(_) => None,
            },
            Self::Like(subject, pattern) => match subject.of(view)? {
                Value::Text(own) => Some(matches(pattern, own)),
                Value::Flag(_) | Value::Long(_) | Value::Set(_) => None,
            },
            Self::Contains(subject, text) => match subject.of(view)? {
                Value::Set(own) => Some(own.contains(text)),
                Value::Text(_) | Value::Flag(_) | Value::Long(_) => None,
            },
            Self::Set(subject, texts) => match subject.of(view)? {
                Value::Set(own) => Some(
                    own.iter().all(|own| texts.contains(own)) && texts.iter().all(|text| own.contains(text)),
                ),
                Value::Text(_) | Value::Flag(_) | Value::Long(_) => None,
            },
        }
    }

    /// What is understood of a tree; the rest is unknown.
    fn of(tree: &Tree, depth: usize) -> Self {
        let members = tree.as_object().filter(|members| members.len() == 1);
        let Some((operator, operand)) = members.and_then(|members| members.iter().next()) else {
            return Self::Unknown;
        };
        let Some(depth) = depth.checked_sub(1) else { return Self::Unknown };
        let side =
            |name: &str| Box::new(operand.get(name).map_or(Self::Unknown, |side| Self::of(side, depth)));
        match operator.as_str() {
            "&&" => Self::And(side("left"), side("right")),
            "||" => Self::Or(side("left"), side("right")),
            "!" => Self::Not(side("arg")),
            _ => Self::comparison(operator, operand, tree).unwrap_or(Self::Unknown),
        }
    }

    fn comparison(operator: &str, operand: &Tree, tree: &Tree) -> Option<Self> {
        let not = |inner: Self| Self::Not(Box::new(inner));
        let left = || subject(operand.get("left")?);
        let right = operand.get("right");
        match operator {
            "." => Some(Self::Flag(subject(tree)?, true)),
            "has" => Some(Self::Has(attribute(operand)?)),
            "like" => Some(Self::Like(left()?, pattern(operand.get("pattern")?)?)),
            "contains" => Some(Self::Contains(left()?, right?.get("Value")?.as_str()?.to_owned())),
            "==" => Self::equal(left()?, right?),
            "!=" => Self::equal(left()?, right?).map(not),
            "<" => Some(Self::Less(left()?, number(right?)?)),
            "<=" => Some(Self::AtMost(left()?, number(right?)?)),
            ">" => Some(not(Self::AtMost(left()?, number(right?)?))),
            ">=" => Some(not(Self::Less(left()?, number(right?)?))),
            _ => None,
        }
    }

    fn equal(subject: Subject, right: &Tree) -> Option<Self> {
        if let Some(items) = right.get("Set").and_then(Tree::as_array) {
            let texts = items.iter().map(|item| item.get("Value")?.as_str().map(str::to_owned));
            return Some(Self::Set(subject, texts.collect::<Option<_>>()?));
        }
        match right.get("Value")? {
            Tree::String(text) => Some(Self::Text(subject, text.clone())),
            Tree::Bool(flag) => Some(Self::Flag(subject, *flag)),
            Tree::Null | Tree::Number(_) | Tree::Array(_) | Tree::Object(_) => None,
        }
    }
}

/// Whether a text fits a pattern.
fn matches(pattern: &[Piece], text: &str) -> bool {
    match pattern {
        [] => text.is_empty(),
        [Piece::Literal(literal), rest @ ..] => {
            text.strip_prefix(literal.as_str()).is_some_and(|text| matches(rest, text))
        }
        [Piece::Wildcard] => true,
        // Between two wildcards the first place that fits is as good as any.
        [Piece::Wildcard, Piece::Literal(literal), rest @ ..] => match rest {
            [] => text.ends_with(literal.as_str()),
            rest => {
                text.match_indices(literal.as_str()).any(|(at, _)| matches(rest, &text[at + literal.len()..]))
            }
        },
        [Piece::Wildcard, rest @ ..] => matches(rest, text),
    }
}

fn number(tree: &Tree) -> Option<i64> {
    tree.get("Value")?.as_i64()
}

/// What `context.name`, `principal.name` and `resource.name` stand for.
fn subject(tree: &Tree) -> Option<Subject> {
    attribute(tree.get(".")?)
}

fn attribute(operand: &Tree) -> Option<Subject> {
    let name = operand.get("attr")?.as_str()?.to_owned();
    match operand.get("left")?.get("Var")?.as_str()? {
        "context" => Some(Subject::Context(name)),
        "principal" => Some(Subject::Agent(name)),
        "resource" => Some(Subject::Session(name)),
        _ => None,
    }
}

fn pattern(tree: &Tree) -> Option<Vec<Piece>> {
    let mut pieces: Vec<Piece> = Vec::new();
    for piece in tree.as_array()? {
        match (piece.as_str(), piece.get("Literal").and_then(Tree::as_str), pieces.last_mut()) {
            (Some("Wildcard"), _, _) => pieces.push(Piece::Wildcard),
            (_, Some(more), Some(Piece::Literal(literal))) => literal.push_str(more),
            (_, Some(literal), _) => pieces.push(Piece::Literal(literal.to_owned())),
            _ => return None,
        }
    }
    Some(pieces)
}

#[cfg(test)]
mod tests {
    use super::super::reads::Reads;
    use super::super::view::views;
    use super::*;
    use crate::facts::Facts;

    fn guard(condition: &str) -> Guard {
        Guard::of(&Policy::parse(None, format!("forbid(principal, action, resource) {condition};")).unwrap())
    }

    fn passes(condition: &str, facts: &Facts) -> bool {
        guard(condition).passes(&views(&Reads::default(), facts, "internal").next().unwrap())
    }

    #[test]
    fn a_false_condition_stops_a_rule() {
        let mut facts = Facts::of_call("main", "s", "m", "read");
        facts.args.path = Some("secrets/key.txt".to_owned());
        facts.args.programs = Some(vec!["ls".to_owned(), "git".to_owned()]);
        facts.args.bytes = Some(5);
        for (condition, held) in [
            ("context has path", true),
            ("context has host", false),
            ("context.path like \"secrets/*\"", true),
            ("context.path like \"*.txt\"", true),
            ("context.path like \"*s/k*t\"", true),
            ("context.path like \"*txt*key\"", false),
            ("context.path like \"secrets\"", false),
            ("context.path like \"*\"", true),
            ("context.programs.contains(\"ls\")", true),
            ("context.programs.contains(\"rm\")", false),
            ("context.programs == [\"git\", \"ls\"]", true),
            ("context.programs == [\"git\"]", false),
            ("context.bytes > 5", false),
            ("context.bytes >= 5", true),
            ("context.bytes <= 4", false),
            ("context.bytes < 6", true),
            ("!context.approved", true),
            ("context.approved == true", false),
            ("resource.class == \"internal\"", true),
            ("resource.class == \"external\"", false),
            ("principal.id == \"main\"", true),
            ("principal.id != \"main\"", false),
            ("context.bytes < 5 || context has host", false),
            ("context.bytes < 5 || context has path", true),
            ("!(context has path && context.approved)", true),
            // What is not understood may be anything, and so may all that Cedar would look at after it.
            ("1 + 1 == 3", true),
            ("1 + 1 == 3 && context has host", true),
            ("context has host && 1 + 1 == 2", false),
            ("1 + 1 == 3 || context has host", true),
        ] {
            assert_eq!(passes(&format!("when {{ {condition} }}"), &facts), held, "{condition}");
            let understood = !condition.contains('+');
            let otherwise = passes(&format!("unless {{ {condition} }}"), &facts);
            assert_eq!(otherwise, !(understood && held), "unless {condition}");
        }
    }
}
