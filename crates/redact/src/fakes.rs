//! Fake secrets of every kind, assembled at run time so that the repository contains none.

/// A fake secret, and the text around it that redaction keeps.
#[derive(Clone, Debug)]
pub struct Fake {
    pub kind: &'static str,
    pub before: String,
    pub secret: String,
    pub after: &'static str,
}

impl Fake {
    pub fn text(&self) -> String {
        format!("{}{}{}", self.before, self.secret, self.after)
    }

    pub fn redacted(&self) -> String {
        format!("{}[redacted:{}]{}", self.before, self.kind, self.after)
    }
}

fn cycle(pattern: &str, count: usize) -> String {
    pattern.chars().cycle().take(count).collect()
}

pub(crate) fn alnum(count: usize) -> String {
    cycle("aB3dE5fG7h", count)
}

/// Begins like no other fake, because short passwords would be found in longer texts.
fn password(count: usize) -> String {
    cycle("h7Gf5Ed3Ba", count)
}

fn token(count: usize) -> String {
    cycle("aB3_dE5-fG7h", count)
}

fn base64(count: usize) -> String {
    cycle("aB3/dE5+fG7h", count)
}

pub(crate) fn hex(count: usize) -> String {
    cycle("0a1b2c3d4e5f6789", count)
}

fn upper(count: usize) -> String {
    cycle("A2B3C4D5E6F7", count)
}

pub(crate) const UUID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

/// One or more of every kind.
pub fn fakes() -> Vec<Fake> {
    let by_prefix = by_prefix().into_iter().map(|(kind, prefix, rest)| Fake {
        kind,
        before: String::new(),
        secret: format!("{prefix}{rest}"),
        after: "",
    });
    let others = others().into_iter().map(|(kind, before, secret, after)| Fake {
        kind,
        before: before.to_owned(),
        secret,
        after,
    });
    by_prefix.chain(others).collect()
}

/// Kind, prefix, and a rest as long as providers issue it.
pub(crate) fn by_prefix() -> Vec<(&'static str, &'static str, String)> {
    vec![
        ("operator-token", "trb_", hex(64)),
        ("anthropic-key", "sk-ant-", format!("api03-{}-AA", token(90))),
        ("openai-key", "sk-proj-", token(48)),
        ("openai-key", "sk-svcacct-", token(48)),
        ("openai-key", "sk-admin-", token(48)),
        ("openrouter-key", "sk-or-", format!("v1-{}", hex(64))),
        ("langfuse-key", "sk-lf-", UUID.to_owned()),
        ("api-key", "sk-", alnum(48)),
        ("api-key", "sk-", hex(32)),
        ("elevenlabs-key", "sk_", hex(48)),
        ("google-key", "AIza", token(35)),
        ("huggingface-token", "hf_", alnum(34)),
        ("huggingface-token", "api_org_", alnum(34)),
        ("groq-key", "gsk_", alnum(52)),
        ("xai-key", "xai-", alnum(80)),
        ("perplexity-key", "pplx-", alnum(48)),
        ("replicate-token", "r8_", alnum(37)),
        ("cerebras-key", "csk-", alnum(48)),
        ("fireworks-key", "fw_", alnum(24)),
        ("together-key", "tgp_v1_", token(43)),
        ("nvidia-key", "nvapi-", token(64)),
        ("pinecone-key", "pcsk_", token(70)),
        ("tavily-key", "tvly-", format!("dev-{}", alnum(32))),
        ("langsmith-key", "lsv2_pt_", format!("{}_{}", hex(32), hex(10))),
        ("langsmith-key", "lsv2_sk_", format!("{}_{}", hex(32), hex(10))),
        ("github-token", "ghp_", alnum(36)),
        ("github-token", "gho_", alnum(36)),
        ("github-token", "ghu_", alnum(36)),
        ("github-token", "ghs_", alnum(36)),
        ("github-token", "ghr_", alnum(36)),
        ("github-token", "github_pat_", format!("{}_{}", alnum(22), alnum(59))),
        ("gitlab-token", "glpat-", token(20)),
        ("gitlab-token", "gldt-", token(20)),
        ("gitlab-token", "glptt-", hex(40)),
        ("gitlab-token", "glrt-", token(20)),
        ("gitlab-token", "glcbt-", format!("64_{}", token(20))),
        ("gitlab-token", "glsoat-", token(20)),
        ("gitlab-token", "glagent-", token(50)),
        ("gitlab-token", "glft-", token(20)),
        ("gitlab-token", "GR1348941", token(20)),
        ("bitbucket-token", "ATBB", alnum(32)),
        ("atlassian-token", "ATATT3", format!("{}={}", token(180), upper(8))),
        ("atlassian-token", "ATCTT3", format!("{}={}", token(180), upper(8))),
        ("npm-token", "npm_", alnum(36)),
        ("pypi-token", "pypi-AgE", token(150)),
        ("crates-token", "cio", alnum(32)),
        ("rubygems-key", "rubygems_", hex(48)),
        ("nuget-key", "oy2", cycle("a3bcd5ef7g", 43)),
        ("clojars-token", "CLOJARS_", hex(60)),
        ("docker-token", "dckr_pat_", token(27)),
        ("docker-token", "dckr_oat_", token(32)),
        ("postman-key", "PMAK-", format!("{}-{}", hex(24), hex(34))),
        ("buildkite-token", "bkua_", hex(40)),
        ("circleci-token", "CCIPAT_", format!("{}_{}", alnum(22), hex(40))),
        ("sonar-token", "sqp_", hex(40)),
        ("sonar-token", "squ_", hex(40)),
        ("sonar-token", "sqa_", hex(40)),
        ("aws-key-id", "AKIA", upper(16)),
        ("aws-key-id", "ASIA", upper(16)),
        ("aws-key-id", "ABIA", upper(16)),
        ("alibaba-key-id", "LTAI", alnum(20)),
        ("tencent-key-id", "AKID", alnum(32)),
        ("google-token", "ya29.", token(120)),
        ("google-token", "1//0", token(60)),
        ("google-secret", "GOCSPX-", token(28)),
        ("digitalocean-token", "dop_v1_", hex(64)),
        ("digitalocean-token", "doo_v1_", hex(64)),
        ("digitalocean-token", "dor_v1_", hex(64)),
        ("heroku-key", "HRKU-", UUID.to_owned()),
        ("netlify-token", "nfp_", alnum(36)),
        ("fly-token", "fo1_", token(43)),
        ("fly-token", "fm2_", base64(200)),
        ("planetscale-token", "pscale_tkn_", token(43)),
        ("planetscale-token", "pscale_pw_", token(43)),
        ("planetscale-token", "pscale_oauth_", token(43)),
        ("supabase-key", "sbp_", hex(40)),
        ("supabase-key", "sb_secret_", token(31)),
        ("databricks-token", "dapi", hex(32)),
        ("tailscale-key", "tskey-", format!("auth-{}-{}", alnum(12), alnum(32))),
        ("pulumi-token", "pul-", hex(40)),
        ("vault-token", "hvs.", token(90)),
        ("vault-token", "hvb.", token(90)),
        ("vault-token", "hvr.", token(90)),
        ("doppler-token", "dp.pt.", alnum(43)),
        ("doppler-token", "dp.st.", format!("dev.{}", alnum(43))),
        ("doppler-token", "dp.sa.", alnum(43)),
        ("doppler-token", "dp.ct.", alnum(43)),
        ("onepassword-token", "ops_ey", token(250)),
        ("openshift-token", "sha256~", token(43)),
        ("grafana-token", "glsa_", format!("{}_{}", alnum(32), hex(8))),
        ("grafana-token", "glc_", base64(60)),
        ("grafana-key", "eyJrIjoi", base64(70)),
        ("newrelic-key", "NRAK-", upper(27)),
        ("newrelic-key", "NRII-", token(32)),
        ("sentry-token", "sntrys_", base64(100)),
        ("sentry-token", "sntryu_", hex(64)),
        ("dynatrace-token", "dt0c01.", format!("{}.{}", upper(24), upper(64))),
        ("slack-token", "xoxa-", token(30)),
        ("slack-token", "xoxb-", format!("1234567890-{}", alnum(24))),
        ("slack-token", "xoxc-", token(30)),
        ("slack-token", "xoxd-", format!("{}%2F{}", alnum(30), alnum(10))),
        ("slack-token", "xoxe-", token(30)),
        ("slack-token", "xoxe.xox", format!("p-1-{}", alnum(60))),
        ("slack-token", "xoxo-", token(30)),
        ("slack-token", "xoxp-", alnum(30)),
        ("slack-token", "xoxr-", token(30)),
        ("slack-token", "xoxs-", token(30)),
        ("slack-token", "xapp-", format!("1-{}-{}", upper(11), hex(64))),
        ("sendgrid-key", "SG.", format!("{}.{}", token(22), token(43))),
        ("mailgun-key", "key-", hex(32)),
        ("twilio-key", "SK", hex(32)),
        ("brevo-key", "xkeysib-", format!("{}-{}", hex(64), alnum(16))),
        ("notion-token", "ntn_", alnum(46)),
        ("notion-token", "secret_", alnum(43)),
        ("linear-key", "lin_api_", alnum(40)),
        ("linear-key", "lin_oauth_", hex(64)),
        ("figma-token", "figd_", token(40)),
        ("typeform-token", "tfp_", token(44)),
        ("contentful-token", "CFPAT-", token(43)),
        ("dropbox-token", "sl.", token(130)),
        ("stripe-key", "sk_live_", alnum(24)),
        ("stripe-key", "sk_test_", alnum(24)),
        ("stripe-key", "rk_live_", alnum(24)),
        ("stripe-key", "rk_test_", alnum(24)),
        ("stripe-secret", "whsec_", base64(32)),
        ("shopify-token", "shpat_", hex(32)),
        ("shopify-token", "shpca_", hex(32)),
        ("shopify-token", "shppa_", hex(32)),
        ("shopify-token", "shpss_", hex(32)),
        ("square-token", "EAAA", token(60)),
        ("square-token", "sq0atp-", token(22)),
        ("square-token", "sq0csp-", token(43)),
        ("facebook-token", "EAAC", alnum(180)),
        ("plaid-token", "access-production-", UUID.to_owned()),
        ("plaid-token", "access-sandbox-", UUID.to_owned()),
        ("easypost-key", "EZAK", alnum(54)),
        ("voyage-key", "pa-", token(43)),
        ("sourcegraph-token", "sgp_", hex(40)),
        ("posthog-key", "phx_", alnum(43)),
        ("airtable-token", "pat", format!("{}.{}", alnum(14), hex(64))),
        ("resend-key", "re_", format!("{}_{}", alnum(8), alnum(24))),
        ("razorpay-key", "rzp_live_", alnum(14)),
        ("razorpay-key", "rzp_test_", alnum(14)),
        ("twitter-token", "AAAAAAAAAAAAAAAAAAAAA", alnum(90)),
        ("age-key", "AGE-SECRET-KEY-1", upper(58)),
    ]
}

/// Kind, the text before, the secret, and the text after.
fn others() -> Vec<(&'static str, &'static str, String, &'static str)> {
    let title = |name: &str| format!("{name} KEY");
    let rsa = title("RSA PRIVATE");
    let jwt = format!("ey{}{}.ey{}{}.{}", "J", alnum(20), "J", alnum(30), token(43));
    vec![
        (
            "private-key",
            "",
            format!("-----BEGIN {rsa}-----\n{}\n{}==\n-----END {rsa}-----", base64(64), base64(20)),
            "",
        ),
        (
            "private-key",
            "",
            format!("-----BEGIN {0}-----\\n{1}\\n-----END {0}-----", title("PRIVATE"), base64(64)),
            "",
        ),
        (
            "private-key",
            "",
            format!(
                "-----BEGIN PGP {0} BLOCK-----\n\nü{1}\n-----END PGP {0} BLOCK-----",
                title("PRIVATE"),
                base64(64)
            ),
            "",
        ),
        ("jwt", "", jwt.clone(), ""),
        ("jwt", "", format!("ey{}{}..{}.{}", "J", alnum(40), token(16), token(30)), ""),
        ("jwt", "Authorization: Bearer ", jwt, ""),
        ("telegram-token", "123456789:", format!("AA{}", token(33)), ""),
        ("discord-token", "MTk4NjIyNDgzNDcxOTI1MjQ4.", format!("Cl2FMQ.{}", token(27)), ""),
        ("mailchimp-key", "", format!("{}-us12", hex(32)), ""),
        ("bearer", "Authorization: Bearer ", "z9".repeat(12), ""),
        ("bearer", "authorization: bearer\t", alnum(24), ""),
        ("bearer", "Bearer%20", alnum(24), ""),
        ("bearer", "\"authorization\":\"bearer\\t", alnum(24), "\""),
        ("basic", "Authorization: Basic ", cycle("dXNlcjpwYXNz", 24), ""),
        ("url-password", "postgres://", format!("op:{}", alnum(12)), "@db.local/x"),
        ("url-password", "mysql://", format!("root:{}", "hunter".repeat(2)), "@127.0.0.1:3306/x"),
        ("url-password", "mongodb+srv://", format!("a.b:{}", "p%40ss!"), "@c.mongodb.net"),
        ("url-password", "redis://", format!(":{}", "z9".repeat(12)), "@h:6379"),
        ("url-password", "amqp://", format!("guest:{}", "gu€st".repeat(2)), "@mq//v"),
        ("url-password", "https://", alnum(40), "@git.example/r.git"),
        ("azure-key", "AccountName=x;AccountKey=", format!("{}==", base64(86)), ";EndpointSuffix=y"),
        ("azure-key", "Endpoint=sb://x/;SharedAccessKey=", format!("{}=", base64(43)), ""),
        ("azure-signature", "?sv=2024-01-01&sig=", format!("{}%3D", cycle("aB3%2FdE5%2B", 60)), ""),
        ("azure-secret", "abc8Q~", token(34), ""),
        ("azure-secret", "abc7Q~", token(31), ""),
        ("terraform-token", "aB3dE5fG7haB3d.atlasv1.", token(67), ""),
        (
            "slack-webhook",
            "https://hooks.slack.com/services/",
            format!("T{0}/B{0}/{1}", upper(8), alnum(24)),
            "",
        ),
        (
            "slack-webhook",
            "https://hooks.slack.com/workflows/",
            format!("T{0}/A{0}/{1}", upper(8), alnum(24)),
            "",
        ),
        (
            "discord-webhook",
            "https://discord.com/api/webhooks/",
            format!("{}/{}", "123456789".repeat(2), token(68)),
            "",
        ),
        ("discord-webhook", "https://discordapp.com/api/webhooks/", format!("1234567890/{}", token(68)), ""),
        ("secret", "aws_secret_access_key = ", base64(40), ""),
        ("secret", "AWS_SECRET_ACCESS_KEY=", base64(40), ""),
        ("secret", "COHERE_API_KEY=", alnum(40), ""),
        ("secret", "CLOUDFLARE_API_TOKEN: ", token(40), ""),
        ("secret", "X-Auth-Key: ", hex(37), ""),
        ("secret", "x-api-key: ", alnum(32), ""),
        ("secret", "\"api_key\": \"", alnum(32), "\""),
        ("secret", "\\\"apiKey\\\":\\\"", alnum(32), "\\\""),
        ("secret", "client_secret%3D", alnum(32), ""),
        ("secret", "config[\"api_key\"] = \"", alnum(32), "\""),
        ("secret", "--token ", hex(40), ""),
        ("secret", "<accessToken>", alnum(32), "</accessToken>"),
        ("secret", "Authorization: token ", hex(40), ""),
        ("secret", "PrivateKey = ", format!("{}=", base64(43)), ""),
        ("password", "password=", "hunter2hunter2".to_owned(), ""),
        ("password", "\"password\":\"", "Tr0ub4dor&3".replace('&', "!"), "\""),
        ("password", "PGPASSWORD=", "s3cr3t-pw".to_owned(), ""),
        ("password", "Server=db;Uid=sa;Pwd=", "hunter[r]x9z".to_owned(), ";"),
        ("password", "Server=db;User Id=sa;Password=", "correct".to_owned(), ";Encrypt=yes"),
        ("password", "mysql --password=", "hünter2x9z".to_owned(), ""),
        ("password", "SMTP_PASS=", password(12), ""),
        ("password", "smtp_pass: ", password(12), ""),
        ("password", "\"dbPass\": \"", password(12), "\""),
        ("password", "--mail-pass ", password(12), ""),
        ("password", "curl -u user:", "correct".to_owned(), " https://h.example"),
        ("password", "curl -sSu 'user:", "/x/y1z2w3".to_owned(), "' https://h.example"),
        ("password", "curl https://h.example \\\n  --user \"a.b@c:", password(8), "\""),
        ("password", "curl --proxy-user=x:", password(8), ""),
        ("password", "[\"curl\", \"-u\", \"x:", password(8), "\"]"),
        ("password", "curl -u ", alnum(32), ": https://h.example"),
        ("cookie", "Set-Cookie: sessionid=", cycle("a3bcd5ef7g", 32), "; Path=/; HttpOnly"),
        ("cookie", "set-cookie: id=", alnum(24), "; Path=/"),
        ("cookie", "Cookie: theme=dark; uid=", hex(32), "; lang=en"),
        ("cookie", "\"cookie\": \"a=1; uid=", hex(32), "\""),
        ("cookie", "curl -b 'uid=", hex(32), "'"),
        ("cookie", "curl --cookie uid=", hex(32), ""),
        ("cookie", "JSESSIONID=", upper(32), ""),
        ("cookie", "PHPSESSID=", cycle("a3bcd5ef7g", 26), ""),
        ("cookie", "PHPSESSID\t", cycle("a3bcd5ef7g", 26), ""),
        ("cookie", "ASP.NET_SessionId=", cycle("a3bcd5ef7g", 24), ""),
        ("cookie", "connect.sid=", format!("s%3A{}.{}", token(32), base64(43)), ""),
        ("cookie", "_app_session=", base64(64), ""),
        ("cookie", "https://h.example/a;jsessionid=", upper(32), "?x=1"),
    ]
}
