//! Policies as a spreadsheet (.xlsx): one sheet per level, real names, numbers as numbers.

use std::io::{self, Write};

use bqrl_mdp::evaluate::{Evaluator, Policy};
use bqrl_mdp::model::Problem;
use bqrl_mdp::plan::export::{COLUMNS, COMPACT_COLUMNS, Collected, each_row};
use rust_xlsxwriter::{DocProperties, ExcelDateTime, Format, Workbook, Worksheet, XlsxError};

/// The most rows below the heading that a sheet can have.
const MOST_ROWS: u32 = 1_048_575;

/// Writes the policies of several levels, each into a sheet of its own.
pub fn write_xlsx(
    evaluator: &Evaluator,
    problem: &Problem,
    policies: &[(f64, &dyn Policy)],
    compact: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut book = Workbook::new();
    // The same plan gives the same bytes.
    let begin = ExcelDateTime::from_ymd(2000, 1, 1).map_err(failed)?;
    book.set_properties(&DocProperties::new().set_creation_datetime(&begin));
    let bold = Format::new().set_bold();
    for &(tau, policy) in policies {
        let sheet = book.add_worksheet().set_name(format!("tau {tau}")).map_err(failed)?;
        fill(sheet, evaluator, problem, (tau, policy), compact, &bold)?;
    }
    out.write_all(&book.save_to_buffer().map_err(failed)?)
}

fn fill(
    sheet: &mut Worksheet,
    evaluator: &Evaluator,
    problem: &Problem,
    policy: (f64, &dyn Policy),
    compact: bool,
    bold: &Format,
) -> io::Result<()> {
    for (column, name) in (0..).zip(if compact { COMPACT_COLUMNS } else { COLUMNS }) {
        sheet.write_with_format(0, column, *name, bold).map_err(failed)?;
    }
    sheet.set_freeze_panes(1, 0).map_err(failed)?;
    let mut line = 0;
    each_row(evaluator, &[policy], compact, |row| {
        line += 1;
        if line > MOST_ROWS {
            let hint = if compact { "write a .csv file" } else { "write ranges (compact), or a .csv file" };
            let message = format!("a sheet holds at most {MOST_ROWS} rows, the policy has more: {hint}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        sheet.write(line, 0, row.tau).map_err(failed)?;
        sheet.write(line, 1, row.stage as f64).map_err(failed)?;
        let (state, action) = (&problem.states[row.state], &problem.actions[row.action]);
        named(sheet, line, 2, state)?;
        let last = match row.collected {
            Collected::At(collected) => {
                sheet.write(line, 3, collected).map_err(failed)?;
                4
            }
            Collected::Run(from, to) => {
                for (column, end) in [(3, from), (4, to)] {
                    if let Some(end) = end {
                        sheet.write(line, column, end).map_err(failed)?;
                    }
                }
                5
            }
        };
        named(sheet, line, last, action)
    })
}

/// A name that is a number is written as one, so that a spreadsheet can compare it.
fn named(sheet: &mut Worksheet, line: u32, column: u16, name: &str) -> io::Result<()> {
    let number = name.parse::<f64>().ok().filter(|x| x.is_finite() && x.to_string() == name);
    let written = match number {
        Some(number) => sheet.write(line, column, number),
        None => sheet.write_string(line, column, name),
    };
    written.map(|_| ()).map_err(failed)
}

fn failed(error: XlsxError) -> io::Error {
    io::Error::other(error)
}
