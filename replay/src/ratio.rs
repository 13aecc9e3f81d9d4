//! Quotients of whole numbers.

#[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}
