//! Environment variables that point a program in a sandbox to the session's sockets. Inside the sandbox they are ports on
//! loopback.

use tribune_config::egress_rules::EgressRule;
use tribune_providers::{ApiDialect, ModelRef};

/// The port of the egress proxy.
pub const EGRESS_PORT: u16 = 3128;

/// The port of the model.
pub const MODEL_PORT: u16 = 4000;

/// The port of the MCP servers that Tribune runs for a session.
pub const SERVERS_PORT: u16 = 4100;

/// The API key that SDKs are given, because they require one. The model proxy replaces it with the provider's key.
pub const PLACEHOLDER: &str = "the-daemon-puts-its-own-in";

/// The proxy variables for programs that speak HTTP. Servers inside the sandbox are reached without the proxy (`NO_PROXY`), under
/// those loopback names that no allowlist entry uses.
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

/// The variables for programs that use the SDK of a model provider.
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
    fn allowlisted_loopback_servers_are_reached_through_the_proxy() {
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
