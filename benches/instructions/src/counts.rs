//! What gungraun counted, from what it prints.

use std::{collections::BTreeMap, io::Read};

use binpool_benches::COUNTED_PAIRS;
use serde_json::{Deserializer, Value};

/// Where the instructions of all threads are in the summary of a benchmark (gungraun's schema 7).
const INSTRUCTIONS: &str = "/profiles/0/data/total/metrics/Ir/values/new";

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Uncounted {
    /// Not gungraun's.
    #[error("what was printed is no summary of a benchmark")]
    Json(#[from] serde_json::Error),
    /// A summary without a figure, or with none but 0.
    #[error(
        "no instruction was counted in {0}: has gungraun's format changed, or the name of the function?"
    )]
    Nothing(String),
}

/// Instructions a pair, by the name of the benchmark.
pub(crate) fn instructions(printed: impl Read) -> Result<BTreeMap<String, f64>, Uncounted> {
    let summaries = Deserializer::from_reader(printed).into_iter();
    let figures = summaries.map(|summary: serde_json::Result<Value>| {
        let summary = summary?;
        let name = summary["id"].as_str().unwrap_or("a benchmark").to_owned();
        let counted = summary.pointer(INSTRUCTIONS).and_then(Value::as_u64);
        match counted.filter(|counted| *counted >= COUNTED_PAIRS) {
            Some(counted) => Ok((name, a_pair(counted))),
            None => Err(Uncounted::Nothing(name)),
        }
    });
    figures.collect()
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn a_pair(counted: u64) -> f64 {
    counted as f64 / COUNTED_PAIRS as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(name: &str, instructions: &str) -> String {
        let metrics = format!(r#"{{"Ir":{{"values":{{"new":{instructions}}}}}}}"#);
        let profile = format!(r#"{{"data":{{"total":{{"metrics":{metrics}}}}}}}"#);
        format!(r#"{{"id":"{name}","profiles":[{profile}]}}"#) + "\n"
    }

    #[test]
    fn instructions_are_shared_out_among_the_pairs() {
        let text = printed("hot_pool", "6553600") + &printed("miss_pool", "65536000");
        let figures = instructions(text.as_bytes()).unwrap();
        let expected = [("hot_pool", 100.0), ("miss_pool", 1000.0)];
        assert_eq!(
            figures,
            expected
                .map(|(name, figure)| (name.to_owned(), figure))
                .into()
        );
    }

    #[test]
    fn nothing_counted_is_an_error_and_not_a_great_success() {
        for count in ["0", "65535", "null"] {
            let result = instructions(printed("hot_pool", count).as_bytes());
            assert!(matches!(result, Err(Uncounted::Nothing(name)) if name == "hot_pool"));
        }
        assert!(matches!(
            instructions(&b"Error"[..]),
            Err(Uncounted::Json(_))
        ));
    }
}
