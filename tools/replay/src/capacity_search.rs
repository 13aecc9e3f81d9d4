//! Finds the smallest device that a trace fits on.

/// Returns the smallest capacity in bytes at which `succeeds`, between `fails_below` (which may succeed itself) and
/// `known_to_succeed`, to within `resolution` bytes. By bisection: every capacity above one that succeeds is assumed to
/// succeed, too.
///
/// # Errors
///
/// The error of `succeeds`.
pub(crate) fn smallest_capacity<E>(
    fails_below: u64,
    known_to_succeed: u64,
    resolution: u64,
    mut succeeds: impl FnMut(u64) -> Result<bool, E>,
) -> Result<u64, E> {
    if fails_below >= known_to_succeed || succeeds(fails_below)? {
        return Ok(fails_below.min(known_to_succeed));
    }
    let (mut fails, mut enough) = (fails_below, known_to_succeed);
    while enough - fails > resolution.max(1) {
        let middle = fails + (enough - fails) / 2;
        if succeeds(middle)? {
            enough = middle;
        } else {
            fails = middle;
        }
    }
    Ok(enough)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_capacity_is_enough_and_hardly_more(
            need in 0_u64..1_000_000,
            below in 0_u64..1_000_000,
            above in 0_u64..1_000_000,
            resolution in 0_u64..1000,
        ) {
            let low = need.saturating_sub(below);
            let Ok(found) = smallest_capacity(low, need + above, resolution, |capacity| {
                Ok::<_, Infallible>(capacity >= need)
            });
            prop_assert!(found >= need);
            prop_assert!(found <= need + resolution.max(1));
        }
    }
}
