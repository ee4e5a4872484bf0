//! The part of a rule's condition that is understood here: comparisons of the call's attributes with constants,
//! joined by `&&`, `||` and `!`. Every other expression of Cedar is `Opaque`, or `Unknown` if its evaluation can
//! fail.

use serde_json::Value as Tree;

use super::call_view::{AttributeValue, CallView};
use super::glob::Glob;
use super::schema::{ALWAYS, OF_AGENT, OF_ARGS, OF_SESSION};

/// Nesting that is parsed; each level costs stack.
const MAX_DEPTH: usize = 64;

/// An attribute of the call, by its name in the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttributeRef {
    Context(&'static str),
    Agent(&'static str),
    Session(&'static str),
}

/// A condition. A comparison has no value if the call does not have the attribute; only `Has` may ask for it then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Condition {
    /// It can hold or not, or fail.
    Unknown,
    /// It holds or not, and never fails.
    Opaque,
    Always(bool),
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
    Not(Box<Condition>),
    Has(AttributeRef),
    Text(AttributeRef, String),
    Flag(AttributeRef, bool),
    Less(AttributeRef, i64),
    AtMost(AttributeRef, i64),
    Like(AttributeRef, Glob),
    Contains(AttributeRef, String),
    Set(AttributeRef, Vec<String>),
}

impl AttributeRef {
    fn new(variable: &str, name: &str) -> Option<Self> {
        let own = |names: &[&'static str]| names.iter().copied().find(|own| *own == name);
        match variable {
            "context" => {
                let named = ALWAYS.iter().chain(&OF_ARGS).find(|(own, _)| *own == name);
                named.map(|(own, _)| Self::Context(own))
            }
            "principal" => own(&OF_AGENT).map(Self::Agent),
            "resource" => own(&OF_SESSION).map(Self::Session),
            _ => None,
        }
    }

    fn of<'a>(&self, view: &CallView<'a>) -> Option<AttributeValue<'a>> {
        match self {
            Self::Context(name) => view.attribute(name),
            Self::Agent(name) => view.of_agent(name),
            Self::Session(name) => view.of_session(name),
        }
    }
}

impl Condition {
    /// Whether the condition holds; `None` if that is unknown.
    pub(crate) fn holds(&self, view: &CallView<'_>) -> Option<bool> {
        match self {
            Self::Unknown | Self::Opaque => None,
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
            Self::Has(attribute) => Some(attribute.of(view).is_some()),
            Self::Text(attribute, text) => match attribute.of(view)? {
                AttributeValue::Text(own) => Some(own == text),
                AttributeValue::Flag(_) | AttributeValue::Long(_) | AttributeValue::Set(_) => None,
            },
            Self::Flag(attribute, flag) => match attribute.of(view)? {
                AttributeValue::Flag(own) => Some(own == *flag),
                AttributeValue::Text(_) | AttributeValue::Long(_) | AttributeValue::Set(_) => None,
            },
            Self::Less(attribute, bound) => match attribute.of(view)? {
                AttributeValue::Long(own) => Some(own < *bound),
                AttributeValue::Text(_) | AttributeValue::Flag(_) | AttributeValue::Set(_) => None,
            },
            Self::AtMost(attribute, bound) => match attribute.of(view)? {
                AttributeValue::Long(own) => Some(own <= *bound),
                AttributeValue::Text(_) | AttributeValue::Flag(_) | AttributeValue::Set(_) => None,
            },
            Self::Like(attribute, pattern) => match attribute.of(view)? {
                AttributeValue::Text(own) => Some(pattern.matches(own)),
                AttributeValue::Flag(_) | AttributeValue::Long(_) | AttributeValue::Set(_) => None,
            },
            Self::Contains(attribute, text) => match attribute.of(view)? {
                AttributeValue::Set(own) => Some(own.contains(text)),
                AttributeValue::Text(_) | AttributeValue::Flag(_) | AttributeValue::Long(_) => None,
            },
            Self::Set(attribute, texts) => match attribute.of(view)? {
                AttributeValue::Set(own) => Some(
                    own.iter().all(|own| texts.contains(own)) && texts.iter().all(|text| own.contains(text)),
                ),
                AttributeValue::Text(_) | AttributeValue::Flag(_) | AttributeValue::Long(_) => None,
            },
        }
    }

    /// All conditions of a rule. The rule matches if all of them hold.
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

    /// Parses a node of Cedar's JSON syntax tree.
    fn of(tree: &Tree, depth: usize) -> Self {
        let opaque = || if is_total(tree, MAX_DEPTH) { Self::Opaque } else { Self::Unknown };
        let (Some((operator, operand)), Some(depth)) = (parts(tree), depth.checked_sub(1)) else {
            return opaque();
        };
        let side =
            |name: &str| Box::new(operand.get(name).map_or(Self::Unknown, |side| Self::of(side, depth)));
        match operator {
            "&&" => Self::And(side("left"), side("right")),
            "||" => Self::Or(side("left"), side("right")),
            "!" => Self::Not(side("arg")),
            "Value" => operand.as_bool().map_or_else(opaque, Self::Always),
            _ => Self::of_constants(operator, operand)
                .or_else(|| Self::comparison(operator, operand, tree))
                .unwrap_or_else(opaque),
        }
    }

    /// A comparison of two constants, such as `1 > 2`.
    fn of_constants(operator: &str, operand: &Tree) -> Option<Self> {
        let constant = |side: &str| operand.get(side)?.get("Value").filter(|value| !value.is_object());
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
        let left = || attribute_of(operand.get("left")?);
        let right = operand.get("right");
        match operator {
            "." => Some(Self::Flag(attribute_of(tree)?, true)),
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

    fn equal(attribute: AttributeRef, right: &Tree) -> Option<Self> {
        if let Some(items) = right.get("Set").and_then(Tree::as_array) {
            let texts = items.iter().map(|item| item.get("Value")?.as_str().map(str::to_owned));
            return Some(Self::Set(attribute, texts.collect::<Option<_>>()?));
        }
        match right.get("Value")? {
            Tree::String(text) => Some(Self::Text(attribute, text.clone())),
            Tree::Bool(flag) => Some(Self::Flag(attribute, *flag)),
            Tree::Number(number) => {
                let number = number.as_i64()?;
                let less = Self::Less(attribute, number);
                let at_most = Self::AtMost(attribute, number);
                Some(Self::And(Box::new(at_most), Box::new(Self::Not(Box::new(less)))))
            }
            Tree::Null | Tree::Array(_) | Tree::Object(_) => None,
        }
    }
}

fn number(tree: &Tree) -> Option<i64> {
    tree.get("Value")?.as_i64()
}

/// The attribute that `context.name`, `principal.name` or `resource.name` refers to.
fn attribute_of(tree: &Tree) -> Option<AttributeRef> {
    attribute(tree.get(".")?)
}

fn attribute(operand: &Tree) -> Option<AttributeRef> {
    AttributeRef::new(operand.get("left")?.get("Var")?.as_str()?, operand.get("attr")?.as_str()?)
}

fn pattern(tree: &Tree) -> Option<Glob> {
    let mut literals = vec![String::new()];
    for piece in tree.as_array()? {
        match (piece.as_str(), piece.get("Literal").and_then(Tree::as_str), literals.last_mut()) {
            (Some("Wildcard"), _, _) => literals.push(String::new()),
            (_, Some(more), Some(literal)) => literal.push_str(more),
            _ => return None,
        }
    }
    Some(Glob::of(literals))
}

/// The operator of an expression and its operand.
fn parts(tree: &Tree) -> Option<(&str, &Tree)> {
    let members = tree.as_object().filter(|members| members.len() == 1)?;
    members.iter().next().map(|(operator, operand)| (operator.as_str(), operand))
}

/// Whether an expression that passed the schema cannot fail. Arithmetic can, because it overflows, and so can every
/// expression that is not listed here.
fn is_total(tree: &Tree, depth: usize) -> bool {
    let (Some((operator, operand)), Some(depth)) = (parts(tree), depth.checked_sub(1)) else { return false };
    let side = |name: &str| operand.get(name).is_some_and(|side| is_total(side, depth));
    match operator {
        "Value" => operand.as_object().is_none_or(|value| value.contains_key("__entity")),
        "Var" => true,
        "!" | "isEmpty" => side("arg"),
        "&&" | "||" | "==" | "!=" | "<" | "<=" | ">" | ">=" => side("left") && side("right"),
        "in" | "contains" | "containsAll" | "containsAny" => side("left") && side("right"),
        "." | "has" | "like" => side("left"),
        "is" => side("left") && (operand.get("in").is_none() || side("in")),
        "if-then-else" => side("if") && side("then") && side("else"),
        "Set" => operand.as_array().is_some_and(|items| items.iter().all(|item| is_total(item, depth))),
        _ => false,
    }
}
