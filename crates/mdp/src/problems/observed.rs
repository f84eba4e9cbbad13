//! Laws from a file of observations: one value a row, and optionally how often it was seen.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

use crate::records::{Column, Field, RecordError, Records};

/// How often a value was seen; once, if there is no such column.
pub(super) const COUNT: Column = Column::optional("count", &["n", "frequency", "times"]);

/// The distinct values with their relative frequencies, rising. The first of `columns` is the value, the second [`COUNT`]. The error says
/// what is wanted instead.
pub(super) fn read(
    path: &str,
    columns: &'static [Column],
    what: &'static str,
    value: impl Fn(&Field) -> Result<f64, RecordError>,
) -> Result<Vec<(f64, f64)>, String> {
    let file = File::open(path).map_err(|error| format!("a file that can be read ({error})"))?;
    law(file, columns, what, value).map_err(|error| format!("{what} ({error})"))
}

fn law(
    file: impl Read,
    columns: &'static [Column],
    what: &'static str,
    value: impl Fn(&Field) -> Result<f64, RecordError>,
) -> Result<Vec<(f64, f64)>, RecordError> {
    let mut records = Records::new(file, columns, what)?;
    // By the order of floating-point numbers, which their bits have once the sign is taken care of.
    let mut seen: BTreeMap<i64, (f64, f64)> = BTreeMap::new();
    while let Some(line) = records.next_line()? {
        // Adding 0.0 makes one number of 0 and -0.
        let observed = value(&records.field(line, 0))? + 0.0;
        let count = if records.has(1) { records.field(line, 1).number()? } else { 1.0 };
        if count < 0.0 {
            return Err(records.field(line, 1).refuse("a number that is not negative"));
        }
        let bits = observed.to_bits() as i64;
        let key = bits ^ (((bits >> 63) as u64) >> 1) as i64;
        seen.entry(key).or_insert((observed, 0.0)).1 += count;
    }
    let total: f64 = seen.values().map(|(_, count)| count).sum();
    if !(total > 0.0 && total.is_finite()) {
        return Err(RecordError::NoRows);
    }
    let shares = seen.into_values().filter(|(_, count)| *count > 0.0);
    Ok(shares.map(|(value, count)| (value, count / total)).collect())
}
