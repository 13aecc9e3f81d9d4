//! The report on the devices of a machine, as text and as JSON.

use binpool_mock::{CostTable, DeviceProfile};
use binpool_opencl::{Characterization, DeviceInfo, DeviceSelector, OpenClBackend, OpenClError};
use serde_json::{Value, json};

use crate::{devices::PageDevice, figures::ratio, report::markdown_table::MarkdownTable};
use binpool_allocators::words::{bytes, counted};

/// The characters of a row's title, and of its value.
const TITLE: usize = 24;
const VALUE: usize = 73;

/// A device as the report shows it.
#[derive(Clone, Debug)]
pub struct DeviceEntry {
    title: String,
    rows: Vec<(String, String)>,
    object: Value,
    /// Its limits and costs, if they were measured.
    pub profile: Option<DeviceProfile>,
}

impl DeviceEntry {
    /// An OpenCL device, by its own description of its capabilities.
    ///
    /// # Errors
    ///
    /// A failure of the runtime.
    pub fn opencl(info: &DeviceInfo) -> Result<Self, OpenClError> {
        let device = info.characterize()?;
        let for_a_pool = match OpenClBackend::open(&DeviceSelector::Index(info.index())) {
            Ok(backend) => backend
                .preferred_allocator()
                .map_or_else(|error| error.to_string(), |choice| choice.to_string()),
            Err(error) => error.to_string(),
        };
        let limitations = limitations(&device);
        let described = device.to_string();
        let described = described.lines().map(|line| {
            let (title, value) = line.split_at_checked(TITLE).unwrap_or((line, ""));
            (title.to_owned(), value.to_owned())
        });
        let lacks = limitations.iter().enumerate().map(|(index, limitation)| {
            let title = if index == 0 { "limitations" } else { "" };
            (title.to_owned(), limitation.clone())
        });
        let suits = ("for a pool".to_owned(), for_a_pool.clone());
        let name = &device.limits.device_name;
        Ok(Self {
            title: format!(
                "[{}] {name} ({}, {})",
                info.index(),
                device.kind,
                device.platform
            ),
            rows: described.chain([suits]).chain(lacks).collect(),
            object: opencl_object(info.index(), &device, &for_a_pool, &limitations),
            profile: None,
        })
    }

    /// The device with this number of a backend with pages.
    #[must_use]
    pub fn with_pages<D: PageDevice>(number: usize, device: &D) -> Self {
        let (name, all) = (device.name(), device.total_bytes());
        let sparse = if device.has_pages() == Some(true) {
            ", sparse binding"
        } else {
            ""
        };
        let mut object = json!({
            "backend": D::BACKEND,
            "index": number,
            "name": name,
            "capacity_bytes": all,
        });
        if let Some(has_pages) = device.has_pages() {
            object["virtual_memory"] = has_pages.into();
        }
        Self {
            title: format!("[{number}] {name} ({}{sparse})", D::OF),
            rows: vec![("memory".to_owned(), bytes(all))],
            object,
            profile: None,
        }
    }

    fn text(&self) -> String {
        let mut text = self.title.clone() + "\n";
        for (title, value) in &self.rows {
            for (index, line) in wrapped(value).iter().enumerate() {
                let title = if index == 0 { title } else { "" };
                let row = format!("   {title:<TITLE$}{line}");
                text += row.trim_end();
                text += "\n";
            }
        }
        if let Some(profile) = &self.profile {
            text += "\n";
            text += &costs(profile);
        }
        text
    }
}

/// Returns the devices as a JSON array with an object for each.
#[must_use]
pub fn devices_json(entries: &[DeviceEntry]) -> String {
    let objects = entries.iter().map(|entry| {
        let mut object = entry.object.clone();
        if let Some(profile) = &entry.profile {
            object["profile"] = json!(profile);
        }
        object
    });
    format!("{:#}", objects.collect::<Value>())
}

/// Returns the devices as text.
#[must_use]
pub fn devices_text(entries: &[DeviceEntry]) -> String {
    let texts: Vec<String> = entries.iter().map(DeviceEntry::text).collect();
    texts.join("\n")
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

/// The object of an OpenCL device in the JSON report.
fn opencl_object(
    index: usize,
    device: &Characterization,
    for_a_pool: &str,
    limitations: &[String],
) -> Value {
    let limits = &device.limits;
    let version = |(major, minor): (u32, u32)| format!("{major}.{minor}");
    json!({
        "backend": "opencl",
        "index": index,
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
        "for_a_pool": for_a_pool,
        "limitations": limitations,
    })
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
        points_table("us for a view of a block with", &by_views, |views| counted(
            views, "view"
        )),
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
