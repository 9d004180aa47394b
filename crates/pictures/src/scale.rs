//! Scales and the numbers on them.

/// Round values from zero to at least `max`, about `count` of them.
pub fn ticks(max: f64, count: usize) -> Vec<f64> {
    if max <= 0.0 || !max.is_finite() {
        return vec![0.0, 1.0];
    }
    let rough = max / count.max(1) as f64;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .find(|step| step * power >= rough)
        .unwrap_or(10.0)
        * power;
    let last = (max / step - 1e-9).ceil() as usize;
    (0..=last).map(|place| place as f64 * step).collect()
}

/// An axis label: thousands as k, and no digits without meaning.
pub fn short(value: f64) -> String {
    let (value, end) = match value.abs() {
        large if large >= 1e6 => (value / 1e6, "M"),
        large if large >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}{end}")
}

/// A figure with as many digits as mean something.
pub fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => thousands(value.round() as i64),
        middle if middle >= 10.0 => format!("{value:.1}"),
        small if small >= 0.1 || small == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

fn thousands(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_the_maximum() {
        assert_eq!(
            ticks(47_000.0, 5),
            [0.0, 10_000.0, 20_000.0, 30_000.0, 40_000.0, 50_000.0]
        );
        assert_eq!(ticks(0.9, 4).last(), Some(&1.0));
        assert_eq!(ticks(0.0, 4), [0.0, 1.0]);
        assert_eq!(ticks(100.0, 5).len(), 6);
    }

    #[test]
    fn axis_labels_are_short() {
        assert_eq!(
            (short(0.0), short(12_500.0), short(2e6), short(0.25)),
            ("0".into(), "12.5k".into(), "2M".into(), "0.25".into())
        );
    }

    #[test]
    fn figures_have_as_many_digits_as_mean_something() {
        assert_eq!(number(1_234_567.0), "1,234,567");
        assert_eq!(number(999.6), "1,000");
        assert_eq!(number(42.25), "42.2");
        assert_eq!(number(1.0), "1.00");
        assert_eq!(number(0.0213), "0.0213");
        assert_eq!(thousands(-1000), "-1,000");
    }
}
