//! The page on which games are watched.

use std::fmt::Write as _;

use bqrl_games::list;
use bqrl_report::escape;
use hyper::StatusCode;

use crate::card::Card;
use crate::game;
use crate::reply::Reply;
use crate::request::{Query, encode};
use crate::shelf::{Seen, Shelf};

/// Whether a run is on a game.
pub fn is_game(card: &Card) -> bool {
    list::names().any(|name| name == card.problem)
}

/// The page: a game, or the games to choose from.
pub fn page(shelf: &Shelf, query: &Query) -> Reply {
    if let Some(id) = query.get("run") {
        let seen = shelf.look_for(id);
        let Some(card) = seen.runs.get(id).filter(|card| is_game(card)) else {
            return super::refusal(StatusCode::NOT_FOUND, &format!("There is no run {id:?} on a game."));
        };
        return of_run(card, query);
    }
    if query.get("game").is_none() {
        return choose(&shelf.look());
    }
    match game::named(query) {
        Ok(game) => {
            let mut asked = format!("game={}", encode(game.info().name));
            for (key, value) in query.parameters() {
                let _ = write!(asked, "&env.{}={}", encode(&key), encode(&value));
            }
            board(game.info().name, &asked, "Random actions. Train a run to see what it learns.")
        }
        Err(message) => super::refusal(StatusCode::BAD_REQUEST, &message),
    }
}

fn of_run(card: &Card, query: &Query) -> Reply {
    let seed = match query.number("who", "a seed of the run") {
        Ok(seed) => seed.or(card.seeds.first().copied()).unwrap_or_default(),
        Err(message) => return super::refusal(StatusCode::BAD_REQUEST, &message),
    };
    let who =
        format!("{} on {}, seed {seed}: the agent of its latest checkpoint.", card.method, card.problem);
    board(&card.id, &format!("run={}&who={seed}", encode(&card.id)), &who)
}

fn board(title: &str, asked: &str, who: &str) -> Reply {
    let html = format!(
        "<p class=\"muted\"><a href=\"/play\">Play</a> / {0}</p>\n<h1>Watch {0}</h1>\n<p>{1}</p>\n\
         <noscript><p class=\"note\">The board needs JavaScript. <code>bqrl play</code> shows games in a terminal.</p></noscript>\n\
         <div id=\"game\" data-query=\"{2}\" hidden>\n{SKELETON}</div>",
        escape(title),
        escape(who),
        escape(asked)
    );
    Reply::html(super::page(&format!("Play: {title}"), "game.js", &html))
}

fn choose(seen: &Seen) -> Reply {
    let mut html = String::from(
        "<h1>Play</h1>\n<p>Watch a game, played at random or by a run.</p>\n<h2>Games</h2>\n<ul>\n",
    );
    for info in list::list() {
        let (name, summary) = (escape(info.name), escape(info.summary));
        let _ = writeln!(html, "<li><a href=\"/play?game={name}\">{name}</a>: {summary}</li>");
    }
    html += "</ul>\n<h2>Runs on games</h2>\n";
    let runs: Vec<_> = seen.runs.values().filter(|card| is_game(card)).collect();
    if runs.is_empty() {
        html += "<p class=\"muted\">There are none in this directory. In a terminal:</p>\n\
                 <pre tabindex=\"0\">bqrl train minatar/breakout --algo target-tracking</pre>\n";
    } else {
        html += &super::run_list("/play", &runs, |_| "");
    }
    html += "<p>Episodes of tables are played on the <a href=\"/dial\">risk dial</a> of their problem.</p>\n";
    Reply::html(super::page("Play", "", &html))
}

const SKELETON: &str = include_str!("../../assets/game.html");
