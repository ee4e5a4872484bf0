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
    assert_eq!((settings.mode_of("exec"), settings.mode_of("read")), (Mode::Audit, Mode::Enforce));
    assert_eq!((settings.class_of("telegram"), settings.class_of("mail")), ("external", UNCLASSIFIED));
    assert_eq!(settings.exceptions_for("message").count(), 1);
    assert_eq!(settings.exceptions[0].min_input_trust, Some(Trust::Untrusted));
    assert_eq!(settings.approvals.roles_for("exec"), BTreeSet::from(["admin"]));
    assert_eq!(settings.approvals.roles_for("read"), BTreeSet::from(["operator"]));
    assert_eq!(parse("{}").unwrap(), Settings::default());
    assert_eq!(Settings::default().mode, Mode::Enforce);
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
