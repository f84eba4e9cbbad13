use std::fmt::Write as _;

use super::*;
use crate::counts::Seen;
use crate::csv::{self, Given};
use crate::evaluate::evaluate;
use crate::model::Problem;
use crate::trajectory::AugmentedInput;

const HEADER: &str = "episode,stage,state,action,reward,next_state,end\n";
const GIVEN: Given = Given { horizon: None, start: None, discount: 1.0, normalise: false };

fn fitted(text: &str) -> Fitted {
    fit(text.as_bytes(), "log", &Options::default()).unwrap()
}

fn with_header(rows: &str) -> String {
    format!("{HEADER}{rows}")
}

fn message(rows: &str) -> String {
    let message = fit(with_header(rows).as_bytes(), "log", &Options::default()).unwrap_err().to_string();
    assert!(!message.contains('\n'), "{message}");
    message
}

fn note(fitted: &Fitted, part: &str) -> String {
    let found = fitted.notes.iter().find(|note| note.contains(part));
    found.unwrap_or_else(|| panic!("no note about {part:?} in {:?}", fitted.notes)).clone()
}

fn seen(problem: &Problem, state: &str, action: &str) -> Vec<(String, f64, u64, u64, bool)> {
    let place = |names: &[String], name: &str| names.iter().position(|n| n == name).unwrap();
    let (state, action) = (place(&problem.states, state), place(&problem.actions, action));
    let counts = problem.data.counts.as_ref().unwrap();
    let shown = |s: &Seen| (problem.states[s.next as usize].clone(), s.reward, s.count, s.check, s.ends);
    counts.seen(0, state, action).iter().map(shown).collect()
}

/// Two episodes of two stages with names.
const TWO: &str =
    "1,0,low,order,-4,high,0\n1,1,high,wait,3,low,1\n2,0,low,order,-4,low,0\n2,1,low,wait,0,low,1\n";

#[test]
fn a_log_becomes_a_table_with_counts() {
    let fitted = fitted(&with_header(TWO));
    assert_eq!((fitted.episodes, fitted.transitions, fitted.unseen_pairs), (2, 4, 1));
    let problem = &fitted.problem;
    assert_eq!(problem.states, ["high", "low"]);
    assert_eq!(problem.actions, ["order", "wait"]);
    assert_eq!((problem.model.horizon(), problem.model.start()), (2, &[(1, 1.0)][..]));
    // Of two episodes the draws keep the first one apart to check a plan.
    assert_eq!(
        seen(problem, "low", "order"),
        [("high".into(), -4.0, 1, 1, false), ("low".into(), -4.0, 1, 0, false)]
    );
    assert!(
        note(&fitted, "never tried").contains("1 (state, action) pair was never tried: order in state high")
    );
    assert_eq!(note(&fitted, "horizon"), "the horizon is 2, the length of the longest episode");
}

#[test]
fn a_fitted_table_survives_writing_and_reading() {
    for by_stage in [false, true] {
        let options = Options { by_stage, ..Options::default() };
        let problem = fit(with_header(TWO).as_bytes(), "log", &options).unwrap().problem;
        let mut bytes = Vec::new();
        csv::write(&problem, &mut bytes).unwrap();
        let again = csv::read_with(&bytes[..], "log", &GIVEN).unwrap();
        assert_eq!(again, problem);
    }
}

#[test]
fn semicolons_tabs_decimal_commas_synonyms_and_any_order_mean_the_same() {
    let want = fitted(&with_header(TWO)).problem;
    let rows = "Done;Episode ID;t;S;A;R;Next State\n1;2;1;low;wait;0,0;low\n0;1;0;low;order;-4,0;high\n\
                0;2;0;low;order;-4;low\n1;1;1;high;wait;3;low\n";
    for text in [rows.to_owned(), rows.replace(';', "\t")] {
        // The episodes are numbered as they appear, so the other one is kept apart.
        let got = fitted(&text).problem;
        assert_eq!((&got.states, &got.actions, &got.model), (&want.states, &want.actions, &want.model));
    }
}

#[test]
fn stage_next_state_and_end_may_be_left_out() {
    let text = "episode,state,action,reward\n1,low,order,-4\n1,high,wait,3\n2,low,order,-4\n2,low,wait,0\n";
    let fitted = fitted(text);
    assert_eq!(fitted.problem.states, ["high", "low", "unknown"]);
    // The last rows do not say what follows.
    assert_eq!(seen(&fitted.problem, "high", "wait"), [("unknown".into(), 3.0, 1, 1, false)]);
    note(&fitted, "no column says where episodes end");
    // Where states are numbers, what follows has the next one.
    let text = "episode,state,action,reward\n1,0,0,1\n1,1,0,1\n";
    assert_eq!(self::fitted(text).problem.states, ["0", "1", "2"]);
}

#[test]
fn an_episode_that_stops_at_the_last_stage_does_not_end_at_earlier_ones() {
    // Every episode has three stages in one state and earns 3. Its last row leads nowhere, or to a mark.
    for (header, end) in
        [("next_state,end", ",1"), ("next_state,end", "over,1"), ("next_state", "over"), ("note", "")]
    {
        let mut text = format!("episode,state,action,reward,{header}\n");
        for episode in 0..10 {
            for stage in 0..3 {
                let goes_on = if header == "next_state,end" { "a,0" } else { "a" };
                let _ = writeln!(text, "{episode},a,x,1,{}", if stage < 2 { goes_on } else { end });
            }
        }
        let fitted = fitted(&text);
        let [outcome] = &seen(&fitted.problem, "a", "x")[..] else { panic!("{:?}", fitted.problem) };
        assert_eq!((&outcome.0[..], outcome.2), ("a", 20), "{header}");
        assert_eq!(fitted.transitions, 30);
        assert!(note(&fitted, "the last stage does not say").contains("10 rows are left out"));
        let law = evaluate(&fitted.problem.model, &|_: &AugmentedInput| 0).unwrap().law;
        assert_eq!((law.values(), law.probabilities()), (&[3.0][..], &[1.0][..]), "{header}");
        // A table per stage needs nothing of this.
        let by_stage =
            fit(text.as_bytes(), "log", &Options { by_stage: true, ..Options::default() }).unwrap();
        assert!(!by_stage.notes.iter().any(|note| note.contains("left out")), "{:?}", by_stage.notes);
    }
}

#[test]
fn an_end_that_may_come_at_any_stage_is_as_frequent_as_in_the_stages_that_show_it() {
    // Of four episodes one ends at stage 0, one at stage 1, two at the last one, where all of them are marked. Before the last
    // stage there are 4 + 3 rows, 2 of them ends; the last stage does not say which of its 2 are.
    let text = with_header(
        "1,0,a,x,1,a,1\n2,0,a,x,1,a,0\n2,1,a,x,1,a,1\n3,0,a,x,1,a,0\n3,1,a,x,1,a,0\n3,2,a,x,1,a,1\n\
         4,0,a,x,1,a,0\n4,1,a,x,1,a,0\n4,2,a,x,1,a,1\n",
    );
    let counted: Vec<_> =
        seen(&fitted(&text).problem, "a", "x").into_iter().map(|s| (s.0, s.2, s.4)).collect();
    assert_eq!(counted, [("a".to_owned(), 5, false), ("end".to_owned(), 2, true)]);
}

#[test]
fn a_simulator_says_at_the_last_stage_too_where_episodes_end() {
    // Episode 3 goes on after its last row, episode 4 ends there: 9 rows, 3 ends.
    let text = with_header(
        "1,0,a,x,1,a,1\n2,0,a,x,1,a,0\n2,1,a,x,1,a,1\n3,0,a,x,1,a,0\n3,1,a,x,1,a,0\n3,2,a,x,1,a,0\n\
         4,0,a,x,1,a,0\n4,1,a,x,1,a,0\n4,2,a,x,1,a,1\n",
    );
    let options = Options { ends_known: true, ..Options::default() };
    let problem = fit(text.as_bytes(), "log", &options).unwrap().problem;
    let counted: Vec<_> = seen(&problem, "a", "x").into_iter().map(|s| (s.0, s.2, s.4)).collect();
    assert_eq!(counted, [("a".to_owned(), 6, false), ("end".to_owned(), 3, true)]);
}

#[test]
fn where_an_episode_is_cut_off_nobody_knows_what_follows() {
    // No next state, and one episode of three stops after its first row without an end.
    let text = "episode,stage,state,action,reward,end\n1,0,a,x,1,0\n1,1,b,x,1,1\n2,0,a,x,1,0\n3,0,a,x,1,1\n";
    let fitted = fitted(text);
    note(&fitted, "1 episode without an end, the first is episode 2 (line 4)");
    let counted: Vec<_> = seen(&fitted.problem, "a", "x").into_iter().map(|s| (s.0, s.2, s.4)).collect();
    let want = [("b", 1, false), ("end", 1, true), ("unknown", 1, false)];
    assert_eq!(counted, want.map(|(state, n, ends)| (state.to_owned(), n, ends)));
}

#[test]
fn the_halves_do_not_follow_the_order_of_the_episodes() {
    // Two actions take turns. With every other episode kept apart one half would know one action and the other half the other.
    let mut text = HEADER.to_owned();
    for episode in 0..400 {
        let _ = writeln!(text, "{episode},0,a,{},1,b,1", if episode % 2 == 0 { "x" } else { "y" });
    }
    let problem = fitted(&text).problem;
    for action in ["x", "y"] {
        // 200 of 400, of which 100 are expected in each half; the variance is 200·200·200·200/(400²·399) = 25.
        let (_, _, count, check, _) = seen(&problem, "a", action)[0].clone();
        assert!(count == 200 && check.abs_diff(100) <= 25, "{action}: {check} of {count}");
    }
}

#[test]
fn a_gap_in_the_stages_is_named_with_its_row() {
    assert_eq!(
        message("1,0,a,x,0,b,0\n1,2,b,x,0,a,1\n"),
        "line 3: episode 1 goes from stage 0 to stage 2, stage 1 is missing"
    );
    assert_eq!(
        message("1,1,a,x,0,b,1\n2,2,b,x,0,a,1\n"),
        "line 3: episode 2 begins at stage 2, the first stage of the log is 1"
    );
    assert_eq!(
        message("1,0,a,x,0,b,0\n1,0,b,x,0,a,1\n"),
        "line 3: episode 1 has stage 0 twice, the first time in line 2"
    );
}

#[test]
fn an_episode_without_an_end_counts_and_is_named() {
    let fitted = fitted(&with_header("1,0,a,x,0,b,0\n1,1,b,x,0,c,0\n1,2,c,x,0,a,1\n7,0,a,x,0,b,0\n"));
    assert_eq!(
        note(&fitted, "without an end"),
        "1 episode without an end, the first is episode 7 (line 5): the transitions count, what would follow is unknown"
    );
    assert_eq!(seen(&fitted.problem, "a", "x"), [("b".into(), 0.0, 2, 1, false)]);
}

#[test]
fn a_next_state_that_never_occurs_is_named_and_is_no_known_end() {
    let fitted = fitted(&with_header("1,0,a,x,0,b,0\n1,1,b,x,0,a,1\n2,0,a,x,5,nowhere,0\n"));
    assert!(note(&fitted, "never left").starts_with(
        "1 state is entered but never left, and no episode ends there; the first is nowhere (line 4)"
    ));
    assert_eq!(seen(&fitted.problem, "a", "x")[1], ("nowhere".into(), 5.0, 1, 0, false));
    // Where an episode does end, it is one.
    let fitted = self::fitted(&with_header("1,0,a,x,0,b,0\n1,1,b,x,0,a,1\n2,0,a,x,5,goal,1\n"));
    assert_eq!(seen(&fitted.problem, "a", "x")[1], ("goal".into(), 5.0, 1, 0, true));
}

#[test]
fn an_end_in_a_state_that_others_leave_gets_a_state_of_its_own() {
    let fitted = fitted(&with_header("1,0,0,0,0,1,0\n1,1,1,0,0,0,1\n2,0,0,0,9,1,1\n"));
    // State 3 stands for what follows the action that was tried at the last stage only.
    assert_eq!(fitted.problem.states, ["0", "1", "2", "3"]);
    assert_eq!(
        seen(&fitted.problem, "0", "0"),
        [("1".into(), 0.0, 1, 1, false), ("2".into(), 9.0, 1, 0, true)]
    );
    note(&fitted, "the ends lead to the state 2");
}

#[test]
fn two_rewards_for_one_transition_are_two_outcomes_and_are_named() {
    let fitted = fitted(&with_header("1,0,a,x,2,b,1\n2,0,a,x,3,b,1\n"));
    assert_eq!(seen(&fitted.problem, "a", "x").len(), 2);
    assert!(
        note(&fitted, "different rewards").contains("state a, action x to b pays 2 (line 2) and 3 (line 3)")
    );
}

#[test]
fn rows_that_contradict_each_other_are_refused() {
    assert_eq!(
        message("1,0,a,x,0,b,0\n1,1,c,x,0,a,1\n"),
        "line 3: episode 1 is in state c, but line 2 led to state b"
    );
    assert_eq!(
        message("1,0,a,x,0,b,1\n1,1,b,x,0,a,1\n"),
        "line 3: episode 1 goes on after its end in line 2"
    );
}

#[test]
fn an_empty_log_and_wrong_values_are_refused() {
    assert_eq!(message(""), "there are no rows after the header");
    assert_eq!(fit(&b""[..], "log", &Options::default()).unwrap_err().to_string(), "the file is empty");
    let workbook = fit(&b"PK\x03\x04\x14\0"[..], "log", &Options::default()).unwrap_err().to_string();
    assert_eq!(workbook, "the file is a spreadsheet or an archive, not text: save it as CSV");
    assert_eq!(message("1,0,a,,0,b,1\n"), "line 2, column action: want a name or a number, got \"\"");
    assert_eq!(message("1,0,a,x,much,b,1\n"), "line 2, column reward: want a finite number, got \"much\"");
    assert_eq!(message("1,0,a,x,0,b,maybe\n"), "line 2, column end: want true or false, got \"maybe\"");
    assert_eq!(
        fit(&b"state,action\n"[..], "log", &Options::default()).unwrap_err().to_string(),
        "missing column episode, reward, the header reads \"state,action\""
    );
    let short = Options { horizon: Some(1), ..Options::default() };
    assert_eq!(
        fit(with_header(TWO).as_bytes(), "log", &short).unwrap_err().to_string(),
        "line 3: stage 1 is beyond the horizon 1; the first stage of the log is 0"
    );
}

#[test]
fn continuous_columns_are_put_into_bins_with_reported_cut_points() {
    let mut text = HEADER.to_owned();
    for i in 0..100 {
        let _ = writeln!(text, "{i},0,{},x,{},0.5,1", f64::from(i) / 10.0, f64::from(i) / 7.0);
    }
    let bins = vec![(Binned::State, 4), (Binned::Reward, 2)];
    let fitted = fit(text.as_bytes(), "log", &Options { bins, ..Options::default() }).unwrap();
    assert_eq!(fitted.cuts[0].points, [0.0, 2.5, 5.0, 7.5]);
    assert_eq!(fitted.cuts[1].points, [0.0, 50.0 / 7.0]);
    note(&fitted, "a reward counts as the smallest of its bin");
    assert!(!fitted.notes.iter().any(|note| note.contains("seen only once")), "{:?}", fitted.notes);
    note(
        &self::fitted(&text),
        "100 of 100 rows have an outcome (next state and reward) that was seen only once",
    );
    // One stage: no state is entered early, so there are the four bins and nothing else.
    assert_eq!(fitted.problem.states, ["0 to 2.5", "2.5 to 5", "5 to 7.5", "7.5 and more"]);
    // Names have no more digits than they need; the cut points have all.
    let text = text.replace("0.5,1", "0.123456789,1").replace("2.5,x", "2.512345678,x");
    let fitted =
        fit(text.as_bytes(), "log", &Options { bins: vec![(Binned::State, 4)], ..Options::default() });
    let fitted = fitted.unwrap();
    assert_eq!(fitted.cuts[0].points, [0.0, 2.512345678, 5.0, 7.5]);
    assert_eq!(fitted.problem.states[..2], ["0 to 2.51", "2.51 to 5"]);
    let bins = vec![(Binned::State, 4)];
    let error = fit(with_header(TWO).as_bytes(), "log", &Options { bins, ..Options::default() }).unwrap_err();
    assert_eq!(error.to_string(), "line 2, column state: want a number to put into bins, got \"low\"");
}

fn labelled(codes: &[i64], labels: &[&str]) -> Labelled {
    Labelled { codes: codes.to_vec(), labels: labels.iter().map(|&label| label.to_owned()).collect() }
}

/// The log [`TWO`] as columns.
fn columns() -> Columns {
    Columns {
        episode: labelled(&[0, 0, 1, 1], &["1.0", "2.0"]),
        stage: Some(vec![0, 1, 0, 1]),
        state: labelled(&[0, 1, 0, 0], &["low", "high"]),
        action: labelled(&[0, 1, 0, 1], &["order", "wait"]),
        reward: vec![-4.0, 3.0, -4.0, 0.0],
        next_state: Some(labelled(&[0, 1, 1, 1], &["high", "low"])),
        end: Some(vec![false, true, false, true]),
    }
}

#[test]
fn columns_and_a_file_that_say_the_same_give_the_same_table() {
    let file = fitted(&with_header(TWO));
    let whole = fit_columns(&columns(), "log", &Options::default()).unwrap();
    assert_eq!(whole.problem, file.problem);
    assert_eq!(whole.notes, file.notes);
    // Stages follow from the order, next states and ends from the next row.
    let short = Columns { stage: None, next_state: None, end: None, ..columns() };
    let text = "episode,state,action,reward\n1,low,order,-4\n1,high,wait,3\n2,low,order,-4\n2,low,wait,0\n";
    let short = fit_columns(&short, "log", &Options::default()).unwrap();
    assert_eq!(short.problem, fitted(text).problem);
}

#[test]
fn mistakes_in_columns_are_named_with_their_row() {
    let message = |change: &dyn Fn(&mut Columns)| {
        let mut changed = columns();
        change(&mut changed);
        fit_columns(&changed, "log", &Options::default()).unwrap_err().to_string()
    };
    assert_eq!(
        message(&|c| c.state.codes[2] = -1),
        "row 2, column state: want a name or a number, got nothing"
    );
    assert_eq!(message(&|c| c.reward[1] = f64::NAN), "row 1, column reward: want a finite number, got NaN");
    assert_eq!(
        message(&|c| c.stage = Some(vec![0, 2, 0, 1])),
        "row 1: episode 1 goes from stage 0 to stage 2, stage 1 is missing"
    );
    assert_eq!(
        message(&|c| c.reward = vec![1.0]),
        "the columns must be equally long: episode has 4 rows, reward has 1"
    );
    let empty = fit_columns(&Columns::default(), "log", &Options::default()).unwrap_err().to_string();
    assert_eq!(empty, "there are no rows after the header");
}

#[test]
fn columns_are_found_by_any_of_their_usual_names() {
    let headers = ["Ep", "s", "A", "Payoff", "s'", "done", "weather"].map(str::to_owned);
    let found = find_columns(&headers).unwrap();
    assert_eq!(found, [Some(0), None, Some(1), Some(2), Some(3), Some(4), Some(5)]);
    let missing = find_columns(&["state".to_owned()]).unwrap_err().to_string();
    assert_eq!(missing, "missing column episode, action, reward, the header reads \"state\"");
}

/// Pays a coin: states 0 and 1, and 2 is the end.
struct Coin;

impl Simulated for Coin {
    type Error = String;
    fn start(&mut self) -> Result<u32, String> {
        Ok(0)
    }
    fn actions(&mut self, state: u32) -> Result<Vec<u32>, String> {
        Ok(if state == 0 { vec![0, 1] } else { vec![1] })
    }
    fn step(&mut self, state: u32, action: u32) -> Result<(u32, f64, bool), String> {
        match (state, action) {
            (0, 0) => Ok((1, 1.0, false)),
            (0, 1) => Ok((2, 0.0, true)),
            (1, 1) => Ok((0, 0.5, false)),
            other => Err(format!("{other:?} is not possible")),
        }
    }
}

#[test]
fn a_simulator_becomes_a_log_with_every_possible_action() {
    let mut rng = bqrl_math::stream(1, bqrl_math::Purpose::Test);
    let mut columns = sample(&mut Coin, 4, 500, &mut rng).unwrap();
    let labels = |labelled: &mut Labelled, names: &[&str]| {
        labelled.labels = names.iter().map(|&name| name.to_owned()).collect();
    };
    labels(&mut columns.state, &["a", "b", "over"]);
    labels(&mut columns.action, &["go", "leave"]);
    labels(columns.next_state.as_mut().unwrap(), &["a", "b", "over"]);
    let fitted = fit_columns(&columns, "coin", &Options { horizon: Some(4), ..Options::default() }).unwrap();
    assert_eq!(
        (fitted.episodes, &fitted.problem.states[..]),
        (500, &["a", "b", "over"].map(str::to_owned)[..])
    );
    // Each action in half of all cases, within five standard errors.
    let counts = fitted.problem.data.counts.as_ref().unwrap();
    let (go, leave) = (counts.tried(0, 0, 0) as f64, counts.tried(0, 0, 1) as f64);
    assert!((go - leave).abs() < 5.0 * (go + leave).sqrt(), "{go} {leave}");
    assert!(fitted.problem.model.is_terminal(0, 2));
}
