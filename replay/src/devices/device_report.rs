//! The report on the devices of a machine, as text and as JSON.

use std::fmt::Write as _;

use binpool_cuda::CudaDevice;
use binpool_mock::{CostTable, DeviceProfile};
use binpool_opencl::{Characterization, DeviceInfo, DeviceSelector, OpenClBackend, OpenClError};
use binpool_vulkan::VulkanDevice;
use serde_json::{Value, json};

use crate::{figures::ratio, report::markdown_table::MarkdownTable};
use binpool::words::bytes;

/// The characters of a row's title, and of its value.
const TITLE: usize = 24;
const VALUE: usize = 73;

/// The report's data about a device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceEntry {
    /// Its index among all devices.
    pub index: usize,
    /// Its own description of its capabilities.
    pub device: Characterization,
    /// The kind of memory that suits a pool there, or why there is none, as text.
    pub for_a_pool: String,
    /// What it lacks, in words.
    pub limitations: Vec<String>,
    /// Its limits and costs, if they were measured.
    pub profile: Option<DeviceProfile>,
}

impl DeviceEntry {
    /// Queries the capabilities of a device.
    ///
    /// # Errors
    ///
    /// A failure of the runtime.
    pub fn query(info: &DeviceInfo) -> Result<Self, OpenClError> {
        let device = info.characterize()?;
        let for_a_pool = match OpenClBackend::open(&DeviceSelector::Index(info.index())) {
            Ok(backend) => backend
                .preferred_allocator()
                .map_or_else(|error| error.to_string(), |choice| choice.to_string()),
            Err(error) => error.to_string(),
        };
        Ok(Self {
            index: info.index(),
            limitations: limitations(&device),
            device,
            for_a_pool,
            profile: None,
        })
    }
}

/// The report's data about a CUDA device.
#[derive(Clone, Debug)]
pub struct CudaEntry {
    /// The device.
    pub device: CudaDevice,
    /// Its limits and costs, if they were measured.
    pub profile: Option<DeviceProfile>,
}

/// The report's data about a Vulkan device.
#[derive(Clone, Debug)]
pub struct VulkanEntry {
    /// The number, counted from 0.
    pub number: usize,
    /// The device.
    pub device: VulkanDevice,
    /// Its limits and costs, if they were measured.
    pub profile: Option<DeviceProfile>,
}

fn limitations(device: &Characterization) -> Vec<String> {
    let limits = &device.limits;
    let lacks = [
        (
            device.version < (1, 2),
            "older than OpenCL 1.2: binpool cannot use it",
        ),
        (
            !limits.svm.any(),
            "no shared virtual memory: it has only buffers",
        ),
        (
            limits.svm.coarse && !limits.svm.fine,
            "no fine-grained shared virtual memory: the host must map memory to access it",
        ),
        (
            !limits.out_of_order_queues,
            "no out-of-order queues: the commands of a queue run one after another",
        ),
        (!device.images.images, "no images: use buffers"),
        (
            !device.doubles,
            "no double precision: kernels compute in float",
        ),
    ];
    let found = lacks.into_iter().filter(|(lacks, _)| *lacks);
    let mut found: Vec<String> = found.map(|(_, what)| what.to_owned()).collect();
    let largest = limits.largest_block_bytes as u64;
    if largest < limits.capacity_bytes {
        let part = ratio(largest, limits.capacity_bytes) * 100.0;
        let largest = bytes(largest);
        found.push(format!(
            "the largest block is {largest}, {part:.0} % of its memory"
        ));
    }
    found
}

/// Returns the devices as a JSON array with an object for each: OpenCL's, then CUDA's, then Vulkan's.
pub fn devices_json(entries: &[DeviceEntry], cuda: &[CudaEntry], vulkan: &[VulkanEntry]) -> String {
    let of_cuda = cuda.iter().map(|entry| {
        let object = json!({
            "backend": "cuda",
            "index": entry.device.ordinal(),
            "name": entry.device.name(),
            "capacity_bytes": entry.device.total_bytes(),
        });
        with_profile(object, entry.profile.as_ref())
    });
    let of_vulkan = vulkan.iter().map(|entry| {
        let object = json!({
            "backend": "vulkan",
            "index": entry.number,
            "name": entry.device.name(),
            "capacity_bytes": entry.device.total_bytes(),
            "virtual_memory": entry.device.has_virtual_memory(),
        });
        with_profile(object, entry.profile.as_ref())
    });
    let all = entries.iter().map(object).chain(of_cuda).chain(of_vulkan);
    format!("{:#}", all.collect::<Value>())
}

/// One object of the JSON report, of an OpenCL device.
fn object(entry: &DeviceEntry) -> Value {
    let (device, limits) = (&entry.device, &entry.device.limits);
    let version = |(major, minor): (u32, u32)| format!("{major}.{minor}");
    let object = json!({
        "backend": "opencl",
        "index": entry.index,
        "name": limits.device_name,
        "platform": device.platform,
        "kind": device.kind.to_string(),
        "driver": device.driver,
        "version": version(device.version),
        "c_version": version(device.c_version),
        "capacity_bytes": limits.capacity_bytes,
        "largest_block_bytes": limits.largest_block_bytes,
        "alignment_bytes": limits.alignment.bytes(),
        "cache_bytes": device.cache_bytes,
        "cache_line_bytes": device.cache_line_bytes,
        "compute_units": device.compute_units,
        "work_group_size": device.work_group_size,
        "local_memory_bytes": device.local_memory_bytes,
        "unified_memory": device.unified_memory,
        "svm": {
            "coarse": limits.svm.coarse,
            "fine": limits.svm.fine,
            "atomics": limits.svm.atomics,
            "system": limits.svm.system,
            "largest_alignment_bytes": limits.largest_svm_alignment.bytes(),
        },
        "out_of_order_queues": limits.out_of_order_queues,
        "images": device.images.images,
        "doubles": device.doubles,
        "halves": device.halves,
        "extensions": device.extensions,
        "for_a_pool": entry.for_a_pool,
        "limitations": entry.limitations,
    });
    with_profile(object, entry.profile.as_ref())
}

fn with_profile(mut object: Value, profile: Option<&DeviceProfile>) -> Value {
    if let Some(profile) = profile {
        object["profile"] = json!(profile);
    }
    object
}

/// Returns the devices as text: OpenCL's, then CUDA's, then Vulkan's.
#[must_use]
pub fn devices_text(entries: &[DeviceEntry], cuda: &[CudaEntry], vulkan: &[VulkanEntry]) -> String {
    let texts = entries.iter().map(text).chain(cuda.iter().map(cuda_text));
    let texts = texts.chain(vulkan.iter().map(vulkan_text));
    texts.collect::<Vec<_>>().join("\n")
}

fn cuda_text(entry: &CudaEntry) -> String {
    let device = &entry.device;
    let title = format!("[{}] {} (CUDA)", device.ordinal(), device.name());
    short_text(&title, device.total_bytes() as u64, entry.profile.as_ref())
}

fn vulkan_text(entry: &VulkanEntry) -> String {
    let device = &entry.device;
    let pages = if device.has_virtual_memory() {
        ", sparse binding"
    } else {
        ""
    };
    let title = format!("[{}] {} (Vulkan{pages})", entry.number, device.name());
    short_text(&title, device.total_bytes(), entry.profile.as_ref())
}

fn short_text(title: &str, memory: u64, profile: Option<&DeviceProfile>) -> String {
    let mut text = format!("{title}\n   {:<TITLE$}{}\n", "memory", bytes(memory));
    if let Some(profile) = profile {
        text.push('\n');
        text.push_str(&costs(profile));
    }
    text
}

fn text(entry: &DeviceEntry) -> String {
    let device = &entry.device;
    let mut text = format!(
        "[{}] {} ({}, {})\n",
        entry.index, device.limits.device_name, device.kind, device.platform
    );
    let mut row = |title: &str, value: &str| {
        for (index, line) in wrapped(value).iter().enumerate() {
            let title = if index == 0 { title } else { "" };
            let row = format!("   {title:<TITLE$}{line}");
            // Writing to a string does not fail.
            let _ = writeln!(text, "{}", row.trim_end());
        }
    };
    for line in device.to_string().lines() {
        let (title, value) = line.split_at_checked(TITLE).unwrap_or((line, ""));
        row(title, value);
    }
    row("for a pool", &entry.for_a_pool);
    for (index, limitation) in entry.limitations.iter().enumerate() {
        row(if index == 0 { "limitations" } else { "" }, limitation);
    }
    if let Some(profile) = &entry.profile {
        text.push('\n');
        text.push_str(&costs(profile));
    }
    text
}

/// Breaks a text into lines that fit beside their title. There is at least one.
fn wrapped(text: &str) -> Vec<String> {
    let mut words = text.split_whitespace();
    let mut lines = vec![words.next().unwrap_or_default().to_owned()];
    for word in words {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= VALUE => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The costs of a device, as tables.
fn costs(profile: &DeviceProfile) -> String {
    let costs = &profile.costs;
    let by_size = [
        ("create", &costs.create_buffer),
        ("commit", &costs.commit),
        ("release, committed", &costs.release_committed),
        ("release, deferred", &costs.release_deferred),
        ("SVM allocate", &costs.allocate_svm),
        ("SVM free", &costs.free_svm),
    ];
    let by_pages = [
        ("create", &costs.create_pages),
        ("map, with access", &costs.map),
        ("unmap", &costs.unmap),
        ("release", &costs.release_pages),
    ];
    let of_pages = match costs.create_pages.points() {
        [] => String::new(),
        _ => points_table("us for pages of", &by_pages, bytes) + "\n\n",
    };
    let by_views = [
        ("create", &costs.create_sub_region),
        ("release", &costs.release_sub_region),
    ];
    let mut single = MarkdownTable::new(["call", "us"], 1..);
    for (call, micros) in [
        ("enqueue a fill", costs.enqueue),
        ("marker", costs.marker),
        ("barrier", costs.barrier),
        ("status of an event", costs.status),
        ("wait for a marker", costs.wait),
        ("flush", costs.flush),
        ("finish", costs.finish),
        ("create a queue", costs.create_queue),
        ("create or resolve a user event", costs.user_event),
    ] {
        single.add_row([call.to_owned(), micros_text(micros)]);
    }
    format!(
        "{}\n\n{of_pages}{}\n\n{single}\n",
        points_table("us for blocks of", &by_size, bytes),
        points_table(
            "us for a view of a block with",
            &by_views,
            |views| match views {
                1 => "1 view".into(),
                views => format!("{views} views"),
            }
        ),
    )
}

/// A table with a row for each size and a column for each cost. A cost without points has no column.
fn points_table(
    title: &str,
    columns: &[(&str, &CostTable)],
    name: impl Fn(u64) -> String,
) -> String {
    let columns: Vec<_> = columns
        .iter()
        .filter(|(_, table)| !table.points().is_empty())
        .collect();
    let titles = columns.iter().map(|(title, _)| *title);
    let titles: Vec<&str> = std::iter::once(title).chain(titles).collect();
    let mut table = MarkdownTable::new(titles, 1..);
    let most = columns
        .iter()
        .max_by_key(|(_, table)| table.points().len())
        .map_or(&[][..], |(_, table)| table.points());
    for (size, _) in most {
        let cells = columns.iter().map(|(_, table)| {
            let point = table.points().iter().find(|(own, _)| own == size);
            point.map_or_else(String::new, |(_, micros)| micros_text(*micros))
        });
        table.add_row(std::iter::once(name(*size)).chain(cells));
    }
    table.to_string()
}

fn micros_text(micros: f64) -> String {
    format!("{micros:.2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_broken_where_it_no_longer_fits_beside_its_title() {
        let word = "x".repeat(VALUE / 2);
        assert_eq!(wrapped(""), [""]);
        assert_eq!(
            wrapped(&format!("{word}  {word}")),
            [format!("{word} {word}")]
        );
        assert_eq!(
            wrapped(&format!("{word} y{word} z")),
            [word.clone(), format!("y{word} z")]
        );
        assert_eq!(wrapped(&"y".repeat(VALUE + 1)), ["y".repeat(VALUE + 1)]);
    }

    #[test]
    fn costs_that_were_measured_at_some_sizes_stand_in_the_rows_of_these() {
        let (all, some) = (
            CostTable::new(&[(1, 0.5), (2, 1.5), (4, 3.0)]),
            CostTable::new(&[(2, 7.0)]),
        );
        let none = CostTable::new(&[]);
        let text = points_table(
            "bytes",
            &[("one", &some), ("two", &all), ("three", &none)],
            |size| size.to_string(),
        );
        let rows: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
            .collect();
        assert_eq!(rows[0], ["bytes", "one", "two"]);
        assert_eq!(
            rows[2..],
            [["1", "", "0.50"], ["2", "7.00", "1.50"], ["4", "", "3.00"]]
        );
    }
}
