//! Keys that are known by how they begin.
//!
//! Prefixes that nothing else uses are found anywhere, in the middle of a word too: a secret often follows an escaped
//! `\n`. Lengths are the shortest that providers issue or less.

use crate::bytes::{Class, Step, Stop, View};
use crate::entropy;
use crate::secret::{Core, Tail};

/// A beginning, and what has to follow.
pub(crate) struct Prefix {
    pub(crate) kind: &'static str,
    pub(crate) text: &'static str,
    class: Class,
    least: usize,
    place: Place,
    looks: Looks,
    /// Whether the beginning says what it is and is no part of the secret.
    pub(crate) is_shown: bool,
}

/// Where a prefix counts.
enum Place {
    Anywhere,
    /// At the beginning of a word: `task-…` is one, `\nsk-…` in JSON is not.
    Word,
    /// The same, but not in base64, where any letters turn up sooner or later.
    NoBase64,
    /// The key by itself, with nothing of a longer name before or behind it.
    Alone,
}

/// What the characters behind a prefix have to look like.
enum Looks {
    Any,
    /// Some word could follow this prefix; a key has digits or looks random.
    Mixed,
    /// Not all capitals, as the digits of a hash may be.
    Cased,
}

use Class as C;

pub(crate) static PREFIXES: &[Prefix] = &[
    anywhere("operator-token", "trb_", C::HEX, 64),
    // Models
    anywhere("anthropic-key", "sk-ant-", C::TOKEN, 16),
    anywhere("openai-key", "sk-proj-", C::TOKEN, 16),
    anywhere("openai-key", "sk-svcacct-", C::TOKEN, 16),
    anywhere("openai-key", "sk-admin-", C::TOKEN, 16),
    anywhere("openrouter-key", "sk-or-", C::TOKEN, 16),
    anywhere("langfuse-key", "sk-lf-", C::TOKEN, 30),
    // OpenAI's older keys, DeepSeek, Moonshot, and whoever is compatible with them.
    word("api-key", "sk-", C::TOKEN, 20).mixed(),
    word("elevenlabs-key", "sk_", C::HEX, 48),
    unlike_base64("google-key", "AIza", C::TOKEN, 30),
    anywhere("huggingface-token", "hf_", C::ALNUM, 30),
    anywhere("huggingface-token", "api_org_", C::ALNUM, 30),
    anywhere("groq-key", "gsk_", C::ALNUM, 40),
    word("xai-key", "xai-", C::TOKEN, 40).mixed(),
    anywhere("perplexity-key", "pplx-", C::ALNUM, 32),
    word("replicate-token", "r8_", C::ALNUM, 30),
    word("cerebras-key", "csk-", C::ALNUM, 30),
    word("fireworks-key", "fw_", C::ALNUM, 22).mixed(),
    anywhere("together-key", "tgp_v1_", C::TOKEN, 30),
    anywhere("nvidia-key", "nvapi-", C::TOKEN, 40),
    anywhere("pinecone-key", "pcsk_", C::TOKEN, 30),
    anywhere("tavily-key", "tvly-", C::TOKEN, 24),
    word("voyage-key", "pa-", C::TOKEN, 40).mixed(),
    anywhere("langsmith-key", "lsv2_pt_", C::TOKEN, 30),
    anywhere("langsmith-key", "lsv2_sk_", C::TOKEN, 30),
    // Code and its packages
    anywhere("github-token", "ghp_", C::ALNUM, 20),
    anywhere("github-token", "gho_", C::ALNUM, 20),
    anywhere("github-token", "ghu_", C::ALNUM, 20),
    anywhere("github-token", "ghs_", C::ALNUM, 20),
    anywhere("github-token", "ghr_", C::ALNUM, 20),
    anywhere("github-token", "github_pat_", C::TOKEN, 20),
    anywhere("gitlab-token", "glpat-", C::TOKEN, 20),
    anywhere("gitlab-token", "gldt-", C::TOKEN, 20),
    anywhere("gitlab-token", "glptt-", C::TOKEN, 20),
    anywhere("gitlab-token", "glrt-", C::TOKEN, 20),
    anywhere("gitlab-token", "glcbt-", C::TOKEN, 20),
    anywhere("gitlab-token", "glsoat-", C::TOKEN, 20),
    anywhere("gitlab-token", "glagent-", C::TOKEN, 20),
    anywhere("gitlab-token", "glft-", C::TOKEN, 20).mixed(),
    anywhere("gitlab-token", "GR1348941", C::TOKEN, 20),
    unlike_base64("bitbucket-token", "ATBB", C::ALNUM, 28),
    anywhere("atlassian-token", "ATATT3", C::HEADER, 60),
    anywhere("atlassian-token", "ATCTT3", C::HEADER, 60),
    anywhere("npm-token", "npm_", C::ALNUM, 36),
    anywhere("pypi-token", "pypi-AgE", C::TOKEN, 40),
    unlike_base64("crates-token", "cio", C::ALNUM, 32).mixed(),
    anywhere("rubygems-key", "rubygems_", C::HEX, 48),
    unlike_base64("nuget-key", "oy2", C::ALNUM, 43).mixed(),
    anywhere("clojars-token", "CLOJARS_", C::HEX, 60),
    anywhere("docker-token", "dckr_pat_", C::TOKEN, 20),
    anywhere("docker-token", "dckr_oat_", C::TOKEN, 20),
    anywhere("postman-key", "PMAK-", C::TOKEN, 40),
    anywhere("buildkite-token", "bkua_", C::HEX, 40),
    anywhere("circleci-token", "CCIPAT_", C::TOKEN, 30),
    anywhere("sourcegraph-token", "sgp_", C::TOKEN, 40),
    anywhere("sonar-token", "sqp_", C::HEX, 40),
    anywhere("sonar-token", "squ_", C::HEX, 40),
    anywhere("sonar-token", "sqa_", C::HEX, 40),
    // Clouds
    anywhere("aws-key-id", "AKIA", C::UPPER, 16),
    anywhere("aws-key-id", "ASIA", C::UPPER, 16),
    anywhere("aws-key-id", "ABIA", C::UPPER, 16),
    unlike_base64("alibaba-key-id", "LTAI", C::ALNUM, 12).mixed(),
    unlike_base64("tencent-key-id", "AKID", C::ALNUM, 28).mixed(),
    word("google-token", "ya29.", C::TOKEN, 20),
    word("google-token", "1//0", C::TOKEN, 30),
    anywhere("google-secret", "GOCSPX-", C::TOKEN, 20),
    shown("azure-key", "AccountKey=", C::HEADER, 40),
    shown("azure-key", "SharedAccessKey=", C::HEADER, 40),
    shown("azure-signature", "sig=", C::HEADER, 40).mixed(),
    shown("azure-secret", "7Q~", C::DOTTED, 30),
    shown("azure-secret", "8Q~", C::DOTTED, 30),
    anywhere("digitalocean-token", "dop_v1_", C::HEX, 64),
    anywhere("digitalocean-token", "doo_v1_", C::HEX, 64),
    anywhere("digitalocean-token", "dor_v1_", C::HEX, 64),
    anywhere("heroku-key", "HRKU-", C::TOKEN, 30),
    word("netlify-token", "nfp_", C::ALNUM, 30),
    word("fly-token", "fo1_", C::TOKEN, 30),
    word("fly-token", "fm2_", C::HEADER, 60),
    anywhere("planetscale-token", "pscale_tkn_", C::DOTTED, 30),
    anywhere("planetscale-token", "pscale_pw_", C::DOTTED, 30),
    anywhere("planetscale-token", "pscale_oauth_", C::DOTTED, 30),
    anywhere("supabase-key", "sbp_", C::HEX, 40),
    anywhere("supabase-key", "sb_secret_", C::TOKEN, 20),
    anywhere("databricks-token", "dapi", C::HEX, 32),
    anywhere("tailscale-key", "tskey-", C::TOKEN, 20),
    word("pulumi-token", "pul-", C::HEX, 40),
    shown("terraform-token", ".atlasv1.", C::TOKEN, 40),
    anywhere("vault-token", "hvs.", C::TOKEN, 24),
    anywhere("vault-token", "hvb.", C::TOKEN, 24),
    anywhere("vault-token", "hvr.", C::TOKEN, 24),
    anywhere("doppler-token", "dp.pt.", C::ALNUM, 40),
    anywhere("doppler-token", "dp.st.", C::DOTTED, 40),
    anywhere("doppler-token", "dp.sa.", C::ALNUM, 40),
    anywhere("doppler-token", "dp.ct.", C::ALNUM, 40),
    word("onepassword-token", "ops_ey", C::TOKEN, 60),
    word("openshift-token", "sha256~", C::TOKEN, 40),
    // Watching
    anywhere("grafana-token", "glsa_", C::TOKEN, 30),
    anywhere("grafana-token", "glc_", C::HEADER, 32),
    anywhere("grafana-key", "eyJrIjoi", C::HEADER, 40),
    anywhere("newrelic-key", "NRAK-", C::ALNUM, 27),
    anywhere("newrelic-key", "NRII-", C::TOKEN, 27),
    anywhere("sentry-token", "sntrys_", C::HEADER, 30),
    anywhere("sentry-token", "sntryu_", C::HEX, 40),
    anywhere("dynatrace-token", "dt0c01.", C::DOTTED, 60),
    anywhere("posthog-key", "phx_", C::ALNUM, 40),
    // Messages and documents
    anywhere("slack-token", "xoxa-", C::TOKEN, 10),
    anywhere("slack-token", "xoxb-", C::TOKEN, 10),
    anywhere("slack-token", "xoxc-", C::TOKEN, 10),
    anywhere("slack-token", "xoxd-", C::HEADER, 10),
    anywhere("slack-token", "xoxe-", C::TOKEN, 10),
    anywhere("slack-token", "xoxe.xox", C::TOKEN, 10),
    anywhere("slack-token", "xoxo-", C::TOKEN, 10),
    anywhere("slack-token", "xoxp-", C::TOKEN, 10),
    anywhere("slack-token", "xoxr-", C::TOKEN, 10),
    anywhere("slack-token", "xoxs-", C::TOKEN, 10),
    anywhere("slack-token", "xapp-", C::TOKEN, 10),
    shown("slack-webhook", "hooks.slack.com/services/", C::HEADER, 20),
    shown("slack-webhook", "hooks.slack.com/workflows/", C::HEADER, 20),
    shown("discord-webhook", "discord.com/api/webhooks/", C::HEADER, 40),
    shown("discord-webhook", "discordapp.com/api/webhooks/", C::HEADER, 40),
    word("sendgrid-key", "SG.", C::DOTTED, 40).mixed(),
    alone("mailgun-key", "key-", C::HEX, 32),
    word("twilio-key", "SK", C::HEX, 32),
    anywhere("brevo-key", "xkeysib-", C::TOKEN, 40),
    anywhere("notion-token", "ntn_", C::ALNUM, 40),
    anywhere("notion-token", "secret_", C::ALNUM, 40),
    unlike_base64("twitter-token", "AAAAAAAAAAAAAAAAAAAAA", C::HEADER, 60).cased(),
    anywhere("linear-key", "lin_api_", C::ALNUM, 32),
    anywhere("linear-key", "lin_oauth_", C::ALNUM, 32),
    anywhere("figma-token", "figd_", C::TOKEN, 30),
    word("airtable-token", "pat", C::DOTTED, 70).mixed(),
    word("resend-key", "re_", C::TOKEN, 24).mixed(),
    anywhere("typeform-token", "tfp_", C::TOKEN, 40),
    anywhere("contentful-token", "CFPAT-", C::TOKEN, 40),
    word("dropbox-token", "sl.", C::TOKEN, 60).mixed(),
    // Money and shops
    anywhere("stripe-key", "sk_live_", C::ALNUM, 10),
    anywhere("stripe-key", "sk_test_", C::ALNUM, 10),
    anywhere("stripe-key", "rk_live_", C::ALNUM, 10),
    anywhere("stripe-key", "rk_test_", C::ALNUM, 10),
    anywhere("razorpay-key", "rzp_live_", C::ALNUM, 14),
    anywhere("razorpay-key", "rzp_test_", C::ALNUM, 14),
    anywhere("stripe-secret", "whsec_", C::HEADER, 24),
    anywhere("shopify-token", "shpat_", C::HEX, 32),
    anywhere("shopify-token", "shpca_", C::HEX, 32),
    anywhere("shopify-token", "shppa_", C::HEX, 32),
    anywhere("shopify-token", "shpss_", C::HEX, 32),
    unlike_base64("square-token", "EAAA", C::TOKEN, 56).cased(),
    anywhere("square-token", "sq0atp-", C::TOKEN, 22),
    anywhere("square-token", "sq0csp-", C::TOKEN, 40),
    unlike_base64("facebook-token", "EAAC", C::ALNUM, 60).cased(),
    anywhere("plaid-token", "access-production-", C::TOKEN, 36),
    anywhere("plaid-token", "access-sandbox-", C::TOKEN, 36),
    unlike_base64("easypost-key", "EZAK", C::ALNUM, 50),
    // Keys of their own
    anywhere("age-key", "AGE-SECRET-KEY-1", C::UPPER, 50),
];

const fn anywhere(kind: &'static str, text: &'static str, class: Class, least: usize) -> Prefix {
    Prefix { kind, text, class, least, place: Place::Anywhere, looks: Looks::Any, is_shown: false }
}

const fn word(kind: &'static str, text: &'static str, class: Class, least: usize) -> Prefix {
    Prefix { place: Place::Word, ..anywhere(kind, text, class, least) }
}

const fn unlike_base64(kind: &'static str, text: &'static str, class: Class, least: usize) -> Prefix {
    Prefix { place: Place::NoBase64, ..anywhere(kind, text, class, least) }
}

const fn alone(kind: &'static str, text: &'static str, class: Class, least: usize) -> Prefix {
    Prefix { place: Place::Alone, ..anywhere(kind, text, class, least) }
}

const fn shown(kind: &'static str, text: &'static str, class: Class, least: usize) -> Prefix {
    Prefix { is_shown: true, ..anywhere(kind, text, class, least) }
}

impl Prefix {
    const fn mixed(self) -> Self {
        Self { looks: Looks::Mixed, ..self }
    }

    const fn cased(self) -> Self {
        Self { looks: Looks::Cased, ..self }
    }

    /// The secret of which this prefix stands at a place.
    pub(crate) fn secret(&self, view: View<'_>, at: usize) -> Step<Core> {
        if !self.counts_at(view, at) {
            return Err(Stop::No);
        }
        let after = at + self.text.len();
        let start = if self.is_shown { after } else { at };
        let most = self.least.max(entropy::JUDGED);
        let test = |run: &[u8]| {
            run.len() >= self.least
                && match self.looks {
                    Looks::Any => true,
                    Looks::Mixed => entropy::is_mixed(run),
                    Looks::Cased => run.iter().any(u8::is_ascii_lowercase),
                }
        };
        let end = view.passes(after, self.class, most, test).map_err(|stop| match stop {
            Stop::More(_) => Stop::More(start),
            Stop::No => Stop::No,
        })?;
        if matches!(self.place, Place::Alone) {
            // What was taken out behind it counts as more of a name: it was one before.
            let next = view.byte(after + self.least, start)?;
            if next.is_some_and(|next| Class::TOKEN.has(next) || next == b'[') {
                return Err(Stop::No);
            }
        }
        Ok(Core { start, end, kind: self.kind, tail: tail_of(self.class) })
    }

    fn counts_at(&self, view: View<'_>, at: usize) -> bool {
        match self.place {
            Place::Anywhere => true,
            Place::Word => view.begins_word(at, Class::ALNUM),
            Place::NoBase64 => {
                view.begins_word(at, Class::ALNUM) && !matches!(view.before(at), Some(b'+' | b'/'))
            }
            Place::Alone => view.begins_word(at, Class::TOKEN),
        }
    }
}

/// The tail goes on with what the key is made of, and with whatever would be the rest of a word.
fn tail_of(class: Class) -> Tail {
    if class.has(b'=') {
        Tail::Header
    } else if class.has(b'.') {
        Tail::Dotted
    } else {
        Tail::Token
    }
}
