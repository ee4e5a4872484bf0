//! Laws and calls for tests.

use std::collections::BTreeMap;

use crate::bundle::Constitution;
use crate::facts::Facts;
use crate::texts::LawTexts;

/// A mandate for every tool that has a manifest.
const ALL: &str = "---\ntools: browser, cron, edit, egress, exec, gateway, mcp, memory, message, nodes, read, search, send_message, \
                   spawn, web_fetch, web_search, write\n---\n";

pub(crate) fn texts() -> LawTexts {
    let mut texts = LawTexts::built_in();
    texts.mandates.insert("all".to_owned(), ALL.to_owned());
    texts.mandates.insert("reader".to_owned(), "---\ntools: read, search\n---\n".to_owned());
    texts
}

pub(crate) fn law(settings: &str, rules: &str) -> Constitution {
    let policies = if rules.is_empty() {
        BTreeMap::new()
    } else {
        [("rules.cedar".to_owned(), rules.to_owned())].into()
    };
    let law = (!settings.is_empty()).then(|| settings.to_owned());
    Constitution::new(LawTexts { law, policies, ..texts() }, &["unmanifested"]).unwrap()
}

pub(crate) fn call(tool: &str) -> Facts {
    Facts::for_owner_call("main", "agent:main:cli:local:dm:op", "all", tool)
}
