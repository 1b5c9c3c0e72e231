/// The result of measuring two builds of the program in alternating rounds, so that a machine that slows down affects
/// both builds equally.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BuildComparison {
    /// The result of this build divided by the result of the other build, as the median over all rounds. It is above 1
    /// if this build is better.
    pub ratio: f64,
    /// A confidence interval of the true median ratio. Its level is 99 % for twelve rounds.
    pub range: (f64, f64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildVerdict {
    /// This build is faster than the other, by more than the noise.
    Gained,
    /// Neither build is faster: they differ by no more than the noise, or by at most one percent.
    Equal,
    /// This build is slower than the other, by more than the noise.
    Lost,
}

impl BuildComparison {
    /// The smallest difference from 1 that counts as faster or slower. A smaller difference can come from the layout of
    /// the code in memory alone.
    const MIN_DIFFERENCE: f64 = 0.01;

    /// Compares the measured rounds of this build with the rounds of the other build. Higher values are better. Returns
    /// `None` if there are no rounds.
    pub fn from_rounds(this: &[f64], other: &[f64]) -> Option<Self> {
        let mut ratios: Vec<f64> = this
            .iter()
            .zip(other)
            .map(|(this, other)| this / other)
            .filter(|ratio| ratio.is_finite())
            .collect();
        ratios.sort_unstable_by(f64::total_cmp);
        // With eight or more rounds, the lowest and the highest ratio are left out of the range, because they may be
        // outliers.
        let outliers = usize::from(ratios.len() >= 8);
        let last = ratios.len().checked_sub(1 + outliers)?;
        let (lower, upper) = (ratios.get((ratios.len() - 1) / 2)?, ratios.get(ratios.len() / 2)?);
        Some(Self {
            ratio: f64::midpoint(*lower, *upper),
            range: (*ratios.get(outliers)?, *ratios.get(last)?),
        })
    }

    pub fn verdict(&self) -> BuildVerdict {
        if self.range.1 < 1.0 && self.ratio < 1.0 - Self::MIN_DIFFERENCE {
            BuildVerdict::Lost
        } else if self.range.0 > 1.0 && self.ratio > 1.0 + Self::MIN_DIFFERENCE {
            BuildVerdict::Gained
        } else {
            BuildVerdict::Equal
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BuildComparison, BuildVerdict};

    fn other() -> Vec<f64> {
        (0..12).map(|round| 1000.0 - 50.0 * f64::from(round)).collect()
    }

    fn verdict(ratios: [f64; 12]) -> BuildVerdict {
        let this: Vec<f64> = other().iter().zip(ratios).map(|(rate, ratio)| rate * ratio).collect();
        BuildComparison::from_rounds(&this, &other()).unwrap().verdict()
    }

    #[test]
    fn a_build_that_is_slower_in_every_round_loses_even_on_a_noisy_machine() {
        assert_eq!(verdict([0.95; 12]), BuildVerdict::Lost);
        assert_eq!(verdict([1.05; 12]), BuildVerdict::Gained);
    }

    #[test]
    fn one_outlier_does_not_hide_that_a_build_is_slower() {
        let mut ratios = [0.95; 12];
        ratios[4] = 2.0;
        assert_eq!(verdict(ratios), BuildVerdict::Lost);
    }

    #[test]
    fn a_build_that_is_slower_in_only_some_rounds_counts_as_equal() {
        let mut ratios = [0.95; 12];
        ratios[4] = 1.01;
        ratios[9] = 1.02;
        assert_eq!(verdict(ratios), BuildVerdict::Equal);
    }

    #[test]
    fn a_difference_below_one_percent_counts_as_equal() {
        assert_eq!(verdict([0.995; 12]), BuildVerdict::Equal);
        assert_eq!(verdict([1.005; 12]), BuildVerdict::Equal);
    }

    #[test]
    fn the_median_of_the_ratios_is_reported_with_its_range() {
        let comparison = BuildComparison::from_rounds(&[1.0, 3.0, 2.0], &[1.0, 1.0, 1.0]).unwrap();
        assert_eq!((comparison.ratio, comparison.range), (2.0, (1.0, 3.0)));
        let comparison = BuildComparison::from_rounds(&[1.0, 2.0], &[1.0, 1.0]).unwrap();
        assert_eq!((comparison.ratio, comparison.range), (1.5, (1.0, 2.0)));
        assert_eq!(BuildComparison::from_rounds(&[], &[]), None);
    }
}
