use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;
use crate::problems;

const HEADER: &str = "idstatefrom,idaction,idstateto,probability,reward\n";

fn try_parse(text: impl AsRef<[u8]>) -> Result<Problem, CsvError> {
    read(text.as_ref(), "test", 3, 0, 1.0)
}

fn parse(text: impl AsRef<[u8]>) -> Problem {
    try_parse(text).unwrap()
}

fn message(text: impl AsRef<[u8]>) -> String {
    let message = try_parse(text).unwrap_err().to_string();
    assert!(!message.contains('\n') && message.len() < 400, "{message}");
    message
}

fn with_header(rows: &str) -> String {
    format!("{HEADER}{rows}")
}

fn written(problem: &Problem) -> String {
    let mut bytes = Vec::new();
    write(problem, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// The problem that all the untidy files below describe.
fn tidy() -> Problem {
    parse(with_header("0,0,1,0.9,2\n0,0,0,0.1,-1\n"))
}

#[test]
fn a_file_becomes_a_table() {
    let problem =
        read(with_header("7,2,9,0.25,1.5\n7,2,7,0.75,0\n7,5,100,1,-2\n").as_bytes(), "some.csv", 4, 7, 0.5)
            .unwrap();
    let model = &problem.model;
    assert_eq!((model.horizon(), model.discount(), model.start()), (4, 0.5, &[(0, 1.0)][..]));
    assert_eq!(problem.name, "some.csv");
    assert_eq!(problem.states, ["7", "9", "100"]);
    assert_eq!(problem.actions, ["2", "5"]);
    let outcome = |probability, next, reward| Outcome { probability, next, reward };
    assert_eq!(model.outcomes(0, 0, 0), [outcome(0.75, 0, 0.0), outcome(0.25, 1, 1.5)]);
    assert_eq!(model.outcomes(0, 0, 1), [outcome(1.0, 2, -2.0)]);
    assert!(!model.is_terminal(0, 0) && model.is_terminal(0, 1) && model.is_terminal(0, 2));
}

#[test]
fn columns_may_stand_in_any_order_among_others() {
    let text =
        "note,reward,idstateto,probability,idaction,idstatefrom\n\"a, b\",2,1,0.9,0,0\n,-1,0,0.1,0,0\n";
    assert_eq!(parse(text), tidy());
}

#[test]
fn fields_may_be_quoted() {
    let text = "\"idstatefrom\",\"idaction\",\"idstateto\",\"probability\",\"reward\"\n\
                \"0\",\"0\",\"1\",\"0.9\",\"2\"\n0,\"0\",0,0.1,-1\n";
    assert_eq!(parse(text), tidy());
}

#[test]
fn fields_may_be_padded_also_around_quotes() {
    let text = " idstatefrom , idaction,\"idstateto\" ,\t\"probability\", reward \n\
                0 , 0, \"1\" ,0.9 , 2\n 0,0 ,0, 0.1,-1 \n";
    assert_eq!(parse(text), tidy());
}

#[test]
fn a_byte_order_mark_does_not_count() {
    assert_eq!(parse(format!("\u{feff}{}", with_header("0,0,1,0.9,2\n0,0,0,0.1,-1\n"))), tidy());
    let quoted = HEADER.replace("idstatefrom", "\"idstatefrom\"");
    assert_eq!(parse(format!("\u{feff}{quoted}0,0,1,0.9,2\n0,0,0,0.1,-1\n")), tidy());
}

#[test]
fn lines_may_end_in_crlf_and_the_last_one_in_nothing() {
    assert_eq!(parse(with_header("0,0,1,0.9,2\r\n0,0,0,0.1,-1").replace("reward\n", "reward\r\n")), tidy());
}

#[test]
fn blank_lines_do_not_count() {
    assert_eq!(parse(format!("\n\n{HEADER}\n  \n0,0,1,0.9,2\n\r\n,,,,\n0,0,0,0.1,-1\n\n")), tidy());
}

#[test]
fn header_names_may_be_written_in_capitals() {
    assert_eq!(parse(with_header("0,0,1,0.9,2\n0,0,0,0.1,-1\n").replace("id", "ID")), tidy());
}

#[test]
fn ids_may_be_written_as_decimals_and_probabilities_with_exponents() {
    assert_eq!(parse(with_header("0.0,0,1.0,9e-1,2.0\n0,0.0,0,1E-1,-1\n")), tidy());
}

#[test]
fn identical_rows_add_up_and_different_rewards_stay_apart() {
    let problem = parse(with_header("0,0,1,0.25,2\n0,0,1,0.5,3\n0,0,1,0.25,2\n"));
    let outcomes = [2.0, 3.0].map(|reward| Outcome { probability: 0.5, next: 1, reward });
    assert_eq!(problem.model.outcomes(0, 0, 0), outcomes);
}

#[test]
fn probabilities_are_normalised_within_the_tolerance() {
    let problem = parse(with_header("0,0,1,0.3333333,0\n0,0,2,0.3333333,0\n0,0,3,0.3333333,0\n"));
    for outcome in problem.model.outcomes(0, 0, 0) {
        assert!((outcome.probability - 1.0 / 3.0).abs() < 1e-15);
    }
    assert_eq!(parse(with_header("0,0,1,1.0000005,0\n")).model.outcomes(0, 0, 0)[0].probability, 1.0);
}

#[test]
fn an_empty_file_is_refused() {
    for text in ["", "\n\n", "\u{feff}", "  \n"] {
        assert_eq!(message(text), "the file is empty");
    }
}

#[test]
fn a_header_alone_is_refused() {
    assert_eq!(message(HEADER), "there are no rows after the header");
    assert_eq!(message(HEADER.trim_end()), "there are no rows after the header");
}

#[test]
fn missing_columns_are_named_beside_the_header() {
    assert_eq!(
        message("idstatefrom,idaction,idstateto,p,r\n0,0,0,1,0\n"),
        "missing column probability, reward, the header reads \"idstatefrom,idaction,idstateto,p,r\""
    );
    assert_eq!(
        message("0,0,1,1,0\n"),
        "missing column idstatefrom, idaction, idstateto, probability, reward, the header reads \"0,0,1,1,0\""
    );
}

#[test]
fn a_column_that_appears_twice_is_refused() {
    assert_eq!(
        message("idstatefrom,idaction,idstateto,probability,reward,Reward\n0,0,1,1,0,0\n"),
        "column reward appears twice in the header, as \"reward\" and as \"reward\": rename one of them"
    );
}

#[test]
fn a_wrong_value_is_named_with_its_line_and_column() {
    let refused = |row: &str| message(with_header(&format!("\n0,0,0,1,0\n\n{row}\n")));
    assert_eq!(refused("-1,0,0,1,0"), "line 5, column idstatefrom: want a non-negative integer, got \"-1\"");
    let crlf = message(with_header("0,0,0,1,0\n\nx,0,0,1,0").replace('\n', "\r\n"));
    assert_eq!(crlf, "line 4, column idstatefrom: want a non-negative integer, got \"x\"");
    assert_eq!(refused("1,x,0,1,0"), "line 5, column idaction: want a non-negative integer, got \"x\"");
    assert_eq!(refused("1,0,0.5,1,0"), "line 5, column idstateto: want a non-negative integer, got \"0.5\"");
    assert_eq!(
        refused("1,0,0,-0.5,0"),
        "line 5, column probability: want a probability from 0 to 1, got \"-0.5\""
    );
    assert_eq!(
        refused("1,0,0,1.5,0"),
        "line 5, column probability: want a probability from 0 to 1, got \"1.5\""
    );
    assert_eq!(
        refused("1,0,0,NaN,0"),
        "line 5, column probability: want a probability from 0 to 1, got \"NaN\""
    );
    assert_eq!(refused("1,0,0,1,inf"), "line 5, column reward: want a finite number, got \"inf\"");
    assert_eq!(refused("1,0,0,1,1e999"), "line 5, column reward: want a finite number, got \"1e999\"");
    assert_eq!(refused("1,0,0,1,"), "line 5, column reward: want a finite number, got \"\"");
    assert_eq!(
        refused("99999999999999999999,0,0,1,0"),
        "line 5, column idstatefrom: want a non-negative integer, got \"99999999999999999999\""
    );
}

#[test]
fn a_value_that_is_no_text_is_shown_escaped_and_short() {
    let mut text = with_header("0,0,0,1,").into_bytes();
    text.extend([0xff, 0x00, 0x1b]);
    text.extend([b'z'; 1000]);
    let expected = format!(
        "line 2, column reward: want a finite number, got \"\u{fffd}\\0\\u{{1b}}{}\"…",
        "z".repeat(77)
    );
    assert_eq!(message(text), expected);
}

#[test]
fn a_decimal_comma_is_not_taken_for_two_fields() {
    assert_eq!(message(with_header("0,0,1,0,5,2\n")), "line 2: 6 fields, the header has 5");
    assert_eq!(message(with_header("0,0,1,1\n")), "line 2: 4 fields, the header has 5");
}

#[test]
fn a_sum_that_is_off_is_named_by_the_ids_of_the_file() {
    assert_eq!(
        message(with_header("0,3,0,1,0\n70,3,0,0.5,0\n70,3,70,0.25,0\n")),
        "state 70, action 3: probabilities must sum to 1 within 1e-6, got 0.75"
    );
    assert_eq!(
        message(with_header("0,3,0,0,0\n")),
        "state 0, action 3: probabilities must sum to 1 within 1e-6, got 0"
    );
}

#[test]
fn an_unknown_start_state_is_answered_with_the_range_of_ids() {
    assert_eq!(
        message(with_header("4,0,17,1,0\n")),
        "unknown start state 0: the file has 2 states with ids from 4 to 17"
    );
}

#[test]
fn a_terminal_start_state_is_refused() {
    assert_eq!(
        message(with_header("1,0,0,1,0\n")),
        "start state 0 is terminal (it has no outcomes): there is nothing to decide"
    );
}

#[test]
fn a_wrong_horizon_or_discount_is_refused() {
    let text = with_header("0,0,0,1,0\n");
    let refused =
        |horizon, discount| read(text.as_bytes(), "", horizon, 0, discount).unwrap_err().to_string();
    assert_eq!(refused(0, 1.0), "the horizon must be at least 1, got 0");
    assert_eq!(refused(1, 1.5), "the discount must lie in (0, 1], got 1.5");
}

#[test]
fn ids_that_hardly_repeat_do_not_square_the_memory() {
    let mut text = HEADER.to_owned();
    for id in 0..20_000 {
        writeln!(text, "{id},{id},{id},1,0").unwrap();
    }
    assert_eq!(message(text), "20000 states and 20000 actions make more than 134217728 pairs");
}

/// Endless bytes that count how many were taken.
struct Endless<'a> {
    pattern: &'a [u8],
    taken: usize,
}

impl Read for Endless<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        for (i, byte) in buffer.iter_mut().enumerate() {
            *byte = self.pattern[(self.taken + i) % self.pattern.len()];
        }
        self.taken += buffer.len();
        Ok(buffer.len())
    }
}

fn endless(start: &str, pattern: &[u8]) -> (String, usize) {
    let mut endless = Endless { pattern, taken: 0 };
    let error = read(start.as_bytes().chain(&mut endless), "", 1, 0, 1.0).unwrap_err();
    (error.to_string(), endless.taken)
}

#[test]
fn endless_garbage_is_given_up_within_one_record() {
    let end = ": no record ends within 65536 bytes, this is not an MDP file in CSV format";
    // Zeros without a line end, nothing but line ends, blank fields: before and after the header.
    for pattern in [&b"\0"[..], b"\n", b" ,\n", b"\"\n"] {
        for start in ["", HEADER] {
            let (message, taken) = endless(start, pattern);
            assert!(message.ends_with(end), "{message}");
            assert!(taken < 4 * MAX_RECORD_BYTES, "{taken}");
        }
    }
    // A quote that is never closed.
    let (message, _) = endless(&with_header("0,0,0,1,0\n\"1"), b",\n");
    assert_eq!(message, format!("line 3{end}"));
}

#[test]
fn a_failing_disk_is_reported_as_such() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is on fire"))
        }
    }
    let error = read(HEADER.as_bytes().chain(Broken), "", 1, 0, 1.0).unwrap_err();
    assert_eq!(error.to_string(), "the disk is on fire");
}

#[test]
fn a_path_names_the_problem() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("chain.csv");
    write(&tidy(), File::create(&path).unwrap()).unwrap();
    let problem = read_path(&path, 3, 0, 1.0).unwrap();
    assert_eq!(problem.model, tidy().model);
    assert_eq!(problem.name, path.display().to_string());
    assert!(matches!(read_path(&directory.path().join("none.csv"), 3, 0, 1.0), Err(CsvError::Io(_))));
    assert!(matches!(read_path(directory.path(), 3, 0, 1.0), Err(CsvError::Io(_))));
}

#[test]
fn ids_survive_writing_and_labels_become_numbers() {
    let text = with_header("7,2,7,0.75,0\n7,2,9,0.25,1.5\n7,5,100,1,-2\n");
    assert_eq!(written(&read(text.as_bytes(), "", 1, 7, 1.0).unwrap()), text);

    let put = [("offers", "2"), ("start", "0")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    let selling = problems::build("asset-selling", &put).unwrap();
    let rows = "0,0,2,1,0\n0,1,0,0.5,0\n0,1,1,0.5,0\n1,0,2,1,1\n1,1,0,0.5,0\n1,1,1,0.5,0\n";
    assert_eq!(written(&selling), with_header(rows));
}

#[test]
fn a_problem_that_changes_from_stage_to_stage_is_not_written() {
    let kernels = vec![tidy().model.kernel(0).clone(); 2];
    let model = Model::new(kernels, 2, 1.0, vec![(0, 1.0)]).unwrap();
    let error = write(&Problem { model, ..tidy() }, Vec::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "test differs from stage to stage, the file format holds one table for all stages"
    );
}

#[test]
fn every_built_in_problem_survives_the_round_trip() {
    for name in problems::names() {
        let Problem { model, .. } = &problems::build(name, &[]).unwrap();
        let text = written(&problems::build(name, &[]).unwrap());
        let start = model.start()[0].0 as u64;
        let again = read(text.as_bytes(), name, model.horizon(), start, model.discount()).unwrap();
        assert_eq!(&again.model, model, "{name}");
        assert_eq!(written(&again), text, "{name}");
    }
}

proptest! {
    #[test]
    fn writing_and_reading_changes_no_bit(
        rows in prop::collection::vec(
            (0..6_u64, 0..4_u64, 0..9_u64, 1e-3..1.0_f64, -1e100..1e100_f64),
            1..60,
        ),
        spread in 1..1_000_000_u64,
    ) {
        let mut text = HEADER.to_owned();
        for (from, action, to, weight, reward) in &rows {
            let same = rows.iter().filter(|row| (row.0, row.1) == (*from, *action));
            let probability = weight / same.map(|row| row.3).sum::<f64>();
            writeln!(text, "{},{action},{},{probability},{reward}", from * spread, to * spread).unwrap();
        }
        let start = rows[0].0 * spread;
        let once = read(text.as_bytes(), "", 3, start, 0.9).unwrap();
        let twice = read(written(&once).as_bytes(), "", 3, start, 0.9).unwrap();
        prop_assert_eq!(&once, &twice);
        prop_assert_eq!(written(&once), written(&twice));
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), headed: bool) {
        let start = if headed { HEADER } else { "" };
        let _ = try_parse([start.as_bytes(), &bytes].concat());
    }
}

#[test]
fn semicolons_tabs_decimal_commas_and_names_are_understood() {
    let text = "State;Action;NextState;Probability;Reward\nlow;order-10;high;0,9;2\nlow;order-2;low;1;0\nlow;order-10;low;0,1;-1,5\n";
    let given = Given { horizon: Some(3), start: Some("low"), discount: 1.0, normalise: false };
    for text in [text.to_owned(), text.replace(';', "\t")] {
        let problem = read_with(text.as_bytes(), "test", &given).unwrap();
        assert_eq!(problem.states, ["high", "low"]);
        assert_eq!(problem.actions, ["order-2", "order-10"]);
        assert_eq!(problem.model.outcomes(0, 1, 1)[1], Outcome { probability: 0.1, next: 1, reward: -1.5 });
        let mut bytes = Vec::new();
        write(&problem, &mut bytes).unwrap();
        assert_eq!(read_with(&bytes[..], "test", &given).unwrap(), problem);
    }
    let unknown = Given { start: Some("mid"), ..given };
    assert_eq!(
        read_with(text.as_bytes(), "test", &unknown).unwrap_err().to_string(),
        "unknown start state mid: the file has 2 states (high, low)"
    );
}

#[test]
fn rounded_probabilities_are_scaled_only_if_asked_and_within_reason() {
    let text = with_header("0,0,0,0.333,0\n0,0,1,0.334,0\n0,0,2,0.334,0\n");
    assert!(message(&text).contains("probabilities must sum to 1 within 1e-6"));
    let given = Given { horizon: Some(3), start: Some("0"), discount: 1.0, normalise: true };
    let problem = read_with(text.as_bytes(), "test", &given).unwrap();
    assert_eq!(
        problem.data.notes,
        [
            "the probabilities of 1 (state, action) pairs were scaled to sum to 1; the farthest sum was 1.001000"
        ]
    );
    let missing = with_header("0,0,0,0.5,0\n");
    assert!(matches!(read_with(missing.as_bytes(), "test", &given), Err(CsvError::Sum { .. })));
}

#[test]
fn counts_replace_probabilities_and_stages_make_tables() {
    let text = "state,action,next,reward,count,stage\na,x,b,1,3,1\na,x,a,0,1,1\na,x,a,0,2,2\nb,x,a,5,4,2\n";
    let given = Given { horizon: None, start: Some("a"), discount: 1.0, normalise: false };
    let problem = read_with(text.as_bytes(), "test", &given).unwrap();
    assert_eq!((problem.model.horizon(), problem.model.kernels().len()), (2, 2));
    assert_eq!(problem.model.outcomes(0, 0, 0)[1], Outcome { probability: 0.75, next: 1, reward: 1.0 });
    let other = Given { horizon: Some(3), ..given };
    assert_eq!(
        read_with(text.as_bytes(), "test", &other).unwrap_err().to_string(),
        "the file has 2 stages, the horizon must be the same, got 3"
    );
    let gap = text.replace(",2\n", ",3\n");
    assert_eq!(
        read_with(gap.as_bytes(), "test", &given).unwrap_err().to_string(),
        "the file has no rows of stage 2, its stages are 1 to 3"
    );
}

#[test]
fn counts_that_make_no_sense_are_refused() {
    let refused = |row: &str| message(format!("state,action,next,probability,reward,count,check\n{row}\n"));
    assert_eq!(
        refused("0,x,0,1,0,0,0"),
        "line 2: an outcome with a positive probability must have been seen, got count 0"
    );
    assert_eq!(refused("0,x,0,1,0,5,6"), "line 2: check must be at most count = 5, got 6");
    assert_eq!(
        refused("0,x,0,1,0,99999999999,1"),
        "line 2, column count: want a count of at most 2^31, got \"99999999999\""
    );
}

#[test]
fn without_a_column_check_a_coin_says_which_observations_are_kept_apart() {
    // Half of every count would make the two halves the same data twice. 100 rows of 20: Σ (check − 10)²/5 is 100 ± √200.
    let mut text = "state,action,next_state,reward,count\n".to_owned();
    for state in 0..100 {
        let _ = writeln!(text, "s{state},x,t,1,20");
    }
    let given = Given { horizon: Some(1), start: Some("s0"), discount: 1.0, normalise: false };
    let problem = read_with(text.as_bytes(), "counts", &given).unwrap();
    let counts = problem.data.counts.unwrap();
    let checks: Vec<u64> = (0..100).map(|state| counts.seen(0, state, 0)[0].check).collect();
    let spread: f64 = checks.iter().map(|&check| (check as f64 - 10.0).powi(2) / 5.0).sum();
    assert!((spread - 100.0).abs() < 5.0 * 200.0f64.sqrt(), "{spread} {checks:?}");
}
