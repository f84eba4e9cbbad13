//! The page of the studies: Markdown tables.

use std::fmt::Write as _;

use super::{Floor, Number, Outline, Part, Sweep};
use crate::figure::Figure;
use crate::numbers::{number, three_decimals};

/// The page: what was run, a section per part, and the floor. `written_by` is the command, with the commit where it is
/// known.
pub fn page(
    written_by: &str,
    sweeps: &[Sweep],
    floors: &[Floor],
    figures: &[(&'static str, Figure)],
) -> String {
    let mut page = format!(
        "# The studies that the paper leaves open\n\nWritten by {written_by}; do not edit. What the numbers say: \
         [docs/agents/deep-bqrl.md](agents/deep-bqrl.md).\n"
    );
    let cells = || sweeps.iter().flat_map(|sweep| sweep.cells.iter().flatten());
    if cells().next().is_some() {
        page += "\nEvery run is Deep-BQRL with the settings of `crates/lab/presets/deep-bqrl.toml` and what the table names \
                 changed, on the held-out seeds; nothing was chosen from these runs. Gap and regret are cumulative, as in \
                 [results.md](results.md); final values are exact, of the greedy policy. ± is half a 95 % Student-t interval over \
                 seeds. A difference is that of the gap from the preset's, taken seed by seed; it is **bold** where its \
                 interval leaves out zero.";
        let differences: Vec<&Number> = cells().filter_map(|cell| cell.difference.as_ref()).collect();
        if !differences.is_empty() {
            let clear = differences.iter().filter(|difference| difference.is_clear()).count();
            let _ = write!(
                page,
                " Of {} differences {clear} are bold; about one in twenty would be by chance alone.",
                differences.len()
            );
        }
        page.push('\n');
    }
    let figure = |page: &mut String, name: &str| {
        if figures.iter().any(|(known, _)| *known == name) {
            let _ = write!(page, "\n![{name}](figures/{name}.svg)\n");
        }
    };
    let of = |part: Part| sweeps.iter().filter(move |sweep| sweep.outline.part == part);
    if of(Part::Sensitivity).next().is_some() {
        page += "\n## Sensitivity to β, K, M, κ and λ_0\n";
        figure(&mut page, "studies-gap");
        figure(&mut page, "studies-regret");
        figure(&mut page, "studies-beta-k");
        for sweep in of(Part::Sensitivity) {
            page += &compared(sweep);
        }
    }
    if of(Part::Variants).next().is_some() {
        page += "\n## Buffered score, point quantile, mean; with and without the bonus\n\n\
                 Quantile, buffered quantile and mean of a row belong to the same final policies.\n";
        for sweep in of(Part::Variants) {
            page += &compared(sweep);
        }
    }
    if of(Part::Scaling).next().is_some() {
        page += "\n## Horizon and number of actions\n\n\
                 Time is wall time of an environment step with its update, the tenth percentile over episodes (so that other work \
                 on the machine counts little), on the machine that made this page; other machines give other times. Steps, updates and \
                 multiply-adds of the matrix products do not depend on the machine.\n";
        for sweep in of(Part::Scaling) {
            page += &scaled(sweep);
            figure(&mut page, &format!("studies-{}", sweep.outline.name));
        }
    }
    if !floors.is_empty() {
        page += "\n## The floor under the paper's rule\n\n\
                 The paper's rule (its Eq. (2)) solved exactly, ties to the larger mean, against the best quantile of any \
                 policy. Nothing is learned here. The floor is Q*_τ less what the rule attains: the gap an episode that is left \
                 after perfect training.\n";
        figure(&mut page, "studies-floor");
        figure(&mut page, "studies-floor-map");
        for floor in floors {
            page += &floor_table(floor);
        }
    }
    page
}

/// A sweep as a table, compared with its reference.
fn compared(sweep: &Sweep) -> String {
    let Outline { setting, problem, episodes, .. } = &sweep.outline;
    let mut text = format!(
        "\n### {} on {problem}, {episodes} episodes\n\n\
         | {setting} | τ | gap | difference | regret | final Q_τ | best Q*_τ | final Q_τ^β | final mean | best mean |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
        capital(setting)
    );
    for cell in sweep.cells.iter().flatten() {
        let difference = cell.difference.as_ref().map_or("–".to_owned(), |difference| {
            let text = difference.text();
            if difference.is_clear() { format!("**{text}**") } else { text }
        });
        let _ = writeln!(
            text,
            "| {} | {} | {} | {difference} | {} | {} | {} | {} | {} | {} |",
            cell.value,
            cell.tau,
            cell.quantile_policy_gap.text(),
            cell.expected_return_regret.text(),
            cell.final_quantile.text(),
            three_decimals(cell.best_quantile),
            cell.final_buffered_quantile.text(),
            cell.final_mean.text(),
            three_decimals(cell.max_mean),
        );
    }
    text
}

/// A sweep as a table of results and costs.
fn scaled(sweep: &Sweep) -> String {
    let Outline { setting, problem, parameters, episodes, .. } = &sweep.outline;
    let mut text = format!(
        "\n### {} on {problem}{parameters}, {episodes} episodes\n\n\
         | {setting} | τ | gap an episode | final Q_τ | the rule's Q_τ | best Q*_τ | final mean | best mean | steps an episode | \
         updates a seed | multiply-adds an update | µs a step |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n",
        capital(setting)
    );
    for cell in sweep.cells.iter().flatten() {
        let n_seeds = cell.n_seeds as f64;
        let steps = cell.cost.env_steps as f64 / n_seeds;
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            cell.value,
            cell.tau,
            cell.quantile_policy_gap.per(*episodes as f64).text(),
            cell.final_quantile.text(),
            cell.rule_quantile.map_or("–".to_owned(), three_decimals),
            three_decimals(cell.best_quantile),
            cell.final_mean.text(),
            three_decimals(cell.max_mean),
            three_decimals(steps / *episodes as f64),
            number((cell.cost.updates as f64 / n_seeds).round()),
            number(cell.cost.multiply_adds),
            cell.cost.seconds_per_step.per(1e-6).text(),
        );
    }
    text
}

/// A row per level: the optimum, and the value of the rule at each width.
fn floor_table(floor: &Floor) -> String {
    let mut text = format!("\n### {}\n\n| τ | best Q*_τ |", capital(&floor.problem));
    for (label, ..) in &floor.widths {
        let _ = write!(text, " the rule, β = {label} |");
    }
    text += " floor, from … to |\n|---|---|";
    text += &"---|".repeat(floor.widths.len() + 1);
    for (place, (tau, &best)) in floor.taus.iter().zip(&floor.best).enumerate() {
        let _ = write!(text, "\n| {} | {} |", number(*tau), three_decimals(best));
        let mut floors = Vec::new();
        for (_, _, rule) in &floor.widths {
            let _ = write!(text, " {} |", three_decimals(rule[place]));
            floors.push((best - rule[place]).max(0.0));
        }
        let (low, high) = (
            floors.iter().copied().fold(f64::INFINITY, f64::min),
            floors.iter().copied().fold(0.0, f64::max),
        );
        let _ = write!(text, " {} … {} |", three_decimals(low), three_decimals(high));
    }
    text.push('\n');
    text
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
