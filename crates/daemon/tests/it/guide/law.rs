//! The law guide `law.md`: its files are loaded as a home, and every verdict that it states is evaluated.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tribune_constitution::{Constitution, Facts, ToolManifest, check};
use tribune_governance::policy_files;
use tribune_records::approval::call_args::args_of;
use tribune_testkit::TempHome;

use super::fences::{Fence, fences, rows};

const GUIDE: &str = "law.md";

/// The home of the guide's files, and its law.
fn guide_home(fences: &[Fence]) -> (TempHome, Constitution) {
    let home = TempHome::new();
    for fence in fences {
        if let Some(file) = fence.file() {
            home.write(file, &fence.text);
        }
    }
    let law = policy_files::load(home.home.root(), &tribune_tools::NAMES)
        .unwrap_or_else(|error| panic!("{GUIDE}: {error}"));
    (home, law)
}

/// The facts of `TOOL {input}` or `TOOL {input} | {differences}`: by `dev`, in a session that has read nothing.
fn facts(call: &str) -> Facts {
    let (call, patch) =
        call.find("} | {").map_or((call, "{}"), |at| (&call[..=at], &call[at + "} | ".len()..]));
    let (tool, input) = call.split_once(' ').unwrap();
    let input: Value = serde_json::from_str(input).unwrap_or_else(|error| panic!("{call}: {error}"));
    let mut facts = Facts::for_owner_call("dev", "agent:dev:cli:local:dm:you", "dev", tool);
    facts.args = args_of(tool, &input, &[]);
    let mut facts = serde_json::to_value(facts).unwrap();
    let patch: Value = serde_json::from_str(patch).unwrap_or_else(|error| panic!("{patch}: {error}"));
    for (name, value) in patch.as_object().unwrap() {
        match (&mut facts[name], value) {
            (Value::Object(own), Value::Object(patch)) => own.extend(patch.clone()),
            (own, value) => *own = value.clone(),
        }
    }
    Facts::from_value(facts).unwrap_or_else(|error| panic!("{call}: {error}"))
}

#[test]
fn law_guide_verdicts_match_the_policy_engine() {
    let fences = fences(GUIDE);
    let (_home, law) = guide_home(&fences);
    let mut decided = 0;
    for fence in fences.iter().filter(|fence| fence.kind() == "verdicts") {
        for line in fence.text.lines() {
            let (call, expected) =
                line.split_once(" → ").unwrap_or_else(|| panic!("{}: {line}", fence.place));
            let verdict = law.decide(&facts(call));
            let audited = verdict
                .audited
                .map_or_else(String::new, |audited| format!(" (audited {})", audited.as_str()));
            let actual = format!("{}{audited} {}", verdict.decision.as_str(), verdict.rule_list());
            assert_eq!(actual, expected, "{}: {call}", fence.place);
            decided += 1;
        }
    }
    assert!(decided >= 20, "{decided}");
}

#[test]
fn law_guide_rules_pass_their_own_examples() {
    let (home, law) = guide_home(&fences(GUIDE));
    let tested = law.test();
    let rules: BTreeSet<&str> = tested.iter().map(|tested| tested.rule.as_str()).collect();
    assert_eq!(rules, BTreeSet::from(["cargo", "no-root", "pipeline", "search-src", "secrets"]));
    for tested in &tested {
        assert!(tested.passed(), "{tested:?}");
    }
    let texts = policy_files::texts(home.home.root()).unwrap();
    let found: String =
        check(&texts, &tribune_tools::NAMES).iter().map(|finding| format!("{finding}\n")).collect();
    let shown = fences(GUIDE).into_iter().find(|fence| fence.kind() == "findings").unwrap();
    assert_eq!(found, shown.text);
}

#[test]
fn law_guide_shows_the_steps_of_a_verdict() {
    let fences = fences(GUIDE);
    let (_home, law) = guide_home(&fences);
    let shown = fences.iter().find(|fence| fence.kind() == "explain").unwrap();
    let explained = law.explain(&facts(&shown.arguments()));
    let steps: String =
        explained.steps.iter().map(|step| format!("{} {}\n", step.outcome, step.rule)).collect();
    assert_eq!(steps, shown.text);
}

#[test]
fn law_guide_lists_every_built_in_manifest() {
    let rows = rows(GUIDE);
    for manifest in ToolManifest::all_built_in() {
        let name = format!("`{}`", manifest.id);
        let row = rows.iter().find(|cells| cells.len() == 5 && cells[0].split(", ").any(|own| own == name));
        let row = row.unwrap_or_else(|| panic!("{name} is not in the table"));
        let private = if manifest.reads_private() { ", private" } else { "" };
        let expected = [
            manifest.risk_level.as_str().to_owned(),
            manifest.min_input_trust.as_str().to_owned(),
            format!("{}{private}", manifest.output_trust.as_str()),
            manifest.effect.as_str().to_owned(),
        ];
        assert_eq!(row[1..], expected, "{name}");
    }
}

#[test]
fn rules_of_every_guide_pass_their_own_examples() {
    for name in ["rpc.md", "rest.md", "approvals.md", "editors.md"] {
        let fences = fences(name);
        let rules: Vec<&Fence> = fences.iter().filter(|fence| fence.kind() == "cedar").collect();
        let home = TempHome::new();
        for fence in &rules {
            home.write(fence.file().unwrap(), &fence.text);
        }
        // A rule about a tool that no mandate of the guide has is tested as well.
        home.write(
            "mandates/all.md",
            &format!("---\ntools: mcp, {}\n---\n", tribune_tools::NAMES.join(", ")),
        );
        let law = policy_files::load(home.home.root(), &tribune_tools::NAMES)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let tested = law.test();
        assert!(!rules.is_empty() && !tested.is_empty(), "{name}");
        for tested in tested {
            assert!(tested.passed(), "{name}: {}", json!(tested));
        }
    }
}
