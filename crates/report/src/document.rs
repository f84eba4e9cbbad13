//! One self-contained HTML page about a study: no script, no network, light and dark, readable in print.
//!
//! Every number of a table is in a `<data value="…">` element with all its digits; its text is rounded.

mod tables;

use std::fmt::Write as _;

use crate::axis::four_digits;
use crate::figure::Figure;
use crate::progress;
use crate::study::{Level, Measure, Method, Study, Trained, length};
use crate::svg::{dark_rules, escape};
use crate::views;

/// A page, or its contents, and the figures in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// The HTML.
    pub html: String,
    /// File names, without extension, and figures.
    pub figures: Vec<(String, Figure)>,
}

/// In a narrow window tables and figures scroll sideways at their own size: shrunk figures cannot be read. Paper does not
/// scroll, so tables shrink there.
const STYLE: &str = "
:root{color-scheme:light dark;--paper:#fff;--ink:#1a1a1a;--muted:#5a5a5a;--rule:#dedede;--shade:#f5f5f3}
@media screen and (prefers-color-scheme:dark){:root{--paper:#16181d;--ink:#e8e8e8;--muted:#a8a8a8;--rule:#363a42;--shade:#1e2128}}
body{margin:2rem auto;padding:0 1rem;max-width:76rem;background:var(--paper);color:var(--ink);
font:16px/1.5 'DejaVu Sans',Verdana,Arial,sans-serif}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2.5rem;border-bottom:1px solid var(--rule)}
p,li{max-width:48rem}.muted{color:var(--muted)}
.wide{overflow-x:auto}table{border-collapse:collapse;margin:.6rem 0 1.4rem;font-size:.85rem;font-variant-numeric:tabular-nums}
caption{text-align:left;padding:.3rem 0}th,td{padding:.3rem .7rem;text-align:right;border-bottom:1px solid var(--rule);vertical-align:top}
th:first-child,td:first-child{text-align:left}thead th{border-bottom:2px solid var(--rule);vertical-align:bottom;max-width:9rem}
td small{display:block;color:var(--muted)}
.note{padding:.4rem .8rem;border-left:3px solid #c04a00;background:var(--shade)}
figure{margin:1rem 0;overflow-x:auto}figure svg{max-width:100%;height:auto}
pre{background:var(--shade);padding:.7rem 1rem;overflow-x:auto;font-size:.85rem;max-width:70rem}
@media screen and (max-width:44rem){body{margin:1rem auto}figure svg{max-width:none}th,td{padding:.3rem .4rem}}
@media print{body{margin:0;max-width:none;font-size:11px}figure,tr,pre{break-inside:avoid}h2{break-after:avoid}pre{white-space:pre-wrap}
.wide,figure,pre{overflow:visible}table{font-size:8px}th,td{padding:.2rem .3rem;overflow-wrap:anywhere}thead th{max-width:6rem}}
";

/// Writes the page. `version` is that of the program, for the last line.
pub fn document(study: &Study<'_>, version: &str) -> Document {
    let Document { html, figures } = contents(study);
    let (title, style, version) = (escape(&title(study)), stylesheet(), escape(version));
    let html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>{style}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{html}\
         <p class=\"muted\">Written by bqrl {version}.</p>\n</body>\n</html>\n"
    );
    Document { html, figures }
}

/// A page of our own Markdown (headings, paragraphs, tables, figures) as one HTML file. `figure` draws the figure of a name as its
/// SVG; it gets the figure's number on the page.
pub(crate) fn markdown_page(page: &str, figure: impl Fn(&str, usize) -> Option<String>) -> String {
    let mut html = Writer { html: String::new(), figures: Vec::new() };
    let (mut title, mut n_figures) = (String::new(), 0);
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(text) = line.strip_prefix("# ") {
            text.clone_into(&mut title);
        } else if let Some(text) = line.strip_prefix("## ") {
            html.heading(text);
        } else if let Some(text) = line.strip_prefix("### ") {
            let _ = writeln!(html.html, "<h3>{}</h3>", marked(text));
        } else if let Some(name) = line.strip_prefix("![").and_then(|rest| rest.split(']').next()) {
            if let Some(svg) = figure(name, n_figures + 1) {
                n_figures += 1;
                let _ = writeln!(html.html, "<figure tabindex=\"0\">\n{svg}</figure>");
            }
        } else if line.starts_with('|') {
            let mut rows = vec![cells(line)];
            while let Some(row) = lines.next_if(|line| line.starts_with('|')) {
                // The line below the head only separates.
                if !row.starts_with("|---") {
                    rows.push(cells(row));
                }
            }
            html.table("", &rows[0], &rows[1..]);
        } else if !line.is_empty() {
            let _ = writeln!(html.html, "<p>{}</p>", marked(line));
        }
    }
    let (title, style, contents) = (escape(&title), stylesheet(), html.html);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>{style}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{contents}</body>\n</html>\n"
    )
}

/// The cells of a row of a Markdown table, as HTML.
fn cells(row: &str) -> Vec<String> {
    row.trim_matches('|').split(" | ").map(|cell| marked(cell.trim())).collect()
}

/// Text with `code` and **bold** marks, as HTML; of a link, its text.
fn marked(text: &str) -> String {
    let mut html = String::new();
    for (k, part) in text.split('`').enumerate() {
        if k % 2 == 1 {
            let _ = write!(html, "<code>{}</code>", escape(part));
            continue;
        }
        for (k, part) in part.split("**").enumerate() {
            let (open, close) = if k % 2 == 1 { ("<strong>", "</strong>") } else { ("", "") };
            let _ = write!(html, "{open}{}{close}", rich(part));
        }
    }
    html
}

/// "Deep-BQRL, PPO on asset-selling".
pub fn title(study: &Study<'_>) -> String {
    let names: Vec<&str> = study.methods.iter().map(|method| method.name.as_str()).collect();
    format!("{} on {}", names.join(", "), study.problem_name())
}

/// The style sheet that the contents need, figures included.
pub fn stylesheet() -> String {
    format!("{STYLE}@media screen and (prefers-color-scheme:dark){{{}}}\n", dark_rules(|_| true))
}

/// Everything below the title. It has no style of its own, so that a page with a strict content security policy can show
/// it: see [`stylesheet`].
pub fn contents(study: &Study<'_>) -> Document {
    let mut page = Writer { html: String::new(), figures: Vec::new() };
    progress_and_warnings(&mut page, study);
    lead(&mut page, study);
    tables::results(&mut page, study);
    learning(&mut page, study);
    achieved(&mut page, study);
    policies(&mut page, study);
    laws(&mut page, study);
    tables::seeds(&mut page, study);
    settings(&mut page, study);
    reading(&mut page, study);
    Document { html: page.html, figures: page.figures }
}

struct Writer {
    html: String,
    figures: Vec<(String, Figure)>,
}

impl Writer {
    fn heading(&mut self, text: &str) {
        let _ = writeln!(self.html, "<h2>{}</h2>", escape(text));
    }

    fn paragraph(&mut self, text: &str) {
        let _ = writeln!(self.html, "<p>{}</p>", rich(text));
    }

    /// Says that a part is left out, and why.
    fn absent(&mut self, text: &str) {
        let _ = writeln!(self.html, "<p class=\"muted\">{}</p>", rich(text));
    }

    fn figure(&mut self, name: &str, figure: Figure) {
        // The names of two methods may differ only in characters that file names leave out.
        let mut file = name.to_owned();
        let mut number = 2;
        while self.figures.iter().any(|(other, _)| *other == file) {
            file = format!("{name}-{number}");
            number += 1;
        }
        let svg = figure.inline(self.figures.len() + 1);
        // It may scroll in a narrow window, so the keyboard must reach it.
        let _ = writeln!(self.html, "<figure tabindex=\"0\">\n{svg}</figure>");
        self.figures.push((file, figure));
    }

    fn table(&mut self, caption: &str, head: &[String], rows: &[Vec<String>]) {
        let _ = writeln!(
            self.html,
            "<div class=\"wide\" tabindex=\"0\"><table>\n<caption>{caption}</caption>\n<thead><tr>"
        );
        for cell in head {
            let _ = writeln!(self.html, "<th scope=\"col\">{cell}</th>");
        }
        self.html += "</tr></thead>\n<tbody>\n";
        for row in rows {
            let _ = writeln!(self.html, "<tr><td>{}</td></tr>", row.join("</td><td>"));
        }
        self.html += "</tbody></table></div>\n";
    }
}

/// Text for HTML, with the paper's indices.
fn rich(text: &str) -> String {
    escape(text).replace("_τ", "<sub>τ</sub>").replace("^β", "<sup>β</sup>")
}

fn data(value: f64) -> String {
    format!("<data value=\"{value}\">{}</data>", four_digits(value))
}

/// How far unfinished runs are, and warnings about comparing runs.
fn progress_and_warnings(page: &mut Writer, study: &Study<'_>) {
    for run in study.runs.iter().filter(|run| !run.is_finished()) {
        let headline = progress::headline(run);
        let _ = writeln!(page.html, "<p class=\"note\"><strong>{}</strong></p>\n<ul>", escape(&headline));
        for line in progress::seeds(run) {
            let _ = writeln!(page.html, "<li>{}</li>", escape(&line));
        }
        page.html += "</ul>\n";
    }
    for warning in study.warnings() {
        let _ = writeln!(page.html, "<p class=\"note\"><strong>Note.</strong> {}</p>", escape(&warning));
    }
}

/// The result in a sentence per level.
fn lead(page: &mut Writer, study: &Study<'_>) {
    let exact = study.is_exact();
    let mut references = false;
    page.html += "<ul>\n";
    for tau in study.taus() {
        let levels: Vec<(&Method<'_>, &Level<'_>)> =
            study.methods.iter().filter_map(|method| Some((method, method.level(tau)?))).collect();
        let reached = levels.iter().filter_map(|(method, level)| {
            let estimate = level.estimate(Measure::FinalQuantile)?;
            let seeds = if estimate.n == 1 { "one seed".to_owned() } else { format!("{} seeds", estimate.n) };
            let verb = if level.seeds.iter().all(Trained::is_done) { "ends at" } else { "has reached" };
            Some(format!("{} {verb} {} ({seeds})", escape(&method.name), data(estimate.mean)))
        });
        let reached = reached.collect::<Vec<_>>().join(", ");
        let best = levels.iter().find_map(|(_, level)| level.facts.best_quantile).map(|best| {
            references = true;
            let which = if exact { "best possible" } else { "best known" };
            format!("the {which} quantile is {}; ", data(best))
        });
        if !reached.is_empty() {
            let best = best.unwrap_or_else(|| "the quantile Q<sub>τ</sub> of ".to_owned());
            let _ = writeln!(page.html, "<li>τ = {}: {best}{reached}.</li>", data(tau));
        }
    }
    page.html += "</ul>\n";
    if !exact && references {
        page.paragraph(
            "There are too many possible returns for exact values: policies were evaluated by playing, and the best \
             quantiles are lower bounds.",
        );
    } else if !exact {
        page.paragraph(
            "Policies were evaluated by playing episodes. The best possible values are not known.",
        );
    }
}

fn learning(page: &mut Writer, study: &Study<'_>) {
    page.heading("Learning");
    let known = study.measures();
    let taus = study.taus();
    // Without an optimum to compare with, the attained quantile itself.
    let gap = known.contains(&Measure::QuantilePolicyGap);
    let first = if gap { Measure::QuantilePolicyGap } else { Measure::FinalQuantile };
    let wanted = [first, Measure::ExpectedReturnRegret].into_iter();
    let measures: Vec<Measure> = wanted.filter(|measure| known.contains(measure)).collect();
    // Up to three levels are drawn side by side, with the regrets below the gaps.
    if !measures.is_empty() && taus.len() <= 3 {
        let title = if gap { "Learning against the optimum" } else { "Learning" };
        page.figure("learning", views::learning_curves(study, title, &measures, &taus));
    } else {
        for measure in measures {
            let (name, title) = match measure {
                Measure::QuantilePolicyGap => ("quantile-policy-gap", "Quantile policy gap"),
                Measure::ExpectedReturnRegret => ("expected-return-regret", "Expected-return regret"),
                _ => ("attained-quantile", "Attained quantile"),
            };
            page.figure(name, views::learning_curves(study, title, &[measure], &taus));
        }
    }
    if gap {
        let figure = views::learning_curves(study, "Attained quantile", &[Measure::FinalQuantile], &taus);
        page.figure("attained", figure);
    }
    if known.contains(&Measure::MovingAverageReward) {
        let title = "Reward during training";
        let figure = views::learning_curves(study, title, &[Measure::MovingAverageReward], &taus);
        page.figure("reward", figure);
    }
    if known.is_empty() {
        page.absent("Left out: no rows have been written yet.");
    }
}

fn achieved(page: &mut Writer, study: &Study<'_>) {
    page.heading("Every level");
    match views::quantile_curve(study) {
        Some(figure) => page.figure("quantile-curve", figure),
        None => page.absent(
            "Left out: no run has a reference.csv (exact quantiles at every level) or an achieved.csv (of agents that \
             serve every level).",
        ),
    }
}

fn policies(page: &mut Writer, study: &Study<'_>) {
    page.heading("Policies");
    for method in &study.methods {
        match views::policies(study, method) {
            Some(figure) => page.figure(&format!("policy-{}", slug(&method.name)), figure),
            None if study.problem().is_none() => {
                page.absent(&format!("{}: left out, no run has a problem.json.", method.name));
            }
            None => page.absent(&format!(
                "{}: left out, its runs have no policy.csv (older runs, and problems too large for it).",
                method.name
            )),
        }
    }
}

fn laws(page: &mut Writer, study: &Study<'_>) {
    page.heading("Laws and predictions");
    for method in &study.methods {
        match views::laws(study, method) {
            Some(figure) => page.figure(&format!("law-{}", slug(&method.name)), figure),
            None => page.absent(&format!("{}: left out, its runs have no law.csv.", method.name)),
        }
        if method.agents().iter().all(|agent| agent.record.predictions.is_none()) {
            page.absent(&format!(
                "{}: without predictions, its runs have no predictions.csv (agents that do not predict laws write none).",
                method.name
            ));
        }
    }
}

fn settings(page: &mut Writer, study: &Study<'_>) {
    page.heading("What was run");
    for run in study.runs {
        let path = run.path.display().to_string();
        let summary = &run.summary;
        let seeds: Vec<String> = summary.seeds.iter().map(u64::to_string).collect();
        let so_far = if run.is_finished() { "" } else { " so far" };
        let lanes = summary.lanes.map_or(String::new(), |lanes| format!(" in {lanes} lanes"));
        page.paragraph(&format!(
            "{path}: {}{so_far}{lanes} a seed, seeds {}, {} steps and {} updates in all{so_far}. To run it again:",
            length(run),
            seeds.join(", "),
            summary.env_steps,
            summary.updates
        ));
        let config = run.path.join("config.toml").display().to_string();
        let command = format!(
            "bqrl train {} --algo {} --config {} --out NEW_DIRECTORY",
            quoted(&summary.problem),
            quoted(&summary.algo),
            quoted(&config)
        );
        let _ = writeln!(page.html, "<pre tabindex=\"0\">{}</pre>", escape(&command));
        let lines: Vec<String> = run.config.lines().map(escape).collect();
        let _ = writeln!(page.html, "<pre tabindex=\"0\">{}</pre>", lines.join("\n"));
    }
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=:".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

fn reading(page: &mut Writer, study: &Study<'_>) {
    page.heading("How to read this page");
    let known = study.measures();
    page.paragraph(
        "Q_τ is the τ-quantile of the return: the lowest value w with P(R ≤ w) ≥ τ. Q_τ^β is the mean of the quantiles \
         between τ−β and τ, the lower-buffered quantile.",
    );
    let mut losses = Vec::new();
    if known.contains(&Measure::QuantilePolicyGap) {
        losses.push(
            "The quantile policy gap adds up, over training episodes, by how much the quantile of the latest evaluated \
             policy fell short of the best possible one.",
        );
    }
    if known.contains(&Measure::ExpectedReturnRegret) {
        losses.push(
            "The expected-return regret adds up the largest mean return less what each training episode collected, \
             exploration included. Lucky episodes can make it negative.",
        );
    }
    if !losses.is_empty() {
        page.paragraph(&format!("{} Lower is better.", losses.join(" ")));
    }
    page.paragraph(
        "A band or an interval is about the mean over seeds at one point. With three seeds it is wide and shows \
         variability; it is no test. Intervals are cut to what is possible: between the lowest and the highest return \
         that was seen, and not beyond the best possible value where that is known. Seeds that were evaluated at \
         different points count with their latest evaluation.",
    );
    if !study.is_exact() {
        page.paragraph(
            "Where there is one seed, the interval of Q_τ is that of its evaluation: two order statistics of the returns \
             of the episodes played, which enclose Q_τ with a probability of at least 95 %.",
        );
    }
}

/// A name as part of a file name.
pub fn slug(name: &str) -> String {
    let mut slug = String::new();
    for letter in name.chars() {
        if letter.is_alphanumeric() {
            slug.extend(letter.to_lowercase());
        } else if !slug.ends_with('-') && !slug.is_empty() {
            slug.push('-');
        }
    }
    slug.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_file_names() {
        assert_eq!(slug("Deep-BQRL (runs/a b)"), "deep-bqrl-runs-a-b");
        assert_eq!(slug("../../etc"), "etc");
    }

    #[test]
    fn words_for_a_shell_are_quoted_where_they_must_be() {
        assert_eq!(quoted("asset-selling"), "asset-selling");
        assert_eq!(quoted("my file.csv"), "'my file.csv'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }

    #[test]
    fn a_number_keeps_all_its_digits_beside_the_rounded_ones() {
        assert_eq!(data(215.00000000000324), "<data value=\"215.00000000000324\">215</data>");
        assert_eq!(data(-0.5), "<data value=\"-0.5\">−0.5</data>");
    }

    #[test]
    fn indices_are_set_and_markup_in_names_is_not() {
        assert_eq!(rich("Q_τ^β <b>"), "Q<sub>τ</sub><sup>β</sup> &lt;b&gt;");
    }
}
