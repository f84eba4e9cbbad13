//! Policies that users bring along: a file, or a rule in words.
//!
//! A file has a row per decision, with the columns `stage`, `state`, `collected` and `action`. A column that is missing or empty holds
//! for all. `collected_from` and `collected_to` give a range instead of one value. The first row that fits decides, rows with more
//! entries before rows with fewer.
//!
//! ```text
//! stop                                              always this action
//! if state >= 19 then stop else continue            state, stage or collected; >=, >, <=, <, = or ==; may be chained after else
//! up to 5                                           the action whose number lifts the state to 5: order up to 5
//! ```

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Read;

use bqrl_mdp::evaluate::{Evaluation, Evaluator, Policy};
use bqrl_mdp::model::Problem;
use bqrl_mdp::records::{Column, RecordError, Records};
use bqrl_mdp::trajectory::AugmentedInput;
use thiserror::Error;

use crate::plan::DEFAULT_GRID;

/// Rewards closer than this, relative to their size, are the same.
const SAME: f64 = 1e-6;

const KNOWN: &[Column] = &[
    Column::optional("stage", &["period", "step", "t"]),
    Column::optional("state", &["idstate", "idstatefrom", "s"]),
    Column::optional("collected", &["c"]),
    Column::optional("collected_from", &["collectedfrom"]),
    Column::optional("collected_to", &["collectedto"]),
    Column::required("action", &["idaction", "decision", "a"]),
    Column::optional("tau", &["risklevel"]),
];

/// An error in a policy.
#[derive(Debug, Error)]
#[allow(missing_docs)] // The messages say what the fields are.
pub enum GivenError {
    #[error("{0}")]
    Records(#[from] RecordError),
    #[error("line {line}: the problem has no {what} {name:?}; it has {known}")]
    Unknown { line: u64, what: &'static str, name: String, known: String },
    #[error("line {line}: stage {stage} is out of range, stages are 0 to {last}")]
    Stage { line: u64, stage: u64, last: usize },
    #[error(
        "line {line} and line {other} choose different actions for the same stage, state and collected reward"
    )]
    Twice { line: u64, other: u64 },
    #[error("the file has policies for {n} levels: {levels}; ask for one of them")]
    Levels { n: usize, levels: String },
    #[error("the rule {rule:?} is not understood: {message}")]
    Rule { rule: String, message: String },
    #[error("the policy has no row for stage {stage}, state {state}, collected {collected}")]
    Hole { stage: usize, state: String, collected: f64 },
    #[error("at stage {stage} the policy chooses {action} in state {state}, where it is not possible")]
    Impossible { stage: usize, state: String, action: String },
}

/// A row of a file.
#[derive(Clone, Debug)]
struct Line {
    /// Its line in the file.
    at: u64,
    stage: Option<usize>,
    state: Option<usize>,
    from: f64,
    to: f64,
    action: usize,
}

#[derive(Clone, Debug)]
enum Rule {
    Always(usize),
    If { variable: Variable, compare: Compare, than: f64, then: Box<Rule>, otherwise: Box<Rule> },
    UpTo(f64),
}

#[derive(Clone, Copy, Debug)]
enum Variable {
    Stage,
    State,
    Collected,
}

#[derive(Clone, Copy, Debug)]
enum Compare {
    AtLeast,
    Above,
    AtMost,
    Below,
    Equal,
}

#[derive(Clone, Debug)]
enum Kind {
    /// The rows of each state, most particular first; those for all states are among the rows of each.
    Rows(Vec<Vec<Line>>),
    Rule(Rule),
}

/// A policy that a user brings along.
pub struct GivenPolicy<'a> {
    problem: &'a Problem,
    kind: Kind,
    /// The first decision that it could not make.
    error: RefCell<Option<GivenError>>,
}

impl<'a> GivenPolicy<'a> {
    /// Reads a file. If it has policies for several levels, `tau` chooses one.
    pub fn read(reader: impl Read, problem: &'a Problem, tau: Option<f64>) -> Result<Self, GivenError> {
        let mut records = Records::new(reader, KNOWN, "a policy")?;
        let (states, actions) = (&problem.states, &problem.actions);
        let mut lines: Vec<(Option<f64>, Line)> = Vec::new();
        while let Some(line) = records.next_line()? {
            let field = |column: usize| records.field(line, column);
            let given = |column: usize| Some(field(column)).filter(|field| !field.text.is_empty());
            let find = |column: usize, names: &[String], what: &'static str| {
                let name = field(column).label()?;
                let unknown =
                    || GivenError::Unknown { line, what, name: name.to_string(), known: listed(names) };
                place(names, &name).ok_or_else(unknown)
            };
            let stage = given(0).map(|field| field.id()).transpose()?;
            let last = problem.model.horizon() - 1;
            if let Some(stage) = stage.filter(|&stage| stage > last as u64) {
                return Err(GivenError::Stage { line, stage, last });
            }
            let collected = given(2).map(|field| field.number()).transpose()?;
            let bound = |column: usize, none: f64| given(column).map_or(Ok(none), |field| field.number());
            let (from, to) = match collected {
                Some(value) => (value, value),
                None => (bound(3, f64::NEG_INFINITY)?, bound(4, f64::INFINITY)?),
            };
            let state = given(1).map(|_| find(1, states, "state")).transpose()?;
            let action = find(5, actions, "action")?;
            let tau = given(6).map(|field| field.number()).transpose()?;
            lines.push((tau, Line { at: line, stage: stage.map(|s| s as usize), state, from, to, action }));
        }
        if lines.is_empty() {
            return Err(RecordError::NoRows.into());
        }
        let mut levels: Vec<f64> = lines.iter().filter_map(|(tau, _)| *tau).collect();
        levels.sort_by(f64::total_cmp);
        levels.dedup();
        let level = match (&levels[..], tau) {
            ([], _) => None,
            ([one], _) => Some(*one),
            (many, Some(tau)) if many.contains(&tau) => Some(tau),
            (many, _) => {
                let shown: Vec<String> = many.iter().map(f64::to_string).collect();
                return Err(GivenError::Levels { n: many.len(), levels: shown.join(", ") });
            }
        };
        let wanted: Vec<_> = lines.into_iter().filter(|(tau, _)| tau.is_none() || *tau == level).collect();
        contradiction(wanted.iter().map(|(_, line)| line))?;
        let mut by_state = vec![Vec::new(); states.len()];
        for (_, line) in wanted {
            match line.state {
                Some(state) => by_state[state].push(line),
                None => {
                    for lines in &mut by_state {
                        lines.push(line.clone());
                    }
                }
            }
        }
        let entries = |line: &Line| {
            let ranged = line.from.is_finite() || line.to.is_finite();
            usize::from(line.stage.is_some()) + usize::from(line.state.is_some()) + usize::from(ranged)
        };
        for lines in &mut by_state {
            lines.sort_by_key(|line| std::cmp::Reverse(entries(line)));
        }
        Ok(Self { problem, kind: Kind::Rows(by_state), error: RefCell::new(None) })
    }

    /// Understands a rule.
    pub fn rule(text: &str, problem: &'a Problem) -> Result<Self, GivenError> {
        let rule = parse(text.trim(), problem)
            .map_err(|message| GivenError::Rule { rule: text.to_owned(), message })?;
        Ok(Self { problem, kind: Kind::Rule(rule), error: RefCell::new(None) })
    }

    /// The first decision that the policy could not make while it was evaluated.
    pub fn failure(&self) -> Option<GivenError> {
        self.error.borrow_mut().take()
    }

    /// The action at x, possible or not; `None` if no row fits.
    fn wanted(&self, x: &AugmentedInput) -> Option<usize> {
        match &self.kind {
            Kind::Rule(rule) => self.follow(rule, x),
            Kind::Rows(states) => {
                let slack = SAME * (1.0 + x.collected.abs());
                let fits = |line: &&Line| {
                    line.stage.is_none_or(|stage| stage == x.stage)
                        && line.from - slack <= x.collected
                        && x.collected <= line.to + slack
                };
                states[x.state].iter().find(fits).map(|line| line.action)
            }
        }
    }

    fn follow(&self, rule: &Rule, x: &AugmentedInput) -> Option<usize> {
        match rule {
            Rule::Always(action) => Some(*action),
            Rule::If { variable, compare, than, then, otherwise } => {
                let value = match variable {
                    Variable::Stage => x.stage as f64,
                    Variable::State => self.state_number(x.state),
                    Variable::Collected => x.collected,
                };
                let slack = SAME * (1.0 + than.abs());
                let holds = match compare {
                    Compare::AtLeast => value >= than - slack,
                    Compare::Above => value > than + slack,
                    Compare::AtMost => value <= than + slack,
                    Compare::Below => value < than - slack,
                    Compare::Equal => (value - than).abs() <= slack,
                };
                self.follow(if holds { then } else { otherwise }, x)
            }
            Rule::UpTo(level) => {
                let missing = (level - self.state_number(x.state)).max(0.0);
                let near = |action: usize| {
                    let number = trailing_number(&self.problem.actions[action]).unwrap_or(f64::INFINITY);
                    (number - missing).abs()
                };
                let actions = self.problem.model.actions(x.stage, x.state);
                actions.min_by(|&a, &b| near(a).total_cmp(&near(b)))
            }
        }
    }

    /// The number that a state's name is, or its index.
    fn state_number(&self, state: usize) -> f64 {
        trailing_number(&self.problem.states[state]).unwrap_or(state as f64)
    }

    fn refuse(&self, error: GivenError) {
        self.error.borrow_mut().get_or_insert(error);
    }
}

impl Policy for GivenPolicy<'_> {
    /// Where the policy says nothing, or something impossible, the first possible action is taken and [`GivenPolicy::failure`]
    /// tells: an evaluation asks only where the policy can come.
    fn decide(&self, x: &AugmentedInput, choice: &mut Vec<(usize, f64)>) {
        let (stage, state) = (x.stage, || self.problem.states[x.state].clone());
        let possible = || self.problem.model.actions(x.stage, x.state).next().unwrap_or(0);
        let action = match self.wanted(x) {
            None => {
                self.refuse(GivenError::Hole { stage, state: state(), collected: x.collected });
                possible()
            }
            Some(action) if self.problem.model.outcomes(x.stage, x.state, action).is_empty() => {
                let action = self.problem.actions[action].clone();
                self.refuse(GivenError::Impossible { stage, state: state(), action });
                possible()
            }
            Some(action) => action,
        };
        choice.push((action, 1.0));
    }
}

/// Refuses two rows for the same points with different actions.
fn contradiction<'a>(lines: impl Iterator<Item = &'a Line>) -> Result<(), GivenError> {
    let mut known = HashMap::new();
    for line in lines {
        let points = (line.stage, line.state, line.from.to_bits(), line.to.to_bits());
        let (other, action) = *known.entry(points).or_insert((line.at, line.action));
        if action != line.action {
            return Err(GivenError::Twice { line: line.at, other });
        }
    }
    Ok(())
}

/// The law of a policy.
#[derive(Clone, Debug)]
pub struct Valued {
    /// Its law and mean.
    pub evaluation: Evaluation,
    /// False if rewards were rounded down: the law is then a lower bound.
    pub exact: bool,
}

impl Valued {
    /// Evaluates any policy, with rewards rounded down if the returns are too many otherwise.
    pub fn new(problem: &Problem, policy: &dyn Policy) -> Self {
        let evaluator = Evaluator::new(&problem.model)
            .unwrap_or_else(|_| Evaluator::rounded_down(&problem.model, DEFAULT_GRID));
        Self { evaluation: evaluator.evaluate(policy), exact: evaluator.is_exact() }
    }
}

/// The place of a name; a number also finds the state or action of that index, if no name is that number.
pub fn place(names: &[String], name: &str) -> Option<usize> {
    let index = || {
        let numbers = names.iter().any(|name| name.parse::<f64>().is_ok());
        name.parse::<usize>().ok().filter(|&index| !numbers && index < names.len())
    };
    names.iter().position(|known| known == name).or_else(index)
}

/// The first names of a list.
pub fn listed(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let dots = if names.len() > SHOWN { ", …" } else { "" };
    format!("{}{dots}", names[..names.len().min(SHOWN)].join(", "))
}

/// The number that a name is or ends with: 5 of `order-5`.
fn trailing_number(name: &str) -> Option<f64> {
    let last = name.rsplit([' ', '-']).next().unwrap_or(name);
    name.parse().ok().or_else(|| last.parse().ok()).filter(|x: &f64| x.is_finite())
}

/// The text after a word in small or capital letters, if it begins with it.
fn after<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let (first, rest) = text.split_at_checked(word.len())?;
    first.eq_ignore_ascii_case(word).then_some(rest)
}

/// The texts before and after the first such word.
fn around<'a>(text: &'a str, word: &str) -> Option<(&'a str, &'a str)> {
    let found = (0..text.len()).find_map(|place| Some((place, after(text.get(place..)?, word)?)));
    found.map(|(place, rest)| (&text[..place], rest))
}

fn finite(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|x: &f64| x.is_finite())
}

fn parse(text: &str, problem: &Problem) -> Result<Rule, String> {
    if let Some(level) = after(text, "up to ").or_else(|| after(text, "order up to ")) {
        let level = finite(level).ok_or_else(|| format!("want a number after \"up to\", got {level:?}"))?;
        if problem.actions.iter().all(|action| trailing_number(action).is_none()) {
            return Err("no action of the problem has a number".to_owned());
        }
        return Ok(Rule::UpTo(level));
    }
    if let Some(rest) = after(text, "if ") {
        let (condition, rest) = around(rest, " then ").ok_or("there is no \"then\"")?;
        let (then, otherwise) = around(rest, " else ").ok_or("there is no \"else\"")?;
        let (place, sign, compare) = [
            (">=", Compare::AtLeast),
            ("<=", Compare::AtMost),
            ("==", Compare::Equal),
            (">", Compare::Above),
            ("<", Compare::Below),
            ("=", Compare::Equal),
        ]
        .into_iter()
        .find_map(|(sign, compare)| condition.find(sign).map(|place| (place, sign, compare)))
        .ok_or_else(|| format!("want a comparison such as state >= 5, got {condition:?}"))?;
        let variable = match &condition[..place].trim().to_ascii_lowercase()[..] {
            "stage" => Variable::Stage,
            "state" => Variable::State,
            "collected" => Variable::Collected,
            other => return Err(format!("want stage, state or collected, got {other:?}")),
        };
        let than = condition[place + sign.len()..].trim();
        let than = finite(than).ok_or_else(|| format!("want one comparison with a number, got {than:?}"))?;
        let (then, otherwise) =
            (Box::new(parse(then.trim(), problem)?), Box::new(parse(otherwise.trim(), problem)?));
        return Ok(Rule::If { variable, compare, than, then, otherwise });
    }
    let known = || format!("the problem has no action {text:?}; it has {}", listed(&problem.actions));
    place(&problem.actions, text).map(Rule::Always).ok_or_else(known)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use bqrl_mdp::evaluate::evaluate;
    use bqrl_mdp::problems;

    use super::*;

    #[test]
    fn a_rule_and_a_file_that_say_the_same_have_the_same_law() {
        let asset = problems::build("asset-selling", &[]).unwrap();
        let rule = GivenPolicy::rule("if state >= 19 then stop else continue", &asset).unwrap();
        let mut file = "state;action\n".to_owned();
        for offer in 0..25 {
            let _ = writeln!(file, "{offer};{}", if offer >= 19 { "stop" } else { "continue" });
        }
        let file = GivenPolicy::read(file.as_bytes(), &asset, None).unwrap();
        let (rule, file) = (evaluate(&asset.model, &rule).unwrap(), evaluate(&asset.model, &file).unwrap());
        assert_eq!(rule, file);
        // Nine offers, none of them 19 or more.
        assert!((rule.law.probability_below(19.0 / 24.0) - (19.0f64 / 25.0).powi(9)).abs() < 1e-12);
    }

    #[test]
    fn ordering_up_to_a_level_is_ordering_the_difference() {
        let inventory = problems::build("inventory", &[]).unwrap();
        let rule = GivenPolicy::rule("up to 5", &inventory).unwrap();
        let same = |x: &AugmentedInput| 5usize.saturating_sub(x.state);
        assert_eq!(evaluate(&inventory.model, &rule), evaluate(&inventory.model, &same));
    }

    #[test]
    fn the_most_particular_row_decides() {
        let asset = problems::build("asset-selling", &[]).unwrap();
        let text = "stage,state,collected,action\n,,,continue\n9,,,stop\n,20,0,stop\n,20,,continue\n";
        let policy = GivenPolicy::read(text.as_bytes(), &asset, None).unwrap();
        let at = |stage, state, collected| policy.wanted(&AugmentedInput { stage, state, collected });
        assert_eq!(
            [at(0, 3, 0.0), at(9, 3, 0.0), at(0, 20, 0.0), at(0, 20, 1.0)],
            [Some(1), Some(0), Some(0), Some(1)]
        );
    }

    #[test]
    fn holes_and_impossible_actions_are_reported_where_they_matter() {
        let asset = problems::build("asset-selling", &[]).unwrap();
        let policy = GivenPolicy::read(&b"state,action\n5,continue\n"[..], &asset, None).unwrap();
        evaluate(&asset.model, &policy).unwrap();
        let message = policy.failure().unwrap().to_string();
        assert_eq!(message, "the policy has no row for stage 1, state 0, collected 0");
    }

    #[test]
    fn mistakes_in_policies_are_named_with_their_line() {
        let asset = problems::build("asset-selling", &[]).unwrap();
        let message = |text: &str| match GivenPolicy::read(text.as_bytes(), &asset, None) {
            Ok(_) => panic!("accepted {text:?}"),
            Err(error) => error.to_string(),
        };
        assert_eq!(
            message("state,action\n5,hold\n"),
            "line 2: the problem has no action \"hold\"; it has stop, continue"
        );
        assert_eq!(message("stage,action\n10,stop\n"), "line 2: stage 10 is out of range, stages are 0 to 9");
        assert_eq!(message("state,action\n"), "there are no rows after the header");
        let rule = |text: &str| GivenPolicy::rule(text, &asset).map(|_| ()).unwrap_err().to_string();
        assert_eq!(
            rule("sell"),
            "the rule \"sell\" is not understood: the problem has no action \"sell\"; it has stop, continue"
        );
        assert!(rule("if offer > 3 then stop else continue").contains("want stage, state or collected"));
        assert!(rule("if state > nan then stop else continue").contains("with a number, got \"nan\""));
        let inventory = problems::build("inventory", &[]).unwrap();
        let endless = GivenPolicy::rule("up to inf", &inventory).map(|_| ()).unwrap_err().to_string();
        assert!(endless.contains("want a number after \"up to\", got \"inf\""), "{endless}");
        assert_eq!(
            message("stage,state,action\n0,5,stop\n0,,stop\n0,5,continue\n"),
            "line 4 and line 2 choose different actions for the same stage, state and collected reward"
        );
    }

    #[test]
    fn a_rule_may_be_written_in_capitals_and_with_two_equal_signs() {
        let asset = problems::build("asset-selling", &[]).unwrap();
        let law = |rule: &str| evaluate(&asset.model, &GivenPolicy::rule(rule, &asset).unwrap()).unwrap();
        let plain = law("if stage = 3 then stop else if state >= 19 then stop else continue");
        assert_eq!(law("IF stage == 3 THEN stop ELSE If State >= 19 Then stop Else continue"), plain);
    }
}
