//! `bqrl bench`: what it prints, and what it refuses. How fast it is, no test can say.

mod support;

use support::Desk;

#[test]
fn every_shape_that_is_asked_for_is_measured() {
    let report = Desk::new().json(&["bench", "--shape", "s,x", "--seconds", "0.01", "--kernels", "scalar"]);
    assert_eq!(report["kernels"], "scalar");
    let shapes = report["shapes"].as_array().unwrap();
    assert_eq!(shapes.iter().map(|speed| &speed["shape"]).collect::<Vec<_>>(), ["s", "x"]);
    for speed in shapes {
        for key in ["steps_per_second", "gflops", "peak_gflops", "fraction_of_peak", "act_microseconds"] {
            assert!(speed[key].as_f64().is_some_and(|value| value > 0.0), "{key}: {speed}");
        }
    }
}

#[test]
fn impossible_measurements_are_refused() {
    let desk = Desk::new();
    for (flag, value) in [
        ("--seconds", "0"),
        ("--seconds", "-1"),
        ("--seconds", "NaN"),
        ("--shape", "xl"),
        ("--kernels", "mmx"),
    ] {
        let said = desk.refusal(&["bench", flag, value]);
        assert!(said.contains(value), "{said}");
    }
}
