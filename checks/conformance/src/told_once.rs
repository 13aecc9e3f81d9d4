//! What an error and its causes say.

use std::error::Error;

/// Returns the texts of an error and of its causes, and checks that none of them repeats another: a program prints one after the other.
///
/// ```
/// use binpool_allocators::Error;
/// use binpool_conformance::told_once;
///
/// let error = Error::backend("clFlush", Some(-36), "the queue is gone");
/// assert_eq!(told_once(&error)[1..], ["the queue is gone"]);
/// ```
#[must_use]
pub fn told_once(error: &dyn Error) -> Vec<String> {
    let chain = std::iter::successors(Some(error), |&error| error.source());
    let texts: Vec<_> = chain.map(ToString::to_string).collect();
    for (index, cause) in texts.iter().enumerate() {
        let before = &texts[..index];
        assert!(!before.iter().any(|text| text.contains(cause)), "{texts:?}");
    }
    texts
}
