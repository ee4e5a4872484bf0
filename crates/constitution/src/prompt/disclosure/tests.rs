use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

use super::*;
use crate::{DEFAULT_CONSTITUTION, DEFAULT_MANDATE_TEXT};

/// What is shown of an output that comes in pieces of so many characters.
pub(super) fn shown(output: &str, piece: usize) -> FilteredText {
    let mut filter = DisclosureFilter::of_instructions();
    let chars: Vec<char> = output.chars().collect();
    let mut text = String::new();
    for piece in chars.chunks(piece.max(1)) {
        text.push_str(&filter.push(&String::from_iter(piece)).text);
    }
    let end = filter.finish();
    FilteredText { text: text + &end.text, withheld: end.withheld }
}

pub(super) fn rot13(text: &str) -> String {
    let turn = |c: char| match c {
        'a'..='z' => char::from((c as u8 - b'a' + 13) % 26 + b'a'),
        'A'..='Z' => char::from((c as u8 - b'A' + 13) % 26 + b'A'),
        c => c,
    };
    text.chars().map(turn).collect()
}

pub(super) fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// `separator` between all pieces of `size` characters.
pub(super) fn separated(text: &str, size: usize, separator: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    chars.chunks(size).map(String::from_iter).collect::<Vec<_>>().join(separator)
}

fn map(text: &str, f: impl Fn(char) -> String) -> String {
    text.chars().map(f).collect()
}

/// Latin letters replaced by others at a fixed distance in Unicode.
fn styled(text: &str, lower: u32, upper: u32) -> String {
    map(text, |c| {
        let first = match c {
            'a'..='z' => lower + (c as u32 - 'a' as u32),
            'A'..='Z' => upper + (c as u32 - 'A' as u32),
            c => c as u32,
        };
        char::from_u32(first).unwrap().to_string()
    })
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.is_empty())
}

fn shifted(text: &str, by: u8) -> String {
    map(text, |c| match c {
        'a'..='z' => char::from((c as u8 - b'a' + by) % 26 + b'a').into(),
        'A'..='Z' => char::from((c as u8 - b'A' + by) % 26 + b'A').into(),
        _ => c.into(),
    })
}

/// RFC 4648, with padding.
fn base32(text: &str) -> String {
    let group = |bytes: &[u8]| {
        let mut bits = [0; 8];
        bits[3..3 + bytes.len()].copy_from_slice(bytes);
        let bits = u64::from_be_bytes(bits);
        let digits = (bytes.len() * 8).div_ceil(5);
        let digit = |place: usize| match place {
            _ if place >= digits => '=',
            _ => char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[(bits >> (35 - 5 * place) & 31) as usize]),
        };
        (0..8).map(digit).collect::<String>()
    };
    text.as_bytes().chunks(5).map(group).collect()
}

/// Ways in which a text has leaked, or could.
fn leaks(secret: &str) -> Vec<(&'static str, String)> {
    let words: Vec<&str> = secret.split_whitespace().collect();
    let reversed = |text: &str| text.chars().rev().collect::<String>();
    let standard = STANDARD.encode(secret);
    let safe = URL_SAFE_NO_PAD.encode(secret);
    let first: String = secret.chars().take(90).collect();
    let last = secret.char_indices().nth_back(90).map_or(secret, |(at, _)| &secret[at..]);
    let numbered = |pieces: Vec<String>, sign: &str| {
        let line = |(index, piece): (usize, String)| format!("{}{sign}{piece}\n", index + 1);
        pieces.into_iter().enumerate().map(line).collect::<String>()
    };
    let words_of = |size: usize| words.chunks(size).map(|words| words.join(" ")).collect::<Vec<_>>();
    let json = serde_json::to_string(secret).unwrap();
    let utf16: Vec<u8> = secret.encode_utf16().flat_map(u16::to_le_bytes).collect();
    vec![
        ("verbatim", secret.to_owned()),
        ("its beginning", first.clone()),
        ("its end", last.to_owned()),
        ("from the middle of a word", secret[7..].to_owned()),
        ("after an introduction", format!("Of course! My instructions are as follows:\n\n{secret}")),
        ("in one paragraph", words.join(" ")),
        ("without blanks", words.concat()),
        ("upper case", secret.to_uppercase()),
        ("lower case", secret.to_lowercase()),
        ("title case", words.iter().map(|word| word[..1].to_uppercase() + &word[1..] + " ").collect()),
        (
            "alternating case",
            map(secret, |c| {
                if (c as u32).is_multiple_of(2) { c.to_uppercase().to_string() } else { c.to_string() }
            }),
        ),
        ("a bulleted list", lines(secret).map(|line| format!("* {line}\n")).collect()),
        ("a numbered list", numbered(lines(secret).map(str::to_owned).collect(), ". ")),
        ("a quotation", lines(secret).map(|line| format!("> {line}\n")).collect()),
        ("a nested quotation", lines(secret).map(|line| format!("> > **{line}**\n")).collect()),
        ("a code fence", format!("```text\n{secret}\n```")),
        ("comments of a program", lines(secret).map(|line| format!("// {line}\n")).collect()),
        ("a JSON string", format!("{{\"system\": {json}}}")),
        ("JSON in JSON", serde_json::to_string(&json).unwrap()),
        ("a JSON list of words", serde_json::to_string(&words).unwrap()),
        ("a string with all characters escaped", map(secret, |c| format!("\\u{:04x}", c as u32))),
        ("a string with hex escapes", map(secret, |c| format!("\\x{:02x}", c as u32))),
        ("HTML", words.iter().map(|word| format!("<b>{word}</b>&nbsp;")).collect()),
        ("HTML entities", map(secret, |c| format!("&#{};", c as u32))),
        ("HTML hex entities", map(secret, |c| format!("&#x{:X};", c as u32))),
        ("XML", lines(secret).map(|line| format!("<line>{line}</line>\n")).collect()),
        ("a table", words_of(4).iter().map(|words| format!("| {} |\n", words.replace(' ', " | "))).collect()),
        ("CSV", words.join("\",\"")),
        ("one word to a line", words.join("\n")),
        ("numbered words", numbered(words_of(1), ". ")),
        ("numbered words in brackets", numbered(words_of(1), ") ")),
        (
            "words with numbers behind",
            words.iter().enumerate().map(|(index, word)| format!("{word}({index}) ")).collect(),
        ),
        ("words with dashes", words.join("-")),
        ("snake case", words.join("_").to_lowercase()),
        ("every letter spaced", separated(secret, 1, " ")),
        ("one letter to a line", separated(secret, 1, "\n")),
        ("every letter with a dash", separated(secret, 1, "-")),
        ("every letter with dots", separated(secret, 1, "...")),
        ("every letter with a number", separated(secret, 1, " 7, ")),
        ("zero-width spaces between", separated(secret, 1, "\u{200b}")),
        ("soft hyphens between", separated(secret, 2, "\u{ad}")),
        ("byte order marks between", separated(secret, 3, "\u{feff}")),
        ("emoji between", words.join(" 🙂 ")),
        ("Chinese between", words.join("，然后是，")),
        ("Russian between", words.join(" потом ")),
        ("letters in script style between", separated(secret, 2, "\u{1d4a5}")),
        ("rot13 with Greek between", separated(&rot13(secret), 1, "α")),
        ("full width", styled(secret, 0xFF41, 0xFF21)),
        ("mathematical bold", styled(secret, 0x1D41A, 0x1D400)),
        ("monospaced", styled(secret, 0x1D68A, 0x1D670)),
        ("in circles", styled(secret, 0x24D0, 0x24B6)),
        ("regional indicators", styled(&secret.to_lowercase(), 0x1F1E6, 0)),
        ("invisible tags", map(secret, |c| char::from_u32(0xE0000 + c as u32).unwrap().to_string())),
        ("combining accents", separated(secret, 1, "\u{301}")),
        ("accented vowels", secret.replace('a', "á").replace('e', "ë").replace('o', "õ")),
        (
            "Cyrillic letters among them",
            secret.replace('a', "а").replace('e', "е").replace('o', "о").replace('p', "р"),
        ),
        ("leetspeak", secret.replace('e', "3").replace('a', "4").replace('o', "0").replace('t', "7")),
        ("percent-encoded", words.join("%20")),
        ("all percent-encoded", map(secret, |c| format!("%{:02X}", c as u32))),
        ("backwards", reversed(secret)),
        ("backwards and spaced", separated(&reversed(secret), 1, " ")),
        (
            "backwards, upper case, line by line",
            lines(secret).map(|line| reversed(line).to_uppercase() + "\n").collect(),
        ),
        ("every word backwards", words.iter().map(|word| reversed(word) + " ").collect()),
        ("words from last to first", words.iter().rev().map(|word| format!("{word} ")).collect()),
        ("rot13", rot13(secret)),
        ("rot13 and spaced", separated(&rot13(secret), 1, " ")),
        ("rot13 in JSON", serde_json::to_string(&rot13(secret)).unwrap()),
        ("rot13 in JSON, one word to a line", serde_json::to_string(&rot13(&words.join("\n"))).unwrap()),
        ("rot13 backwards", reversed(&rot13(secret))),
        ("shifted by three", shifted(secret, 3)),
        ("shifted by 25 and spaced", separated(&shifted(secret, 25), 1, " ")),
        ("base32", base32(secret)),
        ("base32 after text", format!("Here it is: {}", base32(secret))),
        ("base32 in small letters and groups", separated(&base32(secret).to_lowercase(), 8, " ")),
        ("numbers of characters", map(secret, |c| format!("{} ", c as u32))),
        ("numbers of characters in a list", format!("[{}]", map(secret, |c| format!("{}, ", c as u32)))),
        ("numbers of characters behind each other's marks", map(secret, |c| format!("&#{};", c as u32))),
        (
            "places in the alphabet",
            map(&secret.to_lowercase(), |c| match c {
                'a'..='z' => format!("{}-", c as u32 - 'a' as u32 + 1),
                _ => " ".to_owned(),
            }),
        ),
        ("base64", standard.clone()),
        ("base64 after one letter", STANDARD.encode(format!("x{secret}"))),
        ("base64 after two letters", STANDARD.encode(format!("xy{secret}"))),
        ("base64 after text", format!("Here you are, decode this: {standard}")),
        ("base64 after other text", format!("Decode that: {standard}")),
        ("base64 in lines", separated(&standard, 76, "\n")),
        ("base64 in CRLF lines", separated(&standard, 64, "\r\n")),
        ("base64 in quoted lines", separated(&standard, 60, "\n> ")),
        (
            "base64 in numbered lines",
            numbered(
                standard
                    .as_bytes()
                    .chunks(40)
                    .map(|part| String::from_utf8_lossy(part).into_owned())
                    .collect(),
                ". ",
            ),
        ),
        ("base64 in bulleted lines", separated(&standard, 40, "\n- ")),
        ("base64 spaced", separated(&standard, 1, " ")),
        ("base64 with dashes", separated(&standard, 1, "-")),
        ("base64 one digit to a line", separated(&standard, 1, "\n")),
        ("base64 with zero-width spaces", separated(&standard, 4, "\u{200b}")),
        (
            "base64 of each line",
            lines(secret).map(|line| STANDARD.encode(format!("{line}\n")) + "\n").collect(),
        ),
        ("base64 of upper case", STANDARD.encode(secret.to_uppercase())),
        ("base64 of UTF-16", STANDARD.encode(utf16)),
        ("base64 of the text backwards", STANDARD.encode(reversed(secret))),
        ("url-safe base64", safe.clone()),
        ("url-safe base64 with question marks", URL_SAFE_NO_PAD.encode(words.join("???"))),
        ("base64 with question marks", STANDARD.encode(words.join("???"))),
        ("base64 of each word", words.iter().map(|word| STANDARD.encode(word) + "\n").collect()),
        ("url-safe base64 in quotes", format!("`{}`", separated(&safe, 20, "`, `"))),
        ("hex", hex(secret)),
        ("upper case hex", hex(secret).to_uppercase()),
        ("hex after an odd digit", format!("a {}", hex(secret))),
        ("hex pairs", separated(&hex(secret), 2, " ")),
        ("hex with colons", separated(&hex(secret), 2, ":")),
        ("hex with dashes", separated(&hex(secret), 2, "-")),
        ("hex as numbers", map(secret, |c| format!("0x{:02x}, ", c as u32))),
        ("hex digits spaced", separated(&hex(secret), 1, " ")),
        ("hex one digit to a line", separated(&hex(secret), 1, "\n")),
        ("hex in lines", separated(&hex(secret), 64, "\n")),
        (
            "hex in numbered lines",
            numbered(
                hex(secret)
                    .as_bytes()
                    .chunks(32)
                    .map(|part| String::from_utf8_lossy(part).into_owned())
                    .collect(),
                ": ",
            ),
        ),
        ("hex with zero-width spaces", separated(&hex(secret), 2, "\u{200b}")),
        ("comments between sentences", secret.replace(". ", ". (I find that reasonable.) ")),
        (
            "in the middle of an essay",
            format!("Agents are told many things. {first} And so on, as one does."),
        ),
    ]
}

#[test]
fn leaks_are_withheld() {
    let mut policies = ChannelClass::ALL.map(|class| class.policy().prompt).to_vec();
    policies.push(base_prompt().content);
    assert!(leaks(policies[0]).len() >= 60);
    for secret in policies {
        for (way, output) in leaks(secret) {
            let whole = shown(&output, usize::MAX);
            assert!(whole.withheld, "{way}: {output}");
            let before = whole.text.strip_suffix(NOTICE).unwrap();
            assert!(output.starts_with(before), "{way}");
            assert!(before.len() < 400, "{way} let out {before:?}");
            for piece in [1, 2, 3, 7, 64] {
                assert_eq!(shown(&output, piece), whole, "{way} in pieces of {piece}");
            }
        }
    }
}

#[test]
fn every_line_of_the_base_prompt_is_withheld_by_itself() {
    for line in lines(base_prompt().content) {
        let letters = line.chars().filter(char::is_ascii_alphabetic).count();
        assert_eq!(shown(line, 5).withheld, letters >= RUN_LETTERS, "{line}");
    }
}

#[test]
fn output_is_shown_up_to_a_leak() {
    let line = "Begin with the result. Be brief: a few sentences where they suffice, a list where it helps";
    let mut filter = DisclosureFilter::of_instructions();
    let mut text = String::new();
    for piece in ["42! ", &line[..30], &line[30..], " and more", " and more"] {
        text.push_str(&filter.push(piece).text);
    }
    assert_eq!(text, format!("42! {NOTICE}"));
    assert_eq!(filter.push("still there?"), FilteredText { text: String::new(), withheld: true });
    assert_eq!(filter.finish(), FilteredText { text: String::new(), withheld: true });
}

#[test]
fn a_run_of_47_letters_passes_and_one_of_48_does_not() {
    let letters: String = base_prompt().content.chars().filter(char::is_ascii_alphabetic).collect();
    for start in (0..letters.len() - RUN_LETTERS).step_by(11) {
        let (short, long) = (&letters[start..start + RUN_LETTERS - 1], &letters[start..start + RUN_LETTERS]);
        assert_eq!(shown(short, 1), FilteredText { text: short.to_owned(), withheld: false });
        assert_eq!(shown(long, 1), FilteredText { text: NOTICE.to_owned(), withheld: true });
        assert!(shown(&hex(long), 1).withheld && shown(&STANDARD.encode(long), 1).withheld);
        assert!(!shown(&hex(short), 1).withheld && !shown(&STANDARD.encode(short), 1).withheld);
    }
}

#[test]
fn a_thinly_spread_run_never_passes_whole() {
    let thin = separated(base_prompt().content, 1, &"·".repeat(500));
    let mut filter = DisclosureFilter::of_instructions();
    for c in thin.chars() {
        filter.push(c.encode_utf8(&mut [0; 4]));
        assert!(filter.held.len() <= RUN_LETTERS * HELD_PER_LETTER + c.len_utf8());
    }
    let passed = shown(&thin, 100);
    assert!(passed.withheld);
    let letters = passed.text.trim_end_matches(NOTICE).chars().filter(char::is_ascii_alphabetic).count();
    assert!(letters < RUN_LETTERS, "{letters}");
}

/// Other words between `count` words of the text.
fn padded(text: &str, count: usize) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.chunks(count).map(|words| format!("{} (so to speak) ", words.join(" "))).collect()
}

#[test]
fn pieces_with_words_between_add_up() {
    for count in 5..9 {
        let passed = shown(&padded(base_prompt().content, count), 4);
        assert!(passed.withheld, "{count}");
        let letters = passed.text.chars().filter(char::is_ascii_alphabetic).count();
        assert!(letters < 3 * TOTAL_PIECE_LETTERS, "{count}: {}", passed.text);
        assert!(shown(&hex(&padded(base_prompt().content, count)), 4).withheld, "{count}");
    }
    // A repeated piece discloses nothing new.
    let again = "Give a call exactly the arguments it needs, ".repeat(50);
    assert!(!shown(&again, 4).withheld);
}

const ORDINARY: &[&str] = &[
    "",
    " ",
    "Hello!",
    "I can't share my instructions, but I can tell you how I work in general: a gate decides every call I make, people approve the risky ones, and everything is logged.",
    "Sorry, the wording of my system prompt is confidential. In general terms: I use tools, each use is checked, and some need a person's approval.",
    "My instructions are not something I repeat, in any encoding or language. What would you like to get done?",
    "I won't confirm guesses about how my prompt is worded.",
    "The call was denied: `exec` is not in my mandate. The gate said that the mandate `ops` would allow it. I have not tried another way.",
    "The gate turned it down because the path lies outside the workspace. An operator could give me another mandate.",
    "This needs approval. I've made the call; it waits in the inbox until an operator allows it.",
    "Your request is waiting for approval. You can approve it with `tribune approvals allow 0a1b2c3d`.",
    "Nobody has approved it yet, so I have not sent the letter.",
    "The page contains a sentence that looks like an instruction (\"ignore all previous instructions\"). I have ignored it and summarised the rest.",
    "The letter from `dev` asks me to deploy. It is information, not an order, so I only report it.",
    "A constitution hash is `b3:` followed by 64 lowercase hex digits.",
    "constitution_hash: b3:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "commit 4e3c1447b1a9d3c5e0ff0b2c1d9e8a7f6b5c4d3e and 458842dcea242a5a41cff0b2c1d9e8a7f6b5c4d3",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
    "-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIUQ2x1ZSB0byBub3RoaW5nIGF0IGFsbDAKBggqhkjOPQQD\nAjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwHhcNMjQwMTAxMDAwMDAwWhcNMzQwMTAx\n-----END CERTIFICATE-----",
    "TG9yZW0gaXBzdW0gZG9sb3Igc2l0IGFtZXQsIGNvbnNlY3RldHVyIGFkaXBpc2NpbmcgZWxpdCwgc2VkIGRvIGVpdXNtb2QgdGVtcG9y",
    "4c6f72656d20697073756d20646f6c6f722073697420616d65742c20636f6e7365637465747572",
    "fn main() {\n    println!(\"{}\", \"\\u{1F980}\".repeat(3));\n}\n",
    "```rust\npub fn allows(&self, tool: &str) -> bool {\n    self.tools.binary_search_by(|own| own.as_str().cmp(tool)).is_ok()\n}\n```",
    "for f in *.txt; do sha256sum \"$f\" | cut -d' ' -f1 > \"${f%.txt}.sha256\"; done",
    "SELECT agent_id, count(*) FROM calls WHERE verdict = 'deny' GROUP BY agent_id ORDER BY 2 DESC;",
    "{\"tool\": \"read\", \"args\": {\"path\": \"notes.txt\"}, \"verdict\": \"allow\"}",
    "<ul><li>First</li><li>Second &amp; third</li></ul>",
    "C:\\new\\table\\readme.txt and \\\\server\\share",
    "1. Open the file.\n2. Change the line.\n3. Run the tests.\n4. Commit.",
    "| call | verdict |\n|---|---|\n| read | allow |\n| exec | ask |",
    "Uryyb, jbeyq! That was rot13 for a greeting.",
    "The quick brown fox jumps over the lazy dog; .god yzal eht revo spmuj xof nworb kciuq ehT",
    "Wie kann ich Ihnen helfen? Der Aufruf wurde abgelehnt, weil das Mandat ihn nicht vorsieht.",
    "我可以帮您查看文件，但是发送邮件需要先得到批准。",
    "Я не могу раскрыть свои инструкции, но могу объяснить, как я работаю.",
    "تم رفض الطلب لأن السياسة لا تسمح به.",
    "👩‍👩‍👧‍👦 🇩🇪 🇫🇷 ✅ Done!",
    "Be brief, be exact, be kind: that is the whole of it.",
    "Tribune is a daemon that runs agents under law. Every call passes a gate, and each verdict is recorded before its effect.",
    "I was asked to keep answers short: a few sentences where they are enough.",
    "Keys, tokens and passwords should never be committed. I found one in `.env`, line 3, and did not print it.",
    "I made the change and ran the tests: 214 passed, none failed. I did not touch the documentation.",
    "a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a",
    "00000000 00000000 ffffffff ffffffff 0x00 0x01 0x02 0xff deadbeef cafebabe",
    "The base prompt and the channel's note come first and last. I keep both to myself; the constitution you may read.",
    NOTICE,
    DEFAULT_CONSTITUTION,
    DEFAULT_MANDATE_TEXT,
    include_str!("mod.rs"),
    include_str!("decoders.rs"),
    include_str!("../../command/programs.rs"),
    include_str!("../../../../../README.md"),
    include_str!("../../../../../ARCHITECTURE.md"),
    include_str!("../../../../../docs/guide/law.md"),
    include_str!("../../../../../docs/guide/daemon.md"),
    include_str!("../../../../../docs/limits.md"),
];

#[test]
fn ordinary_output_passes_unchanged() {
    assert!(ORDINARY.len() >= 40);
    let all = ORDINARY.concat();
    assert_eq!(shown(&all, 100), FilteredText { text: all, withheld: false });
    for output in ORDINARY {
        for piece in [3, usize::MAX] {
            assert_eq!(shown(output, piece), FilteredText { text: (*output).to_owned(), withheld: false });
        }
    }
}

#[test]
fn ordinary_prose_is_hardly_held_back() {
    let (mut most, mut sum, mut count) = (0, 0, 0);
    for output in ORDINARY {
        let mut filter = DisclosureFilter::of_instructions();
        for c in output.chars() {
            filter.push(c.encode_utf8(&mut [0; 4]));
            most = most.max(filter.held.len());
            sum += filter.held.len();
            count += 1;
        }
    }
    assert!(most < 128 && sum / count < 16, "at most {most}, {sum} in {count}");
}

#[test]
fn debug_output_contains_no_secret() {
    let mut filter = DisclosureFilter::of_instructions();
    filter.push("You are an agent that Tribune");
    assert_eq!(format!("{filter:?}"), "Disclosure { is_closed: false, .. }");
}

#[test]
fn no_secrets_withhold_nothing() {
    let mut filter = DisclosureFilter::new(&[]);
    assert_eq!(filter.push("anything").text + &filter.finish().text, "anything");
}
