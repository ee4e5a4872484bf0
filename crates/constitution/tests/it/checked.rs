//! The findings of `check` about rules are true.

use proptest::prelude::*;
use tribune_constitution::{DecisionStage, check};

use crate::arbitrary::{law, many_calls, texts_with_random_rules};

/// Findings about rules that make no difference.
const NEEDLESS: [&str; 3] = ["forbids nothing", "permits nothing", "is never reached"];

const BLANKET: &str = "waives the approval of every side effect of every tool";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn l4_rules_that_do_nothing_can_be_removed(texts in texts_with_random_rules(), calls in many_calls()) {
        let mut fewer = texts.clone();
        for finding in check(&texts, &["unmanifested"]) {
            if NEEDLESS.iter().any(|said| finding.message.contains(said)) {
                fewer.policies.remove(finding.file.trim_start_matches("policy/"));
            }
        }
        if fewer.policies.len() == texts.policies.len() {
            return Ok(());
        }
        let removed: Vec<&String> =
            texts.policies.iter().filter(|(file, _)| !fewer.policies.contains_key(*file)).map(|(_, rule)| rule).collect();
        let (before, after) = (law(texts.clone()), law(fewer));
        for facts in calls {
            let (old, new) = (before.decide(&facts), after.decide(&facts));
            prop_assert_eq!(
                (old.decision, old.audited), (new.decision, new.audited),
                "without {:#?}\n{:?}\n{:?}\n{:?}", removed, facts, old, new
            );
        }
    }

    #[test]
    fn l4_a_permit_for_everything_permits_everything(texts in texts_with_random_rules(), calls in many_calls()) {
        for finding in check(&texts, &["unmanifested"]) {
            if !finding.message.contains(BLANKET) {
                continue;
            }
            let mut alone = texts.clone();
            alone.policies.retain(|file, _| finding.file.ends_with(file.as_str()));
            let law = law(alone);
            for facts in calls.iter().filter(|facts| facts.stage != DecisionStage::Offer) {
                let verdict = law.decide(facts);
                let asked = ["effect.side_effect", "policy.error"].iter().any(|rule| verdict.rules.iter().any(|own| own == rule));
                prop_assert!(!asked, "{:?}\n{:?}\n{:?}", law.texts().policies, facts, verdict);
            }
        }
    }
}

/// No mandate has to name these tools, so a rule about them is still reached.
#[test]
fn rules_about_the_daemons_own_calls_are_reached() {
    for tool in ["landing", "spend"] {
        let mut texts = tribune_constitution::LawTexts::built_in();
        let rule = format!(
            "@id(\"four-eyes\") forbid(principal, action == Tribune::Action::\"{tool}\", resource) unless {{ context.approved }};"
        );
        texts.policies.insert("a.cedar".to_owned(), rule);
        let found: Vec<String> = check(&texts, &[]).iter().map(ToString::to_string).collect();
        assert!(!found.iter().any(|finding| finding.contains("never reached")), "{found:?}");
    }
}
