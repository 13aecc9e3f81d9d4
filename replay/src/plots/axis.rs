//! A logarithmic axis of a plot.

/// The least value that is drawn, since a logarithm needs one. Smaller values are drawn there.
const FLOOR: f64 = 0.001;

/// The part of an axis that stays free beyond the outermost values.
const MARGIN: f64 = 0.08;

/// A logarithmic axis over some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LogAxis {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl LogAxis {
    /// An axis with room for all of `values`, and some more.
    pub(crate) fn around(values: impl Iterator<Item = f64>) -> Self {
        let ends = values.fold(None, |ends: Option<(f64, f64)>, value| {
            let value = Self::drawn(value);
            let (low, high) = ends.unwrap_or((value, value));
            Some((low.min(value), high.max(value)))
        });
        let (low, high) = ends.unwrap_or((1.0, 1.0));
        // Equal values need some room, too.
        let room = (high / low).powf(MARGIN).max(1.02);
        Self {
            low: low / room,
            high: high * room,
        }
    }

    /// Returns the value that is drawn for `value`.
    pub(crate) fn drawn(value: f64) -> f64 {
        value.max(FLOOR)
    }

    /// Round values between the ends, at most about `most`, in ascending order.
    pub(crate) fn ticks(&self, most: u32) -> Vec<f64> {
        if self.high / self.low < 4.0 {
            return self.even_ticks(most);
        }
        let fine = self.decimal_ticks(&[1.0, 2.0, 5.0]);
        if fine.len() <= most as usize {
            fine
        } else {
            self.decimal_ticks(&[1.0])
        }
    }

    /// Ticks at the powers of ten, times each of `factors`.
    fn decimal_ticks(&self, factors: &[f64]) -> Vec<f64> {
        let powers = powers_of_ten(self.low, self.high).into_iter();
        self.inside(powers.flat_map(|power| factors.iter().map(move |factor| factor * power)))
    }

    /// Ticks at equal distances, for an axis whose ends are close.
    fn even_ticks(&self, most: u32) -> Vec<f64> {
        let least = (self.high - self.low) / f64::from(most.max(1));
        let rough = 10_f64.powf(least.log10().floor());
        let mut factors = [1.0, 2.0, 5.0].into_iter();
        let step = rough * factors.find(|f| f * rough >= least).unwrap_or(10.0);
        let first = (self.low / step).ceil();
        self.inside((0..=most).map(|count| (first + f64::from(count)) * step))
    }

    fn inside(&self, values: impl Iterator<Item = f64>) -> Vec<f64> {
        let inside = values.filter(|value| (self.low..=self.high).contains(value));
        inside.collect()
    }
}

/// The powers of ten from the last one below `low` to the last one below `high`.
fn powers_of_ten(low: f64, high: f64) -> Vec<f64> {
    let first = 10_f64.powf(low.log10().floor());
    let powers = std::iter::successors(Some(first), |power| Some(power * 10.0));
    powers.take_while(|power| *power <= high).collect()
}

/// The label of a tick: up to nine digits after the point, without zeros at the end.
pub(crate) fn label(tick: f64) -> String {
    let text = format!("{tick:.9}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(low: f64, high: f64) -> Vec<String> {
        let axis = LogAxis { low, high };
        axis.ticks(8).into_iter().map(label).collect()
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(labels(0.95, 60.0), ["1", "2", "5", "10", "20", "50"]);
        assert_eq!(
            labels(0.99, 1.12),
            ["1", "1.02", "1.04", "1.06", "1.08", "1.1", "1.12"]
        );
        assert_eq!(labels(0.002, 900.0), ["0.01", "0.1", "1", "10", "100"]);
        assert_eq!(
            labels(0.9, 2.45),
            ["1", "1.2", "1.4", "1.6", "1.8", "2", "2.2", "2.4"]
        );
    }

    #[test]
    fn an_axis_of_nothing_or_of_one_value_has_a_length() {
        for values in [&[][..], &[0.0], &[3.0, 3.0]] {
            let axis = LogAxis::around(values.iter().copied());
            assert!(axis.low < axis.high, "{axis:?}");
            assert!(!axis.ticks(8).is_empty(), "{axis:?}");
        }
    }

    proptest! {
        #[test]
        fn every_value_is_between_the_ends(
            values in proptest::collection::vec(0.0_f64..1e6, 1..20),
        ) {
            let axis = LogAxis::around(values.iter().copied());
            prop_assert!(values.iter().all(|value| axis.low < LogAxis::drawn(*value) && LogAxis::drawn(*value) < axis.high));
            let ticks = axis.ticks(8);
            prop_assert!(ticks.len() <= 9);
            prop_assert!(ticks.is_sorted_by(|one, other| one < other));
        }
    }
}
