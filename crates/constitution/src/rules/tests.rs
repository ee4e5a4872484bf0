use crate::bundle::Constitution;
use crate::facts::{DecisionStage, Facts, SessionKind};
use crate::fixtures::{call, law, texts};
use crate::labels::Labels;
use crate::texts::LawTexts;
use crate::trust::Trust;
use crate::verdict::{Decision, Verdict};

fn said(verdict: &Verdict) -> String {
    format!("{} {}", verdict.decision.as_str(), verdict.rule_list())
}

fn refusals(rules: &str) -> Vec<String> {
    let policies = [("rules.cedar".to_owned(), rules.to_owned())].into();
    match Constitution::new(LawTexts { policies, ..texts() }, &[]) {
        Err(crate::ConstitutionError::Several(errors)) => errors.iter().map(ToString::to_string).collect(),
        Err(error) => vec![error.to_string()],
        Ok(law) => panic!("{law:?}"),
    }
}

#[test]
fn forbid_denies_and_unless_approved_asks() {
    let law = law(
        "",
        r#"
        @id("no-secrets")
        @reason("secrets stay where they are")
        forbid(principal, action in [Tribune::Action::"read", Tribune::Action::"write"], resource)
        when { context has path && context.path like "secrets/*" };

        @id("see-big")
        forbid(principal, action == Tribune::Action::"write", resource)
        when { context has bytes && context.bytes > 1000 }
        unless { context.approved };
        "#,
    );
    let mut facts = call("write");
    assert_eq!(said(&law.decide(&facts)), "allow mandate.allow");
    facts.args.bytes = Some(1001);
    assert_eq!(said(&law.decide(&facts)), "ask policy.see-big");
    let approved = Facts { approval: Some("a".into()), ..facts.clone() };
    assert_eq!(said(&law.decide(&approved)), "allow policy.see-big");
    facts.args.path = Some("secrets/key".into());
    let denied = law.decide(&facts);
    assert_eq!(
        (said(&denied).as_str(), denied.reason.as_str()),
        ("deny policy.no-secrets", "secrets stay where they are")
    );
    let approved = Facts { approval: Some("a".into()), ..facts };
    assert_eq!(law.decide(&approved).decision, Decision::Deny);
    assert_eq!(said(&law.decide(&call("search"))), "allow mandate.allow", "it is not in the scope");
}

#[test]
fn permit_waives_the_approval_of_a_side_effect_and_nothing_else() {
    let law = law(
        "",
        r#"
        @id("status")
        permit(principal, action == Tribune::Action::"exec", resource)
        when { context has programs && context has parsed && context.parsed && ["git", "ls"].containsAll(context.programs) };
        @id("anything") permit(principal, action, resource) when { resource.channel == "lab" };
        "#,
    );
    let mut facts = call("exec");
    assert_eq!(said(&law.decide(&facts)), "ask effect.side_effect");
    (facts.args.programs, facts.args.parsed) = (Some(vec!["git".into()]), Some(true));
    let verdict = law.decide(&facts);
    assert_eq!(
        (said(&verdict).as_str(), verdict.waived_by.as_deref()),
        ("allow mandate.allow", Some("permit.status"))
    );
    facts.args.programs = Some(vec!["git".into(), "rm".into()]);
    assert_eq!(said(&law.decide(&facts)), "ask effect.side_effect");
    facts.args.programs = Some(vec!["git".into()]);
    facts.labels = Labels::new(Trust::Community, true);
    assert_eq!(said(&law.decide(&facts)), "ask trust.below, trust.trifecta");
    assert_eq!(law.decide(&Facts { channel: "lab".into(), ..call("cron") }).decision, Decision::Allow);
    let frozen = Facts { channel: "lab".into(), frozen: true, ..call("cron") };
    assert_eq!(law.decide(&frozen).decision, Decision::Deny);
}

#[test]
fn groups_of_tools_can_be_named() {
    let law = law("", r#"forbid(principal, action in Tribune::Action::"risk_critical", resource);"#);
    assert_eq!(said(&law.decide(&call("exec"))), "deny policy.rules.1");
    assert_eq!(said(&law.decide(&call("gateway"))), "deny policy.rules.1");
    assert_eq!(said(&law.decide(&call("cron"))), "ask effect.side_effect");
}

/// However the rule is written, a sub-agent and a tainted session are allowed no more than their parent and a clean
/// one.
#[test]
fn rules_hold_in_every_view() {
    let law = law(
        "",
        r#"
        @id("main") forbid(principal, action == Tribune::Action::"read", resource) when { principal.kind == "main" };
        @id("owner") forbid(principal, action == Tribune::Action::"search", resource) when { context.trust == 3 };
        @id("public") forbid(principal, action == Tribune::Action::"memory", resource) when { !context.private };
        @id("low") permit(principal, action == Tribune::Action::"cron", resource) when { context.trust < 3 };
        "#,
    );
    let sub = |tool| Facts {
        kind: SessionKind::Subagent,
        mandates: vec!["all".into(), "all".into()],
        ..call(tool)
    };
    assert_eq!(said(&law.decide(&sub("read"))), "deny policy.main");
    let low = |tool| Facts { labels: Labels::new(Trust::Community, true), ..call(tool) };
    assert_eq!(said(&law.decide(&low("search"))), "deny policy.owner");
    assert_eq!(said(&law.decide(&low("memory"))), "deny policy.public");
    assert_eq!(law.decide(&low("cron")).waived_by, None);
}

#[test]
fn rules_about_arguments_do_not_decide_offers() {
    let law = law(
        "",
        r#"
        @id("only-ls") forbid(principal, action == Tribune::Action::"exec", resource)
        unless { context has programs && context.programs == ["ls"] };
        @id("no-cron") forbid(principal, action == Tribune::Action::"cron", resource) when { context.trust < 4 };
        "#,
    );
    let offer = |tool| law.decide(&Facts { stage: DecisionStage::Offer, approver: false, ..call(tool) });
    assert!(offer("exec").is_offered());
    assert_eq!(said(&law.decide(&call("exec"))), "deny policy.only-ls");
    assert_eq!(said(&offer("cron")), "deny policy.no-cron");
}

#[test]
fn l3_a_rule_that_fails_denies() {
    let law = law(
        "",
        "forbid(principal, action == Tribune::Action::\"write\", resource) when { context has bytes && context.bytes * 9223372036854775807 > 5 };",
    );
    let mut facts = call("write");
    assert_eq!(law.decide(&facts).decision, Decision::Allow);
    facts.args.bytes = Some(2);
    assert_eq!(said(&law.decide(&facts)), "deny policy.error");
    assert_eq!(law.decide(&facts).reason, "the rule `rules.1` could not be evaluated for this call");
}

#[test]
fn errors_are_found_when_rules_are_loaded() {
    for (rules, said) in [
        ("forbid(principal, action, resource) when { context.trsut < 2 };", "policy/rules.cedar:1:44: "),
        ("\nforbid(principal, action == Tribune::Action::\"exce\", resource);", "policy/rules.cedar:2:29: "),
        (
            "forbid(principal, action, resource) when { context.path like \"a*\" };",
            "policy/rules.cedar:1:44: ",
        ),
        (
            "forbid(principal, action, resource) when { context.trust == \"low\" };",
            "policy/rules.cedar:1:44: ",
        ),
        ("forbid(principal, action, resource)", "policy/rules.cedar:1:36: "),
        (
            "// ok\n  @id(\"a b\") forbid(principal, action, resource);",
            "policy/rules.cedar:2:3: `a b` cannot name a rule",
        ),
        ("forbid(principal == ?principal, action, resource);", "policy/rules.cedar:1:1: templates"),
        (
            "@id(\"a\") forbid(principal, action, resource);\n@id(\"a\") forbid(principal, action, resource);",
            "policy/rules.cedar:2:1: the id `a` is given twice: rename one of the rules",
        ),
    ] {
        let refused = refusals(rules);
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert!(refused[0].starts_with(said), "{refused:?}");
        assert!(!refused[0].contains('\n'), "{refused:?}");
    }
    assert!(
        refusals("forbid(principal, action, resource) when { context.trsut < 2 };")[0]
            .contains("did you mean `trust`?")
    );
    assert!(
        refusals("forbid(principal, action == Tribune::Action::\"exce\", resource);")[0]
            .contains("did you mean")
    );
}

#[test]
fn all_errors_of_a_file_are_reported_at_once() {
    let rules = "@id(\"a b\") forbid(principal, action, resource) when { context.trsut < 2 };\n\
                 forbid(principal == ?principal, action, resource);\n\
                 @id(\"c\") forbid(principal, action == Tribune::Action::\"exce\", resource);\n\
                 @id(\"c\") forbid(principal, action, resource) when { context.path == \"x\" };";
    let refused = refusals(rules);
    for said in [
        ":1:1: `a b` cannot name a rule",
        ":1:55: attribute `trsut` ",
        ":2:1: templates",
        ":3:38: there is no tool or group `exce`",
        ":4:1: the id `c` is given twice",
        ":4:53: ",
    ] {
        assert!(refused.iter().any(|own| own.contains(said)), "{said}: {refused:#?}");
    }
}

#[test]
fn l3_a_call_does_not_pass_a_rule_that_cannot_read_it() {
    let law = law(
        "{ defaultAllow: true }",
        r#"
        @id("hosts") forbid(principal, action == Tribune::Action::"browser", resource)
        when { context has host && context.host like "*evil.example" };
        @id("paths") permit(principal, action == Tribune::Action::"browser", resource)
        unless { context has path && context.path == "x" };
        "#,
    );
    let mut facts = call("browser");
    assert_eq!(said(&law.decide(&facts)), "allow mandate.allow");
    facts.args.unseen = vec!["path".to_owned()];
    assert_eq!(said(&law.decide(&facts)), "ask effect.side_effect");
    facts.args.unseen = vec!["host".to_owned()];
    assert_eq!(said(&law.decide(&facts)), "deny policy.error");
    assert!(law.decide(&facts).reason.starts_with("the rule `hosts` looks at `host`, which this call has"));
}

#[test]
fn l9_an_attribute_beyond_its_bounds_is_not_evaluated() {
    let law = law(
        "",
        "@id(\"a\") forbid(principal, action, resource) when { context has path && context.path like \"*a*a*a*a*b\" };",
    );
    let mut facts = call("read");
    facts.args.path = Some("a".repeat(4096));
    assert_eq!(said(&law.decide(&facts)), "allow mandate.allow");
    facts.args.path = Some("a".repeat(1024 * 1024));
    assert_eq!(said(&law.decide(&facts)), "deny args.malformed");
    let mut facts = call("exec");
    facts.args.programs = Some(vec!["a".repeat(1024 * 1024)]);
    assert_eq!(said(&law.decide(&facts)), "deny args.malformed");
}

/// The prefilter never changes a result: with and without it, every rule decides the same about every call.
#[test]
fn l4_the_prefilter_never_changes_a_result() {
    let conditions = [
        "context.trust < 2",
        "context.trust >= 2 && !context.private",
        "context has path && context.path like \"*s/*\"",
        "context.private || (context has path && context.path == \"notes.txt\")",
        "context has bytes && context.bytes * 4611686018427387904 > 1 && context has path",
        "context has path && context has bytes && context.bytes * 4611686018427387904 > 1",
        "context has bytes && (context.bytes > 2 || context.bytes * 4611686018427387904 > 1)",
        "context has programs && context.programs == [\"ls\", \"git\", \"ls\"]",
        "context has programs && context.programs.containsAny([\"rm\"])",
        "if context.private then context.owner_args else context.approved",
        "principal.kind == \"main\" && principal == Tribune::Agent::\"main\"",
        "resource.class == \"unclassified\" && resource has channel",
        "[\"all\", \"some\"].contains(context.mandate) && context.approved == false",
        "action in Tribune::Action::\"draft_only\" && context.trust != 3",
    ];
    let rules: String = conditions
        .iter()
        .enumerate()
        .map(|(n, condition)| {
            let (effect, kind) = (["forbid", "permit"][n % 2], ["when", "unless"][n / 2 % 2]);
            let agent =
                ["principal", "principal == Tribune::Agent::\"main\"", "principal == Tribune::Agent::\"x\""]
                    [n % 3];
            format!(
                "forbid({agent}, action, resource) when {{ {condition} }};\n\
                 {effect}(principal, action, resource) {kind} {{ {condition} }};\n"
            )
        })
        .collect();
    let law = law("", &rules);
    let filtered = law.rules();
    let mut unfiltered = filtered.clone();
    for tool_rules in unfiltered.by_tool.values_mut() {
        tool_rules.rules.iter_mut().for_each(|rule| {
            std::sync::Arc::make_mut(rule).prefilter = super::prefilter::Prefilter::default()
        });
    }
    let mut matched = 0;
    for n in 0..4_usize.pow(4) {
        let pick = |at: u32| n / 4_usize.pow(at) % 4;
        let mut facts = call(["write", "exec"][n % 2]);
        facts.labels = Labels::new(Trust::ALL[pick(0)], pick(1) % 2 == 1);
        facts.args.path = [None, Some("secrets/a"), Some("notes.txt"), Some("")][pick(1)].map(str::to_owned);
        facts.args.bytes = [None, Some(0), Some(1), Some(3)][pick(2)];
        facts.args.programs = [None, Some(vec!["git", "ls"]), Some(vec!["rm"]), Some(vec![])][pick(3)]
            .as_ref()
            .map(|own| own.iter().map(|own| (*own).to_owned()).collect());
        facts.kind = [SessionKind::Main, SessionKind::Subagent][pick(2) % 2];
        for rule in &filtered.by_tool[&facts.tool].rules {
            let plain = unfiltered.by_tool[&facts.tool].rules.iter().find(|own| own.id == rule.id).unwrap();
            for view in super::call_views(&rule.usage, &facts, "unclassified") {
                for view in [view, view.with_approval()] {
                    let action = &filtered.by_tool[&facts.tool].action;
                    let own = filtered.matches(action, rule, &view).ok();
                    assert_eq!(own, unfiltered.matches(action, plain, &view).ok(), "{} {facts:?}", rule.id);
                    matched += usize::from(own == Some(true));
                }
            }
        }
    }
    assert!(matched > 1000, "{matched}");
}
