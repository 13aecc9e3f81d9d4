//! The document form of a profile, as it is written to a file.

use binpool_allocators::{Align, DeviceLimits, FailureOrder, SvmSupport};
use serde::{Deserialize, Serialize};

use super::{CostModel, DeviceProfile};

/// The format name in every document.
const FORMAT: &str = "binpool device profile";

/// The version that is written, and the only one that is read.
const VERSION: u32 = 2;

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    format: String,
    version: u32,
    limits: Limits,
    costs: CostModel,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    device_name: String,
    capacity_bytes: u64,
    largest_block_bytes: usize,
    alignment: usize,
    largest_svm_alignment: usize,
    #[serde(with = "Svm")]
    svm: SvmSupport,
    out_of_order_queues: bool,
    #[serde(with = "Failures")]
    failure_order: FailureOrder,
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "FailureOrder", rename_all = "snake_case")]
enum Failures {
    Kept,
    FailsEarly,
    Lost,
}

#[derive(Deserialize, Serialize)]
#[serde(remote = "SvmSupport", deny_unknown_fields)]
struct Svm {
    coarse: bool,
    fine: bool,
    atomics: bool,
    system: bool,
}

impl From<DeviceProfile> for Document {
    fn from(DeviceProfile { limits, costs }: DeviceProfile) -> Self {
        Self {
            format: FORMAT.into(),
            version: VERSION,
            limits: Limits {
                alignment: limits.alignment.bytes(),
                largest_svm_alignment: limits.largest_svm_alignment.bytes(),
                device_name: limits.device_name,
                capacity_bytes: limits.capacity_bytes,
                largest_block_bytes: limits.largest_block_bytes,
                svm: limits.svm,
                out_of_order_queues: limits.out_of_order_queues,
                failure_order: limits.failure_order,
            },
            costs,
        }
    }
}

impl TryFrom<Document> for DeviceProfile {
    /// What is wrong, which is the text of the error of `serde`.
    type Error = String;

    fn try_from(document: Document) -> Result<Self, String> {
        let Document {
            format,
            version,
            limits: own,
            costs,
        } = document;
        if format != FORMAT {
            return Err(format!("expected the format {FORMAT:?}, found {format:?}"));
        }
        if version != VERSION {
            return Err(format!(
                "expected version {VERSION}, found {version}: measure the device again, with this version of binpool"
            ));
        }
        let align = |field: &str, value| {
            let wrong = || format!("expected {field} to be a power of two, found {value}");
            Align::new(value).ok_or_else(wrong)
        };
        let mut limits = DeviceLimits::new(
            own.device_name,
            own.capacity_bytes,
            own.largest_block_bytes,
            align("alignment", own.alignment)?,
        );
        limits.largest_svm_alignment = align("largest_svm_alignment", own.largest_svm_alignment)?;
        limits.svm = own.svm;
        limits.out_of_order_queues = own.out_of_order_queues;
        limits.failure_order = own.failure_order;
        let single = [
            ("enqueue", costs.enqueue),
            ("marker", costs.marker),
            ("barrier", costs.barrier),
            ("status", costs.status),
            ("wait", costs.wait),
            ("flush", costs.flush),
            ("finish", costs.finish),
            ("create_queue", costs.create_queue),
            ("user_event", costs.user_event),
            ("bytes_per_second", costs.bytes_per_second.unwrap_or(0.0)),
        ];
        for (field, value) in single {
            if !(value >= 0.0 && value.is_finite()) {
                return Err(format!("expected {field} to be 0 or more; it is {value}"));
            }
        }
        Ok(Self { limits, costs })
    }
}
