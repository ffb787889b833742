//! An experiment as written: keys and values that know where in the file they are.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::diagnostic::Diagnostic;

/// A place in the file, in bytes.
pub(crate) type Span = Range<usize>;

/// A value and its place.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// The bytes of the file that the value takes up.
    pub(crate) span: Span,
    /// The value that is written there.
    pub(crate) value: Value,
}

/// A value as TOML can write it.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// A number, word or switch.
    Scalar(toml::Value),
    /// A list of values, which a setting sweeps over.
    List(Vec<Node>),
    /// A table of keys with their values.
    Table(Table),
}

/// Keys with values, in the order written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table(pub(crate) Vec<Entry>);

/// A key with its value.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The key as it is written.
    pub(crate) key: String,
    /// The bytes of the file that the key takes up.
    pub(crate) span: Span,
    /// The value of the key, with its place.
    pub(crate) node: Node,
}

impl Table {
    /// Parses a file, or says where it is not TOML.
    pub(crate) fn parse(text: &str) -> Result<Self, Vec<Diagnostic>> {
        let table = DeTable::parse(text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            vec![Diagnostic::new(&span, format!("not TOML: {}", error.message()))]
        })?;
        let mut problems = Vec::new();
        let table = table_of(table.get_ref(), &mut problems);
        if problems.is_empty() { Ok(table) } else { Err(problems) }
    }

    /// Returns the entry called `key`, if there is one.
    pub(crate) fn get(&self, key: &str) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.key == key)
    }

    /// Returns the same value without places.
    pub(crate) fn to_toml(&self) -> toml::Table {
        self.0.iter().map(|entry| (entry.key.clone(), entry.node.to_toml())).collect()
    }
}

impl Node {
    /// The scalar, if it is one.
    pub(crate) const fn scalar(&self) -> Option<&toml::Value> {
        if let Value::Scalar(value) = &self.value { Some(value) } else { None }
    }

    /// The table, if it is one.
    pub(crate) const fn table(&self) -> Option<&Table> {
        if let Value::Table(table) = &self.value { Some(table) } else { None }
    }

    /// The values of a sweep: the elements of a list, or the one value.
    pub(crate) fn elements(&self) -> &[Self] {
        if let Value::List(nodes) = &self.value { nodes } else { std::slice::from_ref(self) }
    }

    /// Returns the same value without places.
    pub(crate) fn to_toml(&self) -> toml::Value {
        match &self.value {
            Value::Scalar(value) => value.clone(),
            Value::List(nodes) => nodes.iter().map(Self::to_toml).collect::<Vec<_>>().into(),
            Value::Table(table) => table.to_toml().into(),
        }
    }

    /// In a few words, for messages.
    pub(crate) fn describe(&self) -> String {
        match &self.value {
            Value::Scalar(toml::Value::String(text)) => format!("\"{text}\""),
            Value::Scalar(value) => label(value),
            Value::List(_) => "a list".into(),
            Value::Table(_) => "a table".into(),
        }
    }
}

/// A scalar as it appears in the names of cells: 5, 0.1, inf, lazy.
pub(crate) fn label(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Float(number) => number.to_string(),
        other => other.to_string(),
    }
}

/// A parsed table; numbers that do not fit are noted in `problems`.
fn table_of(table: &DeTable<'_>, problems: &mut Vec<Diagnostic>) -> Table {
    let entries = table.iter().map(|(key, value)| Entry {
        key: key.get_ref().to_string(),
        span: key.span(),
        node: node_of(value.span(), value.get_ref(), problems),
    });
    Table(entries.collect())
}

/// A parsed value; numbers that do not fit are noted in `problems`.
fn node_of(span: Span, value: &DeValue<'_>, problems: &mut Vec<Diagnostic>) -> Node {
    let mut too_large = || {
        problems.push(Diagnostic::new(&span, "this number is too large"));
        Value::Scalar(toml::Value::Integer(0))
    };
    let value = match value {
        DeValue::String(text) => Value::Scalar(text.to_string().into()),
        DeValue::Boolean(switch) => Value::Scalar((*switch).into()),
        DeValue::Datetime(time) => Value::Scalar((*time).into()),
        DeValue::Integer(digits) => i64::from_str_radix(digits.as_str(), digits.radix())
            .map_or_else(|_| too_large(), |number| Value::Scalar(number.into())),
        DeValue::Float(digits) => match digits.as_str().parse::<f64>() {
            // TOML can write infinity; a number that overflows is a slip.
            Ok(number) if number.is_finite() || !digits.as_str().contains(|c: char| c.is_ascii_digit()) => {
                Value::Scalar(number.into())
            }
            _ => too_large(),
        },
        DeValue::Array(nodes) => {
            Value::List(nodes.iter().map(|node| node_of(node.span(), node.get_ref(), problems)).collect())
        }
        DeValue::Table(table) => Value::Table(table_of(table, problems)),
    };
    Node { span, value }
}
