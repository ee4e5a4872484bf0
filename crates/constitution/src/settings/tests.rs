use super::*;
use crate::trust::Trust;

const TOOLS: [&str; 4] = ["exec", "gateway", "message", "read"];

fn parse(text: &str) -> Result<Settings, String> {
    let tools = BTreeSet::from(TOOLS);
    let said = |errors: Vec<TextError>| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    Settings::parse(text, &tools).map_err(said)
}

#[test]
fn every_setting_is_read() {
    let settings = parse(
        r#"{
            mode: "enforce", // what holds
            overrides: { exec: "audit", gateway: "enforce" },
            defaultAllow: true,
            belowTrust: "deny",
            channels: {
                classes: { telegram: "external", cli: "internal" },
                allow: { external: ["read", "message"], internal: ["*"] },
            },
            riskAllow: { external: "medium", internal: "critical" },
            exceptions: [{
                id: "honeypot", tool: "message", templates: ["thanks"], recipientTypes: ["sender"],
                noLinks: true, noAttachments: true, minInputTrust: "untrusted", limit: { count: 5, perSeconds: 3600 },
            }],
            approvals: { expiresMinutes: 60, roles: { exec: ["admin"], "*": ["operator"] }, twoPerson: ["gateway"] },
        }"#,
    )
    .unwrap();
    assert_eq!(
        (settings.mode_of("exec"), settings.mode_of("read")),
        (EnforcementMode::Audit, EnforcementMode::Enforce)
    );
    assert_eq!((settings.class_of("telegram"), settings.class_of("mail")), ("external", UNCLASSIFIED));
    assert_eq!(settings.exceptions_for("message").count(), 1);
    assert_eq!(settings.exceptions[0].min_input_trust, Some(Trust::Untrusted));
    assert_eq!(settings.approvals.roles_for("exec"), BTreeSet::from(["admin"]));
    assert_eq!(settings.approvals.roles_for("read"), BTreeSet::from(["operator"]));
    assert_eq!(parse("{}").unwrap(), Settings::default());
    assert_eq!(Settings::default().mode, EnforcementMode::Enforce);
}

#[test]
fn refusals_say_where_and_what() {
    for (text, said) in [
        (
            "{ mod: 1 }",
            "policy/law.json5:1:3: unknown key `mod`: did you mean `mode`? The keys here are mode, overrides, defaultAllow, belowTrust, channels, riskAllow, exceptions, approvals",
        ),
        (
            "{ mode: \"enfroce\" }",
            "policy/law.json5:1:9: `mode` is `enfroce`: did you mean `enforce`? The words are enforce, audit, off",
        ),
        (
            "{\n  overrides: { exce: \"off\" } }",
            "policy/law.json5:2:16: `overrides.exce` names no tool (`exce`): did you mean `exec`? The tools are exec, gateway, message, read",
        ),
        (
            "{ riskAllow: { extern: \"low\" }, channels: { classes: { mail: \"external\" } } }",
            "policy/law.json5:1:16: `riskAllow.extern` names no class of `channels.classes`: did you mean `external`? The classes are external, unclassified",
        ),
        (
            "{ approvals: { expiresMinutes: 0 } }",
            "policy/law.json5:1:16: `approvals.expiresMinutes` is 0: use a whole number from 1 to 43200",
        ),
        (
            "{ exceptions: [ { id: \"a\", tool: \"*\", limit: { count: 1, perSeconds: 1 } } ] }",
            "policy/law.json5:1:28: `exceptions[0].tool` names no tool (`*`): the tools are exec, gateway, message, read",
        ),
        (
            "{ exceptions: [ { id: \"a\", tool: \"message\", limit: { count: 0, perSeconds: 1 } } ] }",
            "policy/law.json5:1:54: `exceptions[0].limit.count` is 0: use a whole number from 1 to 1000000",
        ),
        (
            "{ exceptions: [ { id: \"a\", tool: \"message\", minInputTrust: \"untrusted\", limit: { count: 1, perSeconds: 1 } } ] }",
            "policy/law.json5:1:45: `exceptions[0].minInputTrust` lets less trusted words choose the text: list the `templates` it is for, or remove it",
        ),
    ] {
        assert_eq!(parse(text).unwrap_err(), said);
    }
    let two = parse(
        "{ exceptions: [ { id: \"a\", tool: \"read\", limit: {count: 1, perSeconds: 1} }, { id: \"a\", tool: \"read\", limit: {count: 1, perSeconds: 1} } ] }",
    );
    assert!(two.unwrap_err().contains("`exceptions[1].id` is given twice (`a`)"));
}

#[test]
fn all_errors_are_reported_with_their_positions() {
    let text = r#"{
  mode: "enfroce",
  mod: 1,
  overrides: { exce: 5, exec: "adit", raed: "off" },
  belowTrust: ["ask"],
  channels: { allow: { internal: ["raed", 3], unclassified: "read" } },
  riskAllow: { internal: "hgh" },
  exceptions: [
    "none",
    { id: "a b", tool: "mesage", limt: 1, minInputTrust: "untrusted" },
    { id: "c", tool: "message", templates: "x", minInputTrust: "owner", limit: { count: 0, perSeconds: -1 } },
  ],
  approvals: { expiresMinutes: 0.5, twoPerson: ["raed", 1] },
  mode: "off",
}"#;
    let said = parse(text).unwrap_err();
    let said: Vec<&str> = said.lines().map(|line| line.trim_start_matches("policy/law.json5:")).collect();
    let expected = [
        "2:9: `mode` is `enfroce`: did you mean `enforce`?",
        "3:3: unknown key `mod`: did you mean `mode`?",
        "4:16: `overrides.exce` names no tool (`exce`): did you mean `exec`?",
        "4:22: `overrides.exce` has the wrong type: write a string in quotes",
        "4:31: `overrides.exec` is `adit`: did you mean `audit`?",
        "4:39: `overrides.raed` names no tool (`raed`): did you mean `read`?",
        "5:15: `belowTrust` has the wrong type: write a string in quotes",
        "6:24: `channels.allow.internal` names no class of `channels.classes`",
        "6:24: `channels.allow.internal` names no tool (`raed`): did you mean `read`?",
        "6:43: `channels.allow.internal[1]` has the wrong type: write a string in quotes",
        "6:61: `channels.allow.unclassified` has the wrong type: write a list in `[ ]`",
        "7:16: `riskAllow.internal` names no class of `channels.classes`",
        "7:26: `riskAllow.internal` is `hgh`: did you mean `high`?",
        "9:5: `exceptions[0]` has the wrong type: write an object in `{ }`",
        "10:5: `exceptions[1]`: the key `limit` is missing: add it",
        "10:7: `exceptions[1].id` cannot name an exception",
        "10:18: `exceptions[1].tool` names no tool (`mesage`): did you mean `message`?",
        "10:34: unknown key `exceptions[1].limt`: did you mean `limit`?",
        "10:43: `exceptions[1].minInputTrust` lets less trusted words choose the text",
        "11:44: `exceptions[2].templates` has the wrong type: write a list in `[ ]`",
        "11:82: `exceptions[2].limit.count` is 0: use a whole number from 1 to 1000000",
        "11:104: `exceptions[2].limit.perSeconds` cannot be read (invalid value: integer `-1`, expected u64)",
        "13:32: `approvals.expiresMinutes` has the wrong type: write a whole number",
        "13:37: `approvals.twoPerson` names no tool (`raed`): did you mean `read`?",
        "13:57: `approvals.twoPerson[1]` has the wrong type: write a string in quotes",
        "14:3: `mode` is given twice: remove one of them",
    ];
    assert_eq!(said.len(), expected.len(), "{said:#?}");
    for (said, expected) in said.iter().zip(expected) {
        assert!(said.starts_with(expected), "{expected}: {said}");
    }
}

#[test]
fn errors_that_depend_on_unreadable_values_are_not_reported() {
    for (text, said) in [
        // The classes are unknown.
        ("{ channels: { classes: 1, allow: { internal: [] } }, riskAllow: { internal: \"low\" } }", "1:24: "),
        ("{ channels: { classes: { mail: 1 } }, riskAllow: { internal: \"low\" } }", "1:32: "),
        // So is the exception, and every other setting.
        ("{ exceptions: [1] }", "1:16: "),
        ("[]", "1:1: "),
    ] {
        let found = parse(text).unwrap_err();
        let place = format!("policy/law.json5:{said}");
        assert!(found.lines().count() == 1 && found.starts_with(&place), "{text}: {found}");
    }
}

#[test]
fn the_number_of_reported_errors_is_bounded() {
    let many: String = (0..5_000).map(|n| format!("k{n}: 1,\n")).collect();
    let said = parse(&format!("{{\n{many}}}")).unwrap_err();
    assert_eq!(said.lines().count(), MAX_ERRORS);
    let twice: String = (0..5_000).map(|n| format!("k{n}: \"off\", k{n}: \"off\",\n")).collect();
    let said = parse(&format!("{{ overrides: {{\n{twice}}} }}")).unwrap_err();
    assert_eq!(said.lines().count(), 2 * MAX_ERRORS, "given twice, and unknown");
}
