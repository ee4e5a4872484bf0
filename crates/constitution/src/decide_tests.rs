use super::*;
use crate::facts::Veto;
use crate::fixtures::{call, law, texts};
use crate::labels::Labels;
use crate::texts::LawTexts;
use crate::tool_names::MCP;

/// Decision and rules, in one line.
fn said(verdict: &Verdict) -> String {
    format!("{} {}", verdict.decision.as_str(), verdict.rule_list())
}

fn tainted(tool: &str) -> Facts {
    Facts { labels: Labels::new(Trust::Untrusted, true), ..call(tool) }
}

#[test]
fn the_floor_is_checked_first() {
    let law = law("{ mode: \"off\" }", "");
    assert_eq!(said(&law.decide(&call("exec"))), "allow mode.off");
    let frozen = Facts { frozen: true, ..call("read") };
    assert_eq!(said(&law.decide(&frozen)), "deny kernel.frozen");
    let without_mandate = Facts { mandates: vec![], ..call("read") };
    assert_eq!(said(&law.decide(&without_mandate)), "deny mandate.unknown");
    let unknown = Facts { mandates: vec!["all".into(), "ghost".into()], ..call("read") };
    assert_eq!(law.decide(&unknown).reason, "there is no mandate `ghost`");
    let vetoed = Facts { vetoes: vec![Veto::new("scan", "it smells"), Veto::new("b", "no")], ..call("read") };
    assert_eq!(said(&law.decide(&vetoed)), "deny hook.scan, hook.b");
    assert_eq!(law.decide(&vetoed).reason, "it smells; no");
    let listed = Facts { mandates: vec!["reader".into()], ..call("exec") };
    assert_eq!(
        law.decide(&listed).reason,
        "`exec` is not in the mandate `reader`, which allows read, search"
    );
    assert_eq!(
        law.decide(&Facts { mandates: vec!["reader".into()], ..call("raed") }).reason,
        "there is no tool `raed`, did you mean `read`?"
    );
    // Tools outside the mandate are not suggested, and hostile names are cut.
    let near = law.decide(&Facts { mandates: vec!["reader".into()], ..call("exce") });
    assert_eq!(
        (said(&near).as_str(), near.reason.as_str()),
        ("deny tool.unknown", "there is no tool `exce`")
    );
    let hostile = law.decide(&call(&format!("read\n{}", "x".repeat(10_000))));
    assert!(hostile.reason.len() < 200 && !hostile.reason.contains('\n'), "{}", hostile.reason);
    for near in ["Read", " read", "read ", "read\0", "re\u{200B}ad", ""] {
        assert_eq!(law.decide(&call(near)).decision, Decision::Deny, "{near:?}");
    }
}

#[test]
fn an_allowlisted_host_needs_no_approval() {
    let law = law("", "");
    let connect = |action: &str| {
        let mut facts = call(EGRESS);
        facts.args.action = Some(action.to_owned());
        facts
    };
    let listed = law.decide(&connect(LISTED));
    assert_eq!(
        (said(&listed).as_str(), listed.waived_by.as_deref()),
        ("allow mandate.allow", Some("egress.listed"))
    );
    for other in ["unlisted", "", "Listed"] {
        assert_eq!(said(&law.decide(&connect(other))), "ask effect.side_effect", "{other}");
    }
    // The action has this meaning for no other tool, and does not weaken other rules.
    let mut message = call("message");
    message.args.action = Some(LISTED.to_owned());
    assert_eq!(said(&law.decide(&message)), "ask effect.side_effect");
    let leaking = Facts { labels: Labels::new(Trust::Untrusted, true), ..connect(LISTED) };
    assert_eq!(said(&law.decide(&leaking)), "ask trust.trifecta");
    let barred = Facts { vetoes: vec![Veto::new("egress.unlisted", "no")], ..connect("unlisted") };
    assert_eq!(said(&law.decide(&barred)), "deny hook.egress.unlisted");
}

#[test]
fn landing_needs_the_operator_or_an_approval() {
    let law = law("", "");
    let land = |action: &str| {
        let mut facts = Facts { mandates: vec!["reader".into()], ..call(LAND) };
        facts.args.action = Some(action.to_owned());
        facts
    };
    let own = law.decide(&land(BY_OPERATOR));
    assert_eq!(
        (said(&own).as_str(), own.waived_by.as_deref()),
        ("allow mandate.allow", Some("landing.operator")),
        "it is in every mandate"
    );
    for other in ["agent", "", "Operator"] {
        assert_eq!(said(&law.decide(&land(other))), "ask effect.side_effect", "{other}");
    }
    // A person reviews the changes when they land them, whatever the sandbox has read; the stop switch and
    // objections still deny.
    let tainted = Facts { labels: Labels::new(Trust::Untrusted, true), ..land(BY_OPERATOR) };
    assert_eq!(said(&law.decide(&tainted)), "allow mandate.allow");
    assert_eq!(said(&law.decide(&Facts { frozen: true, ..land(BY_OPERATOR) })), "deny kernel.frozen");
    let vetoed = Facts { vetoes: vec![Veto::new("scan", "no")], ..land(BY_OPERATOR) };
    assert_eq!(said(&law.decide(&vetoed)), "deny hook.scan");
    let mut message = call("message");
    message.args.action = Some(BY_OPERATOR.to_owned());
    assert_eq!(said(&law.decide(&message)), "ask effect.side_effect", "the word means this in no other tool");
}

#[test]
fn an_mcp_server_start_needs_the_mandate_and_an_operator_or_approval() {
    let law = law("", "");
    let start = |action: &str, mandate: &str| {
        let mut facts = Facts { mandates: vec![mandate.into()], ..call(MCP_SERVER) };
        facts.args.action = Some(action.to_owned());
        facts
    };
    let own = law.decide(&start(BY_OPERATOR, "all"));
    assert_eq!(
        (said(&own).as_str(), own.waived_by.as_deref()),
        ("allow mandate.allow", Some("mcp_server.operator"))
    );
    let barred = law.decide(&start(BY_OPERATOR, "reader"));
    assert_eq!(said(&barred), "deny mandate.not_listed");
    assert!(barred.reason.starts_with("`mcp` is not in the mandate `reader`"), "{}", barred.reason);
    assert_eq!(said(&law.decide(&start("agent", "all"))), "ask effect.side_effect");
    // To start a server takes nothing out of the session, whatever that has read. The stop switch, objections and
    // modes still deny.
    let tainted = Facts { labels: Labels::new(Trust::Untrusted, true), ..start(BY_OPERATOR, "all") };
    assert_eq!(said(&law.decide(&tainted)), "allow mandate.allow");
    assert_eq!(said(&law.decide(&Facts { frozen: true, ..start(BY_OPERATOR, "all") })), "deny kernel.frozen");
    let vetoed = Facts { vetoes: vec![Veto::new("scan", "no")], ..start(BY_OPERATOR, "all") };
    assert_eq!(said(&law.decide(&vetoed)), "deny hook.scan");
    let held = Facts { approval_mode: Some(ApprovalMode::ApproveReads), ..start(BY_OPERATOR, "all") };
    assert_eq!(said(&law.decide(&held)), "deny asking.approve_reads");
}

#[test]
fn an_mcp_call_needs_an_approval() {
    let law = law("", "");
    assert_eq!(said(&law.decide(&call(MCP))), "ask effect.side_effect");
    let tainted = Facts { labels: Labels::new(Trust::Untrusted, true), ..call(MCP) };
    assert_eq!(said(&law.decide(&tainted)), "ask trust.below, trust.trifecta, effect.side_effect");
    let permitted = crate::fixtures::law(
        "",
        "@id(\"p\") permit(principal, action == Tribune::Action::\"mcp\", resource);",
    );
    let served = Facts { labels: Labels::new(Trust::Verified, false), ..call(MCP) };
    assert_eq!(said(&permitted.decide(&served)), "allow mandate.allow", "until its server has answered");
    assert_eq!(said(&permitted.decide(&tainted)), "ask trust.below, trust.trifecta");
    let mut operator = call(MCP);
    operator.args.action = Some(BY_OPERATOR.to_owned());
    assert_eq!(said(&law.decide(&operator)), "ask effect.side_effect", "a tool may have any name");
}

#[test]
fn a_fresh_session_of_the_owner_reads_writes_and_fetches() {
    let law = law("", "");
    for tool in
        ["read", "write", "edit", "search", "web_fetch", "web_search", "memory", "send_message", "spawn"]
    {
        assert_eq!(said(&law.decide(&call(tool))), "allow mandate.allow", "{tool}");
    }
    for tool in ["exec", "message", "gateway", "cron", "nodes", "browser"] {
        assert_eq!(said(&law.decide(&call(tool))), "ask effect.side_effect", "{tool}");
    }
}

#[test]
fn l3_autorun_files_are_not_written_without_an_approval() {
    // An operator's permit waives the approval of the side effect, and not this one.
    let law = law("", "@id(\"free\") permit(principal, action, resource);");
    let writing = |tool: &str| {
        let mut facts = call(tool);
        (facts.args.path, facts.args.is_autorun) = (Some(".envrc".to_owned()), true);
        facts
    };
    for tool in ["write", "edit"] {
        let asked = law.decide(&writing(tool));
        assert_eq!(said(&asked), "ask path.obeyed", "{tool}");
        assert_eq!(asked.reason, "programs of this machine obey `.envrc`, outside of every sandbox");
        let sub = Facts { kind: SessionKind::Subagent, ..writing(tool) };
        assert!(said(&law.decide(&sub)).starts_with("deny path.obeyed"), "{tool}");
        let without_approver = Facts { approver: false, ..writing(tool) };
        assert_eq!(said(&law.decide(&without_approver)), "deny ask.no_approver, path.obeyed", "{tool}");
        let approved = Facts { approval: Some("a1".to_owned()), ..writing(tool) };
        assert_eq!(law.decide(&approved).waived_by.as_deref(), Some("approval.a1"), "{tool}");
    }
    assert_eq!(said(&law.decide(&writing("read"))), "allow mandate.allow");
    let owners = Facts { provenance: ArgumentProvenance::Owner, ..writing("write") };
    assert_eq!(said(&law.decide(&owners)), "allow mandate.allow");
}

#[test]
fn nobody_is_asked_about_calls_of_a_guest() {
    let law = law("", "");
    let community = Facts { labels: Labels::new(Trust::Community, false), ..call("write") };
    let guest = Facts { guest: true, ..community.clone() };
    assert_eq!(said(&law.decide(&community)), "ask trust.below");
    assert_eq!(said(&law.decide(&guest)), "deny ask.guest, trust.below");
    assert!(law.decide(&Facts { stage: DecisionStage::Offer, ..guest.clone() }).is_offered());
    assert_eq!(said(&law.decide(&Facts { guest: true, ..call("read") })), "allow mandate.allow");
    // The fact is in the record of a guest's call alone, so that older records read as before.
    let text = |facts: &Facts| String::from_utf8(facts.canonical().unwrap()).unwrap();
    assert!(text(&guest).contains("\"guest\":true") && !text(&community).contains("guest"));
    assert_eq!(Facts::parse(text(&guest).as_bytes()).unwrap(), guest);
}

#[test]
fn l3_a_tool_without_a_manifest_is_denied() {
    let own = LawTexts { law: None, ..texts() };
    let with = |settings: Option<&str>| {
        let mut texts = LawTexts { law: settings.map(str::to_owned), ..own.clone() };
        texts.mandates.insert("all".to_owned(), "---\ntools: unmanifested\n---\n".to_owned());
        Constitution::new(texts, &["unmanifested"]).unwrap()
    };
    assert_eq!(said(&with(None).decide(&call("unmanifested"))), "deny manifest.missing");
    let open = with(Some("{ defaultAllow: true }"));
    assert_eq!(said(&open.decide(&call("unmanifested"))), "allow mandate.allow");
    assert_eq!(
        said(&open.decide(&tainted("unmanifested"))),
        "ask trust.trifecta",
        "an unknown tool may be a way out"
    );
}

#[test]
fn input_below_a_tools_trust_is_asked_or_denied() {
    let (asking, denying) = (law("", ""), law("{ belowTrust: \"deny\" }", ""));
    let community = Facts { labels: Labels::new(Trust::Community, false), ..call("write") };
    assert_eq!(said(&asking.decide(&community)), "ask trust.below");
    assert_eq!(said(&denying.decide(&community)), "deny trust.below");
    let owners = Facts { provenance: ArgumentProvenance::Owner, ..community.clone() };
    assert_eq!(said(&denying.decide(&owners)), "allow mandate.allow");
    let sub = Facts { kind: SessionKind::Subagent, ..owners };
    assert_eq!(said(&asking.decide(&sub)), "deny trust.below", "another agent's words are not the owner's");
    let unanswered = Facts { approver: false, ..community.clone() };
    let verdict = asking.decide(&unanswered);
    assert_eq!(said(&verdict), "deny ask.no_approver, trust.below");
    assert!(asking.decide(&Facts { stage: DecisionStage::Offer, ..unanswered }).is_offered());
    let granted = Facts { grant: Some("g1".into()), ..community.clone() };
    assert_eq!(asking.decide(&granted).waived_by.as_deref(), Some("grant.g1"));
    assert_eq!(said(&denying.decide(&granted)), "deny trust.below", "a denial is never waived");
    let approved = Facts { approval: Some("a1".into()), grant: Some("g1".into()), ..community };
    let verdict = asking.decide(&approved);
    assert_eq!(
        (said(&verdict).as_str(), verdict.waived_by.as_deref()),
        ("allow trust.below", Some("approval.a1"))
    );
}

#[test]
fn sub_agents_are_denied_what_needs_an_owner() {
    let law = law("", "");
    for tool in ["exec", "message", "gateway", "cron", "nodes"] {
        let sub =
            Facts { kind: SessionKind::Subagent, mandates: vec!["all".into(), "all".into()], ..call(tool) };
        assert_eq!(said(&law.decide(&sub)), "deny trust.below", "{tool}");
    }
    let narrow =
        Facts { kind: SessionKind::Subagent, mandates: vec!["all".into(), "reader".into()], ..call("write") };
    assert_eq!(said(&law.decide(&narrow)), "deny mandate.not_listed");
}

#[test]
fn l1_untrusted_words_private_data_and_a_way_out_do_not_meet() {
    let law = law("", "");
    for tool in ["web_fetch", "web_search", "send_message"] {
        assert!(said(&law.decide(&tainted(tool))).starts_with("ask "), "{tool}");
        assert!(law.decide(&tainted(tool)).rules.contains(&"trust.trifecta".to_owned()), "{tool}");
        let unasked = Facts { approver: false, ..tainted(tool) };
        assert_eq!(law.decide(&unasked).decision, Decision::Deny, "{tool}");
        let sub = Facts { kind: SessionKind::Subagent, ..tainted(tool) };
        assert_eq!(law.decide(&sub).decision, Decision::Deny, "{tool}");
        for clean in [Labels::new(Trust::Community, false), Labels::new(Trust::Verified, true)] {
            assert_eq!(
                law.decide(&Facts { labels: clean, ..call(tool) }).decision,
                Decision::Allow,
                "{tool}"
            );
        }
    }
    let mut write = Facts { labels: Labels::new(Trust::Community, true), ..call("write") };
    assert_eq!(said(&law.decide(&write)), "ask trust.below");
    write.args.outside = Some(true);
    assert_eq!(said(&law.decide(&write)), "ask trust.below, trust.trifecta");
    let owners = Facts { provenance: ArgumentProvenance::Owner, ..tainted("web_fetch") };
    assert_eq!(said(&law.decide(&owners)), "allow mandate.allow");
}

#[test]
fn channels_and_risks_are_allowlists() {
    let law = law(
        r#"{ channels: { classes: { telegram: "external", cli: "internal" }, allow: { external: ["read"], internal: ["*"] } },
             riskAllow: { external: "low", internal: "high" } }"#,
        "",
    );
    let on = |channel: &str, tool: &str| said(&law.decide(&Facts { channel: channel.into(), ..call(tool) }));
    assert_eq!(on("telegram", "read"), "allow mandate.allow");
    assert_eq!(on("telegram", "write"), "deny channel.not_allowed, risk.not_allowed");
    assert_eq!(on("cli", "write"), "allow mandate.allow");
    assert_eq!(on("cli", "exec"), "deny risk.not_allowed");
    assert_eq!(on("mail", "read"), "deny channel.not_allowed, risk.not_allowed", "it has no class");
}

#[test]
fn malformed_arguments_are_denied() {
    let mut facts = call("read");
    facts.args.malformed = true;
    assert_eq!(said(&law("", "").decide(&facts)), "deny args.malformed");
}

/// The documented example: a fixed answer to the sender without a person, limited per hour.
#[test]
fn the_honeypot_exception_covers_its_template_and_nothing_else() {
    let law = law(
        r#"{ exceptions: [{
            id: "honeypot", tool: "message", templates: ["thanks", "tell-me-more"], recipientTypes: ["sender"],
            noLinks: true, noAttachments: true, minInputTrust: "untrusted", limit: { count: 3, perSeconds: 3600 },
        }] }"#,
        "",
    );
    let mut facts =
        Facts { labels: Labels::new(Trust::Untrusted, false), approver: false, ..call("message") };
    facts.args.template = Some("thanks".into());
    facts.args.recipient_type = Some("sender".into());
    (facts.args.links, facts.args.attachments) = (Some(false), Some(false));
    facts.exception_uses.insert("honeypot".into(), 2);
    let covered = law.decide(&facts);
    assert_eq!(
        (said(&covered).as_str(), covered.waived_by.as_deref()),
        ("allow mandate.allow", Some("exception.honeypot"))
    );

    type Case = (&'static str, fn(&mut Facts));
    let cases: [Case; 9] = [
        ("limit", |facts| {
            facts.exception_uses.insert("honeypot".into(), 3);
        }),
        ("uncounted", |facts| facts.exception_uses.clear()),
        ("template", |facts| facts.args.template = Some("free".into())),
        ("no template", |facts| facts.args.template = None),
        ("recipient", |facts| facts.args.recipient_type = Some("customer".into())),
        ("link", |facts| facts.args.links = Some(true)),
        ("unknown links", |facts| facts.args.links = None),
        ("attachment", |facts| facts.args.attachments = Some(true)),
        ("private", |facts| facts.labels.private = true),
    ];
    for (name, change) in cases {
        let mut changed = facts.clone();
        change(&mut changed);
        assert_eq!(law.decide(&changed).decision, Decision::Deny, "{name}");
    }
}

#[test]
fn audit_allows_and_keeps_the_verdict() {
    let (enforcing, auditing) = (law("", ""), law("{ overrides: { exec: \"audit\" } }", ""));
    let facts = Facts { approver: false, ..call("exec") };
    let (enforced, audited) = (enforcing.decide(&facts), auditing.decide(&facts));
    assert_eq!(enforced.decision, Decision::Deny);
    assert_eq!(audited, Verdict { decision: Decision::Allow, audited: Some(Decision::Deny), ..enforced });
    assert_eq!(auditing.decide(&call("read")).audited, None);
}

#[test]
fn an_explanation_lists_the_rules_in_order() {
    let law =
        law("", "@id(\"no-mail\")\nforbid(principal, action == Tribune::Action::\"message\", resource);");
    let explained = law.explain(&tainted("message"));
    let steps: Vec<String> =
        explained.steps.iter().map(|step| format!("{} {}", step.outcome, step.rule)).collect();
    assert_eq!(
        steps,
        [
            "passed kernel.frozen",
            "passed mandate.allow",
            "passed hook",
            "passed manifest.missing",
            "asked trust.below",
            "asked trust.trifecta",
            "passed path.obeyed",
            "denied policy.no-mail",
            "asked effect.side_effect",
        ]
    );
    assert_eq!(explained.verdict, law.decide(&tainted("message")));
    assert_eq!(said(&explained.verdict), "deny policy.no-mail");
}

/// An approval mode answers one question, and allows nothing that is denied.
#[test]
fn l1_an_approval_mode_answers_one_question_and_nothing_else() {
    use crate::facts::ApprovalMode;
    let law = law("", "");
    let with =
        |asking: ApprovalMode, facts: Facts| law.decide(&Facts { approval_mode: Some(asking), ..facts });
    assert_eq!(law.decide(&call("exec")).decision, Decision::Ask, "the ground of the rest");
    assert_eq!(with(ApprovalMode::Ask, call("exec")), law.decide(&call("exec")));
    let free = with(ApprovalMode::ApproveAll, call("exec"));
    assert_eq!((free.decision, free.waived_by.as_deref()), (Decision::Allow, Some("asking.approve_all")));
    // The floor and the rules above it.
    let unlisted = Facts { mandates: vec!["reader".into()], ..call("exec") };
    assert_eq!(with(ApprovalMode::ApproveAll, unlisted).decision, Decision::Deny);
    let frozen = Facts { frozen: true, ..call("exec") };
    assert_eq!(with(ApprovalMode::ApproveAll, frozen).decision, Decision::Deny);
    assert_eq!(
        with(ApprovalMode::ApproveAll, tainted("exec")).decision,
        law.decide(&tainted("exec")).decision
    );
    // Read-only tools are allowed.
    assert_eq!(with(ApprovalMode::ApproveReads, call("read")).decision, Decision::Allow);
    for tool in ["exec", "write"] {
        assert_eq!(with(ApprovalMode::ApproveReads, call(tool)).rules, ["asking.approve_reads"], "{tool}");
    }
    for tool in ["read", "exec"] {
        assert_eq!(with(ApprovalMode::DenyAll, call(tool)).rules, ["asking.deny_all"], "{tool}");
    }
    for asking in ApprovalMode::ALL {
        assert_eq!(ApprovalMode::parse(asking.as_str()), Some(asking));
    }
}
