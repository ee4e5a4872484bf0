//! Groups of tools that rules can name: one for each effect and one for each risk.

use std::collections::BTreeSet;

use super::{Risk, ToolEffect, ToolManifest};

/// The group of tools with an effect, such as `side_effect`.
pub(crate) const fn effect_group(effect: ToolEffect) -> &'static str {
    effect.as_str()
}

/// The group of tools with a risk.
pub(crate) const fn risk_group(risk: Risk) -> &'static str {
    match risk {
        Risk::Low => "risk_low",
        Risk::Medium => "risk_medium",
        Risk::High => "risk_high",
        Risk::Critical => "risk_critical",
    }
}

/// The groups of a tool; none without a manifest. A built-in tool that the operator made stricter also stays in the
/// groups of its built-in manifest, so that every rule for those groups still applies to it.
pub(crate) fn groups(manifest: Option<&ToolManifest>) -> BTreeSet<&'static str> {
    let Some(own) = manifest else { return BTreeSet::new() };
    let kernel = ToolManifest::built_in(&own.id);
    let of = |manifest: &ToolManifest| [effect_group(manifest.effect), risk_group(manifest.risk_level)];
    of(own).into_iter().chain(kernel.iter().flat_map(of)).collect()
}

/// Whether this is the name of a group, which no tool may have.
pub(crate) fn is_group(name: &str) -> bool {
    ToolEffect::ALL.iter().any(|effect| effect_group(*effect) == name)
        || Risk::ALL.iter().any(|risk| risk_group(*risk) == name)
}
