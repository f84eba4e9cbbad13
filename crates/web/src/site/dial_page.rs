//! The page of the risk dial: the problems to choose from, the levels as a table, and the place where the script draws.

use std::fmt::Write as _;

use bqrl_mdp::problems;
use bqrl_report::{escape, four_digits};
use hyper::StatusCode;

use super::play_page;
use crate::card::Card;
use crate::dial::{Dial, DialError, Dials, Source};
use crate::reply::Reply;
use crate::request::{Query, encode};
use crate::shelf::Shelf;

/// The levels of the table for readers without JavaScript.
const SHOWN: [usize; 9] = [1, 5, 10, 25, 50, 75, 90, 95, 99];

/// The page.
pub fn page(dials: &Dials, shelf: &Shelf, query: &Query) -> Reply {
    let seen = shelf.look();
    if ["problem", "file", "run"].iter().all(|key| query.get(key).is_none()) {
        return choose(&seen);
    }
    let source = match Source::of(query, shelf) {
        Ok(source) => source,
        Err(message) => return super::refusal(StatusCode::NOT_FOUND, &message),
    };
    let title = match &source {
        Source::BuiltIn(name, _) | Source::File { path: name, .. } | Source::Run(name) => name.clone(),
    };
    let (status, body) = match dials.get(&source, shelf) {
        Ok(dial) => (StatusCode::OK, stage(&source, &dial, shelf)),
        Err(DialError::Busy) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "<p class=\"note\">Another problem is being planned. This page loads again every two seconds.</p>"
                .to_owned(),
        ),
        Err(DialError::Wrong(message)) => {
            (StatusCode::BAD_REQUEST, format!("<p class=\"note\">{}</p>", escape(&message)))
        }
    };
    let form = form(&source);
    let html = format!(
        "<p class=\"muted\"><a href=\"/dial\">Risk dial</a> / {0}</p>\n<h1>The risk dial of {0}</h1>\n{form}{body}",
        escape(&title)
    );
    Reply::html(super::page(&format!("Risk dial: {title}"), "dial.js", &html)).with(status)
}

fn choose(seen: &crate::shelf::Seen) -> Reply {
    let mut html = String::from(
        "<h1>The risk dial</h1>\n<p>Choose a problem. Then turn the level and see what a percentile costs.</p>\n\
         <h2>Built-in problems</h2>\n<ul>\n",
    );
    for info in problems::list() {
        let _ = writeln!(
            html,
            "<li><a href=\"/dial?problem={0}\">{0}</a>: {1}</li>",
            escape(info.name),
            escape(info.summary)
        );
    }
    html += "</ul>\n<h2>MDP files</h2>\n";
    if seen.files.is_empty() {
        html += "<p class=\"muted\">There are none in this directory.</p>\n";
    } else {
        html += "<ul>\n";
        for file in &seen.files {
            let _ = writeln!(html, "<li><a href=\"/dial?file={}\">{}</a></li>", encode(file), escape(file));
        }
        html += "</ul>\n";
    }
    html += "<h2>Problems of runs</h2>\n";
    let runs: Vec<_> =
        seen.runs.values().filter(|card| card.error.is_none() && !play_page::is_game(card)).collect();
    if runs.is_empty() {
        html += "<p class=\"muted\">There are none in this directory.</p>\n";
    } else {
        let all = |card: &Card| if card.serves_every_level { ", serves every level" } else { "" };
        html += &super::run_list("/dial", &runs, all);
    }
    Reply::html(super::page("Risk dial", "", &html))
}

/// The parameters that may be changed: an MDP file needs some, a built-in problem has its own.
fn form(source: &Source) -> String {
    let field = |name: &str, label: &str, value: &str| {
        format!(
            "<label>{} <input name=\"{}\" value=\"{}\" size=\"6\"></label> ",
            escape(label),
            escape(name),
            escape(value)
        )
    };
    let (hidden, fields) = match source {
        Source::Run(_) => return String::new(),
        Source::File { path, horizon, start, discount } => (
            ("file", path.as_str()),
            field("horizon", "Decisions in an episode", &horizon.map_or(String::new(), |h| h.to_string()))
                + &field("start", "Start state", start.as_deref().unwrap_or_default())
                + &field("discount", "Discount", &discount.to_string()),
        ),
        Source::BuiltIn(name, parameters) => {
            let info = problems::list().iter().find(|info| info.name == name);
            let of = |parameter: &problems::Parameter| {
                let given = parameters.iter().find(|(key, _)| key == parameter.name);
                let value = given.map_or(parameter.default, |(_, value)| value.as_str());
                field(&format!("env.{}", parameter.name), parameter.name, value)
            };
            (
                ("problem", name.as_str()),
                info.map_or(String::new(), |info| info.parameters.iter().map(of).collect()),
            )
        }
    };
    format!(
        "<details class=\"parameters\"><summary>Parameters</summary><form action=\"/dial\">\
         <input type=\"hidden\" name=\"{}\" value=\"{}\">{fields}<button>Plan again</button></form></details>\n",
        hidden.0,
        escape(hidden.1)
    )
}

/// The controls and pictures, which the script fills, and the levels as a table.
fn stage(source: &Source, dial: &Dial, shelf: &Shelf) -> String {
    let attained = serde_json::to_string(&source.attained(shelf)).expect("plain numbers serialise");
    let mut html = String::new();
    if let (Some(_), Source::File { path, .. }) = (&dial.problem.data.counts, source) {
        let _ = writeln!(
            html,
            "<p class=\"note\">This table was estimated from a log. What is shown is true of the estimate, and the real process \
             may be worse. <code>bqrl plan {} --confidence 0.95</code> says what the log can promise.</p>",
            escape(path)
        );
    }
    let _ = write!(
        html,
        "<div id=\"dial\" data-query=\"{}\" data-attained=\"{}\" hidden>\n{SKELETON}</div>\n",
        escape(&source.query()),
        escape(&attained)
    );
    html += "<h2>Some levels in numbers</h2>\n<div class=\"wide\" tabindex=\"0\"><table>\n<thead><tr><th scope=\"col\">level τ</th>\
             <th scope=\"col\" class=\"text\">in words</th><th scope=\"col\">best quantile</th>\
             <th scope=\"col\">risk-neutral quantile</th><th scope=\"col\">mean</th><th scope=\"col\">mean given up</th></tr></thead>\n<tbody>\n";
    for level in SHOWN.map(|percent| &dial.rows[percent - 1]) {
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td class=\"text\">{} at least {}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            four_digits(level.tau),
            times(level.tau),
            four_digits(level.best),
            four_digits(level.best),
            four_digits(level.neutral),
            four_digits(level.mean),
            four_digits(given_up(dial.max_mean, level.mean)),
        );
    }
    html += "</tbody></table></div>\n";
    html
}

/// What a level costs in the mean; differences that are rounding are none.
fn given_up(max_mean: f64, mean: f64) -> f64 {
    let cost = max_mean - mean;
    if cost > 1e-9 * max_mean.abs().max(1.0) { cost } else { 0.0 }
}

/// "9 times in 10": how often the quantile of a level is reached.
fn times(tau: f64) -> String {
    let (mut above, mut of) = (100 - (100.0 * tau).round() as u32, 100);
    for divisor in [2, 2, 5, 5] {
        if above % divisor == 0 && of % divisor == 0 {
            (above, of) = (above / divisor, of / divisor);
        }
    }
    format!("{above} {} in {of}", if above == 1 { "time" } else { "times" })
}

const SKELETON: &str = include_str!("../../assets/dial.html");

#[cfg(test)]
mod tests {
    use super::times;

    #[test]
    fn levels_are_said_in_small_numbers() {
        let said = [0.1, 0.5, 0.9, 0.25, 0.05, 0.01, 0.99, 0.07].map(times);
        let want = [
            "9 times in 10",
            "1 time in 2",
            "1 time in 10",
            "3 times in 4",
            "19 times in 20",
            "99 times in 100",
            "1 time in 100",
            "93 times in 100",
        ];
        assert_eq!(said, want);
    }
}
