//! A run, and several compared: the contents of the static report, made anew whenever the rows change.

use std::fmt::Write as _;

use bqrl_report::document::{contents as report, title};
use bqrl_report::escape;
use bqrl_report::study::Study;
use bqrl_runs::reader::Run;
use hyper::body::Bytes;

use super::{play_page, settings};
use crate::card::Card;
use crate::reply::Reply;
use crate::request::encode;
use crate::shelf::Shelf;

/// The part of a run's page that changes.
pub fn contents(shelf: &Shelf, card: &Card) -> String {
    let made = shelf.read(&card.id, |run| {
        let mut html = button(card);
        html += &study(std::slice::from_ref(run));
        html += &settings::table(run);
        html += &downloads(run, &card.id);
        html
    });
    made.unwrap_or_else(|error| format!("<p class=\"note\">{}</p>", escape(&error)))
}

/// The part of a comparison that changes.
pub fn compared(shelf: &Shelf, ids: &[String]) -> String {
    let made = shelf.read_all(ids, |runs| study(&runs));
    made.unwrap_or_else(|error| format!("<p class=\"note\">{}</p>", escape(&error)))
}

fn study(runs: &[Run]) -> String {
    match Study::new(runs) {
        Ok(study) => format!("<h1>{}</h1>\n{}", escape(&title(&study)), report(&study).html),
        Err(error) => format!(
            "<h1>These runs cannot be compared</h1><p class=\"note\">{}</p>",
            escape(&error.to_string())
        ),
    }
}

/// The page of a run.
pub fn page(card: &Card, contents: &Bytes, fragment: bool) -> Reply {
    let contents = String::from_utf8_lossy(contents);
    if fragment {
        return Reply::html(contents.into_owned());
    }
    let id = escape(&card.id);
    let html = format!(
        "<p class=\"muted\"><a href=\"/\">Runs</a> / {id}</p>\n\
         <div id=\"live\" data-live=\"run\" data-run=\"{id}\">\n{contents}</div>"
    );
    Reply::html(super::page(&card.id, "live.js", &html))
}

/// Leads to the game or to the dial of a run.
fn button(card: &Card) -> String {
    let who = card.seeds.first().map_or(String::new(), |seed| format!("&amp;who={seed}"));
    // A game has no table that could be planned.
    let (page, words) = if play_page::is_game(card) {
        ("play", "Watch this run play")
    } else {
        ("dial", "Turn the risk dial of this run")
    };
    format!("<p><a class=\"button\" href=\"/{page}?run={}{who}\">{words}</a></p>\n", encode(&card.id))
}

/// The page of several runs.
pub fn comparison(ids: &[String], contents: &Bytes, fragment: bool) -> Reply {
    let contents = String::from_utf8_lossy(contents);
    if fragment {
        return Reply::html(contents.into_owned());
    }
    let names: Vec<String> = ids
        .iter()
        .map(|id| format!("<a href=\"{}\">{}</a>", escape(&super::run_address(id)), escape(id)))
        .collect();
    let html = format!(
        "<p class=\"muted\"><a href=\"/\">Runs</a> / {}</p>\n<div id=\"live\" data-live=\"compare\">\n{contents}</div>",
        names.join(", ")
    );
    Reply::html(super::page("Compare", "live.js", &html))
}

/// The tables of a run: with few rows to look at, and whole.
fn downloads(run: &Run, id: &str) -> String {
    let mut html = String::from("<h2>Files</h2>\n<ul>\n");
    let run_query = encode(id);
    let mut line = |path: String, thin: bool| {
        let _ = write!(
            html,
            "<li><a href=\"/files?run={run_query}&amp;path={}\">{}</a>",
            encode(&path),
            escape(&path)
        );
        if thin {
            let _ = write!(
                html,
                " · <a href=\"/api/table?run={run_query}&amp;path={}&amp;rows=1000\">1000 rows of it</a>",
                encode(&path)
            );
        }
        html += "</li>\n";
    };
    line("config.toml".to_owned(), false);
    for seed in &run.seeds {
        line(format!("seed-{}/episodes.csv", seed.seed), true);
        line(format!("seed-{}/evaluations.csv", seed.seed), true);
    }
    html += "</ul>\n";
    html
}
