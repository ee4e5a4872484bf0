use proptest::prelude::*;
use proptest::sample::select;
use tribune_constitution::{Constitution, Decision, Facts, LawTexts, OriginalCall, Trust, Verdict, Veto};

use crate::arbitrary::{by_sub_agent, calls, forbid, labels, law, stricter, texts, texts_with_random_rules};

/// Whether `after` allows something that `before` did not.
fn allows_more(before: &Verdict, after: &Verdict) -> bool {
    after.decision < before.decision || after.decision_if_enforced() < before.decision_if_enforced()
}

/// After the change, no call is allowed more than before.
fn assert_never_more(
    before: &Constitution,
    after: &Constitution,
    calls: &[Facts],
) -> Result<(), TestCaseError> {
    for facts in calls {
        let (old, new) = (before.decide(facts), after.decide(facts));
        prop_assert!(!allows_more(&old, &new), "{facts:?}\n{old:?}\n{new:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn l3_a_forbid_rule_never_allows_more(
        texts in prop_oneof![texts(), texts_with_random_rules()], rule in forbid(), calls in calls(),
    ) {
        let mut more = texts.clone();
        more.policies.insert("new.cedar".to_owned(), rule);
        assert_never_more(&law(texts), &law(more), &calls)?;
    }

    #[test]
    fn l3_a_stricter_manifest_never_allows_more(texts in texts(), manifest in stricter(), calls in calls()) {
        let mut more = texts.clone();
        more.manifests.insert(manifest.id.clone(), serde_json::to_string(&manifest).unwrap());
        let mut calls = calls;
        calls.iter_mut().step_by(2).for_each(|facts| facts.tool.clone_from(&manifest.id));
        assert_never_more(&law(texts), &law(more), &calls)?;
    }

    #[test]
    fn l3_a_veto_never_allows_more(texts in texts(), calls in calls()) {
        let law = law(texts);
        for facts in calls {
            let mut vetoed = facts.clone();
            vetoed.vetoes.push(Veto::new("verifier", "no"));
            prop_assert!(!allows_more(&law.decide(&facts), &law.decide(&vetoed)));
            prop_assert_eq!(law.decide(&vetoed).decision, Decision::Deny);
        }
    }

    #[test]
    fn l3_a_hook_that_narrows_never_allows_more(texts in texts_with_random_rules(), calls in calls(), less in calls()) {
        let law = law(texts);
        for (facts, less) in calls.into_iter().zip(less) {
            // What a hook leaves of a call: other arguments, other provenance, another grant.
            let asked = OriginalCall { provenance: facts.provenance, args: facts.args.clone(), grant: facts.grant.clone() };
            let (provenance, args, grant) = (less.provenance, less.args, less.grant);
            let only = Facts { provenance, args, grant, ..facts.clone() };
            let narrowed = Facts { original_call: Some(Box::new(asked)), ..only.clone() };
            let verdict = law.decide(&narrowed);
            for one in [&facts, &only] {
                let before = law.decide(one);
                prop_assert!(!allows_more(&before, &verdict), "{narrowed:?}\n{before:?}\n{verdict:?}");
            }
            prop_assert_eq!(&law.explain(&narrowed).verdict, &verdict);
            let text = narrowed.canonical().unwrap();
            prop_assert_eq!(Facts::parse(&text).unwrap(), narrowed);
        }
    }

    #[test]
    fn l3_lower_trust_or_private_data_never_allows_more(texts in texts(), calls in calls(), with in labels()) {
        let law = law(texts);
        for facts in calls {
            let lower = Facts { labels: facts.labels.meet(with), ..facts.clone() };
            let (old, new) = (law.decide(&facts), law.decide(&lower));
            prop_assert!(!allows_more(&old, &new), "{lower:?}\n{old:?}\n{new:?}");
        }
    }

    #[test]
    fn l3_a_sub_agent_never_has_more_rights_than_its_parent(
        texts in texts(), calls in calls(), mandate in select(&["all", "some"][..]), deeper in any::<bool>(),
    ) {
        let law = law(texts);
        for facts in calls {
            let parent = if deeper { by_sub_agent(&facts, "all") } else { facts };
            let child = by_sub_agent(&parent, mandate);
            let (old, new) = (law.decide(&parent), law.decide(&child));
            prop_assert!(!allows_more(&old, &new), "{child:?}\n{old:?}\n{new:?}");
            let tools = law.mandate_tools(&parent.mandates);
            prop_assert!(law.mandate_tools(&child.mandates).iter().all(|tool| tools.contains(tool)));
        }
    }

    #[test]
    fn l4_audit_allows_and_keeps_exactly_the_verdict_of_enforce(texts in texts(), calls in calls()) {
        let mut auditing = texts.clone();
        auditing.law = texts.law.as_ref().map(|law| law.replacen("{", "{ mode: \"audit\", ", 1));
        let (enforcing, auditing) = (law(texts), law(auditing));
        for facts in calls {
            let (enforced, audited) = (enforcing.decide(&facts), auditing.decide(&facts));
            let floor = facts.frozen || !facts.vetoes.is_empty()
                || !auditing.mandate_tools(&facts.mandates).contains(&facts.tool.as_str());
            let overridden = enforcing.settings().overrides.contains_key(&facts.tool);
            let expected = if floor || overridden {
                enforced
            } else {
                Verdict { decision: Decision::Allow, audited: Some(enforced.decision), ..enforced }
            };
            prop_assert_eq!(audited, expected, "{:?}", facts);
        }
    }

    #[test]
    fn l4_a_verdict_depends_on_the_hash_and_the_facts_alone(texts in texts(), calls in calls()) {
        let first = law(texts.clone());
        // The same texts, inserted in reverse order, by a program with other tools.
        let mut again = LawTexts { law: texts.law.clone(), ..LawTexts::built_in() };
        again.constitution.clone_from(&texts.constitution);
        again.mandates = texts.mandates.iter().rev().map(|(name, text)| (name.clone(), text.clone())).collect();
        again.policies = texts.policies.iter().rev().map(|(name, text)| (name.clone(), text.clone())).collect();
        let second = Constitution::new(again, &["something", "unmanifested"]).unwrap();
        prop_assert_eq!(first.hash(), second.hash());
        for facts in calls {
            let text = facts.canonical().unwrap();
            let read = Facts::parse(&text).unwrap();
            prop_assert_eq!(&read, &facts);
            prop_assert_eq!(read.canonical().unwrap(), text);
            let verdict = first.decide(&facts);
            prop_assert_eq!(&second.decide(&read), &verdict);
            prop_assert_eq!(&first.explain(&facts).verdict, &verdict);
            let recorded = serde_json::to_string(&verdict).unwrap();
            prop_assert_eq!(serde_json::from_str::<Verdict>(&recorded).unwrap(), verdict);
        }
    }

    #[test]
    fn l1_the_trifecta_never_closes_without_a_person(texts in texts(), calls in calls()) {
        let law = law(texts);
        for facts in calls {
            let tainted = facts.labels.private && facts.labels.trust <= Trust::Community;
            let outside = facts.args.outside == Some(true);
            let addressed = facts.args.links != Some(false);
            let way_out = law.manifest(&facts.tool).map_or(addressed, |own| own.is_way_out(outside));
            let owners = facts.provenance == tribune_constitution::ArgumentProvenance::Owner;
            let offer = facts.stage == tribune_constitution::DecisionStage::Offer;
            let off = law.settings().mode_of(&facts.tool) == tribune_constitution::EnforcementMode::Off;
            if !tainted || !way_out || owners || offer || off {
                continue;
            }
            let verdict = law.decide(&facts);
            let by_person = verdict.waived_by.as_deref().is_some_and(|by| by.starts_with("approval.") || by.starts_with("grant."));
            prop_assert!(verdict.decision_if_enforced() > Decision::Allow || by_person, "{facts:?}\n{verdict:?}");
        }
    }
}
