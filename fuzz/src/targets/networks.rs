//! Files of networks.

use bqrl_nn::{Adam, Ensemble, Inputs, LoadError, Which};

use crate::Input;

pub(super) fn run(input: &Input) -> bool {
    let bytes = input.get("networks.safetensors").unwrap_or_default();
    let Ok(mut networks) = Ensemble::from_bytes(bytes) else { return false };
    let again = Ensemble::from_bytes(&networks.to_bytes()).expect("networks that were written can be read");
    assert_eq!(again.to_bytes(), networks.to_bytes(), "networks that were written and read back");
    let n_inputs = networks.shape().n_inputs;
    let x = vec![0.5; n_inputs];
    let _ = (networks.act(Which::Online, &x), networks.act(Which::Target, &x));
    // Numbers at the end of the range may overflow: that is an error, not a panic.
    let learned = networks.update(&Inputs::from_rows(&x, n_inputs), &Adam::new(0.01), 0.5, |_, z, d_z| {
        d_z.set(0, 0, z.get(0, 0) - 1.0);
    });
    match Ensemble::from_bytes(&networks.to_bytes()) {
        // A forged count of steps at its very limit has passed it now.
        Err(LoadError::Value { name, .. }) if name == "adam.step" => true,
        Err(error) if learned.is_ok() => panic!("networks that have learned are refused: {error}"),
        _ => true,
    }
}
