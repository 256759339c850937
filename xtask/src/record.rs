//! Reads records and the figures in them. A missing figure is an error, never a zero.

use std::collections::BTreeMap;

use serde_json::Value;

/// One record, or a part of one.
pub(crate) struct Record {
    path: String,
    value: Value,
}

impl Record {
    /// Reads a record of that schema.
    pub(crate) fn read(path: &str, text: &str, expected: &str) -> Result<Self, String> {
        let value = serde_json::from_str(text).map_err(|error| format!("{path}: {error}"))?;
        let record = Self { path: path.to_owned(), value };
        let schema = record.text("schema")?;
        if schema == expected {
            return Ok(record);
        }
        Err(format!("{path}: its schema is {schema}, not {expected}"))
    }

    /// A part of a record, which has no schema of its own.
    pub(crate) fn of(path: &str, value: Value) -> Self {
        Self { path: path.to_owned(), value }
    }

    fn part(&self, name: &str, value: &Value) -> Self {
        Self { path: format!("{}: {name}", self.path), value: value.clone() }
    }

    fn lacks(&self, name: &str) -> String {
        format!("{}: there is no `{name}` of the right kind", self.path)
    }

    /// Whether it has a value of that name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.value.get(name).is_some_and(|value| !value.is_null())
    }

    /// Whether a value of that name is there and true.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.value.get(name).and_then(Value::as_bool).unwrap_or_default()
    }

    /// A text.
    pub(crate) fn text(&self, name: &str) -> Result<String, String> {
        let text = self.value.get(name).and_then(Value::as_str);
        text.map(str::to_owned).ok_or_else(|| self.lacks(name))
    }

    /// A count.
    pub(crate) fn count(&self, name: &str) -> Result<u64, String> {
        self.value.get(name).and_then(Value::as_u64).ok_or_else(|| self.lacks(name))
    }

    /// A measure.
    pub(crate) fn measure(&self, name: &str) -> Result<f64, String> {
        self.value.get(name).and_then(Value::as_f64).ok_or_else(|| self.lacks(name))
    }

    /// A part of the record with named values.
    pub(crate) fn object(&self, name: &str) -> Result<Self, String> {
        let object = self.value.get(name).filter(|value| value.is_object());
        object.map(|value| self.part(name, value)).ok_or_else(|| self.lacks(name))
    }

    /// A list of parts with named values.
    pub(crate) fn list(&self, name: &str) -> Result<Vec<Self>, String> {
        let list =
            self.value.get(name).and_then(Value::as_array).ok_or_else(|| self.lacks(name))?;
        Ok(list.iter().map(|value| self.part(name, value)).collect())
    }

    /// A list of texts.
    pub(crate) fn texts(&self, name: &str) -> Result<Vec<String>, String> {
        let list = self.value.get(name).and_then(Value::as_array);
        let texts = list.and_then(|list| {
            list.iter().map(|value| value.as_str().map(str::to_owned)).collect::<Option<_>>()
        });
        texts.ok_or_else(|| self.lacks(name))
    }

    /// A list of two counts.
    pub(crate) fn pair(&self, name: &str) -> Result<(u64, u64), String> {
        let pair = self.value.get(name).and_then(Value::as_array).map(Vec::as_slice);
        match pair {
            Some([first, second]) => first.as_u64().zip(second.as_u64()),
            _ => None,
        }
        .ok_or_else(|| self.lacks(name))
    }

    /// Counts by name.
    pub(crate) fn counts(&self, name: &str) -> Result<BTreeMap<String, u64>, String> {
        let object = self.object(name)?;
        let names = object.names();
        names.into_iter().map(|name| Ok((name.clone(), object.count(&name)?))).collect()
    }

    /// The names of its values.
    pub(crate) fn names(&self) -> Vec<String> {
        self.value.as_object().into_iter().flat_map(|object| object.keys().cloned()).collect()
    }
}

/// A number with its digits in groups of three.
pub(crate) fn spaced(number: u64) -> String {
    let digits = number.to_string();
    let mut spaced = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            spaced.push(' ');
        }
        spaced.push(digit);
    }
    spaced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_stand_in_threes() {
        for (number, shown) in [(0, "0"), (999, "999"), (1000, "1 000"), (12_345_678, "12 345 678")]
        {
            assert_eq!(spaced(number), shown);
        }
    }
}
