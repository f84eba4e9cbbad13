//! Checkpoints with one forged value each: refused where they are restored, by name and with the value.
//!
//! The checkpoints are the seeds of the target `agents`. Each row would otherwise end in a panic, a hang or an overflow
//! some steps later.

use bqrl_fuzz::targets::restore;
use bqrl_fuzz::{Input, TARGETS};
use safetensors::tensor::{SafeTensors, TensorView};
use serde_json::{Value, json};

fn checkpoint(setting: &str) -> Input {
    let target = TARGETS.iter().find(|target| target.name == "agents").unwrap();
    let of_setting = |seed: &Input| seed.text("setting") == Some(setting);
    target.seeds().unwrap().into_iter().find(of_setting).unwrap()
}

fn file<'a>(input: &'a mut Input, name: &str) -> &'a mut Vec<u8> {
    &mut input.files.iter_mut().find(|(other, _)| other == name).unwrap().1
}

/// Overwrites the last number of an array.
fn forge_array(bytes: &mut Vec<u8>, array: &str, number: &[u8]) {
    let (_, header) = SafeTensors::read_metadata(bytes).unwrap();
    let metadata = header.metadata().clone();
    let tensors = SafeTensors::deserialize(bytes).unwrap();
    let mut data = tensors.tensor(array).unwrap().data().to_vec();
    let at = data.len() - number.len();
    data[at..].copy_from_slice(number);
    let views = tensors.iter().map(|(name, view)| {
        let data = if name == array { &data } else { view.data() };
        (name.to_owned(), TensorView::new(view.dtype(), view.shape().to_vec(), data).unwrap())
    });
    *bytes = safetensors::serialize(views.collect::<Vec<_>>(), metadata).unwrap();
}

/// Replaces the value at a JSON pointer, in which `LANE` stands for a lane that is in an episode.
fn forge_json(bytes: &mut Vec<u8>, pointer: &str, value: &Value) {
    let mut document: Value = serde_json::from_slice(bytes).unwrap();
    let is_open = |lane: &usize| !document["play"]["episodes"][lane].is_null();
    let lane = (0..2).find(is_open).map_or_else(String::new, |lane| lane.to_string());
    *document.pointer_mut(&pointer.replace("LANE", &lane)).unwrap() = value.clone();
    *bytes = serde_json::to_vec(&document).unwrap();
}

fn refused(input: &Input, what: &str, words: &str) {
    let error = restore(input).expect_err(what).to_string();
    assert!(error.contains(words), "{what}: want {words:?}, got {error:?}");
}

fn array(setting: &str, part: &str, array: &str, number: &[u8], words: &str) {
    let mut input = checkpoint(setting);
    restore(&input).unwrap();
    forge_array(file(&mut input, part), array, number);
    refused(&input, &format!("{setting}, {part}, {array}"), words);
}

fn state(setting: &str, part: &str, pointer: &str, value: &Value, words: &str) {
    let mut input = checkpoint(setting);
    restore(&input).unwrap();
    forge_json(file(&mut input, part), pointer, value);
    refused(&input, &format!("{setting}, {part}, {pointer}"), words);
}

const NAN: [u8; 8] = f64::NAN.to_le_bytes();
const HUGE: u64 = 1 << 60;

#[test]
fn a_replay_with_an_action_reward_or_observation_that_does_not_exist_is_refused() {
    for setting in ["deep-bqrl asset-selling", "qr-dqn asset-selling", "target-tracking asset-selling"] {
        let forge = |name: &str, number: &[u8], words: &str| {
            array(setting, "replay.safetensors", name, number, words);
        };
        forge("actions", &9_u32.to_le_bytes(), "actions holds 9, want values below 2");
        forge("rewards", &NAN, "rewards holds NaN");
        forge("collected", &f64::INFINITY.to_le_bytes(), "collected holds inf");
        forge("observations", &99_u32.to_le_bytes(), "Index(99)");
        forge("ends", &[7], "7 and 0 are no end and base");
    }
}

#[test]
fn a_replay_whose_counts_do_not_add_up_is_refused() {
    let forge = |name: &str, number: u64, words: &str| {
        array("qr-dqn asset-selling", "replay.safetensors", name, &number.to_le_bytes(), words);
    };
    forge("stored", u64::MAX, "stored is 18446744073709551615, want at most 2^53");
    forge("stored", 1000, "transition 992 is missing");
    forge("block", 0, "block is 0, want");
    forge("block", 1, "the segments do not match");
    forge("first_segment", HUGE, "first_segment is 1152921504606846976, want 0");
    forge("marks", 3, "want 0 after 3 transitions");
    forge("capacity", 7, "rings of 7 transitions");
    forge("runs", 1 << 40, "no transitions");
}

#[test]
fn counters_that_would_overflow_are_refused() {
    for (setting, pointer) in [
        ("deep-bqrl gamble-chain", "/critics/updates"),
        ("target-tracking gamble-chain", "/critics/stored"),
        ("target-tracking gamble-chain", "/n_starts"),
        ("var-q gamble-chain", "/updates"),
        ("qppo gamble-chain", "/updates"),
        ("ppo gamble-chain", "/updates"),
        ("ucb-bqrl gamble-chain", "/plans"),
    ] {
        state(setting, "agent.json", pointer, &json!(HUGE), "is 1152921504606846976, want at most 2^53");
    }
    let networks = "critics.safetensors";
    array(
        "qr-dqn gamble-chain",
        networks,
        "adam.step",
        &i64::MAX.to_le_bytes(),
        "holds 9223372036854776000 at 0",
    );
    for pointer in ["/progress/clock/steps", "/progress/clock/episodes", "/progress/recent_lengths/0"] {
        state("ppo gamble-chain", "state.json", pointer, &json!(HUGE), "is 1152921504606846976");
    }
}

#[test]
fn target_tracking_refuses_work_without_end_and_measurements_that_cannot_be() {
    let forge = |pointer: &str, value: Value, words: &str| {
        state("target-tracking asset-selling", "agent.json", pointer, &value, words);
    };
    forge("/critics/due", json!(1e17), "due is 1");
    forge("/critics/due", json!(-1.0), "due is -1");
    forge("/critics/unit/sigma", json!(0.0), "which no training leaves");
    forge("/critics/tries", json!([[1_000_000, 1]]), "which cannot be");
    forge("/starts/0", json!({"Index": 99}), "starts holds Index(99)");
    forge("/starts/0", json!({"Dense": [0.0]}), "starts holds Dense([0.0])");
    forge("/measured/n_trials", json!(100_000), "numbers that no training leaves");
}

#[test]
fn var_q_refuses_a_table_that_its_update_cannot_use() {
    let setting = "var-q asset-selling";
    let forge =
        |part: &str, name: &str, number: &[u8], words: &str| array(setting, part, name, number, words);
    forge("table.safetensors", "q", &NAN, "q holds NaN");
    forge("table.safetensors", "q", &(-1e9_f64).to_le_bytes(), "q falls from level to level");
    forge("table.safetensors", "visits", &HUGE.to_le_bytes(), "visits is 1152921504606846976");
    forge("table.safetensors", "starts", &HUGE.to_le_bytes(), "starts is 1152921504606846976");
    forge("steps.safetensors", "stage", &4_u64.to_le_bytes(), "stage holds 4, want values below 4");
    forge("steps.safetensors", "next", &9_u64.to_le_bytes(), "next holds 9");
    forge("steps.safetensors", "reward", &NAN, "reward holds NaN");
    forge("steps.safetensors", "episodes", &999_u64.to_le_bytes(), "episodes holds 999");
}

#[test]
fn policy_gradients_refuse_logits_and_probabilities_that_give_no_policy() {
    for setting in ["ppo asset-selling", "trpo asset-selling"] {
        let forge =
            |part: &str, name: &str, number: &[u8], words: &str| array(setting, part, name, number, words);
        forge("tables.safetensors", "logits", &1e308_f64.to_le_bytes(), "logits holds 1e308");
        forge("tables.safetensors", "values", &NAN, "values holds NaN");
        forge("tables.safetensors", "value_counts", &(-1.0_f64).to_le_bytes(), "value_counts holds -1.0");
        forge("rollout.safetensors", "probabilities", &0_f64.to_le_bytes(), "probabilities holds 0.0");
        forge("rollout.safetensors", "stages", &99_u64.to_le_bytes(), "stages holds 99");
        forge("rollout.safetensors", "rewards", &NAN, "rewards holds NaN");
    }
    let setting = "qppo gamble-chain";
    array(setting, "table.safetensors", "logits", &NAN, "logits holds NaN");
    array(setting, "batch.safetensors", "probabilities", &2_f64.to_le_bytes(), "probabilities holds 2.0");
    array(setting, "batch.safetensors", "rows", &9999_u64.to_le_bytes(), "rows holds 9999");
    array(setting, "batch.safetensors", "returns", &NAN, "returns holds NaN");
    array(setting, "batch.safetensors", "ends", &0_u64.to_le_bytes(), "the columns do not fit together");
}

#[test]
fn ucb_bqrl_refuses_counts_that_no_model_can_be_made_of() {
    for part in ["counts.safetensors", "planned.safetensors"] {
        let forge = |name: &str, number: &[u8], words: &str| {
            array("ucb-bqrl gamble-chain", part, name, number, words);
        };
        forge("reward", &1e300_f64.to_le_bytes(), "reward holds 1e300");
        forge("reward", &NAN, "reward holds NaN");
        forge("count", &u64::MAX.to_le_bytes(), "count is 18446744073709551615");
        forge("next", &9_u32.to_le_bytes(), "another problem");
        forge("starts", &3_u64.to_le_bytes(), "the starts add up to 3");
        forge("terminal", &[1], "terminal names other states");
    }
    // Planned after more episodes than there were.
    let mut input = checkpoint("ucb-bqrl gamble-chain");
    let counts = file(&mut input, "counts.safetensors").clone();
    forge_array(file(&mut input, "counts.safetensors"), "episodes", &0_u64.to_le_bytes());
    forge_array(file(&mut input, "counts.safetensors"), "starts", &0_u64.to_le_bytes());
    *file(&mut input, "planned.safetensors") = counts;
    refused(&input, "planned in the future", "of which there were 0");
}

#[test]
fn an_episode_that_the_environment_cannot_have_is_refused() {
    for setting in ["ppo asset-selling", "ucb-bqrl asset-selling", "deep-bqrl asset-selling"] {
        let forge = |pointer: &str, value: Value, words: &str| {
            state(setting, "state.json", pointer, &value, words);
        };
        forge("/play/episodes/LANE/stage", json!(99), "stage is 99, want one below 4");
        forge("/play/episodes/LANE/observation", json!({"Index": 9}), "Index(9) is not of");
        forge("/play/episodes/LANE/observation", json!({"Bytes": [1]}), "Bytes([1]) is not of");
        forge("/play/episodes/LANE/collected", json!(1e300), "collected is 1e300, want a number from");
        forge("/play/episodes/LANE/undiscounted", json!(-1e9), "undiscounted is -1000000000.0");
        forge("/play/episodes/LANE/memo/critic", json!(0), "must be empty, got");
        forge("/play/lanes/envs/LANE", json!([4, 0]), "the environment is not at stage");
        forge("/play/lanes/envs/LANE", json!([99, 0]), "got [99, 0]");
        forge("/play/lanes/envs", json!([]), "want 2");
        forge("/progress/recent", json!([]), "0 recent returns");
        forge("/progress/greedy/last", json!([]), "evaluations of 0 levels, want 1");
        forge("/progress/greedy/gaps", json!([]), "0 gaps and 1 evaluations");
    }
}
