//! RFC 8785: its test vectors, and the cases where implementations are known to differ.

use proptest::prelude::*;
use serde_json::{Value, json};
use tribune_ledger::jcs::{self, JcsError, scan};
use tribune_ledger::limits::{MAX_DEPTH, MAX_ENTRY_BYTES};

use crate::fixture::TestRng;

fn canonical(text: &str) -> String {
    String::from_utf8(jcs::to_vec(&jcs::parse(text.as_bytes()).unwrap()).unwrap()).unwrap()
}

fn double(value: f64) -> Result<String, JcsError> {
    let mut out = Vec::new();
    jcs::write_double(value, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

#[test]
fn rfc_8785_section_3_2_2_sample() {
    let input = r#"{
        "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
        "literals": [null, true, false]
    }"#;
    let output = "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\
                  \"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}";
    assert_eq!(canonical(input), output);
}

#[test]
fn rfc_8785_section_3_2_3_keys_sort_by_utf_16_units() {
    let input = r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One",
        "\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}"#;
    let output = "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u{80}\":\"Control\",\
        \"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\
        \"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}";
    assert_eq!(canonical(input), output);
}

#[test]
fn rfc_8785_appendix_b_numbers() {
    let vectors: [(u64, &str); 24] = [
        (0x0000_0000_0000_0000, "0"),
        (0x8000_0000_0000_0000, "0"),
        (0x0000_0000_0000_0001, "5e-324"),
        (0x8000_0000_0000_0001, "-5e-324"),
        (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
        (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
        (0x4340_0000_0000_0000, "9007199254740992"),
        (0xc340_0000_0000_0000, "-9007199254740992"),
        (0x4430_0000_0000_0000, "295147905179352830000"),
        (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
        (0x44b5_2d02_c7e1_4af6, "1e+23"),
        (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
        (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
        (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
        (0x444b_1ae4_d6e2_ef50, "1e+21"),
        (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
        (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
        (0x41b3_de43_5555_5553, "333333333.3333332"),
        (0x41b3_de43_5555_5554, "333333333.33333325"),
        (0x41b3_de43_5555_5555, "333333333.3333333"),
        (0x41b3_de43_5555_5556, "333333333.3333334"),
        (0x41b3_de43_5555_5557, "333333333.33333343"),
        (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
        (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
    ];
    for (bits, text) in vectors {
        assert_eq!(double(f64::from_bits(bits)).as_deref(), Ok(text), "{bits:016x}");
    }
    for bits in [0x7fff_ffff_ffff_ffff_u64, 0x7ff0_0000_0000_0000, 0xfff0_0000_0000_0000] {
        assert_eq!(double(f64::from_bits(bits)), Err(JcsError::NotFinite));
    }
}

/// A million doubles of four kinds, printed by this crate and by an independent crate with another digit algorithm.
#[test]
fn a_million_doubles_agree_with_another_implementation() {
    let mut rng = TestRng::new(8785);
    let mut compared = 0_u32;
    while compared < 1_000_000 {
        let random = rng.next();
        let value = match compared % 4 {
            0 => f64::from_bits(random),
            1 => (random % 10_000_000) as f64 / 10_f64.powi((random >> 40) as i32 % 12),
            2 => f64::from_bits((random % 2046) << 52).next_up_by(random >> 60),
            _ => 10_f64.powi((random % 600) as i32 - 300).next_up_by(random >> 60),
        };
        if !value.is_finite() {
            assert_eq!(double(value), Err(JcsError::NotFinite));
            continue;
        }
        let theirs = serde_json_canonicalizer::to_string(&value).unwrap();
        assert_eq!(double(value).unwrap(), theirs, "{:016x}", value.to_bits());
        let integer_like = theirs.bytes().all(|b| b.is_ascii_digit() || b == b'-');
        let refused = integer_like && value.abs() > 9_007_199_254_740_991.0;
        assert_eq!(jcs::to_vec(&json!(value)).is_err(), refused, "{theirs}");
        compared += 1;
    }
}

trait Neighbour {
    fn next_up_by(self, steps: u64) -> f64;
}

impl Neighbour for f64 {
    fn next_up_by(self, steps: u64) -> f64 {
        (0..steps).fold(self, |value, _| value.next_up())
    }
}

#[test]
fn text_parses_to_the_double_it_names() {
    // The default parser of serde_json is wrong by one unit in the last place for these.
    for text in
        ["1.7976931348623157e308", "2.2250738585072014e-308", "0.30000000000000004", "123456789012.34567"]
    {
        let value = jcs::parse(text.as_bytes()).unwrap();
        assert_eq!(value.as_f64(), Some(text.parse::<f64>().unwrap()));
    }
    let mut rng = TestRng::new(53);
    for _ in 0..100_000 {
        let value = f64::from_bits(rng.next());
        if value.is_finite() && value.abs() < 9e15 {
            let text = format!("{value:e}");
            assert_eq!(jcs::parse(text.as_bytes()).unwrap().as_f64().unwrap(), value, "{text}");
        }
    }
}

#[test]
fn integers_beyond_2_53_are_refused_however_they_are_written() {
    for text in ["9007199254740991", "-9007199254740991", "0", "[1e21]", "1e300", "0.5"] {
        let value = jcs::parse(text.as_bytes()).unwrap();
        assert!(jcs::to_vec(&value).is_ok(), "{text}");
    }
    for text in [
        "9007199254740992",
        "-9007199254740992",
        "18446744073709551615",
        "18446744073709551616",
        "-9223372036854775808",
        "1000000000000000000000000",
        "{\"a\":[9007199254740993]}",
    ] {
        assert!(matches!(jcs::parse(text.as_bytes()), Err(JcsError::IntegerTooLarge(_))), "{text}");
    }
    for value in [json!(1_u64 << 53), json!(-(1_i64 << 53)), json!(u64::MAX), json!(i64::MIN), json!(1e20)] {
        assert!(matches!(jcs::to_vec(&value), Err(JcsError::IntegerTooLarge(_))), "{value}");
    }
    assert_eq!(
        jcs::parse(b"9007199254740992").unwrap_err().to_string(),
        "the integer 9007199254740992 is beyond 2^53-1: send it as a string"
    );
    assert!(jcs::parse(b"{\"a\":\"9007199254740992\"}").is_ok(), "digits in a string are not a number");
}

#[test]
fn minus_zero_is_zero() {
    assert_eq!(canonical("[-0, -0.0, 0.0, -0e5]"), "[0,0,0,0]");
}

#[test]
fn duplicate_keys_are_refused_at_any_depth_and_in_any_spelling() {
    for text in [r#"{"a":1,"a":1}"#, r#"[{"b":{"a":1,"c":2,"a":3}}]"#, r#"{"\u0061":1,"a":2}"#] {
        let error = jcs::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("duplicate key `a`"), "{error}");
    }
}

#[test]
fn ambiguous_texts_are_refused() {
    for text in [
        r#""\ud800""#,
        r#""\udc00\ud800""#,
        r#"{"\ud800":1}"#,
        "1e400",
        "-1e400",
        "NaN",
        "Infinity",
        "01",
        "1.",
        ".5",
        "+1",
        "'a'",
        "[1,]",
        "{\"a\":1,}",
        "",
        "1 2",
        "\"\u{7}\"",
    ] {
        assert!(matches!(jcs::parse(text.as_bytes()), Err(JcsError::Syntax(_))), "{text}");
    }
    assert!(jcs::parse(b"\"\xff\"").is_err(), "not UTF-8");
}

#[test]
fn l9_nesting_and_size_are_bounded_and_the_limit_is_named() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(jcs::parse(nested(MAX_DEPTH).as_bytes()).is_ok());
    for depth in [MAX_DEPTH + 1, 127, 128, 100_000] {
        let error = jcs::parse(nested(depth).as_bytes()).unwrap_err();
        assert_eq!(error, JcsError::TooDeep { limit: MAX_DEPTH }, "{depth}");
    }
    let deep = (0..MAX_DEPTH).fold(json!([]), |inner, _| json!([inner]));
    assert_eq!(jcs::to_vec(&deep), Err(JcsError::TooDeep { limit: MAX_DEPTH }));
    let large = format!("\"{}\"", "x".repeat(10 << 20));
    let error = jcs::parse(large.as_bytes()).unwrap_err();
    assert_eq!(error, JcsError::TooLarge { bytes: large.len(), limit: MAX_ENTRY_BYTES });
    assert_eq!(error.to_string(), "the JSON text has 10485762 bytes; the limit is 262144");
}

fn scanned(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| scan::object(text).is_ok())
}

fn any_json() -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        (-9_007_199_254_740_991_i64..=9_007_199_254_740_991).prop_map(Value::from),
        (-1e15..1e15_f64).prop_map(Value::from),
    ];
    let key = prop_oneof![
        "[a-c]{0,3}",
        "\\PC{0,4}",
        "[\u{e000}-\u{ffff}\u{10000}-\u{10ffff}]{1,3}",
        "[\u{0}-\u{1f}\"\\\\]{0,3}"
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number,
        key.clone().prop_map(Value::from)
    ];
    leaf.prop_recursive(5, 64, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_value_agrees_with_another_implementation_and_round_trips(value in any_json()) {
        let ours = jcs::to_vec(&value).unwrap();
        prop_assert_eq!(&ours, &serde_json_canonicalizer::to_vec(&value).unwrap());
        let again = jcs::parse(&ours).unwrap();
        prop_assert_eq!(jcs::to_vec(&again).unwrap(), ours);
    }

    #[test]
    fn the_scanner_accepts_exactly_the_canonical_form(value in any_json(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let object = json!({ "v": value });
        let mut text = jcs::to_vec(&object).unwrap();
        prop_assert!(scanned(&text));
        let at = at.index(text.len());
        text[at] = byte;
        let canonical = jcs::parse(&text).ok().filter(Value::is_object).and_then(|value| jcs::to_vec(&value).ok());
        prop_assert_eq!(scanned(&text), canonical.as_ref() == Some(&text), "{}", String::from_utf8_lossy(&text));
    }
}

#[test]
fn the_scanner_refuses_valid_json_that_is_not_canonical() {
    for text in [
        " {}",
        "{} ",
        "{\"a\": 1}",
        "{\"b\":1,\"a\":1}",
        "{\"a\":1,\"a\":1}",
        "{\"a\":1.0}",
        "{\"a\":1e3}",
        "{\"a\":-0}",
        "{\"a\":1E30}",
        "{\"a\":9007199254740992}",
        "{\"a\":1e400}",
        "{\"a\":\"\\/\"}",
        "{\"a\":\"\\u0041\"}",
        "{\"a\":\"\\u000A\"}",
        "{\"a\":\"\\u000a\"}",
        "{\"a\":\"\\u001F\"}",
        "{\"\u{e000}\":1,\"\u{10000}\":1}",
        "[]",
        "",
        "{",
        "{\"a\"",
        "{\"a\":tru}",
    ] {
        assert!(!scanned(text.as_bytes()), "{text}");
    }
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(!scanned(deep.as_bytes()));
}

/// Decimals of every length around the border between the fast check and the full one.
#[test]
fn the_scanner_judges_decimals_as_the_writer_prints_them() {
    let mut rng = TestRng::new(15);
    for _ in 0..200_000 {
        let whole = match rng.below(3) {
            0 => "0".to_owned(),
            1 => (rng.next() % 1000).to_string(),
            _ => (rng.next() % 10_u64.pow(1 + rng.below(12) as u32)).to_string(),
        };
        let zeros = "0".repeat(rng.below(9));
        let fraction = (rng.next() % 10_u64.pow(1 + rng.below(12) as u32)).to_string();
        let sign = if rng.below(2) == 0 { "-" } else { "" };
        let number = format!("{sign}{whole}.{zeros}{fraction}");
        let text = format!("{{\"a\":{number}}}");
        let canonical = jcs::parse(text.as_bytes()).ok().and_then(|value| jcs::to_vec(&value).ok());
        assert_eq!(scanned(text.as_bytes()), canonical.as_deref() == Some(text.as_bytes()), "{number}");
    }
}
