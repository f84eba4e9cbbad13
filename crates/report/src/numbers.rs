//! Formats numbers for tables and pages.

/// A number in at most six significant digits, without trailing zeros.
pub fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    if !(1e-9..1e15).contains(&value.abs()) {
        return format!("{value:.5e}");
    }
    let digits = (5 - value.abs().log10().floor() as i32).clamp(0, 12) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Three decimals; more would be below the noise of three seeds.
pub fn three_decimals(value: f64) -> String {
    number((value * 1000.0).round() / 1000.0)
}

/// 1 − τ in words: "9 times in 10" for τ = 0.1.
pub fn often(tau: f64) -> String {
    let share = 1.0 - tau;
    let whole = |n: &u32| {
        let times = share * f64::from(*n);
        (times - times.round()).abs() < 1e-9 && times.round() >= 1.0
    };
    match [2u32, 3, 4, 5, 10, 20, 100, 1000].into_iter().find(whole) {
        Some(n) => {
            let times = (share * f64::from(n)).round();
            format!("{times} {} in {n}", if times == 1.0 { "time" } else { "times" })
        }
        None => format!("with probability {}", number(share)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_six_significant_digits_and_no_trailing_zeros() {
        let cases =
            [(0.0, "0"), (1.0, "1"), (0.7916666667, "0.791667"), (-12.5, "-12.5"), (19999.999999, "20000")];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
        assert_eq!(number(1e300), "1.00000e300");
        assert_eq!(number(1234567.8), "1234568");
        assert_eq!(number(4.54e-5), "0.0000454");
    }

    #[test]
    fn small_differences_are_rounded_away() {
        assert_eq!(three_decimals(0.12349), "0.123");
        assert_eq!(three_decimals(1234567.8), "1234568");
    }

    #[test]
    fn levels_are_said_in_words() {
        assert_eq!(often(0.1), "9 times in 10");
        assert_eq!(often(0.5), "1 time in 2");
        assert_eq!(often(0.75), "1 time in 4");
        assert_eq!(often(0.05), "19 times in 20");
        assert_eq!(often(0.1234), "with probability 0.8766");
    }
}
