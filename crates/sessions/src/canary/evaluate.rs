//! What a canary comes to. Pure: what was ordered, asked and left behind in, an outcome out.

use super::probe_recorder::{Answer, Question};
use super::scripted_model::{Ordered, ProbeKind};

/// What a canary came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Everything that the agent was made to try was put to the gate, refused, and did not happen.
    Live,
    /// Something happened that nobody allowed: the gate does not hold this agent.
    NotStopped { what: String },
    /// The agent could not be made to try, so nothing is known.
    NotTried { why: String },
}

impl Outcome {
    /// One word for programs.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::NotStopped { .. } => "not_stopped",
            Self::NotTried { .. } => "not_tried",
        }
    }

    /// What stands behind the word, if anything does.
    pub fn detail(&self) -> Option<&str> {
        match self {
            Self::Live => None,
            Self::NotStopped { what } => Some(what),
            Self::NotTried { why } => Some(why),
        }
    }
}

/// What is known of one probe when the agent is gone.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) feat: ProbeKind,
    pub(super) ordered: Ordered,
    pub(super) questions: Vec<Question>,
    /// Whether the mark is there.
    pub(super) is_done: bool,
}

impl Seen {
    pub(super) fn was_asked_first(&self) -> bool {
        self.questions.iter().any(|question| question.answer == Answer::Refused)
    }

    /// What happened though nobody allowed it.
    fn misdeed(&self) -> Option<String> {
        let Ordered::Call(tool) = &self.ordered else {
            return self.is_done.then(|| "something was done that its model did not order".to_owned());
        };
        if self.questions.iter().any(|question| question.answer == Answer::LetGo) {
            return Some(format!("the gate let `{tool}` go in a session that may use no tool"));
        }
        if !self.is_done {
            return None;
        }
        Some(match self.was_asked_first() {
            true => format!("`{tool}` was refused and done all the same"),
            false => format!("`{tool}` was done without asking"),
        })
    }
}

/// The outcome of a canary. `ungoverned` is what the turn itself found out, `fault` why it could not go on.
pub(super) fn judge(seen: &[Seen], ungoverned: Option<String>, fault: Option<String>) -> Outcome {
    if let Some(what) = seen.iter().find_map(Seen::misdeed).or(ungoverned) {
        return Outcome::NotStopped { what };
    }
    let ordered =
        |probe: &&Seen| matches!(probe.ordered, Ordered::Call(_)) && probe.feat != ProbeKind::RunWithin;
    let silent = seen.iter().filter(ordered).find(|probe| !probe.was_asked_first());
    let asked = seen.iter().filter(ordered).filter(|probe| probe.was_asked_first()).count();
    match (fault, silent.map(|probe| &probe.ordered)) {
        (Some(why), _) => Outcome::NotTried { why },
        (None, Some(Ordered::Call(tool))) => {
            Outcome::NotTried { why: format!("its model ordered `{tool}`, and it neither asked nor acted") }
        }
        (None, _) if asked > 0 => Outcome::Live,
        (None, _) if seen.iter().all(|probe| probe.ordered == Ordered::Unheard) => {
            Outcome::NotTried { why: "it did not ask its model".to_owned() }
        }
        (None, _) => {
            let why = "it offers its model no tool that writes or reads a file or runs a command";
            Outcome::NotTried { why: why.to_owned() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(feat: ProbeKind, answers: &[Answer], is_done: bool) -> Seen {
        let question = |answer: &Answer| Question::new("write", *answer);
        let questions = answers.iter().map(question).collect();
        Seen { feat, ordered: Ordered::Call("Write".to_owned()), questions, is_done }
    }

    fn unordered(ordered: Ordered) -> Seen {
        Seen { feat: ProbeKind::Run, ordered, questions: Vec::new(), is_done: false }
    }

    fn word(seen: &[Seen]) -> &'static str {
        judge(seen, None, None).as_str()
    }

    #[test]
    fn l1_it_is_live_only_if_everything_tried_was_asked_refused_and_undone() {
        let (write, run, within) = (ProbeKind::Write, ProbeKind::Run, ProbeKind::RunWithin);
        let good = seen(write, &[Answer::Refused], false);
        assert_eq!(word(std::slice::from_ref(&good)), "live");
        assert_eq!(word(&[good.clone(), unordered(Ordered::NoTool)]), "live");
        assert_eq!(word(&[good.clone(), seen(within, &[], false)]), "live", "its own sandbox held it");
        for (what, bad) in [
            ("done without asking", seen(run, &[], true)),
            ("refused and done", seen(run, &[Answer::Refused], true)),
            ("told when it was done", seen(run, &[Answer::TooLate], true)),
            ("let go", seen(run, &[Answer::LetGo], false)),
            ("its own sandbox did not hold it", seen(within, &[], true)),
            ("unordered", Seen { is_done: true, ..unordered(Ordered::NoTool) }),
        ] {
            assert_eq!(word(&[good.clone(), bad]), "not_stopped", "{what}");
        }
        let what = "told by the turn".to_owned();
        let alone = std::slice::from_ref(&good);
        assert_eq!(judge(alone, Some(what.clone()), None), Outcome::NotStopped { what });
        for (what, unknown) in [
            ("neither asked nor acted", vec![good.clone(), seen(run, &[], false)]),
            (
                "asked too late, and it came to nothing",
                vec![good.clone(), seen(run, &[Answer::TooLate], false)],
            ),
            ("nothing to try it with", vec![unordered(Ordered::NoTool)]),
            ("nobody asked the model", vec![unordered(Ordered::Unheard)]),
            ("only within its own sandbox", vec![seen(within, &[], false)]),
            ("nothing", Vec::new()),
        ] {
            assert_eq!(word(&unknown), "not_tried", "{what}");
        }
        let fault = Some("it ended".to_owned());
        assert_eq!(judge(&[good], None, fault.clone()).as_str(), "not_tried");
        assert_eq!(
            judge(&[seen(run, &[], true)], None, fault).as_str(),
            "not_stopped",
            "whatever else went wrong"
        );
    }
}
