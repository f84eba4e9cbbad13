//! The overview: every run in one table, to filter, sort and select.

use std::cmp::Ordering;
use std::fmt::Write as _;
use std::sync::Arc;

use bqrl_report::{escape, four_digits};

use crate::card::Card;
use crate::reply::Reply;
use crate::request::{Query, encode};
use crate::shelf::Seen;

/// The columns: key, heading, and whether it is a number.
const COLUMNS: [(&str, &str, bool); 8] = [
    ("name", "Run", false),
    ("problem", "Problem", false),
    ("method", "Method", false),
    ("state", "State", false),
    ("progress", "Progress", true),
    ("speed", "Steps a second", true),
    ("level", "Level τ", true),
    ("quantile", "Last quantile Q<sub>τ</sub>", true),
];

/// The page, or its table alone.
pub fn page(seen: &Seen, query: &Query) -> Reply {
    let table = table(seen, query);
    if super::is_fragment(query) {
        return Reply::html(table);
    }
    let filter = escape(query.get("q").unwrap_or_default());
    let hidden = |key: &str| {
        query.get(key).map_or(String::new(), |value| {
            format!("<input type=\"hidden\" name=\"{key}\" value=\"{}\">", escape(value))
        })
    };
    let contents = format!(
        "<h1>Runs</h1>\n\
         <form class=\"filter\" action=\"/\" role=\"search\"><label>Filter by name, problem, method or state \
         <input type=\"search\" name=\"q\" value=\"{filter}\"></label>{}{}<button>Filter</button></form>\n\
         <div id=\"live\" data-live=\"overview\">\n{table}</div>",
        hidden("sort"),
        hidden("down")
    );
    Reply::html(super::page("Runs", "live.js", &contents))
}

fn table(seen: &Seen, query: &Query) -> String {
    if seen.runs.is_empty() {
        return "<p>There are no runs in this directory yet. In another terminal:</p>\n\
                <pre tabindex=\"0\">bqrl train --algo target-tracking</pre>\n\
                <p>The run will appear here while it learns. Meanwhile, turn the <a href=\"/dial?problem=asset-selling\">\
                risk dial</a> of a built-in problem.</p>\n"
            .to_owned();
    }
    let filter = query.get("q").unwrap_or_default();
    let mut cards: Vec<&Arc<Card>> =
        seen.runs.values().filter(|card| filter.split_whitespace().all(|word| card.matches(word))).collect();
    let sort = query.get("sort").unwrap_or("state");
    let down = query.get("down").is_some();
    cards.sort_by(|a, b| {
        let order = order(sort, a, b);
        (if down { order.reverse() } else { order }).then_with(|| a.id.cmp(&b.id))
    });
    let mut html = String::from(
        "<form action=\"/compare\"><div class=\"wide\" tabindex=\"0\"><table class=\"runs\">\n<thead><tr>\
         <th scope=\"col\">Select</th>",
    );
    for (key, heading, number) in COLUMNS {
        let (next, sorted) = match (key == sort, down) {
            (true, false) => ("&amp;down=1", " aria-sort=\"ascending\""),
            (true, true) => ("", " aria-sort=\"descending\""),
            _ => ("", ""),
        };
        let class = if number { "" } else { " class=\"text\"" };
        let _ = write!(
            html,
            "<th scope=\"col\"{class}{sorted}><a href=\"/?q={}&amp;sort={key}{next}\">{heading}</a></th>",
            encode(filter)
        );
    }
    html += "</tr></thead>\n<tbody>\n";
    for card in &cards {
        row(&mut html, card);
    }
    html += "</tbody></table></div>\n";
    let all = seen.runs.len();
    let more = if seen.limited { " There is more in this directory than is shown here." } else { "" };
    let _ = writeln!(
        html,
        "<p><button>Compare the selected runs</button> <span class=\"muted\">{} of {all} runs.{more}</span></p></form>",
        cards.len()
    );
    html
}

fn row(html: &mut String, card: &Card) {
    let name = escape(&card.id);
    let _ = write!(
        html,
        "<tr data-run=\"{name}\"><td><input type=\"checkbox\" name=\"run\" value=\"{name}\" aria-label=\"Select {name}\"></td>\
         <td class=\"text\"><a href=\"{}\">{name}</a></td>",
        escape(&super::run_address(&card.id))
    );
    if let Some(error) = &card.error {
        let _ =
            writeln!(html, "<td class=\"text\" colspan=\"7\">cannot be read: {}</td></tr>", escape(error));
        return;
    }
    let percent = (100.0 * card.fraction + 1e-9).floor();
    let speed = card.steps_per_second.map_or("–".to_owned(), |speed| format!("{speed:.0}"));
    let list = |of: &dyn Fn(&crate::card::CardLevel) -> String| {
        card.taus.iter().map(of).collect::<Vec<_>>().join("<br>")
    };
    let quantile = |level: &crate::card::CardLevel| {
        let best = level
            .best_quantile
            .map_or(String::new(), |best| format!(" <span class=\"muted\">of {}</span>", four_digits(best)));
        level.quantile.map_or("–".to_owned(), |quantile| four_digits(quantile) + &best)
    };
    let _ = writeln!(
        html,
        "<td class=\"text\">{}</td><td class=\"text\">{}</td>\
         <td class=\"text\"><span class=\"state {}\">{}</span></td>\
         <td><progress max=\"100\" value=\"{percent}\" aria-label=\"{percent} % done\"></progress> {percent} %\
         <br><span class=\"muted\">{} episodes</span></td>\
         <td>{speed}</td><td>{}</td><td>{}</td></tr>",
        escape(&card.problem),
        escape(&card.method),
        card.state,
        card.state,
        card.episodes,
        list(&|level| four_digits(level.tau)),
        list(&quantile),
    );
}

fn order(sort: &str, a: &Card, b: &Card) -> Ordering {
    let number = |of: &dyn Fn(&Card) -> Option<f64>| {
        // Runs without the number come last.
        of(a).unwrap_or(f64::NEG_INFINITY).total_cmp(&of(b).unwrap_or(f64::NEG_INFINITY))
    };
    match sort {
        "problem" => a.problem.cmp(&b.problem),
        "method" => a.method.cmp(&b.method),
        "progress" => number(&|card| Some(card.fraction)),
        "speed" => number(&|card| card.steps_per_second),
        "level" => number(&|card| card.taus.first().map(|level| level.tau)),
        "quantile" => number(&|card| card.taus.first().and_then(|level| level.quantile)),
        "name" => a.id.cmp(&b.id),
        _ => rank(a).cmp(&rank(b)),
    }
}

/// Running runs first: they are why somebody looks.
fn rank(card: &Card) -> usize {
    ["running", "interrupted", "finished"].iter().position(|state| *state == card.state).unwrap_or(3)
}
