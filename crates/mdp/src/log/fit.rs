//! From a log to a table: counts, relative frequencies, and plain words about what is missing.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Read;
use std::sync::Arc;

use super::{Columns, Log, LogError, NONE, Transition};
use crate::counts::{Counted, Counts, Seen, Start, kept_apart};
use crate::model::{Data, Kernel, Model, Outcome, Problem};
use crate::records::{Names, natural};

/// The most (stage, state, action) triples of a table.
const MAX_PAIRS: usize = 1 << 27;
/// Pairs that were tried less often than this are named.
const FEW: u64 = 10;
/// More than this share of rows whose outcome was seen only once is worth a remark, if there are also many rewards or states.
const ONCE: f64 = 0.1;
/// Many rewards or states.
const MANY: usize = 50;
/// The most examples in a remark.
const EXAMPLES: usize = 5;

/// A column that can be put into bins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binned {
    /// States, next states included.
    State,
    /// Rewards; each counts as the smallest of its bin, so that promises stay on the safe side.
    Reward,
}

/// How to fit.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// One table per stage, instead of one for all stages.
    pub by_stage: bool,
    /// H; the longest episode by default.
    pub horizon: Option<usize>,
    /// Columns to put into bins with about equally many rows each.
    pub bins: Vec<(Binned, usize)>,
    /// The log says of its last stage too whether episodes end there: it comes from a simulator.
    pub ends_known: bool,
}

/// The bins of a column.
#[derive(Clone, Debug, PartialEq)]
pub struct Cut {
    /// The column.
    pub column: Binned,
    /// A bin begins at each of these, the first one at the smallest value.
    pub points: Vec<f64>,
}

/// A table made of a log.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The table, with its counts.
    pub problem: Problem,
    /// The number of episodes.
    pub episodes: usize,
    /// The number of rows.
    pub transitions: usize,
    /// Pairs of a state that is left and an action that was never tried there.
    pub unseen_pairs: usize,
    /// The bins that were made.
    pub cuts: Vec<Cut>,
    /// Remarks on the data, for the reader.
    pub notes: Vec<String>,
}

/// Fits a table to a log in a file.
pub fn fit(reader: impl Read, name: &str, options: &Options) -> Result<Fitted, LogError> {
    fit_log(Log::read(reader)?, name, options)
}

/// Fits a table to a log in memory.
pub fn fit_columns(columns: &Columns, name: &str, options: &Options) -> Result<Fitted, LogError> {
    fit_log(Log::from_columns(columns)?, name, options)
}

fn fit_log(mut log: Log, name: &str, options: &Options) -> Result<Fitted, LogError> {
    let mut cuts = Vec::new();
    for &(column, bins) in &options.bins {
        let points = match column {
            Binned::State => bin_states(&mut log, bins)?,
            Binned::Reward => bin_rewards(&mut log.rows, bins),
        };
        cuts.push(Cut { column, points });
    }
    let longest = log.rows.iter().map(|row| row.stage).max().unwrap_or(0) as usize + 1;
    let horizon = options.horizon.unwrap_or(longest);
    if horizon == 0 {
        return Err(LogError::NoHorizon);
    }
    if let Some(row) = log.rows.iter().find(|row| row.stage as usize >= horizon) {
        let (at, first) = (log.at(row.line), log.first_stage);
        return Err(LogError::Horizon { at, stage: row.stage.saturating_add(first), first, horizon });
    }
    let mut notes = notes_on_episodes(&log, horizon, options.horizon.is_none());
    if cuts.iter().any(|cut| cut.column == Binned::Reward) {
        notes.push(
            "a reward counts as the smallest of its bin: a policy must be given the collected reward counted like this"
                .to_owned(),
        );
    }
    let stages = if options.by_stage { horizon } else { 1 };
    let pairs = (log.states.len() + 2).saturating_mul(log.actions.len()).saturating_mul(stages);
    if pairs > MAX_PAIRS {
        let (states, actions) = (log.states.len(), log.actions.len());
        return Err(LogError::TooManyPairs { states, actions, stages });
    }
    let arrivals = Arrivals::new(&mut log, horizon, stages, options.ends_known);
    notes.extend(arrivals.notes(&log));
    let fitted = count(log, name, horizon, stages, &arrivals)?;
    notes.extend(fitted.notes);
    Ok(Fitted { cuts, notes, ..fitted })
}

fn notes_on_episodes(log: &Log, horizon: usize, own: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if own {
        notes.push(format!("the horizon is {horizon}, the length of the longest episode"));
    }
    if !log.has_end {
        notes.push("no column says where episodes end: the last row of each counts as its end".to_owned());
    }
    let cut = |place: usize| {
        let row = &log.rows[place];
        log.is_last(place) && !row.ends && (row.stage as usize) < horizon - 1
    };
    let places: Vec<usize> = (0..log.rows.len()).filter(|&place| cut(place)).collect();
    if let Some(&first) = places.first() {
        let row = &log.rows[first];
        let (episode, at) = (log.episodes.name(row.episode), log.at(row.line));
        let n = episodes(places.len());
        notes.push(format!(
            "{n} without an end, the first is episode {episode} ({at}): the transitions count, what would follow is unknown"
        ));
    }
    notes
}

fn episodes(n: usize) -> String {
    if n == 1 { "1 episode".to_owned() } else { format!("{n} episodes") }
}

/// The meaning of an arrival in each state: the episode goes on or ends (of each stage, if there is a table per stage).
///
/// **The last stage.** Nothing is decided after it, so a log often does not say what its last rows lead to: the field is empty, or
/// every last row is marked as an end although the episode only stops there. One table for all stages would mix such arrivals with those of
/// earlier stages, and no number of episodes would put that right. If the last stage is unclear in this way ([`Arrivals::unclear`]) its rows
/// count only for pairs (state, action) that were tried at no other stage, and there they lead to the unknown.
struct Arrivals {
    stages: usize,
    horizon: usize,
    ends_known: bool,
    /// The last stage, if one table serves several stages: there rows may be unclear.
    last: Option<u32>,
    n_states: usize,
    /// A decision is made there.
    left: Vec<bool>,
    /// Some episode ended there before the last stage.
    ended: Vec<bool>,
    /// The state that stands for an end in a state that others leave.
    end: u32,
    /// The state that stands for all that the log does not say.
    unknown: u32,
    /// How many episodes end in a state that others leave.
    redirected: usize,
    /// Whether the arrivals of the last stage cannot be told from those of earlier stages; then the pairs that were tried before it.
    unclear: Option<HashSet<(u32, u32)>>,
    /// How many rows are left out because of that.
    left_out: usize,
}

impl Arrivals {
    fn new(log: &mut Log, horizon: usize, stages: usize, ends_known: bool) -> Self {
        let [end, unknown] = ["end", "unknown"].map(|name| new_state(&mut log.states, name));
        let longest = log.rows.iter().map(|row| row.stage).max().unwrap_or(0) as usize + 1;
        // Without a column that says where episodes end, those that reach the longest length may only stop there.
        let last = if log.has_end { horizon } else { horizon.min(longest) };
        let last = (stages == 1 && last > 1 && last <= longest && !ends_known).then_some(last as u32 - 1);
        let is_last = |row: &Transition| Some(row.stage) == last;
        let silent = log.rows.iter().any(|row| is_last(row) && row.next == NONE);
        for row in log.rows.iter_mut().filter(|row| row.next == NONE) {
            let over = row.ends || row.stage as usize + 1 == horizon;
            row.next = if over && !is_last(row) { end } else { unknown };
        }
        let n_states = log.states.len();
        let mut arrivals = Self {
            stages,
            horizon,
            ends_known,
            last,
            n_states,
            left: vec![false; (stages + 1) * n_states],
            ended: vec![false; (stages + 1) * n_states],
            end,
            unknown,
            redirected: 0,
            unclear: None,
            left_out: 0,
        };
        for row in &log.rows {
            let place = arrivals.place(row.stage, row.state);
            arrivals.left[place] = true;
        }
        for row in &log.rows {
            let place = arrivals.place(row.stage + 1, row.next);
            if arrivals.ends(row) {
                arrivals.ended[place] = true;
                arrivals.redirected += usize::from(arrivals.left[place]);
            }
        }
        let place = |stage| if stages == 1 { end as usize } else { stage * n_states + end as usize };
        for stage in 0..=stages {
            arrivals.ended[place(stage)] = true;
        }
        // Ends in states that others leave, and last rows that all lead to states that nobody leaves: both may be marks of the last stage.
        let left = |row: &Transition| arrivals.left[arrivals.place(row.stage + 1, row.next)];
        let marked = || !log.rows.iter().any(|row| is_last(row) && left(row));
        if last.is_some() && (silent || arrivals.redirected > 0 || marked()) {
            let before = log.rows.iter().filter(|row| !is_last(row));
            let tried: HashSet<(u32, u32)> = before.map(|row| (row.state, row.action)).collect();
            let twice = |row: &&Transition| is_last(row) && tried.contains(&(row.state, row.action));
            arrivals.left_out = log.rows.iter().filter(twice).count();
            arrivals.unclear = Some(tried);
        }
        arrivals
    }

    fn place(&self, stage: u32, state: u32) -> usize {
        let stage = if self.stages == 1 { 0 } else { stage as usize };
        stage * self.n_states + state as usize
    }

    /// Whether a decision could follow, and the log would show it.
    fn early(&self, row: &Transition) -> bool {
        (row.stage as usize) + 1 < self.horizon && Some(row.stage) != self.last
    }

    /// Whether the row is known to end its episode.
    fn ends(&self, row: &Transition) -> bool {
        row.ends && (self.ends_known || self.early(row))
    }

    /// Where a transition leads, and whether that is known to be the end; `None` for a row of the last stage that does not count.
    fn arrival(&self, row: &Transition) -> Option<(u32, bool)> {
        let place = self.place(row.stage + 1, row.next);
        if let (Some(tried), true) = (&self.unclear, Some(row.stage) == self.last) {
            let next = if self.left[place] { self.unknown } else { row.next };
            return (!tried.contains(&(row.state, row.action))).then_some((next, false));
        }
        if self.ends(row) && self.left[place] {
            return Some((self.end, true));
        }
        Some((row.next, self.ended[place] && !self.left[place]))
    }

    fn notes(&self, log: &Log) -> Vec<String> {
        let mut notes = Vec::new();
        if self.redirected > 0 {
            let (n, end) = (episodes(self.redirected), log.states.name(self.end));
            notes.push(format!("{n} ended in states that others leave: the ends lead to the state {end}"));
        }
        if self.left_out > 0 {
            let rows = if self.left_out == 1 {
                "1 row is".to_owned()
            } else {
                format!("{} rows are", self.left_out)
            };
            notes.push(format!(
                "the last stage does not say which episodes would have gone on: {rows} left out there, where the same action was tried in the same state before"
            ));
        }
        let mut unknown: BTreeMap<u32, u32> = BTreeMap::new();
        for row in log.rows.iter().filter(|row| self.early(row) && row.next != self.unknown) {
            let place = self.place(row.stage + 1, row.next);
            if !self.left[place] && !self.ended[place] {
                let line = unknown.entry(row.next).or_insert(row.line);
                *line = row.line.min(*line);
            }
        }
        if let Some((&state, &line)) = unknown.iter().min_by_key(|&(_, &line)| line) {
            let what = match unknown.len() {
                1 => "1 state is entered".to_owned(),
                n => format!("{n} states are entered"),
            };
            notes.push(format!(
                "{what} but never left, and no episode ends there; the first is {} ({}): a plan with a confidence expects the worst there, a plain plan the end",
                log.states.name(state),
                log.at(line)
            ));
        }
        notes
    }
}

/// A state that no row names: `name`, or the next free number if states are numbers.
fn new_state(states: &mut Names, name: &str) -> u32 {
    let ids: Option<Vec<u64>> = (0..states.len() as u32).map(|s| states.name(s).parse().ok()).collect();
    let free = ids.and_then(|ids| ids.into_iter().max()?.checked_add(1));
    let mut name = free.map_or(name.to_owned(), |id| id.to_string());
    let known = states.len();
    loop {
        let number = states.number(&name);
        if number as usize == known {
            return number;
        }
        name.push('_');
    }
}

/// (stage, state, action, next state, bits of the reward).
type Key = (u32, u32, u32, u32, u64);
/// (all, kept apart, whether it ends there, the first line).
type Tally = (u64, u64, bool, u32);

fn count(
    log: Log,
    name: &str,
    horizon: usize,
    stages: usize,
    arrivals: &Arrivals,
) -> Result<Fitted, LogError> {
    let mut seen: HashMap<Key, Tally> = HashMap::new();
    let mut starts: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    let apart = kept_apart(log.episodes.len());
    for row in &log.rows {
        let check = u64::from(apart[row.episode as usize]);
        if row.stage == 0 {
            let start = starts.entry(row.state).or_default();
            *start = (start.0 + 1, start.1 + check);
        }
        let stage = if stages == 1 { 0 } else { row.stage };
        let Some((next, ends)) = arrivals.arrival(row) else { continue };
        // Adding 0.0 makes one number of 0 and -0.
        let key = (stage, row.state, row.action, next, (row.reward + 0.0).to_bits());
        let entry = seen.entry(key).or_insert((0, 0, ends, row.line));
        *entry = (entry.0 + 1, entry.1 + check, entry.2 && ends, entry.3.min(row.line));
    }
    let Log { rows, episodes, states, actions, word, .. } = log;
    let (n_episodes, transitions) = (episodes.len(), rows.len());
    drop((rows, episodes));
    let (mut states, mut places) = states.sorted();
    let used = |state: u32| seen.keys().any(|key| key.3 == state);
    for added in [arrivals.end, arrivals.unknown].into_iter().filter(|&added| !used(added)) {
        // The state is not needed.
        let place = places[added as usize];
        let name = states.remove(place as usize);
        for other in places.iter_mut().filter(|other| **other > place) {
            *other -= 1;
        }
        // Numbers have no gap.
        if added == arrivals.end && used(arrivals.unknown) && name.parse::<u64>().is_ok() {
            states[places[arrivals.unknown as usize] as usize] = name;
        }
    }
    let (actions, action_places) = actions.sorted();
    let mut counted = Vec::with_capacity(seen.len());
    let mut lines = Vec::with_capacity(seen.len());
    for ((stage, state, action, next, bits), (all, check, ends, line)) in seen {
        let (state, next) = (places[state as usize], places[next as usize]);
        let action = action_places[action as usize];
        let outcome = Seen { next, reward: f64::from_bits(bits), count: all, check, ends };
        counted.push(Counted { stage, state, action, seen: outcome });
        lines.push((stage, state, action, next, line, f64::from_bits(bits)));
    }
    let starts: Vec<Start> = starts
        .into_iter()
        .map(|(state, (count, check))| Start { state: places[state as usize], count, check })
        .collect();
    let counts = Counts::new(states.len(), actions.len(), stages, counted, starts);
    let problem = tabulate(name, states, actions, horizon, counts)?;
    let notes = notes_on_counts(&problem, &mut lines, word);
    let counts = problem.data.counts.as_ref().expect("it was just counted");
    let unseen_pairs = unseen(counts).len();
    Ok(Fitted { problem, episodes: n_episodes, transitions, unseen_pairs, cuts: Vec::new(), notes })
}

/// A table of relative frequencies.
pub(crate) fn tabulate(
    name: &str,
    states: Vec<String>,
    actions: Vec<String>,
    horizon: usize,
    counts: Counts,
) -> Result<Problem, LogError> {
    let kernel = |kernel: usize| {
        let mut rows = Vec::new();
        for state in 0..states.len() {
            for action in 0..actions.len() {
                let total = counts.tried(kernel, state, action) as f64;
                rows.extend(counts.seen(kernel, state, action).iter().map(|seen| {
                    let probability = seen.count as f64 / total;
                    (state, action, Outcome { probability, next: seen.next as usize, reward: seen.reward })
                }));
            }
        }
        Kernel::new(states.len(), actions.len(), rows)
    };
    let kernels = (0..counts.n_kernels()).map(kernel).collect::<Result<Vec<_>, _>>()?;
    let total: u64 = counts.starts().iter().map(|start| start.count).sum();
    let share = |start: &Start| (start.state as usize, start.count as f64 / total as f64);
    let starts = counts.starts().iter().map(share).collect();
    let model = Model::new(kernels, horizon, 1.0, starts)?;
    let named = true;
    let data = Data { counts: Some(Arc::new(counts)), named, ..Data::default() };
    Ok(Problem { name: name.to_owned(), model, states, actions, ordered: false, data })
}

/// Pairs (state, action) of states that are left, never tried at any stage.
pub fn unseen(counts: &Counts) -> Vec<(usize, usize)> {
    let tried = |s, a| (0..counts.n_kernels()).map(|k| counts.tried(k, s, a)).sum::<u64>();
    let mut pairs = Vec::new();
    for state in 0..counts.n_states() {
        let tries: Vec<u64> = (0..counts.n_actions()).map(|action| tried(state, action)).collect();
        if tries.iter().any(|&n| n > 0) {
            pairs.extend((0..tries.len()).filter(|&a| tries[a] == 0).map(|a| (state, a)));
        }
    }
    pairs
}

fn all_seen(counts: &Counts) -> impl Iterator<Item = &Seen> {
    let of_kernel = move |kernel| {
        let pairs = (0..counts.n_states()).flat_map(|s| (0..counts.n_actions()).map(move |a| (s, a)));
        pairs.flat_map(move |(s, a)| counts.seen(kernel, s, a))
    };
    (0..counts.n_kernels()).flat_map(of_kernel)
}

type Line = (u32, u32, u32, u32, u32, f64);

fn pairs_were(n: usize) -> &'static str {
    if n == 1 { "pair was" } else { "pairs were" }
}

fn notes_on_counts(problem: &Problem, lines: &mut [Line], word: &str) -> Vec<String> {
    let counts = problem.data.counts.as_ref().expect("the table was counted");
    let mut notes = Vec::new();
    let pair = |&(s, a): &(usize, usize)| format!("{} in state {}", problem.actions[a], problem.states[s]);
    let listed = |pairs: &[(usize, usize)]| {
        let dots = if pairs.len() > EXAMPLES { ", …" } else { "" };
        let shown: Vec<String> = pairs.iter().take(EXAMPLES).map(pair).collect();
        format!("{}{dots}", shown.join(", "))
    };
    let never = unseen(counts);
    if !never.is_empty() {
        let (n, were) = (never.len(), pairs_were(never.len()));
        notes.push(format!("{n} (state, action) {were} never tried: {}", listed(&never)));
    }
    let tried = |s, a| (0..counts.n_kernels()).map(|k| counts.tried(k, s, a)).sum::<u64>();
    let all = (0..counts.n_states()).flat_map(|s| (0..counts.n_actions()).map(move |a| (s, a)));
    let rare: Vec<_> = all.filter(|&(s, a)| (1..FEW).contains(&tried(s, a))).collect();
    if !rare.is_empty() {
        let (n, were) = (rare.len(), pairs_were(rare.len()));
        notes.push(format!("{n} {were} tried fewer than {FEW} times: {}", listed(&rare)));
    }
    // One transition that pays differently from time to time.
    lines.sort_by_key(|line| (line.0, line.1, line.2, line.3, line.4));
    let same = |a: &Line, b: &Line| (a.0, a.1, a.2, a.3) == (b.0, b.1, b.2, b.3);
    let groups: Vec<&[Line]> = lines.chunk_by(same).filter(|group| group.len() > 1).collect();
    if let Some(group) = groups.iter().min_by_key(|group| group[1].4) {
        let (one, two) = (group[0], group[1]);
        let (state, action) = (&problem.states[one.1 as usize], &problem.actions[one.2 as usize]);
        notes.push(format!(
            "{} {} different rewards at different times, the first: state {state}, action {action} to {} pays {} ({word} {}) and {} ({word} {}); these are separate outcomes",
            groups.len(),
            if groups.len() == 1 { "transition pays" } else { "transitions pay" },
            problem.states[one.3 as usize],
            one.5,
            one.4,
            two.5,
            two.4
        ));
    }
    let once = all_seen(counts).filter(|seen| seen.count == 1).count();
    let mut rewards: Vec<f64> = all_seen(counts).map(|seen| seen.reward).collect();
    rewards.sort_unstable_by(f64::total_cmp);
    rewards.dedup();
    let transitions = counts.transitions();
    let many = rewards.len() > MANY || problem.states.len() > MANY;
    if once as f64 > ONCE * transitions as f64 && many {
        notes.push(format!(
            "{once} of {transitions} rows have an outcome (next state and reward) that was seen only once: a promise counts what only one half of the data has as a failure, so put continuous rewards or states into bins"
        ));
    }
    if counts.starts().len() > 1 {
        notes.push(format!(
            "episodes start in {} states; a plan starts in each as often as the log",
            counts.starts().len()
        ));
    }
    notes
}

/// The smallest value of each bin, for at most `bins` bins with about equally many values.
fn cut_points(mut values: Vec<f64>, bins: usize) -> Vec<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let place = |bin: usize| (bin as f64 / bins as f64 * values.len() as f64) as usize;
    let mut points: Vec<f64> = (0..bins).map(|bin| values[place(bin).min(values.len() - 1)]).collect();
    points.dedup();
    points
}

/// The points in as few digits as tell them apart, three at least: they become names.
fn shown(points: &[f64]) -> Vec<f64> {
    let rounded = |digits: usize| -> Vec<f64> {
        points.iter().map(|point| format!("{point:.*e}", digits - 1).parse().unwrap_or(*point)).collect()
    };
    let found = (3..17).map(rounded).find(|shown| shown.is_sorted_by(|a, b| a < b));
    found.unwrap_or_else(|| points.to_vec())
}

/// The bin of a value.
fn bin(points: &[f64], value: f64) -> usize {
    points.partition_point(|&point| point <= value).max(1) - 1
}

fn bin_rewards(rows: &mut [Transition], bins: usize) -> Vec<f64> {
    let points = cut_points(rows.iter().map(|row| row.reward).collect(), bins);
    for row in rows {
        row.reward = points[bin(&points, row.reward)];
    }
    points
}

fn bin_states(log: &mut Log, bins: usize) -> Result<Vec<f64>, LogError> {
    let value = |number: u32| log.states.name(number).replace(',', ".").parse::<f64>().ok();
    let values: Vec<Option<f64>> =
        (0..log.states.len() as u32).map(|n| value(n).filter(|x| x.is_finite())).collect();
    let mut all = Vec::with_capacity(log.rows.len());
    for row in &log.rows {
        for state in [row.state, row.next].into_iter().filter(|&state| state != NONE) {
            if values[state as usize].is_none() {
                let (column, value) = ("state", log.states.name(state).to_owned());
                return Err(LogError::NotANumber { at: log.at(row.line), column, value });
            }
        }
        all.extend(values[row.state as usize]);
    }
    let points = cut_points(all, bins);
    let shown = shown(&points);
    let label = |bin: usize| match shown.get(bin + 1) {
        Some(next) => format!("{} to {next}", shown[bin]),
        None => format!("{} and more", shown[bin]),
    };
    let mut names = Names::default();
    let mut labels: Vec<String> = (0..points.len()).map(label).collect();
    labels.sort_by(|a, b| natural(a, b));
    for label in &labels {
        names.number(label);
    }
    let renamed: Vec<u32> = values
        .iter()
        .map(|value| value.map_or(NONE, |value| names.number(&label(bin(&points, value)))))
        .collect();
    for row in &mut log.rows {
        row.state = renamed[row.state as usize];
        if row.next != NONE {
            row.next = renamed[row.next as usize];
        }
    }
    log.states = names;
    Ok(points)
}
