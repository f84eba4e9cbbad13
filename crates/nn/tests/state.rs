//! Same seed, same bits: for any number of threads, and across save and load. Damaged files are refused.

mod oracle;

use bqrl_math::{Buffer, Purpose, stream};
use bqrl_nn::{
    Adam, Choice, Convolution, Ensemble, Head, Init, Inputs, Kernels, LoadError, Shape, Sight, TargetRule,
    UpdateError,
};
use oracle::Sample;
use proptest::prelude::*;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};

fn shape() -> Shape {
    Shape {
        n_inputs: 7,
        sight: None,
        hidden: vec![20, 9],
        layer_norm: true,
        n_heads: 2,
        n_twins: 2,
        n_actions: 3,
        n_quantiles: 11,
        n_critics: 5,
    }
}

fn fresh() -> Ensemble {
    Ensemble::new(shape(), Init { output_scale: 0.1, output_bias: 0.5 }, &mut stream(42, Purpose::Init))
        .unwrap()
}

/// A buffered head, and one per level with a ramp.
fn rule() -> TargetRule {
    let buffered = TargetRule::buffered(&Buffer::new(0.5, 0.2).unwrap(), 11, 0.1, 0.2).unwrap();
    let ramp = Head { choice: Choice::PerLevel, ramp: 0.5 };
    TargetRule::heads_of(vec![buffered.heads()[0].clone(), ramp], 11, 0.2).unwrap()
}

fn train(mut critics: Ensemble, seed: u64, steps: usize) -> Ensemble {
    let rng = &mut stream(seed, Purpose::Test);
    let rule = rule();
    for _ in 0..steps {
        let sample = Sample::random(critics.shape(), 70, rng);
        critics.train_step(&sample.batch(), &rule, &Adam::new(1e-3), 0.01).unwrap();
    }
    critics
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    for kernels in Kernels::available() {
        let one = train(fresh().with_kernels(kernels), 1, 20).to_bytes();
        for threads in [2, 3, 4, 5, 9] {
            let several = train(fresh().with_kernels(kernels).with_threads(threads), 1, 20).to_bytes();
            assert!(several == one, "{threads} threads, {}", kernels.name());
        }
    }
}

#[test]
fn training_continues_with_the_same_bits_after_save_and_load() {
    let path = tempfile::tempdir().unwrap();
    let path = path.path().join("weights.safetensors");
    let half = train(fresh(), 1, 10);
    half.save(&path).unwrap();
    let resumed = Ensemble::load(&path).unwrap();
    assert_eq!((resumed.shape(), resumed.steps(4), resumed.kernels()), (&shape(), 10, Kernels::detect()));
    assert!(train(resumed, 2, 10).to_bytes() == train(half, 2, 10).to_bytes());
}

/// Two convolutions, and three numbers beside the planes.
fn seeing() -> Ensemble {
    let convolutions = [(3, 2, 1), (4, 2, 2)];
    let convolution = |(channels, kernel, stride)| Convolution { channels, kernel, stride };
    let sight = Sight { planes: [2, 6, 5], convolutions: convolutions.map(convolution).to_vec() };
    let shape = Shape { n_inputs: 63, sight: Some(sight), ..shape() };
    Ensemble::new(shape, Init::default(), &mut stream(42, Purpose::Init)).unwrap()
}

#[test]
fn convolutions_continue_with_the_same_bits_after_save_and_load() {
    let half = train(seeing(), 1, 3);
    let loaded = Ensemble::from_bytes(&half.to_bytes()).unwrap();
    assert_eq!(loaded.shape(), half.shape());
    assert_eq!(train(half, 2, 3).to_bytes(), train(loaded, 2, 3).to_bytes());
}

#[test]
fn damaged_convolutions_are_refused_with_the_reason() {
    let file = seeing().to_bytes();
    let text = String::from_utf8_lossy(&file).into_owned();
    let metadata = "planes=2,6,5 convolutions=3x2x1,4x2x2";
    assert!(text.contains(metadata), "{}", &text[..300]);
    // As long as before: the lengths in front of a safetensors file stay right.
    for (damage, reason) in [
        (
            "planes=2,6,5 convolutions=3x9x1,4x2x2",
            "convolution 1 looks at 9 × 9 cells, but there are only 6 × 5",
        ),
        ("planes=2,6,5 convolutions=3x2x0,4x2x2", "convolutions must be at least 1, got 0"),
        ("planes=9,9,9 convolutions=3x2x1,4x2x2", "cells, but there are only 63 inputs"),
        ("planes=2,6,5 convolutions=3x2x2,4x2x2", "should be"),
        ("planes=2,6,5 convolutions=3x2x1;4x2x2", "metadata"),
    ] {
        let at = file.windows(metadata.len()).position(|bytes| bytes == metadata.as_bytes()).unwrap();
        let mut damaged = file.clone();
        damaged[at..at + metadata.len()].copy_from_slice(damage.as_bytes());
        let said = refused(&damaged);
        assert!(said.contains(reason), "{damage}: {said}");
    }
}

#[test]
fn a_moment_beyond_its_range_is_an_error() {
    // g = 1e25, and g² is beyond single precision: θ stays finite, but v = ∞ would hold it for ever, and no file may hold v.
    for kernels in Kernels::available() {
        let mut critics = fresh().with_kernels(kernels);
        let inputs = Inputs::from_rows(&[1.0; 7], 7);
        let learned = critics.update(&inputs, &Adam::new(1e-3), 0.5, |_, _, d_z| d_z.set(0, 0, 1e25));
        assert_eq!(learned, Err(UpdateError::Diverged { critic: 0, step: 1 }), "{}", kernels.name());
    }
}

#[test]
fn a_smaller_batch_leaves_nothing_behind() {
    // Memory is kept from step to step: a batch of another size must not see what the last one left there.
    let rule = rule().double();
    let sample = |n| Sample::random(&shape(), n, &mut stream(3, Purpose::Test));
    let mut kept = fresh();
    let mut reloaded = fresh();
    for n in [200, 3, 64, 100, 17, 1] {
        kept.train_step(&sample(n).batch(), &rule, &Adam::new(1e-3), 0.1).unwrap();
        reloaded.train_step(&sample(n).batch(), &rule, &Adam::new(1e-3), 0.1).unwrap();
        reloaded = Ensemble::from_bytes(&reloaded.to_bytes()).unwrap();
    }
    assert!(kept.to_bytes() == reloaded.to_bytes());
}

#[test]
fn initial_weights_are_a_contract() {
    let critics = oracle::critics(&fresh());
    for (m, critic) in critics.iter().enumerate() {
        assert_eq!(critic.target, critic.online);
        for (l, layer) in critic.online.iter().enumerate() {
            // He-uniform, U(±√(6/in)); the output layer LeCun-uniform, U(±√(3/in)), here times 0.1.
            let n_inputs = layer.weight[0].len() as f64;
            let bound = if l < 2 { (6.0 / n_inputs).sqrt() } else { 0.1 * (3.0 / n_inputs).sqrt() };
            let largest = layer.weight.iter().flatten().fold(0.0, |largest: f64, w| largest.max(w.abs()));
            assert!((0.9 * bound..=1.000001 * bound).contains(&largest), "critic {m}, layer {l}: {largest}");
            let bias = if l < 2 { 0.0 } else { 0.5 };
            assert!(layer.bias.iter().all(|&b| b == bias));
        }
        assert!(m == 0 || critic.online != critics[m - 1].online, "critics are initialised separately");
    }
    // The first weight is the first draw of the stream.
    let first = (6.0_f64 / 7.0).sqrt() * (2.0 * stream(42, Purpose::Init).uniform() - 1.0);
    assert_eq!(critics[0].online[0].weight[0][0], f64::from(first as f32));
}

#[test]
fn twins_and_heads_start_from_weights_of_their_own() {
    for critic in oracle::critics(&fresh()) {
        // Rows of 3·11 outputs, for each of 2 twins of 2 heads.
        let rows: Vec<&[Vec<f64>]> = critic.online[2].weight.chunks(33).collect();
        assert_eq!(rows.len(), 4);
        for (i, row) in rows.iter().enumerate() {
            assert!(rows[..i].iter().all(|other| other != row), "head {i} is a copy");
        }
    }
}

#[test]
fn a_new_unit_scales_every_output_and_nothing_else() {
    let mut critics = train(fresh(), 1, 3);
    let before = oracle::critics(&critics);
    // A power of two, so that nothing is rounded.
    critics.scale_outputs(0.25);
    for (before, after) in before.iter().zip(oracle::critics(&critics)) {
        for (before, after) in [(&before.online, &after.online), (&before.target, &after.target)] {
            assert_eq!(after[..2], before[..2], "hidden layers");
            let quarters = |values: &[f64]| values.iter().map(|v| v / 4.0).collect::<Vec<_>>();
            assert_eq!(after[2].bias, quarters(&before[2].bias));
            let rows = before[2].weight.iter().map(|row| quarters(row)).collect::<Vec<_>>();
            assert_eq!(after[2].weight, rows);
        }
        let rest = (&after.first, &after.second, after.steps);
        assert_eq!(rest, (&before.first, &before.second, before.steps), "optimiser");
    }
}

#[test]
fn metadata_names_the_shape() {
    let described = |shape: Shape| {
        let file = Ensemble::new(shape.clone(), Init::default(), &mut stream(1, Purpose::Init)).unwrap();
        let file = file.to_bytes();
        assert_eq!(Ensemble::from_bytes(&file).unwrap().shape(), &shape);
        SafeTensors::read_metadata(&file).unwrap().1.metadata().clone().unwrap()["bqrl_nn"].clone()
    };
    assert_eq!(
        described(shape()),
        "version=3 n_inputs=7 hidden=20,9 layer_norm=true n_heads=2 n_twins=2 n_actions=3 n_quantiles=11 n_critics=5"
    );
    let plain = Shape { layer_norm: false, n_heads: 1, n_twins: 1, ..shape() };
    let want = "version=1 n_inputs=7 hidden=20,9 n_actions=3 n_quantiles=11 n_critics=5";
    assert_eq!(described(plain.clone()), want);
    let twins = described(Shape { n_twins: 3, hidden: vec![], ..plain });
    let want = "version=3 n_inputs=7 hidden= layer_norm=false n_heads=1 n_twins=3 n_actions=3 n_quantiles=11 n_critics=5";
    assert_eq!(twins, want);
}

fn refused(file: &[u8]) -> String {
    Ensemble::from_bytes(file).expect_err("a damaged file").to_string()
}

/// The file with one stretch of text in its header replaced by another of the same length.
fn patched(from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut file = fresh().to_bytes();
    let at =
        file.windows(from.len()).position(|window| window == from.as_bytes()).expect("text in the header");
    file[at..at + to.len()].copy_from_slice(to.as_bytes());
    file
}

#[test]
fn damaged_files_are_refused_with_the_reason() {
    assert!(refused(b"").starts_with("not a safetensors file"));
    assert!(refused(b"garbage, and more of it").starts_with("not a safetensors file"));
    assert!(refused(&fresh().to_bytes()[..5000]).starts_with("not a safetensors file"));
    assert!(refused(&patched("version=3", "version=2")).contains("got Some(\"version=2 n_inputs=7 "));
    assert!(refused(&patched("version=3", "version=1")).starts_with("metadata"));
    assert!(refused(&patched("n_twins=2", "n_twins=0")).contains("n_twins must be at least 1, got 0"));
    assert!(refused(&patched("n_twins=2", "n_twins=3")).contains("should be F32 [198, 9], got F32 [132, 9]"));
    assert!(refused(&patched("bqrl_nn", "bqrl_mm")).ends_with("got None"));
    assert!(refused(&patched("n_inputs=7", "n_inputs=0")).contains("n_inputs must be at least 1, got 0"));
    assert!(
        refused(&patched("hidden=20,9", "hidden=90,2")).contains("should be F32 [90, 7], got F32 [20, 7]")
    );
    assert!(
        refused(&patched("n_critics=5", "n_critics=6")).contains("\"critic.5.layer.0.weight\" is missing")
    );
    assert!(refused(&patched("n_critics=5", "n_critics=4")).contains("\"adam.step\" should be I64 [4], got"));
    assert!(refused(&patched("\"critic.0.layer.0.bias\"", "\"critic.0.layer.0.bios\"")).contains("missing"));
    assert!(refused(&patched("n_quantiles=11 ", "n_quantiles=9e9")).starts_with("metadata"));
    let missing = Ensemble::load(std::path::Path::new("/nowhere/weights.safetensors"));
    assert!(matches!(missing, Err(LoadError::Io(_))));
}

#[test]
fn numbers_that_no_training_makes_are_refused() {
    let mut file = fresh().to_bytes();
    let end = file.len();
    file[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    assert!(refused(&file).contains("holds NaN at"), "{}", refused(&file));

    let header = u64::from_le_bytes(*file.first_chunk().unwrap()) as usize + 8;
    let text = String::from_utf8_lossy(&file[8..header]).into_owned();
    let place = text.split("\"adam.v.critic.0.layer.0.bias\"").nth(1).unwrap();
    let offset: usize =
        place.split("\"data_offsets\":[").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
    file[header + offset..][..4].copy_from_slice(&(-1.0_f32).to_le_bytes());
    assert!(refused(&file).contains("holds -1 at 0, want a finite number, at least 0"), "{}", refused(&file));
}

#[test]
fn tensors_that_do_not_belong_and_negative_steps_are_refused() {
    let file = fresh().to_bytes();
    let (_, header) = SafeTensors::read_metadata(&file).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap().tensors();
    let rewritten = |tensors: Vec<(String, TensorView)>| {
        safetensors::serialize(tensors, header.metadata().clone()).unwrap()
    };
    assert!(rewritten(tensors.clone()) == file);

    let mut more = tensors.clone();
    more.push(("optimiser".to_owned(), TensorView::new(Dtype::U8, vec![1], &[1]).unwrap()));
    assert_eq!(refused(&rewritten(more)), "tensor \"optimiser\" is unexpected");

    let steps = [1_i64, 2, -3, 4, 5].map(i64::to_le_bytes).concat();
    let mut negative = tensors;
    let place = negative.iter().position(|(name, _)| name == "adam.step").unwrap();
    negative[place].1 = TensorView::new(Dtype::I64, vec![5], &steps).unwrap();
    assert_eq!(
        refused(&rewritten(negative)),
        "tensor \"adam.step\" holds -3 at 2, want a number from 0 to 2^53"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_damage_makes_loading_panic(at in 0..20_000_usize, byte: u8, cut in 0..40_000_usize) {
        let shape = Shape { n_inputs: 2, sight: None, hidden: vec![3], layer_norm: true, n_heads: 1, n_twins: 2, n_actions: 2, n_quantiles: 2, n_critics: 2 };
        let mut file = Ensemble::new(shape, Init::default(), &mut stream(1, Purpose::Init)).unwrap().to_bytes();
        let n = file.len();
        file[at % n] = byte;
        file.truncate(cut.max(8));
        let _ = Ensemble::from_bytes(&file);
    }
}
