//! Keys that are recognised by their prefix.
//!
//! A prefix that nothing else uses matches anywhere, also inside a word: a secret often follows an escaped `\n`. The
//! minimum lengths are those of the shortest keys that providers issue, or less.

use crate::bytes::{ByteClass, InputText, MatchResult, NoMatch};
use crate::entropy;
use crate::secret::{Core, Tail};

/// A prefix, and what must follow it.
pub(crate) struct KeyPrefix {
    pub(crate) kind: &'static str,
    pub(crate) text: &'static str,
    class: ByteClass,
    min_rest: usize,
    position: PrefixPosition,
    rest: RestRule,
    /// Whether the prefix only names the secret and stays in the text.
    pub(crate) is_label: bool,
}

/// Where a prefix matches.
enum PrefixPosition {
    Anywhere,
    /// At the start of a word: `sk-` matches in `\nsk-…` (an escape in JSON) and not in `task-…`.
    Word,
    /// The same, but not in base64, where any sequence of letters can occur by chance.
    NoBase64,
    /// Only if no longer identifier surrounds the key.
    Alone,
}

/// What the characters after a prefix must look like.
enum RestRule {
    Any,
    /// A word could follow this prefix; a key has digits or looks random.
    Mixed,
    /// Not all upper case, as the digits of a hash may be.
    Cased,
}

use ByteClass as C;

pub(crate) static PREFIXES: &[KeyPrefix] = &[
    anywhere("operator-token", "trb_", C::HEX, 64),
    // Models
    anywhere("anthropic-key", "sk-ant-", C::TOKEN, 16),
    anywhere("openai-key", "sk-proj-", C::TOKEN, 16),
    anywhere("openai-key", "sk-svcacct-", C::TOKEN, 16),
    anywhere("openai-key", "sk-admin-", C::TOKEN, 16),
    anywhere("openrouter-key", "sk-or-", C::TOKEN, 16),
    anywhere("langfuse-key", "sk-lf-", C::TOKEN, 30),
    // OpenAI's older keys, DeepSeek, Moonshot and compatible providers.
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
    // Code hosts and package registries
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
    // Cloud providers
    anywhere("aws-key-id", "AKIA", C::UPPER, 16),
    anywhere("aws-key-id", "ASIA", C::UPPER, 16),
    anywhere("aws-key-id", "ABIA", C::UPPER, 16),
    unlike_base64("alibaba-key-id", "LTAI", C::ALNUM, 12).mixed(),
    unlike_base64("tencent-key-id", "AKID", C::ALNUM, 28).mixed(),
    word("google-token", "ya29.", C::TOKEN, 20),
    word("google-token", "1//0", C::TOKEN, 30),
    anywhere("google-secret", "GOCSPX-", C::TOKEN, 20),
    label("azure-key", "AccountKey=", C::HEADER, 40),
    label("azure-key", "SharedAccessKey=", C::HEADER, 40),
    label("azure-signature", "sig=", C::HEADER, 40).mixed(),
    label("azure-secret", "7Q~", C::DOTTED, 30),
    label("azure-secret", "8Q~", C::DOTTED, 30),
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
    label("terraform-token", ".atlasv1.", C::TOKEN, 40),
    anywhere("vault-token", "hvs.", C::TOKEN, 24),
    anywhere("vault-token", "hvb.", C::TOKEN, 24),
    anywhere("vault-token", "hvr.", C::TOKEN, 24),
    anywhere("doppler-token", "dp.pt.", C::ALNUM, 40),
    anywhere("doppler-token", "dp.st.", C::DOTTED, 40),
    anywhere("doppler-token", "dp.sa.", C::ALNUM, 40),
    anywhere("doppler-token", "dp.ct.", C::ALNUM, 40),
    word("onepassword-token", "ops_ey", C::TOKEN, 60),
    word("openshift-token", "sha256~", C::TOKEN, 40),
    // Monitoring
    anywhere("grafana-token", "glsa_", C::TOKEN, 30),
    anywhere("grafana-token", "glc_", C::HEADER, 32),
    anywhere("grafana-key", "eyJrIjoi", C::HEADER, 40),
    anywhere("newrelic-key", "NRAK-", C::ALNUM, 27),
    anywhere("newrelic-key", "NRII-", C::TOKEN, 27),
    anywhere("sentry-token", "sntrys_", C::HEADER, 30),
    anywhere("sentry-token", "sntryu_", C::HEX, 40),
    anywhere("dynatrace-token", "dt0c01.", C::DOTTED, 60),
    anywhere("posthog-key", "phx_", C::ALNUM, 40),
    // Messaging and documents
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
    label("slack-webhook", "hooks.slack.com/services/", C::HEADER, 20),
    label("slack-webhook", "hooks.slack.com/workflows/", C::HEADER, 20),
    label("discord-webhook", "discord.com/api/webhooks/", C::HEADER, 40),
    label("discord-webhook", "discordapp.com/api/webhooks/", C::HEADER, 40),
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
    // Payments and shops
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
    // Encryption keys
    anywhere("age-key", "AGE-SECRET-KEY-1", C::UPPER, 50),
];

const fn anywhere(kind: &'static str, text: &'static str, class: ByteClass, min_rest: usize) -> KeyPrefix {
    KeyPrefix {
        kind,
        text,
        class,
        min_rest,
        position: PrefixPosition::Anywhere,
        rest: RestRule::Any,
        is_label: false,
    }
}

const fn word(kind: &'static str, text: &'static str, class: ByteClass, min_rest: usize) -> KeyPrefix {
    KeyPrefix { position: PrefixPosition::Word, ..anywhere(kind, text, class, min_rest) }
}

const fn unlike_base64(
    kind: &'static str,
    text: &'static str,
    class: ByteClass,
    min_rest: usize,
) -> KeyPrefix {
    KeyPrefix { position: PrefixPosition::NoBase64, ..anywhere(kind, text, class, min_rest) }
}

const fn alone(kind: &'static str, text: &'static str, class: ByteClass, min_rest: usize) -> KeyPrefix {
    KeyPrefix { position: PrefixPosition::Alone, ..anywhere(kind, text, class, min_rest) }
}

const fn label(kind: &'static str, text: &'static str, class: ByteClass, min_rest: usize) -> KeyPrefix {
    KeyPrefix { is_label: true, ..anywhere(kind, text, class, min_rest) }
}

impl KeyPrefix {
    const fn mixed(self) -> Self {
        Self { rest: RestRule::Mixed, ..self }
    }

    const fn cased(self) -> Self {
        Self { rest: RestRule::Cased, ..self }
    }

    /// The secret whose prefix is at `at`.
    pub(crate) fn secret(&self, input: InputText<'_>, at: usize) -> MatchResult<Core> {
        if !self.matches_at(input, at) {
            return Err(NoMatch::Never);
        }
        let after = at + self.text.len();
        let start = if self.is_label { after } else { at };
        let most = self.min_rest.max(entropy::SAMPLE_BYTES);
        let test = |run: &[u8]| {
            run.len() >= self.min_rest
                && match self.rest {
                    RestRule::Any => true,
                    RestRule::Mixed => entropy::is_mixed(run),
                    RestRule::Cased => run.iter().any(u8::is_ascii_lowercase),
                }
        };
        let end = input.passes(after, self.class, most, test).map_err(|none| none.hold_from(start))?;
        if matches!(self.position, PrefixPosition::Alone) {
            // A placeholder after the key counts as more of an identifier: it replaced one.
            let next = input.byte(after + self.min_rest, start)?;
            if next.is_some_and(|next| ByteClass::TOKEN.has(next) || next == b'[') {
                return Err(NoMatch::Never);
            }
        }
        Ok(Core { start, end, kind: self.kind, tail: tail_of(self.class) })
    }

    fn matches_at(&self, input: InputText<'_>, at: usize) -> bool {
        match self.position {
            PrefixPosition::Anywhere => true,
            PrefixPosition::Word => input.starts_word(at, ByteClass::ALNUM),
            PrefixPosition::NoBase64 => {
                input.starts_word(at, ByteClass::ALNUM) && !matches!(input.byte_before(at), Some(b'+' | b'/'))
            }
            PrefixPosition::Alone => input.starts_word(at, ByteClass::TOKEN),
        }
    }
}

/// The tail continues with the characters of the key, and with any that would continue a word.
fn tail_of(class: ByteClass) -> Tail {
    if class.has(b'=') {
        Tail::Header
    } else if class.has(b'.') {
        Tail::Dotted
    } else {
        Tail::Token
    }
}
