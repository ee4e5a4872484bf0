//! Numbers as ECMAScript prints them (RFC 8785 section 3.2.2.3).

use super::JcsError;

/// Appends the shortest text that reads back as `value`, laid out as `Number.prototype.toString` does.
pub fn write_double(value: f64, out: &mut Vec<u8>) -> Result<(), JcsError> {
    if !value.is_finite() {
        return Err(JcsError::NotFinite);
    }
    if value == 0.0 {
        out.push(b'0');
        return Ok(());
    }
    if value < 0.0 {
        out.push(b'-');
    }
    let mut buffer = zmij::Buffer::new();
    let (digits, point) = digits_and_point(buffer.format_finite(value.abs()));
    write_digits(&digits, point, out);
    Ok(())
}

/// The significant digits of a decimal text such as `12.5` or `1e-7`, and how many of them precede the point.
fn digits_and_point(text: &str) -> (Vec<u8>, i32) {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut digits = [whole.as_bytes(), fraction.as_bytes()].concat();
    let leading = digits.iter().take_while(|&&digit| digit == b'0').count();
    digits.drain(..leading);
    let trailing = digits.iter().rev().take_while(|&&digit| digit == b'0').count();
    digits.truncate(digits.len() - trailing);
    let point = whole.len() as i32 - leading as i32 + exponent.parse::<i32>().unwrap_or(0);
    (digits, point)
}

/// Writes `digits` with `point` of them before the decimal point; if it is negative, with zeros after the point.
fn write_digits(digits: &[u8], point: i32, out: &mut Vec<u8>) {
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let zeros = |n: i32| std::iter::repeat_n(b'0', usize::try_from(n).unwrap_or(0));
    match point {
        1..=21 if count <= point => {
            out.extend_from_slice(digits);
            out.extend(zeros(point - count));
        }
        1..=21 => {
            let (whole, fraction) = digits.split_at(usize::try_from(point).unwrap_or(0));
            out.extend_from_slice(whole);
            out.push(b'.');
            out.extend_from_slice(fraction);
        }
        -5..=0 => {
            out.extend_from_slice(b"0.");
            out.extend(zeros(-point));
            out.extend_from_slice(digits);
        }
        _ => {
            let (first, rest) = digits.split_at(1);
            out.extend_from_slice(first);
            if !rest.is_empty() {
                out.push(b'.');
                out.extend_from_slice(rest);
            }
            let exponent = point - 1;
            out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
            out.extend_from_slice(exponent.unsigned_abs().to_string().as_bytes());
        }
    }
}
