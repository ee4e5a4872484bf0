//! Writes the canonical text of a value.

use serde_json::{Map, Number, Value};

use super::{JcsError, compare_keys, plain_prefix, short_escape, write_double};
use crate::limits::{MAX_DEPTH, MAX_SAFE_INTEGER};

/// The canonical form of `value`.
pub fn to_vec(value: &Value) -> Result<Vec<u8>, JcsError> {
    let mut out = Vec::with_capacity(256);
    write(value, &mut out)?;
    Ok(out)
}

/// Appends the canonical form of `value`. After an error `out` may hold a part of it.
pub fn write(value: &Value, out: &mut Vec<u8>) -> Result<(), JcsError> {
    write_at(value, MAX_DEPTH, out)
}

/// Appends the canonical form of the object with these members, at the nesting depth of a member of an entry.
pub fn write_members(members: &Map<String, Value>, out: &mut Vec<u8>) -> Result<(), JcsError> {
    write_object(members, deeper(deeper(MAX_DEPTH)?)?, out)
}

fn write_at(value: &Value, depth: usize, out: &mut Vec<u8>) -> Result<(), JcsError> {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Number(number) => write_number(number, out)?,
        Value::String(text) => write_string(text, out),
        Value::Array(items) => {
            let depth = deeper(depth)?;
            out.push(b'[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write_at(item, depth, out)?;
            }
            out.push(b']');
        }
        Value::Object(members) => write_object(members, deeper(depth)?, out)?,
    }
    Ok(())
}

fn deeper(depth: usize) -> Result<usize, JcsError> {
    depth.checked_sub(1).ok_or(JcsError::TooDeep { limit: MAX_DEPTH })
}

fn write_object(members: &Map<String, Value>, depth: usize, out: &mut Vec<u8>) -> Result<(), JcsError> {
    let mut sorted: Vec<(&String, &Value)> = members.iter().collect();
    sorted.sort_unstable_by(|a, b| compare_keys(a.0, b.0));
    out.push(b'{');
    for (i, (key, value)) in sorted.into_iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write_string(key, out);
        out.push(b':');
        write_at(value, depth, out)?;
    }
    out.push(b'}');
    Ok(())
}

fn write_number(number: &Number, out: &mut Vec<u8>) -> Result<(), JcsError> {
    let too_large = || JcsError::IntegerTooLarge(number.to_string());
    if let Some(integer) = number.as_u64() {
        if integer > MAX_SAFE_INTEGER {
            return Err(too_large());
        }
        write_integer(integer, out);
    } else if let Some(integer) = number.as_i64() {
        if integer.unsigned_abs() > MAX_SAFE_INTEGER {
            return Err(too_large());
        }
        out.push(b'-');
        write_integer(integer.unsigned_abs(), out);
    } else {
        let double = number.as_f64().ok_or(JcsError::NotFinite)?;
        // Such a double prints as an integer that a strict parser refuses.
        if (9_007_199_254_740_992.0..1e21).contains(&double.abs()) {
            return Err(too_large());
        }
        write_double(double, out)?;
    }
    Ok(())
}

fn write_integer(mut integer: u64, out: &mut Vec<u8>) {
    let mut digits = [0_u8; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (integer % 10) as u8;
        integer /= 10;
        if integer == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// Appends `text` as a canonical JSON string, quotes included.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    let mut rest = text.as_bytes();
    out.push(b'"');
    loop {
        let (plain, special) = rest.split_at(plain_prefix(rest));
        out.extend_from_slice(plain);
        let Some((&byte, after)) = special.split_first() else { break };
        match short_escape(byte) {
            0 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            letter => out.extend_from_slice(&[b'\\', letter]),
        }
        rest = after;
    }
    out.push(b'"');
}
