//! The key of a provider. It is wiped from memory when it goes, and nothing prints it.

use std::fmt;

use reqwest::header::HeaderValue;
use zeroize::Zeroizing;

/// A key. Reading it from the environment is the caller's.
#[derive(Clone)]
pub struct ApiKey(Zeroizing<String>);

impl ApiKey {
    /// `None` if there is nothing but white space, as with a variable that is set to nothing.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty()).then(|| Self(Zeroizing::new(text.to_owned())))
    }

    /// For a header, marked so that no HTTP library prints it. `None` if it holds what a header cannot.
    pub(super) fn header(&self, scheme: &str) -> Option<HeaderValue> {
        let line = Zeroizing::new(format!("{scheme}{}", self.0.as_str()));
        if !line.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') {
            return None;
        }
        let mut value = HeaderValue::from_str(&line).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The text with the key taken out.
    pub(super) fn blot_out(&self, text: &str) -> String {
        text.replace(self.0.as_str(), "[key]")
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_prints_it() {
        let key = ApiKey::new(" sk-secret\n").unwrap();
        assert_eq!(format!("{key:?}"), "ApiKey(…)");
        assert_eq!(format!("{:?}", key.header("Bearer ").unwrap()), "Sensitive");
        assert_eq!(key.header("Bearer ").unwrap().to_str().unwrap(), "Bearer sk-secret");
    }

    #[test]
    fn what_no_key_is() {
        assert!(ApiKey::new(" \n").is_none());
        assert!(ApiKey::new("a\nb").unwrap().header("").is_none());
        assert!(ApiKey::new("schlüssel").unwrap().header("").is_none());
    }
}
