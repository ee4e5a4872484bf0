//! What a rule's condition says, as far as it is understood: comparisons of the call's attributes with constants, joined by
//! `&&`, `||` and `!`. Whatever else Cedar can say is `Unknown`.

use serde_json::Value as Tree;

use super::view::{Value, View};

/// Nesting that is looked into; each level costs stack.
const MAX_DEPTH: usize = 64;

/// Something of the call.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    Context(String),
    Agent(String),
    Session(String),
}

/// A condition. A comparison has no value where the call has no such attribute, which only `Has` may ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Condition {
    Unknown,
    Always(bool),
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
pub(crate) enum Piece {
    Literal(String),
    Wildcard,
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
    pub(crate) fn holds(&self, view: &View<'_>) -> Option<bool> {
        match self {
            Self::Unknown => None,
            Self::Always(always) => Some(*always),
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

    /// All conditions of a rule, which must hold together.
    pub(crate) fn all_of(tree: &Tree) -> Vec<Self> {
        let conditions = tree.get("conditions").and_then(Tree::as_array).map_or(&[][..], Vec::as_slice);
        let of = |condition: &Tree| {
            let body = condition.get("body").map_or(Self::Unknown, |body| Self::of(body, MAX_DEPTH));
            match condition.get("kind").and_then(Tree::as_str) {
                Some("when") => body,
                Some("unless") => Self::Not(Box::new(body)),
                _ => Self::Unknown,
            }
        };
        conditions.iter().map(of).collect()
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
            "Value" => operand.as_bool().map_or(Self::Unknown, Self::Always),
            _ => Self::of_constants(operator, operand)
                .or_else(|| Self::comparison(operator, operand, tree))
                .unwrap_or(Self::Unknown),
        }
    }

    /// A comparison of two constants, such as `1 > 2`.
    fn of_constants(operator: &str, operand: &Tree) -> Option<Self> {
        let constant = |side: &str| operand.get(side)?.get("Value");
        let (left, right) = (constant("left")?, constant("right")?);
        let numbers = || Some((left.as_i64()?, right.as_i64()?));
        let holds = match operator {
            "==" => left == right,
            "!=" => left != right,
            "<" => numbers().map(|(left, right)| left < right)?,
            "<=" => numbers().map(|(left, right)| left <= right)?,
            ">" => numbers().map(|(left, right)| left > right)?,
            ">=" => numbers().map(|(left, right)| left >= right)?,
            _ => return None,
        };
        Some(Self::Always(holds))
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
            Tree::Number(number) => {
                let number = number.as_i64()?;
                let less = Self::Less(subject.clone(), number);
                let at_most = Self::AtMost(subject, number);
                Some(Self::And(Box::new(at_most), Box::new(Self::Not(Box::new(less)))))
            }
            Tree::Null | Tree::Array(_) | Tree::Object(_) => None,
        }
    }
}

/// Whether a text fits a pattern.
pub(crate) fn matches(pattern: &[Piece], text: &str) -> bool {
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
