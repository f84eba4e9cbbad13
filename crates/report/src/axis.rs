//! Scales, ticks and their labels.
//!
//! Ticks are at whole multiples of 1, 2 or 5 times a power of ten, and every label of an axis has the same decimals.

use crate::svg::Lettering;

/// A linear map from data to SVG units.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    pub domain: (f64, f64),
    pub range: (f64, f64),
}

impl Scale {
    pub fn at(&self, value: f64) -> f64 {
        let (low, high) = self.domain;
        let (start, end) = self.range;
        start + (value - low) / (high - low) * (end - start)
    }
}

/// A mark on an axis.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tick {
    pub value: f64,
    pub label: String,
}

/// The ticks in `[low, high]`, at most `intervals` steps apart from end to end.
pub(crate) fn ticks((low, high): (f64, f64), intervals: usize) -> Vec<Tick> {
    let raw = (high - low) / intervals.max(1) as f64;
    if !(raw.is_finite() && raw > 0.0) {
        return Vec::new();
    }
    let mut exponent = raw.log10().floor() as i32;
    // With a small tolerance: 0.2 / 2 should give the step 0.1, also where the quotient is rounded up.
    let ratio = raw / 10f64.powi(exponent);
    let mut digit =
        [1.0, 2.0, 5.0, 10.0].into_iter().find(|&nice| ratio <= nice * (1.0 + 1e-9)).unwrap_or(10.0);
    if digit == 10.0 {
        digit = 1.0;
        exponent += 1;
    }
    let step = digit * 10f64.powi(exponent);
    let first = (low / step - 1e-9).ceil();
    let last = (high / step + 1e-9).floor();
    let scientific = low.abs().max(high.abs()) >= 1e6 || step < 1e-5;
    let decimals = (-exponent).max(0) as usize;
    let mut ticks = Vec::new();
    // By multiples, not by repeated addition, which drifts.
    for count in 0..(last - first + 1.0) as usize {
        let value = (first + count as f64) * step;
        let label = if scientific && value != 0.0 {
            let digits = (value.abs().log10().floor() as i32 - exponent).max(0) as usize;
            minus(&format!("{value:.digits$e}"))
        } else {
            fixed(value, decimals)
        };
        ticks.push(Tick { value, label });
    }
    ticks
}

/// The ticks of an axis `length` units long, thinned until their labels do not touch.
pub(crate) fn ticks_that_fit(domain: (f64, f64), length: f64, lettering: &Lettering) -> Vec<Tick> {
    for intervals in (1..=8).rev() {
        let ticks = ticks(domain, intervals);
        let widest = ticks.iter().map(|tick| lettering.width(&tick.label)).fold(0.0, f64::max);
        let gap = match ticks.as_slice() {
            [first, second, ..] => (second.value - first.value) / (domain.1 - domain.0) * length,
            _ => return ticks,
        };
        if widest + 10.0 <= gap {
            return ticks;
        }
    }
    ticks(domain, 1)
}

/// The smallest of 1, 2, 5, 10, 20, 50, … whose multiple of `spacing` reaches `needed`.
pub(crate) fn label_every(spacing: f64, needed: f64) -> usize {
    let mut decade = 1;
    loop {
        for digit in [1, 2, 5] {
            let step = digit * decade;
            // The bound ends the search for a spacing of zero.
            if step as f64 * spacing >= needed || step >= 1_000_000_000 {
                return step;
            }
        }
        decade *= 10;
    }
}

/// `(low, high)` with a margin at both ends, also where all values are equal.
pub(crate) fn padded(low: f64, high: f64) -> (f64, f64) {
    let size = low.abs().max(high.abs());
    let span = high - low;
    let room = if span > 1e-9 * size.max(1e-300) { 0.06 * span } else { (0.1 * size).max(0.5) };
    (low - room, high + room)
}

fn minus(text: &str) -> String {
    text.replace('-', "−")
}

fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    // Rounding may have left a minus in front of zeros.
    if text.bytes().all(|byte| matches!(byte, b'-' | b'0' | b'.')) {
        minus(text.trim_start_matches('-'))
    } else {
        minus(&text)
    }
}

/// `value` to four significant digits, as a label beside a mark.
pub fn four_digits(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let exponent = value.abs().log10().floor() as i32;
    if !(-5..6).contains(&exponent) {
        return minus(&format!("{value:.3e}"));
    }
    let text = fixed(value, (3 - exponent).max(0) as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::svg::TICK;

    fn labels(domain: (f64, f64), intervals: usize) -> Vec<String> {
        ticks(domain, intervals).into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn ticks_are_ones_twos_and_fives() {
        assert_eq!(labels((0.0, 1.0), 5), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels((0.0, 1.0), 10).len(), 11);
        // 1.07 / 5 = 0.214 → step 0.5.
        assert_eq!(labels((-0.02, 1.05), 5), ["0.0", "0.5", "1.0"]);
        // 46 / 6 = 7.7 → step 10; the ends −23 and 23 are no multiples.
        assert_eq!(labels((-23.0, 23.0), 6), ["−20", "−10", "0", "10", "20"]);
        assert_eq!(labels((0.0, 4321.0), 5), ["0", "1000", "2000", "3000", "4000"]);
        assert_eq!(labels((0.0, 0.2), 2), ["0.0", "0.1", "0.2"]);
        assert_eq!(labels((0.0, 3e7), 3), ["0", "1e7", "2e7", "3e7"]);
    }

    #[test]
    fn an_axis_without_length_has_no_ticks() {
        for domain in [(1.0, 1.0), (1.0, 0.0), (f64::NAN, 1.0), (f64::MIN, f64::MAX)] {
            assert!(ticks(domain, 5).is_empty(), "{domain:?}");
        }
        // No multiple of the step lies inside.
        assert!(ticks((0.11, 0.19), 1).is_empty());
    }

    #[test]
    fn ticks_stay_inside_and_within_their_number() {
        for exponent in -12..12 {
            for width in [1.0, 1.3, 2.7, 4.9, 9.9] {
                let low = -0.37 * width * 10f64.powi(exponent);
                let high = low + width * 10f64.powi(exponent);
                for intervals in 1..12 {
                    let found = ticks((low, high), intervals);
                    assert!(found.len() <= intervals + 1, "{found:?} for {low}..{high} by {intervals}");
                    let slack = 1e-6 * (high - low);
                    assert!(found.iter().all(|tick| tick.value >= low - slack && tick.value <= high + slack));
                }
            }
        }
    }

    #[test]
    fn fitted_labels_do_not_touch() {
        for domain in [(0.0, 1.0), (-123456.0, 654321.0), (0.00012, 0.00034)] {
            let found = ticks_that_fit(domain, 180.0, &TICK);
            let x = Scale { domain, range: (0.0, 180.0) };
            for pair in found.windows(2) {
                let right = x.at(pair[0].value) + TICK.width(&pair[0].label) / 2.0;
                let left = x.at(pair[1].value) - TICK.width(&pair[1].label) / 2.0;
                assert!(right < left, "{pair:?}");
            }
        }
    }

    #[test]
    fn labels_are_thinned_by_ones_twos_and_fives() {
        assert_eq!(
            [30.0, 10.0, 6.0, 2.6, 1.3, 0.5].map(|spacing| label_every(spacing, 13.0)),
            [1, 2, 5, 5, 10, 50]
        );
    }

    #[test]
    fn padding_gives_width_to_a_single_value() {
        for value in [0.0, 1.0, -7.5, 1e9, 1e-9] {
            let (low, high) = padded(value, value);
            assert!(low < value && value < high, "{value}");
        }
    }

    #[test]
    fn values_are_spelled_with_four_digits() {
        let shown = [19.0 / 24.0, 0.5, -12.3456, 1234.5678, 0.0, 1e9, 100.0, -1e-9].map(four_digits);
        assert_eq!(shown, ["0.7917", "0.5", "−12.35", "1235", "0", "1.000e9", "100", "−1.000e−9"]);
    }
}
