//! The table of probes in the documentation.

use std::fmt::Write as _;
use std::path::PathBuf;

use tribune_contract::SandboxMode;

use crate::probes::probe::{self, Control};

/// Compares the documentation with the probes, or writes it if `UPDATE_DOCS` is set.
pub(crate) fn compare() -> Result<(), String> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/sandbox-probes.md");
    let table = table();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        return std::fs::write(&path, table).map_err(|error| error.to_string());
    }
    let published = std::fs::read_to_string(&path).unwrap_or_default();
    if published == table {
        return Ok(());
    }
    Err("docs/sandbox-probes.md differs from the probes: run the test again with UPDATE_DOCS=1".to_owned())
}

fn table() -> String {
    let mut text = String::from(
        "# Attack probes of the sandbox\n\n\
         Every probe runs inside through the same launch as an agent, once started by root and once by an ordinary user, and\n\
         must fail. As a control it also runs without the mechanisms in the last column (or without a sandbox, as root, if no\n\
         unprivileged user could succeed anywhere), and must succeed there: otherwise its failure would prove nothing.\n\
         Those with a mechanism in the third column also run in `landlock` mode, where they must fail too and succeed without it.\n\
         The probes are in `crates/sandbox/tests/probes`; their test writes this table with `UPDATE_DOCS=1`.\n",
    );
    let mut group = "";
    for probe in probe::all() {
        if probe.group != group {
            group = probe.group;
            let _ = write!(
                text,
                "\n## {group}\n\n| probe | what it tries | succeeds without | in `landlock` mode without |\n|---|---|---|---|\n"
            );
        }
        let [full, landlock] =
            [SandboxMode::Full, SandboxMode::Landlock].map(|mode| match probe.control_in(mode) {
                Some(Control::Without(layers)) => {
                    layers.iter().map(|layer| layer.name()).collect::<Vec<_>>().join(" + ")
                }
                Some(Control::AsRoot) => "no sandbox, as root".to_owned(),
                None => String::new(),
            });
        let _ = writeln!(text, "| `{}` | {} | {full} | {landlock} |", probe.name, probe.tries);
    }
    let _ = write!(text, "\n{} probes.\n", probe::all().count());
    text
}
