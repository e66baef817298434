//! The data of runs for a page, without single samples: JSON by columns, compressed.

use std::collections::BTreeSet;
use std::io::Write;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde_json::{Map, Value, json};

use crate::run::Run;

/// Significant digits of a number that are kept. Repeated measurements differ in the fourth.
const DIGITS: usize = 6;

/// What the names of columns of samples end in. A page has the median of each.
const SAMPLES: &str = "samples_ms";

/// Runs and the pictures that the page's text lacks: JSON, compressed (`deflate`), in base64.
pub fn packed<'a>(runs: impl Iterator<Item = (&'a Run, Vec<String>)>) -> String {
    let runs: Vec<Value> = runs.map(|(one, pictures)| run(one, &pictures)).collect();
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    let written = encoder.write_all(Value::Array(runs).to_string().as_bytes());
    let bytes = written.and_then(|()| encoder.finish()).expect("memory takes everything");
    BASE64_STANDARD.encode(bytes)
}

/// A column that has the same value everywhere has it once.
fn run(run: &Run, pictures: &[String]) -> Value {
    let names = run.rows.iter().flat_map(|row| row.raw.keys());
    let names: BTreeSet<&String> = names.filter(|name| !name.ends_with(SAMPLES)).collect();
    let columns: Map<String, Value> = names
        .into_iter()
        .map(|name| {
            let mut values: Vec<Value> =
                run.rows.iter().map(|row| row.raw.get(name).map_or(Value::Null, rounded)).collect();
            if values.iter().all(|value| *value == values[0]) {
                values.truncate(1);
            }
            (name.clone(), Value::Array(values))
        })
        .collect();
    json!({
        "label": run.label,
        "device": run.device(),
        "rows": run.rows.len(),
        "columns": columns,
        "pictures": pictures,
    })
}

/// Rounds numbers to the digits that were measured.
fn rounded(value: &Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            let value = number.as_f64().unwrap_or_default();
            let short = format!("{value:.*e}", DIGITS - 1).parse().unwrap_or(value);
            Value::from(short)
        }
        Value::Array(values) => values.iter().map(rounded).collect(),
        Value::Object(object) => {
            let kept = object.iter().filter(|(name, _)| *name != "samples");
            kept.map(|(name, value)| (name.clone(), rounded(value))).collect()
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_what_was_measured() {
        let value = json!({ "a": [0.14747961929866246, 21, 1e-9], "b": null });
        assert_eq!(rounded(&value), json!({ "a": [0.14748, 21, 1e-9], "b": null }));
    }
}
