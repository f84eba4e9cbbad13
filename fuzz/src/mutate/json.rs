//! Changes to values of a JSON document, which stays one.

use bqrl_math::rng::Rng;
use serde_json::{Map, Value};

use super::number;

pub(super) fn mutate(file: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    let mut document: Value = serde_json::from_slice(file).ok()?;
    let n = count(&document);
    let k = rng.below(n);
    match rng.below(8) {
        0 => remove(&mut document, k),
        1 => {
            // A value in the place of another.
            let value = at(&mut document, rng.below(n)).clone();
            *at(&mut document, k) = value;
        }
        2 => lengthen(at(&mut document, k), rng),
        _ => {
            let place = at(&mut document, k);
            *place = changed(place, rng);
        }
    }
    serde_json::to_vec(&document).ok()
}

/// The values of a document, itself included.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(values) => values.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

/// Value k, counted from the outside in.
fn at(value: &mut Value, mut k: usize) -> &mut Value {
    if k == 0 {
        return value;
    }
    k -= 1;
    let inside: Vec<&mut Value> = match value {
        Value::Array(values) => values.iter_mut().collect(),
        Value::Object(fields) => fields.values_mut().collect(),
        _ => Vec::new(),
    };
    for value in inside {
        let n = count(value);
        if k < n {
            return at(value, k);
        }
        k -= n;
    }
    unreachable!("k is below the count")
}

/// The first element or field of value k is left out.
fn remove(document: &mut Value, k: usize) {
    match at(document, k) {
        Value::Array(values) if !values.is_empty() => {
            values.pop();
        }
        Value::Object(fields) => {
            if let Some(key) = fields.keys().nth(k % fields.len().max(1)).cloned() {
                fields.remove(&key);
            }
        }
        other => *other = Value::Null,
    }
}

/// A list with its elements again.
fn lengthen(value: &mut Value, rng: &mut Rng) {
    if let Value::Array(values) = value {
        let times = [1, 1, 2, 50][rng.below(4)];
        let all = values.clone();
        (0..times).for_each(|_| values.extend(all.iter().take(8).cloned()));
    } else {
        *value = Value::Array(vec![value.clone(), value.clone()]);
    }
}

/// Another value, more often than not of the same kind.
fn changed(value: &Value, rng: &mut Rng) -> Value {
    if rng.below(8) == 0 {
        let others = [
            Value::Null,
            true.into(),
            "".into(),
            "\u{1b}[31m<b>&".into(),
            Value::Array(vec![]),
            Map::new().into(),
        ];
        return others[rng.below(others.len())].clone();
    }
    match value {
        Value::Number(old) if rng.below(3) == 0 => {
            let old = old.as_f64().unwrap_or(0.0);
            let factor = [-1.0, 0.5, 1.5, 2.0, 1e3, 1e9][rng.below(6)];
            let by = [-1.0, 1.0][rng.below(2)];
            match old.fract() {
                0.0 if rng.below(2) == 0 => Value::from((old + by) as i64),
                _ => Value::from(old * factor),
            }
        }
        Value::Bool(old) => Value::from(!old),
        Value::String(old) if rng.below(2) == 0 => Value::from(old.chars().skip(1).collect::<String>()),
        // A number that JSON cannot hold is left as it is.
        _ => number(rng).parse::<serde_json::Number>().map_or_else(|_| value.clone(), Value::from),
    }
}
