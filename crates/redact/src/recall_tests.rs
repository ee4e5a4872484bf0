//! How many random secrets are found, by the format that they stand in, and that nothing else is redacted.

use crate::Redactor;

/// Samples of each format, from each seed.
const SAMPLES: usize = 300;
const SEEDS: [u64; 3] = [0x9e37_79b9_7f4a_7c15, 0x2545_f491_4f6c_dd1d, 7];

/// Found of all samples, and of those of one format.
const LEAST_OF_ALL: f64 = 0.99;
const LEAST_OF_EACH: f64 = 0.9;

const LOWER_HEX: &str = "0123456789abcdef";
const UPPER_HEX: &str = "0123456789ABCDEF";
const LOWER: &str = "abcdefghijklmnopqrstuvwxyz0123456789";
const ALNUM: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const BASE64: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const PASSWORD: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!#%^*?+@=-_";

/// The text around a secret, its characters, and the shortest and longest.
type Format = (&'static str, &'static str, usize, usize);

/// `{}` is where the secret stands.
const FORMATS: [Format; 31] = [
    ("Set-Cookie: sessionid={}; Path=/; HttpOnly", LOWER, 32, 32),
    ("Set-Cookie: JSESSIONID={}; Path=/app", UPPER_HEX, 32, 32),
    ("Set-Cookie: PHPSESSID={}; path=/", LOWER, 26, 32),
    ("set-cookie: session={}; Max-Age=3600", BASE64, 43, 120),
    ("Set-Cookie: auth={}", ALNUM, 24, 64),
    ("Cookie: theme=dark; JSESSIONID={}; lang=en", UPPER_HEX, 32, 32),
    ("Cookie: PHPSESSID={}", LOWER, 26, 26),
    ("Cookie: lang=en; uid={}; theme=dark", LOWER_HEX, 32, 64),
    ("\"cookie\": \"sessionid={}\"", LOWER, 32, 32),
    ("curl -b 'sessionid={}' https://h.example", LOWER, 32, 32),
    ("curl --cookie JSESSIONID={} https://h.example", UPPER_HEX, 32, 32),
    ("ASP.NET_SessionId={}", LOWER, 24, 24),
    ("connect.sid=s%3A{}", BASE64, 32, 43),
    ("https://h.example/a;jsessionid={}?x=1", UPPER_HEX, 32, 32),
    ("curl -u admin:{} https://h.example", PASSWORD, 6, 24),
    ("curl -u 'jo@h.example:{}' https://h.example", PASSWORD, 6, 24),
    ("curl -sS --user admin:{} https://h.example", ALNUM, 6, 24),
    ("curl -fsSLu admin:{} https://h.example/x.tgz", ALNUM, 8, 24),
    ("curl https://h.example/api -X POST -u \"svc:{}\"", PASSWORD, 8, 24),
    ("curl --proxy-user p:{} https://h.example", ALNUM, 8, 24),
    ("SMTP_PASS={}", PASSWORD, 12, 24),
    ("export REDIS_PASS='{}'", PASSWORD, 12, 24),
    ("DB_PASS=\"{}\"", ALNUM, 12, 24),
    ("smtp_pass: {}", PASSWORD, 12, 24),
    ("  pass: {}", PASSWORD, 12, 24),
    ("\"dbPass\": \"{}\"", ALNUM, 12, 24),
    ("mail.smtp.pass={}", ALNUM, 12, 24),
    ("PGPASSWORD={}", ALNUM, 12, 24),
    ("\"password\": \"{}\"", ALNUM, 12, 24),
    ("SERVICE_API_KEY={}", ALNUM, 20, 64),
    ("postgres://app:{}@db.example/x", ALNUM, 8, 24),
];

/// Texts with random values that are no secrets.
const ORDINARY: [Format; 14] = [
    ("session_id: {}", LOWER_HEX, 32, 64),
    ("{\"session_id\":\"{}\"}", LOWER_HEX, 64, 64),
    ("docker run -u {}:{} image", "0123456789", 4, 5),
    ("PASS: tests/unit/{}.sh", LOWER, 8, 24),
    ("--- PASS: Test{} (0.00s)", ALNUM, 8, 24),
    ("bypass: {}, compass={}", LOWER, 8, 24),
    ("let render_pass = Pass{}::new(); shadow_pass: {}", ALNUM, 8, 24),
    ("commit {} tree {}", LOWER_HEX, 40, 40),
    ("https://h.example/{}?v={}", ALNUM, 20, 40),
    ("curl -o {} https://h.example/{}", LOWER, 16, 40),
    ("Set-Cookie: lang=en; Domain={}.h.example; Path=/{}", LOWER, 16, 32),
    ("document.cookie = x; id={} checksum={}", LOWER_HEX, 64, 64),
    ("git push -u origin {}:{}", LOWER, 8, 24),
    ("obsession={} possession={}", LOWER_HEX, 32, 32),
];

/// A seeded generator (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }

    fn value(&mut self, (_, alphabet, least, most): Format) -> String {
        let length = least + self.below(most - least + 1);
        (0..length).map(|_| char::from(alphabet.as_bytes()[self.below(alphabet.len())])).collect()
    }
}

#[test]
fn random_secrets_are_found_in_every_format() {
    let redactor = Redactor::new();
    let (mut all, mut found_of_all) = (0, 0);
    let mut report = String::new();
    for format in FORMATS {
        let (mut found, mut missed) = (0, String::new());
        for seed in SEEDS {
            let mut random = Random(seed);
            for _ in 0..SAMPLES {
                let secret = random.value(format);
                let text = format.0.replace("{}", &secret);
                match redactor.redact(&text).contains(&secret) {
                    true => missed = text,
                    false => found += 1,
                }
            }
        }
        let count = SEEDS.len() * SAMPLES;
        let share = found as f64 / count as f64;
        report.push_str(&format!("{share:.3} {} {missed}\n", format.0));
        assert!(share >= LEAST_OF_EACH, "{report}");
        all += count;
        found_of_all += found;
    }
    let share = f64::from(found_of_all) / all as f64;
    assert!(share >= LEAST_OF_ALL, "{share}\n{report}");
}

#[test]
fn random_values_that_are_no_secrets_are_unchanged() {
    let redactor = Redactor::new();
    for format in ORDINARY {
        for seed in SEEDS {
            let mut random = Random(seed);
            for _ in 0..SAMPLES {
                let mut text = format.0.to_owned();
                while text.contains("{}") {
                    text = text.replacen("{}", &random.value(format), 1);
                }
                assert_eq!(redactor.redact(&text), text);
            }
        }
    }
}
