//! The pages and the data behind them: which address gives what.
//!
//! | address | answer |
//! |---|---|
//! | `/` | the runs; `q`, `sort`, `down` |
//! | `/runs/ID` | a run |
//! | `/compare?run=ID&run=ID` | several on common axes |
//! | `/dial?problem=NAME` (or `file=`, `run=`) | the risk dial |
//! | `/api/runs`, `/api/runs/ID` | the same as JSON |
//! | `/api/table?run=ID&path=seed-42/episodes.csv&rows=1000` | a table with fewer rows |
//! | `/files?run=ID&path=…` | a whole file |
//! | `/api/dial?…`, `/api/cell?…`, `/api/play?…` | the dial's plans, a cell, an episode |
//! | `/api/buffered?…` | the dial's plans for β > 0 |
//! | `/api/served?run=ID&who=SEED` | the policies of a run at every level |
//! | `/play?game=NAME`, `/play?run=ID&who=SEED` | a game to watch |
//! | `/api/game?…&tau=T&seed=N` | its positions |
//! | `/events` | which runs changed (see `live`) |

mod dial_page;
mod overview;
mod play_page;
mod run_page;
mod settings;

use std::fmt::Write as _;
use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

use bqrl_report::escape;
use hyper::StatusCode;
use hyper::body::Bytes;
use serde_json::json;

use crate::card::Card;
use crate::dial::{Asked, DialError, Dials, Source};
use crate::files;
use crate::game;
use crate::reply::Reply;
use crate::request::{Query, Request, encode};
use crate::shelf::Shelf;

/// Rows of a table that is not wanted whole.
const ROWS: usize = 1_000;
const MOST_ROWS: usize = 20_000;
/// Runs on one page of comparison.
const MOST_COMPARED: usize = 12;
/// Bytes of the pages that are kept until their runs change.
const MOST_KEPT: usize = 16 << 20;

/// An answer: made, or a file to send.
pub enum Answer {
    /// Made.
    Reply(Reply),
    /// To send piece by piece.
    File(File),
}

/// Everything that answers need.
pub struct Site {
    shelf: Arc<Shelf>,
    dials: Dials,
    /// Contents of pages by what they were made from, the latest at the end.
    kept: Mutex<Vec<(String, Bytes)>>,
}

/// A page or JSON that says why not.
pub fn refusal(status: StatusCode, message: &str) -> Reply {
    let html = page("Not here", "", &format!("<h1>Not here</h1><p>{}</p>", escape(message)));
    Reply::html(html).with(status)
}

fn failed(status: StatusCode, message: &str) -> Reply {
    Reply::json(&json!({ "error": message })).with(status)
}

/// Assets, inside the program.
const ASSETS: [(&str, &str, &str); 8] = [
    ("dial.js", "text/javascript; charset=utf-8", include_str!("../../assets/dial.js")),
    ("draw.js", "text/javascript; charset=utf-8", include_str!("../../assets/draw.js")),
    ("game.js", "text/javascript; charset=utf-8", include_str!("../../assets/game.js")),
    ("live.js", "text/javascript; charset=utf-8", include_str!("../../assets/live.js")),
    ("map.js", "text/javascript; charset=utf-8", include_str!("../../assets/map.js")),
    ("stepper.js", "text/javascript; charset=utf-8", include_str!("../../assets/stepper.js")),
    ("play.js", "text/javascript; charset=utf-8", include_str!("../../assets/play.js")),
    ("icon.svg", "image/svg+xml", include_str!("../../assets/icon.svg")),
];
const STYLE: &str = include_str!("../../assets/page.css");

impl Site {
    /// The site over a directory.
    pub fn new(shelf: Arc<Shelf>) -> Self {
        Self { shelf, dials: Dials::default(), kept: Mutex::default() }
    }

    /// The answer to a request.
    pub fn answer(&self, request: &Request) -> Answer {
        let Request { path, query } = request;
        let reply = match path.as_str() {
            "" => overview::page(&self.shelf.look(), query),
            "compare" => self.compare(query),
            "dial" => dial_page::page(&self.dials, &self.shelf, query),
            "play" => play_page::page(&self.shelf, query),
            "api/game" => self.game(query),
            "api/runs" => self.runs(),
            "api/table" | "files" => return self.file(path == "files", query),
            "api/dial" | "api/cell" | "api/play" | "api/served" | "api/buffered" => self.dial(path, query),
            "assets/page.css" => {
                Reply::asset("text/css; charset=utf-8", bqrl_report::document::stylesheet() + STYLE)
            }
            _ => {
                if let Some(id) = path.strip_prefix("runs/") {
                    self.run(id, query)
                } else if let Some(id) = path.strip_prefix("api/runs/") {
                    self.run_data(id)
                } else if let Some(name) = path.strip_prefix("assets/") {
                    asset(name)
                } else {
                    refusal(StatusCode::NOT_FOUND, "There is no such page.")
                }
            }
        };
        Answer::Reply(reply)
    }

    fn runs(&self) -> Reply {
        let seen = self.shelf.look();
        let runs: Vec<&Card> = seen.runs.values().map(|card| &**card).collect();
        Reply::json(&json!({ "version": seen.version, "limited": seen.limited, "runs": runs }))
    }

    fn run_data(&self, id: &str) -> Reply {
        match self.shelf.look_for(id).runs.get(id) {
            Some(card) => Reply::json(&**card),
            None => failed(StatusCode::NOT_FOUND, "there is no such run"),
        }
    }

    fn run(&self, id: &str, query: &Query) -> Reply {
        let seen = self.shelf.look_for(id);
        let Some(card) = seen.runs.get(id) else {
            return refusal(StatusCode::NOT_FOUND, "There is no such run.");
        };
        let key = format!("run {id} {}", card.fingerprint);
        let contents = self.kept(key, || run_page::contents(&self.shelf, card));
        run_page::page(card, &contents, is_fragment(query))
    }

    fn compare(&self, query: &Query) -> Reply {
        let seen = self.shelf.look();
        let mut ids: Vec<String> = Vec::new();
        for id in query.all("run") {
            if !seen.runs.contains_key(id) {
                return refusal(StatusCode::NOT_FOUND, &format!("There is no run {id:?}."));
            }
            if !ids.iter().any(|known| known == id) {
                ids.push(id.to_owned());
            }
        }
        if ids.is_empty() || ids.len() > MOST_COMPARED {
            let message = format!("Select 1 to {MOST_COMPARED} runs on the overview, then compare them.");
            return refusal(StatusCode::BAD_REQUEST, &message);
        }
        let marks: Vec<u64> = ids.iter().map(|id| seen.runs[id].fingerprint).collect();
        let contents =
            self.kept(format!("compare {ids:?} {marks:?}"), || run_page::compared(&self.shelf, &ids));
        run_page::comparison(&ids, &contents, is_fragment(query))
    }

    /// Contents that are made once for each key.
    fn kept(&self, key: String, make: impl FnOnce() -> String) -> Bytes {
        let find = || {
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.iter().find(|(known, _)| *known == key).map(|(_, contents)| contents.clone())
        };
        if let Some(contents) = find() {
            return contents;
        }
        let contents = Bytes::from(make());
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push((key, contents.clone()));
        while kept.len() > 1 && kept.iter().map(|(_, contents)| contents.len()).sum::<usize>() > MOST_KEPT {
            kept.remove(0);
        }
        contents
    }

    /// A file of a run, or of the directory itself if no run is named: whole, or a table with fewer rows.
    fn file(&self, whole: bool, query: &Query) -> Answer {
        let refused = |status, message: &str| Answer::Reply(failed(status, message));
        let path = query.get("path").unwrap_or_default();
        let seen = self.shelf.look();
        let id = match query.get("run") {
            Some(id) if seen.runs.contains_key(id) => id,
            _ => return refused(StatusCode::NOT_FOUND, "there is no such run"),
        };
        let Ok(file) = files::open(&self.shelf, id, path) else {
            return refused(StatusCode::NOT_FOUND, "there is no such file");
        };
        if whole {
            return Answer::File(file);
        }
        match query.number("rows", "a whole number") {
            Err(message) => refused(StatusCode::BAD_REQUEST, &message),
            Ok(rows) => match files::thinned(file, rows.unwrap_or(ROWS).min(MOST_ROWS)) {
                Ok(csv) => Answer::Reply(Reply::csv(csv)),
                Err(error) => refused(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
            },
        }
    }

    /// A game, played at random or by a seed of a run.
    fn game(&self, query: &Query) -> Reply {
        let made = || {
            let number = |key: &str| query.number(key, "a whole number").map_err(DialError::Wrong);
            let seed = number("seed")?.unwrap_or(1);
            let Some(run) = query.get("run") else {
                let game = game::named(query).map_err(DialError::Wrong)?;
                return game::random(game, seed).map_err(DialError::Wrong);
            };
            if !self.shelf.look_for(run).runs.contains_key(run) {
                return Err(DialError::Wrong(format!("there is no run {run:?} in the served directory")));
            }
            let who = number("who")?.ok_or_else(|| DialError::Wrong("who is missing".to_owned()))?;
            let tau = query.number("tau", "a level in (0, 1)").map_err(DialError::Wrong)?.unwrap_or(0.1);
            self.dials.game(&self.shelf, &Asked { run, who, tau, share: 0, seed })
        };
        made().map_or_else(not_dialled, json_bytes)
    }

    fn dial(&self, path: &str, query: &Query) -> Reply {
        let bad = |message: String| failed(StatusCode::BAD_REQUEST, &message);
        let source = match Source::of(query, &self.shelf) {
            Ok(source) => source,
            Err(message) => return failed(StatusCode::NOT_FOUND, &message),
        };
        let dial = match self.dials.get(&source, &self.shelf) {
            Ok(dial) => dial,
            Err(error) => return not_dialled(error),
        };
        // Whose policy: the best one, or that of a seed of the run.
        let who = match (&source, query.number("who", "a seed of the run")) {
            (_, Err(message)) => return bad(message),
            (Source::Run(run), Ok(Some(who))) => Some((run.as_str(), who)),
            (_, Ok(Some(_))) => return bad("only a run has policies of its own".to_owned()),
            (_, Ok(None)) => None,
        };
        if let Some((run, who)) = who {
            let tau = query.number("tau", "a level");
            let share = query.number("share", "a part of tau in per cent");
            let made = match (path, tau, share, query.number("seed", "a whole number")) {
                ("api/served", ..) => self.dials.served(&dial, &self.shelf, run, who).map(json_bytes),
                ("api/play", Ok(Some(tau)), Ok(share), Ok(Some(seed))) => {
                    let asked = Asked { run, who, tau, share: share.unwrap_or(0), seed };
                    self.dials.episode(&dial, &self.shelf, &asked).map(|episode| Reply::json(&episode))
                }
                _ => return bad("who goes with api/served, and with api/play, a tau and a seed".to_owned()),
            };
            return made.unwrap_or_else(not_dialled);
        }
        let numbers = |a: &str, b: &str| -> Result<(usize, u64), DialError> {
            let number = |key: &str| {
                let number = query.number::<u64>(key, "a whole number").map_err(DialError::Wrong)?;
                number.ok_or_else(|| DialError::Wrong(format!("{key} is missing")))
            };
            Ok((number(a)? as usize, number(b)?))
        };
        let answer = match path {
            "api/served" => Err(DialError::Wrong("who is missing".to_owned())),
            "api/buffered" => self.dials.buffered(&dial).map(json_bytes),
            "api/cell" => numbers("stage", "state")
                .and_then(|(stage, state)| dial.cell(stage, state as usize))
                .map(|cell| Reply::json(&cell)),
            "api/play" => numbers("plan", "seed")
                .and_then(|(plan, seed)| dial.episode(query.get("buffered").is_some(), plan, seed))
                .map(|episode| Reply::json(&episode)),
            _ => Ok(json_bytes(dial.json.clone())),
        };
        answer.unwrap_or_else(not_dialled)
    }
}

/// Links to a page of runs, each with a few words more.
fn run_list(page: &str, runs: &[&Arc<Card>], more: impl Fn(&Card) -> &'static str) -> String {
    let mut html = String::from("<ul>\n");
    for card in runs {
        let _ = writeln!(
            html,
            "<li><a href=\"{page}?run={}\">{}</a>: {} on {}{}</li>",
            encode(&card.id),
            escape(&card.id),
            escape(&card.method),
            escape(&card.problem),
            more(card)
        );
    }
    html + "</ul>\n"
}

/// JSON that is already written.
fn json_bytes(body: Bytes) -> Reply {
    Reply { status: StatusCode::OK, kind: crate::reply::JSON, body }
}

fn not_dialled(error: DialError) -> Reply {
    match error {
        // Not an error: the browser would write one to its console. The page asks again.
        DialError::Busy => failed(StatusCode::ACCEPTED, "another problem is being planned"),
        DialError::Wrong(message) => failed(StatusCode::BAD_REQUEST, &message),
    }
}

fn asset(name: &str) -> Reply {
    match ASSETS.iter().find(|(known, ..)| *known == name) {
        Some(&(_, kind, text)) => Reply::asset(kind, text),
        None => refusal(StatusCode::NOT_FOUND, "There is no such file."),
    }
}

/// Whether only the part of a page that changes is wanted.
fn is_fragment(query: &Query) -> bool {
    query.get("fragment").is_some()
}

/// A page around its contents. `script` is a module of the assets, or empty.
fn page(title: &str, script: &str, contents: &str) -> String {
    let title = escape(title);
    let script = if script.is_empty() {
        String::new()
    } else {
        format!("<script type=\"module\" src=\"/assets/{script}\"></script>\n")
    };
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title} · bqrl</title>\n<link rel=\"icon\" href=\"/assets/icon.svg\">\n\
         <link rel=\"stylesheet\" href=\"/assets/page.css\">\n{script}</head>\n<body>\n\
         <a class=\"skip\" href=\"#main\">Skip to the contents</a>\n\
         <header><nav aria-label=\"Pages\"><a class=\"home\" href=\"/\">bqrl</a> <a href=\"/\">Runs</a> \
         <a href=\"/dial\">Risk dial</a> <a href=\"/play\">Play</a></nav><p id=\"pulse\"></p></header>\n\
         <main id=\"main\">\n{contents}\n</main>\n</body>\n</html>\n"
    )
}

/// The address of a run.
fn run_address(id: &str) -> String {
    format!("/runs/{}", encode(id))
}
