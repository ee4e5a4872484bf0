//! The API key of a provider. It is wiped from memory on drop, and `Debug` does not print it.

use std::fmt;

use reqwest::header::HeaderValue;
use zeroize::Zeroizing;

/// An API key. The caller reads it from the environment.
#[derive(Clone)]
pub struct ApiKey(Zeroizing<String>);

impl ApiKey {
    /// `None` for an empty or blank text, such as an environment variable that is set to nothing.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty()).then(|| Self(Zeroizing::new(text.to_owned())))
    }

    /// A header value, marked as sensitive so that HTTP libraries do not print it. `None` if it contains characters
    /// that a header value must not contain.
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

    /// Replaces the key in `text` by `[key]`.
    pub(super) fn mask_in(&self, text: &str) -> String {
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
    fn debug_output_hides_the_key() {
        let key = ApiKey::new(" sk-secret\n").unwrap();
        assert_eq!(format!("{key:?}"), "ApiKey(…)");
        assert_eq!(format!("{:?}", key.header("Bearer ").unwrap()), "Sensitive");
        assert_eq!(key.header("Bearer ").unwrap().to_str().unwrap(), "Bearer sk-secret");
    }

    #[test]
    fn invalid_keys_are_rejected() {
        assert!(ApiKey::new(" \n").is_none());
        assert!(ApiKey::new("a\nb").unwrap().header("").is_none());
        assert!(ApiKey::new("schlüssel").unwrap().header("").is_none());
    }
}
