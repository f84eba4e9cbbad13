//! The kernels against the oracle, and the oracle against finite differences.

mod oracle;

use bqrl_math::{Buffer, Purpose, stream};
use bqrl_nn::{
    Adam, Batch, Cells, Convolution, Ensemble, Init, Inputs, Kernels, Planes, Rows, Shape, Sight,
    UpdateError, Which,
};
use oracle::{Head, Rule, Sample, Way, assert_close, flat};

/// Convolutions of channels, kernel, stride.
fn sight(planes: [usize; 3], convolutions: &[[usize; 3]]) -> Sight {
    let one = |&[channels, kernel, stride]: &[usize; 3]| Convolution { channels, kernel, stride };
    Sight { planes, convolutions: convolutions.iter().map(one).collect() }
}

/// Convolutions: one and two, overlapping windows and windows with gaps, planes that are not square, channels around the tile sizes, with
/// and without inputs beside them, normalised and not.
fn seeing_cases() -> Vec<(Shape, usize)> {
    let shape = |n_inputs, sight, hidden: &[usize], layer_norm| Shape {
        n_inputs,
        sight: Some(sight),
        hidden: hidden.to_vec(),
        layer_norm,
        n_heads: 1,
        n_twins: 1,
        n_actions: 2,
        n_quantiles: 7,
        n_critics: 2,
    };
    vec![
        (shape(36, sight([1, 6, 6], &[[3, 3, 1]]), &[], false), 5),
        (shape(2 * 35 + 3, sight([2, 5, 7], &[[5, 3, 1]]), &[12], true), 33),
        (shape(3 * 64 + 2, sight([3, 8, 8], &[[4, 3, 2], [9, 2, 1]]), &[10], true), 64),
        (shape(81 + 1, sight([1, 9, 9], &[[2, 2, 3], [6, 2, 1]]), &[], false), 70),
        (shape(2 * 16, sight([2, 4, 4], &[[1, 4, 1]]), &[6, 5], false), 20),
    ]
}

/// Sizes that meet every tail: quantiles that are no multiple of 16, batches that are no multiple of 16 or 64, hidden
/// layers from none to three, widths around the tile sizes. One head, and one to three twins. The last number is the batch.
fn cases() -> Vec<(Shape, usize)> {
    [
        (3, vec![], 2, 1, 2, 1),
        (1, vec![], 1, 5, 3, 7),
        (28, vec![64, 64], 2, 51, 5, 64),
        (17, vec![10], 3, 8, 4, 24),
        (5, vec![33, 7], 2, 13, 2, 65),
        (70, vec![20, 130, 9], 4, 17, 2, 100),
        (16, vec![16], 2, 16, 2, 48),
        (2, vec![1], 5, 3, 2, 193),
        (9, vec![65], 1, 32, 3, 16),
    ]
    .into_iter()
    .enumerate()
    .map(|(case, (n_inputs, hidden, n_actions, n_quantiles, n_critics, batch))| {
        // Every second one is normalised. One feature alone is always normalised to zero.
        let (layer_norm, n_twins) = (case % 2 == 0 && !hidden.contains(&1), 1 + case % 3);
        (
            Shape {
                n_inputs,
                sight: None,
                hidden,
                layer_norm,
                n_heads: 1,
                n_twins,
                n_actions,
                n_quantiles,
                n_critics,
            },
            batch,
        )
    })
    .collect()
}

const FREE: (f64, f64) = (f64::NEG_INFINITY, f64::INFINITY);

fn buffered(tau: f64, beta: f64, tie_break: f64) -> Head {
    Head { way: Way::Buffered(Buffer::new(tau, beta).unwrap(), tie_break), ramp: 0.0 }
}

const PER_LEVEL: Head = Head { way: Way::PerLevel, ramp: 0.0 };
const MEAN: Head = Head { way: Way::Mean, ramp: 0.0 };

/// One head.
fn plain_rules() -> Vec<Rule> {
    let rule = |head, kappa| Rule { heads: vec![head], kappa, double: false, smooth: false, bounds: FREE };
    vec![
        rule(buffered(0.1, 0.05, 0.0), 1.0),
        rule(buffered(0.5, 0.5, 0.1), 0.2),
        rule(buffered(0.9, 0.3, 0.0), 3.0),
        Rule { smooth: true, ..rule(PER_LEVEL, 1.0) },
        Rule { smooth: true, double: true, bounds: (-0.5, 0.75), ..rule(PER_LEVEL, 0.1) },
        Rule { double: true, ..rule(buffered(0.5, 0.5, 0.1), 0.2) },
    ]
}

/// Several heads with rules of their own, and ramps.
fn mixed_rules() -> Vec<Rule> {
    let ramp = |head, ramp| Head { ramp, ..head };
    let rule = |heads, kappa| Rule { heads, kappa, double: false, smooth: false, bounds: FREE };
    vec![
        Rule { smooth: true, ..rule(vec![PER_LEVEL, MEAN, ramp(PER_LEVEL, 0.7)], 1.0) },
        Rule {
            smooth: true,
            double: true,
            bounds: (-0.5, 0.75),
            ..rule(vec![PER_LEVEL, MEAN, ramp(PER_LEVEL, 0.7)], 0.1)
        },
        Rule { double: true, ..rule(vec![ramp(buffered(0.5, 0.5, 0.1), 0.3), PER_LEVEL], 0.2) },
        Rule { double: true, smooth: true, ..rule(vec![PER_LEVEL, MEAN], 0.1) },
        rule(vec![MEAN, buffered(0.9, 0.3, 0.0), ramp(PER_LEVEL, 1.5), PER_LEVEL], 0.2),
    ]
}

/// Every case with one rule of each kind. The number of twins is that of the case; so each of the rules meets twins.
fn cases_with_rules() -> Vec<(Shape, usize, Rule)> {
    let (plain, mixed) = (plain_rules(), mixed_rules());
    let all = cases().into_iter().chain(seeing_cases());
    let pairs = all.enumerate().flat_map(|(case, (shape, batch))| {
        [&plain[case % plain.len()], &mixed[case % mixed.len()]]
            .map(|rule| (Shape { n_heads: rule.heads.len(), ..shape.clone() }, batch, rule.clone()))
    });
    pairs.collect()
}

fn ensemble(shape: &Shape, seed: u64, kernels: Kernels) -> Ensemble {
    let init = Init { output_scale: 1.0, output_bias: 0.25 };
    Ensemble::new(shape.clone(), init, &mut stream(seed, Purpose::Init)).unwrap().with_kernels(kernels)
}

#[test]
fn outputs_match_the_oracle() {
    for kernels in Kernels::available() {
        for (shape, batch, _) in cases_with_rules() {
            let critics = ensemble(&shape, 1, kernels);
            let sample = Sample::random(&shape, batch, &mut stream(2, Purpose::Test));
            let inputs = Inputs::from_rows(&sample.inputs, shape.n_inputs);
            for (m, oracle) in oracle::critics(&critics).iter().enumerate() {
                let rows = critics.forward(Which::Online, m, &inputs).to_rows();
                for (s, z) in rows.chunks(shape.n_outputs()).enumerate() {
                    let x = &sample.inputs[s * shape.n_inputs..][..shape.n_inputs];
                    let want = oracle::forward(&oracle.online, &doubles(x));
                    let what = format!("{}, {shape:?}", kernels.name());
                    assert_close(&doubles(z), &want, 1e-5, &what);
                    let acting = critics.act(Which::Online, x);
                    let acting = &acting[m * shape.n_outputs()..][..shape.n_outputs()];
                    assert_close(&doubles(acting), &want, 1e-5, &what);
                }
            }
        }
    }
}

#[test]
fn the_oracle_agrees_with_finite_differences() {
    // Central differences with step 1e-6 err by about 1e-10 where 𝒥 is smooth. Kinks within the step are rare: the seeds
    // are fixed.
    let rng = &mut stream(3, Purpose::Test);
    let hidden = [vec![], vec![6], vec![5, 4, 3], vec![6], vec![5, 4], vec![7]];
    let rules = plain_rules().into_iter().chain(mixed_rules());
    let twins = [1, 2, 3, 1, 2, 3, 2, 3, 2, 2];
    // Every third network sees, through one or two convolutions; one of its inputs is not a plane.
    let sights = [
        None,
        None,
        Some(sight([2, 4, 3], &[[3, 2, 1]])),
        None,
        Some(sight([1, 5, 5], &[[2, 2, 1], [3, 2, 2]])),
    ];
    let all = rules.zip(twins).zip(hidden.iter().cycle()).zip(sights.iter().cycle());
    for (case, (((rule, n_twins), hidden), sight)) in all.enumerate() {
        let shape = Shape {
            n_inputs: sight.as_ref().map_or(3, |sight| sight.planes.iter().product::<usize>() + 1),
            sight: sight.clone(),
            hidden: hidden.clone(),
            layer_norm: case > 2,
            n_heads: rule.heads.len(),
            n_twins,
            n_actions: 2,
            n_quantiles: 5,
            n_critics: 2,
        };
        let sample = Sample::random(&shape, 9, rng);
        let mut critic = oracle::critics(&ensemble(&shape, 4, Kernels::scalar())).swap_remove(1);
        // Biases begin at zero; a unit whose inputs are all zero would then sit exactly in the kink of ReLU.
        let parameters: Vec<f64> = flat(&critic.online).iter().map(|w| w + 0.1 * rng.normal()).collect();
        oracle::unflatten(&mut critic.online, &parameters);
        let y = oracle::all_targets(&critic.online, &critic.target, &rule, &shape, &sample);
        let gradient = flat(&oracle::gradient(&critic.online, &y, &rule, &shape, &sample));
        for i in 0..parameters.len() {
            let at = |step: f64| {
                let mut moved = parameters.clone();
                moved[i] += step;
                let mut net = critic.online.clone();
                oracle::unflatten(&mut net, &moved);
                oracle::loss(&net, &y, &rule, &shape, &sample)
            };
            let slope = (at(1e-6) - at(-1e-6)) / 2e-6;
            assert!((slope - gradient[i]).abs() < 1e-8, "{shape:?} [{i}]: {slope} against {}", gradient[i]);
        }
    }
}

#[test]
fn gradients_match_the_oracle() {
    for kernels in Kernels::available() {
        for (shape, batch, rule) in cases_with_rules() {
            for all in [None, Some(1.0), Some(0.0)] {
                let mut critics = ensemble(&shape, 5, kernels);
                let mut sample = Sample::random(&shape, batch, &mut stream(6, Purpose::Test));
                if let Some(all) = all {
                    sample.continuation.fill(all);
                }
                let before = oracle::critics(&critics);
                let losses = critics.train_step_with_loss(
                    &sample.batch(),
                    &rule.compiled(shape.n_quantiles),
                    &Adam::new(1e-3),
                    0.1,
                );
                let losses = losses.unwrap();
                for (m, (before, after)) in before.iter().zip(oracle::critics(&critics)).enumerate() {
                    let what =
                        format!("{}, {shape:?}, {rule:?}, critic {m}, continuation {all:?}", kernels.name());
                    let y = oracle::all_targets(&before.online, &before.target, &rule, &shape, &sample);
                    let want = flat(&oracle::gradient(&before.online, &y, &rule, &shape, &sample));
                    // After the first step the first moment is (1 − β₁) g.
                    let got: Vec<f64> = flat(&after.first).iter().map(|m| m / 0.1).collect();
                    let scale = want.iter().fold(1e-3, |largest: f64, g| largest.max(g.abs()));
                    let relative = |values: &[f64]| values.iter().map(|g| g / scale).collect::<Vec<f64>>();
                    assert_close(&relative(&got), &relative(&want), 1e-5, &what);
                    let loss = oracle::loss(&before.online, &y, &rule, &shape, &sample);
                    assert_close(&[losses[m]], &[loss], 1e-5, &what);
                }
            }
        }
    }
}

#[test]
fn hundreds_of_steps_stay_close_to_the_oracle() {
    // ε well above the rounding error of a gradient, or else Adam turns the sign of a rounding error into a full step.
    let adam = Adam { epsilon: 1e-3, weight_decay: 0.05, ..Adam::new(3e-3) };
    for kernels in Kernels::available() {
        let plain = [3, 4, 1].into_iter().zip(plain_rules().into_iter().skip(1).step_by(2));
        let mixed = [4, 1, 7, 3].into_iter().zip(mixed_rules());
        for (case, rule) in plain.chain(mixed) {
            let (shape, batch) = cases().swap_remove(case);
            let shape = Shape { n_heads: rule.heads.len(), ..shape };
            let mut critics = ensemble(&shape, 7, kernels);
            let mut wanted = oracle::critics(&critics);
            let rng = &mut stream(8, Purpose::Test);
            // Where two actions nearly tie at a level, a rounding error chooses; after many steps such choices add up.
            let per_level = rule.heads.iter().any(|head| matches!(head.way, Way::PerLevel));
            let steps = if per_level { 30 } else { 300 };
            for _ in 0..steps {
                let sample = Sample::random(&shape, batch, rng);
                critics.train_step(&sample.batch(), &rule.compiled(shape.n_quantiles), &adam, 0.02).unwrap();
                for critic in &mut wanted {
                    critic.train_step(&rule, &shape, &sample, &adam, 0.02);
                }
            }
            for (m, (got, want)) in oracle::critics(&critics).iter().zip(&wanted).enumerate() {
                let what = format!("{}, {shape:?}, {rule:?}, critic {m}", kernels.name());
                assert_eq!(got.steps, steps);
                assert_close(&flat(&got.online), &flat(&want.online), 2e-4, &what);
                assert_close(&flat(&got.target), &flat(&want.target), 2e-4, &what);
                assert_close(&flat(&got.first), &flat(&want.first), 2e-4, &what);
                assert_close(&flat(&got.second), &flat(&want.second), 2e-4, &what);
            }
        }
    }
}

#[test]
fn a_general_update_with_the_same_gradient_is_the_same_update() {
    // Least squares against hand-made Adam: θ moves by lr · g/(|g| + ε) in the first step.
    let shape = Shape {
        n_inputs: 2,
        sight: None,
        hidden: vec![5],
        layer_norm: false,
        n_heads: 1,
        n_twins: 1,
        n_actions: 2,
        n_quantiles: 3,
        n_critics: 3,
    };
    let mut critics = ensemble(&shape, 9, Kernels::detect());
    let before = oracle::critics(&critics);
    let inputs = Inputs::from_rows(&[1.0, -2.0], 2);
    critics
        .update(&inputs, &Adam::new(1e-3), 1.0, |m, z, d_z| d_z.set(0, 4, z.get(0, 4) - m as f32))
        .unwrap();
    for (m, (before, after)) in before.iter().zip(oracle::critics(&critics)).enumerate() {
        let z = oracle::forward(&before.online, &[1.0, -2.0])[4];
        let moved: Vec<f64> =
            after.online[1].bias.iter().zip(&before.online[1].bias).map(|(a, b)| a - b).collect();
        let want = [0.0, 0.0, 0.0, 0.0, -1e-3 * (z - m as f64).signum(), 0.0];
        assert_close(&moved, &want, 1e-6, "output biases");
        assert_eq!(after.target, after.online, "zeta = 1 copies");
    }
}

#[test]
fn critics_may_learn_from_a_batch_and_by_a_rule_of_their_own() {
    let (shape, batch) = cases().swap_remove(4);
    let sample = |seed| Sample::random(&shape, batch, &mut stream(seed, Purpose::Test));
    let rules = [&plain_rules()[4], &plain_rules()[1]].map(|rule| rule.compiled(shape.n_quantiles));
    let adam = Adam::new(0.01);
    let both = |seed: u64, rule: usize| {
        let mut critics = ensemble(&shape, 9, Kernels::detect());
        critics.train_step(&sample(seed).batch(), &rules[rule], &adam, 0.1).unwrap();
        critics.scale_outputs(0.5);
        oracle::critics(&critics)
    };
    let mut apart = ensemble(&shape, 9, Kernels::detect());
    let untouched = oracle::critics(&apart);
    for (critic, seed) in [(0, 1), (1, 2)] {
        let learned = apart
            .train_critics(critic..critic + 1, &sample(seed).batch(), &rules[critic], &adam, 0.1, critic == 1)
            .unwrap();
        assert_eq!((learned.len(), learned[0] > 0.0), (1, critic == 1), "the loss, where it is wanted");
        if critic == 0 {
            assert_eq!(oracle::critics(&apart)[1].online, untouched[1].online, "the other one stays");
        }
        apart.scale_outputs_of(critic..critic + 1, 0.5);
    }
    let apart = oracle::critics(&apart);
    assert_eq!(apart[0].online, both(1, 0)[0].online);
    assert_eq!(apart[1].online, both(2, 1)[1].online);
}

#[test]
fn zeta_zero_leaves_the_target_alone() {
    let (shape, batch) = cases().swap_remove(3);
    let mut critics = ensemble(&shape, 9, Kernels::detect());
    let before = oracle::critics(&critics);
    let sample = Sample::random(&shape, batch, &mut stream(6, Purpose::Test));
    critics
        .train_step(&sample.batch(), &plain_rules()[0].compiled(shape.n_quantiles), &Adam::new(0.1), 0.0)
        .unwrap();
    for (before, after) in before.iter().zip(oracle::critics(&critics)) {
        assert_eq!(after.target, before.target);
        assert_ne!(after.online, before.online);
    }
}

#[test]
fn members_may_learn_from_batches_of_their_own() {
    let shape = Shape {
        n_inputs: 1,
        sight: None,
        hidden: vec![],
        layer_norm: false,
        n_heads: 1,
        n_twins: 1,
        n_actions: 1,
        n_quantiles: 1,
        n_critics: 3,
    };
    let mut critics = ensemble(&shape, 9, Kernels::detect()).with_threads(2);
    let batches: Vec<Inputs> = (1..=3).map(|n| Inputs::from_rows(&vec![0.5; n * 40], 1)).collect();
    let samples = critics.each_member(|member| {
        let mut n = 0;
        let done = member.learn(&batches[member.index()], &Adam::new(1e-3), 0.5, |z, d_z| {
            n = z.n_samples();
            d_z.fill(1.0 / n as f32);
        });
        done.map(|()| n)
    });
    assert_eq!(samples, [Ok(40), Ok(80), Ok(120)]);
    for critic in oracle::critics(&critics) {
        // The gradient of the bias is Σ_s 1/n = 1, whatever the number of samples.
        assert_close(&critic.first[0].bias, &[0.1], 1e-6, "first moment of the bias");
        assert_close(&critic.first[0].weight[0], &[0.05], 1e-6, "first moment of the weight");
    }
}

#[test]
fn an_update_that_leaves_the_finite_numbers_is_reported() {
    let (shape, _) = cases().swap_remove(3);
    let mut critics = ensemble(&shape, 9, Kernels::detect());
    let inputs = Inputs::from_rows(&[1.0; 17], 17);
    let result = critics.update(&inputs, &Adam::new(0.1), 0.1, |m, _, d_z| {
        d_z.set(0, 3, if m == 2 { f32::NAN } else { 0.0 });
    });
    assert_eq!(result, Err(UpdateError::Diverged { critic: 2, step: 1 }));
}

#[test]
fn a_batch_that_is_not_finite_is_refused_and_changes_nothing() {
    // A clipped residual would turn a NaN reward into a harmless-looking gradient.
    let (shape, batch) = cases().swap_remove(3);
    let mut critics = ensemble(&shape, 9, Kernels::detect());
    let before = critics.to_bytes();
    let good = Sample::random(&shape, batch, &mut stream(6, Purpose::Test));
    let mut try_step = |sample: &Sample| {
        let result = critics.train_step(
            &sample.batch(),
            &plain_rules()[0].compiled(shape.n_quantiles),
            &Adam::new(0.1),
            0.1,
        );
        assert!(critics.to_bytes() == before);
        result.unwrap_err().to_string()
    };
    let mut bad = good.clone();
    bad.rewards[3] = f32::NAN;
    assert_eq!(try_step(&bad), "rewards of the batch must be finite, got NaN in transition 3");
    let mut bad = good.clone();
    bad.next_inputs[5 * 17 + 2] = f32::INFINITY;
    assert_eq!(try_step(&bad), "next_inputs of the batch must be finite, got inf in transition 5");
    let mut bad = good.clone();
    bad.inputs[0] = f32::NEG_INFINITY;
    assert_eq!(try_step(&bad), "inputs of the batch must be finite, got -inf in transition 0");
}

/// Bits and bytes of planes in front of floats, and the same as floats only.
#[test]
fn planes_are_learned_from_bit_for_bit_as_their_floats_are() {
    // 39 cells: no whole bytes of bits, no whole words of bytes. With convolutions, and with a dense layer that sees the cells.
    let (n, n_inputs, n_samples) = (39, 42, 70);
    for (kernels, cells) in
        Kernels::available().into_iter().flat_map(|k| [(k, Cells::Bits), (k, Cells::Bytes)])
    {
        for sight in [Some(sight([3, 1, 13], &[[5, 1, 2]])), None] {
            let (mut shape, _) = seeing_cases().swap_remove(1);
            (shape.n_inputs, shape.sight) = (n_inputs, sight);
            let rng = &mut stream(6, Purpose::Test);
            let mut sample = Sample::random(&shape, n_samples, rng);
            let mut stored = [Vec::new(), Vec::new()].map(|none: Vec<u8>| (none, Vec::new()));
            for (inputs, (bytes, floats)) in
                [&mut sample.inputs, &mut sample.next_inputs].into_iter().zip(&mut stored)
            {
                bytes.extend((0..n_samples * cells.bytes(n)).map(|_| rng.below(256) as u8));
                for (row, bytes) in inputs.chunks_exact_mut(n_inputs).zip(bytes.chunks_exact(cells.bytes(n)))
                {
                    floats.extend_from_slice(&row[n..]);
                    for (i, cell) in row[..n].iter_mut().enumerate() {
                        *cell = match cells {
                            Cells::Bits => f32::from((bytes[i / 8] >> (i % 8)) & 1),
                            Cells::Bytes => f32::from(bytes[i]) / 255.0,
                        };
                    }
                }
            }
            let [inputs, next_inputs] = stored
                .each_ref()
                .map(|(bytes, floats)| Rows { planes: Some(Planes { cells, n, bytes }), floats });
            let (rule, adam) = (plain_rules()[0].compiled(shape.n_quantiles), Adam::new(1e-3));
            let mut plain = ensemble(&shape, 7, kernels);
            let mut packed = plain.clone();
            let batch = sample.batch();
            plain.train_step(&batch, &rule, &adam, 0.1).unwrap();
            packed.train_step(&Batch { inputs, next_inputs, ..batch }, &rule, &adam, 0.1).unwrap();
            assert!(plain.to_bytes() == packed.to_bytes(), "{}, {shape:?}, {cells:?}", kernels.name());
            assert_eq!(inputs.expanded(n_inputs), sample.inputs);
            let [by_floats, by_planes] =
                [batch.inputs, inputs].map(|rows| plain.act_many(Which::Online, rows));
            assert_eq!(by_floats, by_planes);

            let mut bad = stored[0].1.clone();
            bad[3 * 5 + 1] = f32::NAN;
            let inputs = Rows { floats: &bad, ..inputs };
            let refused = packed.train_step(&Batch { inputs, next_inputs, ..batch }, &rule, &adam, 0.1);
            let refused = refused.unwrap_err().to_string();
            assert_eq!(refused, "inputs of the batch must be finite, got NaN in transition 5");
            assert!(plain.to_bytes() == packed.to_bytes());
        }
    }
}

#[test]
#[should_panic(expected = "want n·D, 5 and 3 for each sample")]
fn planes_that_are_not_whole_are_refused() {
    let planes = Planes { cells: Cells::Bits, n: 39, bytes: &[0; 9] };
    let _ = Rows { planes: Some(planes), floats: &[0.0; 6] }.n_samples(42);
}

#[test]
fn moments_of_parameters_that_never_move_do_not_become_denormal() {
    let shape = Shape {
        n_inputs: 2,
        sight: None,
        hidden: vec![8],
        layer_norm: true,
        n_heads: 2,
        n_twins: 2,
        n_actions: 2,
        n_quantiles: 4,
        n_critics: 2,
    };
    let mut critics = ensemble(&shape, 9, Kernels::detect());
    let inputs = Inputs::from_rows(&[1.0, -2.0], 2);
    let adam = Adam { beta_1: 0.5, beta_2: 0.5, ..Adam::new(1e-3) };
    critics.update(&inputs, &adam, 1.0, |_, _, d_z| d_z.fill(1.0)).unwrap();
    // Halved 200 times, from about 1 to below the smallest denormal number.
    for _ in 0..200 {
        critics.update(&inputs, &adam, 1.0, |_, _, _| {}).unwrap();
        for critic in oracle::critics(&critics) {
            let moments = [flat(&critic.first), flat(&critic.second)].concat();
            assert!(moments.iter().all(|&moment| !(moment as f32).is_subnormal()));
        }
    }
}

fn doubles(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}
