//! Comparison of floats in this crate's tests: |actual − wanted| ≤ tolerance, entry by entry.

#[track_caller]
pub(crate) fn assert_close(actual: f64, wanted: f64, tolerance: f64) {
    assert!((actual - wanted).abs() <= tolerance, "got {actual}, want {wanted} within {tolerance}");
}

#[track_caller]
pub(crate) fn assert_all_close(actual: &[f64], wanted: &[f64], tolerance: f64) {
    assert_eq!(actual.len(), wanted.len(), "got {actual:?}, want {wanted:?}");
    for (&a, &w) in actual.iter().zip(wanted) {
        assert_close(a, w, tolerance);
    }
}
