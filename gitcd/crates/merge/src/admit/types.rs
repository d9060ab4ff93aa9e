//! Whether each field of an object has a value that Kubernetes can decode.
//!
//! kube-apiserver decodes stored objects into its Go types. A single file that it cannot decode makes all objects of the kind
//! unlistable.

use super::finding::{Finding, Step};
use super::scalar;
use crate::schema::{Node, Shape};
use crate::value::Value;

/// Deeper values are not checked.
const MAX_DEPTH: usize = 512;

/// Number of findings after which the check ends.
const MANY: usize = 20;

/// Checks all fields of an object.
#[derive(Default)]
pub(super) struct Types {
    /// Whether to report unknown fields, which Kubernetes drops.
    pub(super) unknown: bool,
    pub(super) path: Vec<Step>,
    pub(super) findings: Vec<Finding>,
}

impl Types {
    /// Checks a value and everything below it.
    pub(super) fn check(&mut self, value: &Value, node: Node<'_>) {
        let shape = node.shape();
        if self.findings.len() >= MANY {
            return;
        }
        if let Some(problem) = problem(value, shape) {
            self.findings.push(Finding::at(&self.path, problem));
            return;
        }
        if self.path.len() > MAX_DEPTH {
            return;
        }
        match value {
            Value::Map(map) => {
                for (name, value) in map.iter() {
                    let below = node.field(&name);
                    if below.is_none() && !(self.unknown && shape == Shape::Object) {
                        continue;
                    }
                    self.path.push(Step::Field(name.into_owned()));
                    if let Some(below) = below {
                        self.check(value, below);
                    } else if self.findings.len() < MANY {
                        let problem = "Kubernetes does not know this field, and drops it";
                        let finding = Finding::at(&self.path, problem);
                        self.findings.push(Finding { is_warning: true, ..finding });
                    }
                    self.path.pop();
                }
            }
            Value::List(items) => {
                let Some(below) = node.items() else { return };
                for (at, item) in items.iter().enumerate() {
                    self.path.push(Step::Item(at));
                    self.check(item, below);
                    self.path.pop();
                }
            }
            Value::Scalar(_) => {}
        }
    }
}

/// Returns what is wrong with a value itself, ignoring its content.
fn problem(value: &Value, shape: Shape) -> Option<String> {
    let scalar = match value {
        Value::Scalar(scalar) if &**scalar == "null" => return None,
        Value::Scalar(scalar) => &**scalar,
        // Go also decodes a list of numbers as bytes.
        Value::List(items) if shape == Shape::Bytes => {
            let is_byte = |item: &Value| item.as_text().is_some_and(|text| text.parse::<u8>().is_ok());
            return (!items.iter().all(is_byte)).then(|| unlike(value, shape));
        }
        Value::List(_) => return (!matches!(shape, Shape::Any | Shape::List)).then(|| unlike(value, shape)),
        Value::Map(_) => {
            let fits = matches!(shape, Shape::Any | Shape::Object | Shape::ObjectOrBoolean);
            return (!fits).then(|| unlike(value, shape));
        }
    };
    let text = scalar.starts_with('"').then(|| value.as_text().unwrap_or_default());
    let is_number = scalar.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    let fits = match shape {
        Shape::Any => true,
        Shape::Object | Shape::List => false,
        Shape::String => text.is_some(),
        Shape::Boolean | Shape::ObjectOrBoolean => matches!(scalar, "true" | "false"),
        Shape::Int32 => scalar.parse::<i32>().is_ok(),
        Shape::Int64 => scalar.parse::<i64>().is_ok(),
        Shape::Integer => is_number && (scalar.parse::<i64>().is_ok() || is_integral(scalar)),
        Shape::Number => is_number,
        Shape::IntOrString => text.is_some() || scalar.parse::<i32>().is_ok(),
        Shape::Quantity => match &text {
            Some(text) => scalar::is_quantity(text.trim()),
            None => is_number && scalar::is_quantity(scalar),
        },
        // Text that is not base64 has its own message; any other scalar has the wrong type.
        Shape::Bytes => {
            return match text {
                Some(text) if !scalar::is_base64(&text) => {
                    Some("is not base64; encode the bytes, with padding".to_owned())
                }
                Some(_) => None,
                None => Some(unlike(value, shape)),
            };
        }
        Shape::Time => text.is_some_and(|text| scalar::is_time(&text, |_| true)),
        Shape::MicroTime => text.is_some_and(|text| scalar::is_time(&text, |digits| digits == 6)),
    };
    (!fits).then(|| unlike(value, shape))
}

fn is_integral(number: &str) -> bool {
    number.parse::<f64>().is_ok_and(|number| number.fract() == 0.0)
}

/// Formats the actual type, the required type, and what to do, without the value itself.
fn unlike(value: &Value, shape: Shape) -> String {
    let is = match value {
        Value::Map(_) => "an object",
        Value::List(_) => "a list",
        Value::Scalar(scalar) => match scalar.as_bytes().first() {
            Some(b'"') => "a string",
            Some(b't' | b'f') => "a boolean",
            _ => "a number",
        },
    };
    let (wanted, example) = match shape {
        Shape::Any => ("any value", ""),
        Shape::Object => ("an object", ""),
        Shape::List => ("a list", ""),
        Shape::String => ("a string", ""),
        Shape::Boolean => ("a boolean", "true or false, without quotes"),
        Shape::Int32 => ("a whole number of 32 bits", "digits alone, such as 8080"),
        Shape::Int64 | Shape::Integer => ("a whole number", "digits alone, such as 8080"),
        Shape::Number => ("a number", "such as 1.5, without quotes"),
        Shape::Bytes => ("a string in base64", ""),
        Shape::Time => ("a time", "such as \"2026-01-31T12:00:00Z\""),
        Shape::MicroTime => ("a time with microseconds", "such as \"2026-01-31T12:00:00.000000Z\""),
        Shape::Quantity => ("a quantity", "such as 100m or 1.5Gi"),
        Shape::IntOrString => ("a string or a whole number of 32 bits", "such as 80 or \"http\""),
        Shape::ObjectOrBoolean => ("an object or a boolean", ""),
    };
    let is_wrong_scalar = matches!(value, Value::Scalar(_));
    match shape {
        Shape::String if is_wrong_scalar => format!("is {is}, but must be a string; put it in quotes"),
        _ if is_wrong_scalar && !example.is_empty() => format!("is {is}, but must be {wanted}: {example}"),
        _ => format!("is {is}, but must be {wanted}"),
    }
}
