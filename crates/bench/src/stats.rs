//! Medians and percentiles of a few samples.

/// The middle value and the ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// How many values there were.
    pub(crate) count: usize,
}

/// `None` when there is nothing to summarise.
pub(crate) fn spread(values: &[f64]) -> Option<Spread> {
    let sorted = sorted(values);
    Some(Spread {
        median: percentile_of(&sorted, 50.0)?,
        min: *sorted.first()?,
        max: *sorted.last()?,
        count: sorted.len(),
    })
}

/// The value at a percentile, between its neighbours where it falls between them.
pub(crate) fn percentile(values: &[f64], percent: f64) -> Option<f64> {
    percentile_of(&sorted(values), percent)
}

pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn percentile_of(sorted: &[f64], percent: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = (percent / 100.0).clamp(0.0, 1.0) * last as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    Some(sorted[low] + (sorted[high] - sorted[low]) * (at - low as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_lies_between_the_middle_two() {
        let spread = spread(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(
            (spread.median, spread.min, spread.max, spread.count),
            (2.5, 1.0, 4.0, 4)
        );
        assert_eq!(super::spread(&[7.0, 9.0, 8.0]).unwrap().median, 8.0);
    }

    #[test]
    fn nothing_has_no_median() {
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[f64::NAN]), None);
        assert_eq!(percentile(&[], 99.0), None);
        assert_eq!(mean(&[]), None);
    }

    #[test]
    fn percentiles_reach_both_ends() {
        let values: Vec<f64> = (0..=100).map(f64::from).collect();
        assert_eq!(percentile(&values, 0.0), Some(0.0));
        assert_eq!(percentile(&values, 99.0), Some(99.0));
        assert_eq!(percentile(&values, 100.0), Some(100.0));
        assert_eq!(percentile(&[1.0, 2.0], 75.0), Some(1.75));
    }
}
