//! Removes secrets from the strings of a JSON value.

use serde_json::Value;

use crate::redactor::Redactor;

impl Redactor {
    /// The value with the secrets in its strings and member names redacted. Everything else is unchanged.
    pub fn redact_json(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.redact(text).into_owned()),
            Value::Array(items) => items.iter().map(|item| self.redact_json(item)).collect(),
            Value::Object(members) => {
                let redacted = |(name, value): (&String, &Value)| {
                    (self.redact(name).into_owned(), self.redact_json(value))
                };
                members.iter().map(redacted).collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn redact_json_changes_strings_and_member_names_only() {
        let redactor = Redactor::new().with_exact_values(vec!["fixture-secret".to_owned()]);
        let value = json!({
            "a": ["x fixture-secret", 1, null, true, { "fixture-secret": 2.5 }], "b": "plain",
        });
        let redacted = json!({
            "a": ["x [redacted:known]", 1, null, true, { "[redacted:known]": 2.5 }], "b": "plain",
        });
        assert_eq!(redactor.redact_json(&value), redacted);
        assert_eq!(redactor.redact_json(&redacted), redacted);
    }
}
