//! The time to decide one call with few and with many operator rules.

use std::error::Error;
use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

use serde_json::json;
use tribune_constitution::{CallArgs, CommandFacts, Constitution, Facts, Labels, LawTexts, Trust};

/// Numbers of operator rules.
const RULES: [usize; 4] = [0, 8, 100, 1000];

/// Calls decided for each number of rules.
const CALLS: usize = 20_000;

/// Tools, with the frequency of agents' calls.
const TOOLS: [&str; 16] = [
    "read",
    "read",
    "read",
    "search",
    "search",
    "exec",
    "exec",
    "exec",
    "write",
    "edit",
    "edit",
    "web_fetch",
    "web_search",
    "message",
    "memory",
    "cron",
];

pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    println!("verdict: {CALLS} calls, goal at 100 rules: p50 10 us, p99 50 us");
    let calls: Vec<Facts> = (0..CALLS).map(call).collect();
    for rules in RULES {
        let started = Instant::now();
        let law = law(rules)?;
        let loaded = started.elapsed();
        let mut micros: Vec<f64> = Vec::with_capacity(CALLS);
        let mut counts = [0_usize; 3];
        for facts in &calls {
            let started = Instant::now();
            let verdict = black_box(law.decide(black_box(facts)));
            micros.push(started.elapsed().as_secs_f64() * 1e6);
            counts[verdict.decision as usize] += 1;
        }
        micros.sort_by(f64::total_cmp);
        let at = |share: f64| micros.get((CALLS as f64 * share) as usize).copied().unwrap_or(f64::NAN);
        let [allowed, asked, denied] = counts;
        println!(
            "  {rules:4} rules: p50 {:5.1} us, p99 {:5.1} us, p99.9 {:5.1} us; {allowed} allowed, {asked} asked, {denied} denied; loaded in {:.0} ms",
            at(0.5),
            at(0.99),
            at(0.999),
            loaded.as_secs_f64() * 1e3,
        );
    }
    Ok(())
}

/// The n-th call. Most sessions have no labels; some have read a web page, some a private file, some both.
fn call(n: usize) -> Facts {
    let tool = TOOLS[n % TOOLS.len()];
    let mut facts = Facts::for_owner_call("main", "agent:main:cli:local:dm:operator", "all", tool);
    facts.labels = match n % 7 {
        0..=2 => Labels::FRESH,
        3 | 4 => Labels::new(Trust::Verified, true),
        5 => Labels::new(Trust::Untrusted, false),
        _ => Labels::new(Trust::Untrusted, true),
    };
    let input = json!({
        "path": format!("src/module_{}/file.rs", n % 50), "content": "x", "url": format!("https://host{}.example/a", n % 40),
        "command": "git status", "to": format!("person{}@example.org", n % 30), "text": "Hello.", "action": "list",
        "name": format!("job-{}", n % 20),
    });
    let command =
        CommandFacts { programs: vec![["git", "cargo", "ls", "rm"][n % 4].to_owned()], parsed: true };
    facts.args = CallArgs::derive(tool, &input, Some(&command));
    facts
}

/// A typical law: most rules are about one tool and one value, every tenth is about all tools.
fn law(rules: usize) -> Result<Constitution, Box<dyn Error>> {
    let mut text = String::new();
    for n in 0..rules {
        let _ = match n % 10 {
            0 => writeln!(
                text,
                "@id(\"r{n}\") forbid(principal, action, resource) when {{ resource.channel == \"channel{n}\" }};"
            ),
            1 => writeln!(
                text,
                "@id(\"r{n}\") forbid(principal, action in [Tribune::Action::\"read\", Tribune::Action::\"search\"], resource) when {{ context has path && context.path like \"secret{n}/*\" }};"
            ),
            2 => writeln!(
                text,
                "@id(\"r{n}\") forbid(principal, action in [Tribune::Action::\"write\", Tribune::Action::\"edit\"], resource) when {{ context has path && (context.path like \"*/generated{n}/*\" || context.path like \"vendor{n}/*\") }};"
            ),
            3 => writeln!(
                text,
                "@id(\"r{n}\") permit(principal, action == Tribune::Action::\"exec\", resource) when {{ context has programs && context.programs == [\"tool{n}\"] }};"
            ),
            4 => writeln!(
                text,
                "@id(\"r{n}\") forbid(principal, action == Tribune::Action::\"exec\", resource) when {{ context has programs && context.programs.contains(\"danger{n}\") }};"
            ),
            5 => writeln!(
                text,
                "@id(\"r{n}\") forbid(principal, action == Tribune::Action::\"web_fetch\", resource) when {{ context has host && context.host like \"*.bad{n}.example\" }} unless {{ context.approved }};"
            ),
            6 => writeln!(
                text,
                "@id(\"r{n}\") permit(principal, action == Tribune::Action::\"message\", resource) when {{ context has recipient && context.recipient == \"person{n}@example.org\" && !context.private }};"
            ),
            7 => writeln!(
                text,
                "@id(\"r{n}\") forbid(principal, action == Tribune::Action::\"cron\", resource) when {{ context has name && context.name == \"job-{n}\" && context.trust < 2 }};"
            ),
            8 => writeln!(
                text,
                "@id(\"r{n}\") forbid(principal == Tribune::Agent::\"agent{n}\", action in Tribune::Action::\"side_effect\", resource);"
            ),
            _ => writeln!(
                text,
                "@id(\"r{n}\") forbid(principal, action == Tribune::Action::\"write\", resource) when {{ context has bytes && context.bytes > {n}00000 }} unless {{ context.approved }};"
            ),
        };
    }
    let mut texts = LawTexts::built_in();
    texts.mandates.insert("all".to_owned(), format!("---\ntools: {}\n---\n", TOOLS.join(", ")));
    texts.policies.insert("operator.cedar".to_owned(), text);
    Ok(Constitution::new(texts, &[])?)
}
