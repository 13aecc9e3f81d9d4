//! Profiles as documents: written, read, and refused with a reason.

use binpool_mock::{CostTable, DeviceProfile};
use proptest::prelude::*;
use serde_json::{Value, json};

fn document() -> Value {
    serde_json::to_value(DeviceProfile::h200()).unwrap()
}

/// What a document is refused with that has another value at `pointer`.
fn refusal(pointer: &str, value: Value) -> String {
    let mut changed = document();
    *changed.pointer_mut(pointer).unwrap() = value;
    serde_json::from_value::<DeviceProfile>(changed)
        .unwrap_err()
        .to_string()
}

#[test]
fn a_profile_is_the_same_when_it_is_read_again() {
    for profile in [DeviceProfile::h200(), DeviceProfile::pocl()] {
        let text = serde_json::to_string(&profile).unwrap();
        let again: DeviceProfile = serde_json::from_str(&text).unwrap();
        assert_eq!(again, profile);
    }
}

#[test]
fn a_document_says_what_it_is() {
    let document = document();
    assert_eq!(document["format"], "binpool device profile");
    assert_eq!(document["version"], 2);
    assert_eq!(document["limits"]["alignment"], 512);
    assert_eq!(document["limits"]["failure_order"], "kept");
    assert_eq!(document["costs"]["commit"][0], json!([4096, 11.2]));
    assert_eq!(document["costs"]["marker"], 3.4);
}

#[test]
fn what_is_wrong_is_named() {
    assert!(refusal("/format", json!("a cake")).contains("a cake"));
    assert!(refusal("/version", json!(1)).contains("expected version 2, found 1"));
    assert!(refusal("/limits/alignment", json!(24)).contains("alignment to be a power of two"));
    assert!(refusal("/limits/largest_svm_alignment", json!(0)).contains("largest_svm_alignment"));
    assert!(refusal("/costs/wait", json!(-0.5)).contains("wait to be 0 or more; it is -0.5"));
    assert!(refusal("/costs/bytes_per_second", json!(-1.0)).contains("bytes_per_second"));
    assert!(refusal("/costs/commit", json!("much")).contains("invalid type"));
    let mut unknown = document();
    unknown["costs"]["wiat"] = json!(1.0);
    let error = serde_json::from_value::<DeviceProfile>(unknown).unwrap_err();
    assert!(error.to_string().contains("wiat"), "{error}");
    let mut without = document();
    without["costs"].as_object_mut().unwrap().remove("wait");
    let error = serde_json::from_value::<DeviceProfile>(without).unwrap_err();
    assert!(
        error.to_string().contains("missing field `wait`"),
        "{error}"
    );
}

proptest! {
    /// Whatever order the points are in, and whatever their costs are.
    #[test]
    fn a_table_keeps_its_rules_when_it_is_read(points in prop::collection::vec((0_u64..1000, -40_i32..40), 0..8)) {
        let points: Vec<_> = points.into_iter().map(|(size, quarters)| (size, f64::from(quarters) / 4.0)).collect();
        let text = serde_json::to_string(&points).unwrap();
        let table: CostTable = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(table, CostTable::new(&points));
    }
}
