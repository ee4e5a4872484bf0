//! The variables that lead a program in a box to what it reaches: ports of its own loopback.

use tribune_config::egress_rules::EgressRule;
use tribune_providers::{ApiDialect, ModelRef};

/// The port of the proxy that leads out.
pub const EGRESS_PORT: u16 = 3128;

/// The port of the model.
pub const MODEL_PORT: u16 = 4000;

/// The port of the MCP servers that the house runs for a session.
pub const SERVERS_PORT: u16 = 4100;

/// What SDKs are given as a key, because they want one. The house puts its own in.
pub const PLACEHOLDER: &str = "the-house-puts-its-own-in";

/// For programs that speak HTTP. Servers inside are reached without the proxy, under the names of the loopback that none of the
/// listed places has.
pub fn proxy_variables(places: &[EgressRule]) -> Vec<(String, String)> {
    let proxy = format!("http://127.0.0.1:{EGRESS_PORT}");
    let own = ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"].map(|name| (name, proxy.clone()));
    let is_listed = |host: &str| {
        let before = |at: &str| at.strip_prefix(host).is_some_and(|rest| rest.starts_with(':'));
        places.iter().any(|place| before(&place.at.to_string().replace(['[', ']'], "")))
    };
    let inside: Vec<&str> =
        ["localhost", "127.0.0.1", "::1"].into_iter().filter(|host| !is_listed(host)).collect();
    let direct = ["NO_PROXY", "no_proxy"].map(|name| (name, inside.join(",")));
    own.into_iter().chain(direct).map(|(name, value)| (name.to_owned(), value)).collect()
}

/// For programs with an SDK of a provider of models.
pub fn model_variables(model: &ModelRef, dialect: ApiDialect) -> Vec<(String, String)> {
    let base = format!("http://localhost:{MODEL_PORT}");
    let (url, key, base) = match dialect {
        ApiDialect::Anthropic => ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", base),
        ApiDialect::OpenAi | ApiDialect::OpenAiCompatible => {
            ("OPENAI_BASE_URL", "OPENAI_API_KEY", format!("{base}/v1"))
        }
        ApiDialect::Gemini => ("GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY", base),
    };
    let own = [(url, base), (key, PLACEHOLDER.to_owned()), ("TRIBUNE_MODEL", model.model().to_owned())];
    own.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use tribune_config::net_arg::parse_net;

    use super::*;

    #[test]
    fn a_listed_server_of_this_machine_is_reached_through_the_proxy() {
        let direct = |net: &[&str]| {
            let places: Vec<EgressRule> = net.iter().flat_map(|net| parse_net(net).unwrap()).collect();
            proxy_variables(&places).into_iter().find(|(name, _)| name == "NO_PROXY").unwrap().1
        };
        assert_eq!(direct(&[]), "localhost,127.0.0.1,::1");
        assert_eq!(direct(&["example.org", "127.0.0.11:80"]), "localhost,127.0.0.1,::1");
        assert_eq!(direct(&["127.0.0.1:8080"]), "localhost,::1");
        assert_eq!(direct(&["[::1]:80", "localhost:1"]), "127.0.0.1");
    }
}
