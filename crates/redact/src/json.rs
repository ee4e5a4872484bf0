//! Takes secrets out of the texts of a JSON value.

use serde_json::Value;

use crate::redactor::Redactor;

impl Redactor {
    /// The value without the secrets in its texts and in the names of its members. Everything else is as it was.
    pub fn redact_json(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.redact(text).into_owned()),
            Value::Array(items) => items.iter().map(|item| self.redact_json(item)).collect(),
            Value::Object(members) => {
                let cleared = |(name, value): (&String, &Value)| {
                    (self.redact(name).into_owned(), self.redact_json(value))
                };
                members.iter().map(cleared).collect()
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
    fn texts_and_names_lose_their_secrets_and_nothing_else_changes() {
        let redactor = Redactor::new().with_known(vec!["fixture-secret".to_owned()]);
        let value = json!({
            "a": ["x fixture-secret", 1, null, true, { "fixture-secret": 2.5 }], "b": "plain",
        });
        let cleared = json!({
            "a": ["x [redacted:known]", 1, null, true, { "[redacted:known]": 2.5 }], "b": "plain",
        });
        assert_eq!(redactor.redact_json(&value), cleared);
        assert_eq!(redactor.redact_json(&cleared), cleared);
    }
}
