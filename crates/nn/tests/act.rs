//! Acting for one input, for many, and the forward pass of training: the same networks, the same numbers.

use bqrl_math::{Purpose, stream};
use bqrl_nn::{Ensemble, Init, Inputs, Kernels, Rows, Shape, Which};

const N_INPUTS: usize = 7;

fn ensemble(kernels: Kernels) -> Ensemble {
    let shape = Shape {
        n_inputs: N_INPUTS,
        sight: None,
        hidden: vec![20, 9],
        layer_norm: true,
        n_heads: 2,
        n_twins: 3,
        n_actions: 3,
        n_quantiles: 11,
        n_critics: 4,
    };
    let init = Init { output_scale: 1.0, output_bias: 0.5 };
    Ensemble::new(shape, init, &mut stream(42, Purpose::Init)).unwrap().with_kernels(kernels)
}

/// Rows of numbers in −1..1. 37 rows do not fill their last vector.
fn rows(n: usize) -> Vec<f32> {
    let rng = &mut stream(7, Purpose::Test);
    (0..n * N_INPUTS).map(|_| 2.0 * rng.uniform() as f32 - 1.0).collect()
}

#[test]
fn acting_for_many_inputs_agrees_with_acting_for_each() {
    // Sums of at most 20 products are taken in another order. Each differs by a few of f32's 6e-8; relative to the
    // largest output, 1e-5 leaves room for three layers.
    for kernels in Kernels::available() {
        let critics = ensemble(kernels);
        for n in [1, 2, 37] {
            let rows = rows(n);
            let many = critics.act_many(Which::Online, Rows::floats(&rows));
            assert_eq!(many.len(), n);
            for (row, many) in rows.chunks_exact(N_INPUTS).zip(&many) {
                let one = critics.act(Which::Online, row);
                assert_eq!(many.len(), one.len());
                let largest = one.iter().fold(0.0, |largest: f32, z| largest.max(z.abs()));
                for (many, one) in many.iter().zip(&one) {
                    assert!((many - one).abs() <= 1e-5 * largest, "{}: {many}, {one}", kernels.name());
                }
            }
        }
    }
}

#[test]
fn acting_for_many_inputs_is_the_forward_pass_of_training_bit_for_bit() {
    for kernels in Kernels::available() {
        let mut critics = ensemble(kernels);
        let inputs = Inputs::from_rows(&rows(37), N_INPUTS);
        // With ζ < 1, online and target networks differ.
        critics.update(&inputs, &bqrl_nn::Adam::new(0.01), 0.5, |_, _, d_z| d_z.fill(1.0)).unwrap();
        let n_outputs = critics.shape().n_outputs();
        for which in [Which::Online, Which::Target] {
            let many = critics.act_many(which, Rows::floats(&rows(37)));
            for critic in 0..4 {
                let panels = critics.forward(which, critic, &inputs);
                for (sample, many) in many.iter().enumerate() {
                    for output in 0..n_outputs {
                        let (got, want) = (many[critic * n_outputs + output], panels.get(sample, output));
                        assert_eq!(got.to_bits(), want.to_bits(), "{}, critic {critic}", kernels.name());
                    }
                }
            }
        }
        assert_ne!(
            critics.act_many(Which::Online, Rows::floats(&rows(2))),
            critics.act_many(Which::Target, Rows::floats(&rows(2)))
        );
    }
}

#[test]
#[should_panic(expected = "want n·D")]
fn rows_that_are_not_whole_are_refused() {
    let _ = ensemble(Kernels::scalar()).act_many(Which::Online, Rows::floats(&[0.0; N_INPUTS + 1]));
}
