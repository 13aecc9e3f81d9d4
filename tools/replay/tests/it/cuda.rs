//! The commands on CUDA devices, over the stand-in for the driver.

use std::{fs, os::unix::fs::symlink, path::Path, sync::OnceLock};

use binpool_cuda::CudaLibrary;
use binpool_mock::DeviceProfile;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::{Ran, binpool, binpool_with};

#[path = "../../../../backend-cuda/tests/it/common/stand_in_build.rs"]
mod stand_in_build;

/// A folder with the stand-in under the driver's name.
fn driver() -> &'static Path {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        symlink(stand_in_build::build(), folder.path().join("libcuda.so.1")).unwrap();
        folder
    });
    folder.path()
}

/// Runs `binpool` where the stand-in is the driver. It has two devices of 1 GiB.
fn on_cuda(arguments: &[&str]) -> Ran {
    binpool_with(arguments, |command| {
        command.env("LD_LIBRARY_PATH", driver());
    })
}

fn objects(ran: &Ran) -> Vec<Value> {
    assert_eq!(ran.status, 0, "{}", ran.errors);
    serde_json::from_str(&ran.output).unwrap()
}

const TRACE: &str = "eager_arrays.trace.gz";
const TWO_STREAMS: &str = "unseen/two_stream_pipeline.trace.gz";

/// Replays a small copy of a program.
fn replay(trace: &str, more: &[&str]) -> Value {
    let program = ["replay", "--json", "--backend", "cuda", "--scale", "256"];
    objects(&on_cuda(&[&program[..], more, &[trace]].concat())).remove(0)
}

/// What the pool does for one stream hangs on the requests and on the device's limits alone.
#[test]
fn a_replay_on_cuda_has_the_figures_of_one_on_a_mock_device_with_the_same_limits() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("stand-in.json");
    let mut profile = DeviceProfile::h200();
    profile.limits.capacity_bytes = 1 << 30;
    profile.limits.largest_block_bytes = 1 << 30;
    profile.limits.alignment = binpool_allocators::Align::new(256).unwrap();
    profile.limits.buffer_views_are_addresses = true;
    fs::write(&file, serde_json::to_string(&profile).unwrap()).unwrap();
    for more in [
        &["--allocator", "immediate"][..],
        &["--allocator", "virtual-memory"],
        &["--no-segments"],
        &["--no-pool"],
        &["--allocator", "immediate", "--growth", "dense"],
    ] {
        let on_mock = ["replay", "--json", "--scale", "256"];
        let on_mock = [&on_mock[..], &["--profile", file.to_str().unwrap()], more].concat();
        let predicted = &objects(&binpool(&[&on_mock[..], &[TRACE]].concat()))[0];
        let found = replay(TRACE, more);
        assert_eq!(found["backend"], "cuda");
        assert!(found["device_time_us"].as_f64().unwrap() > 0.0);
        for key in [
            "trace",
            "allocator",
            "pool",
            "allocations",
            "hits",
            "device_allocations",
            "peak_live_bytes",
            "peak_reserved_bytes",
            "reserved_over_live",
            "maps",
            "unmaps",
        ] {
            assert_eq!(found.get(key), predicted.get(key), "{more:?} {key}");
        }
    }
}

#[test]
fn a_pool_on_cuda_maps_pages_unless_it_is_told_otherwise() {
    for (more, allocator) in [
        (&[][..], "virtual-memory"),
        (&["--growth", "dense"], "virtual-memory"),
        (&["--no-segments"], "immediate"),
        (&["--no-pool"], "immediate"),
    ] {
        assert_eq!(replay(TRACE, more)["allocator"], allocator, "{more:?}");
    }
}

/// A replay fails where a block is overwritten while it is in use, or a command runs where nothing is mapped.
#[test]
fn commands_on_each_block_find_their_numbers_with_every_allocator() {
    for more in [
        &["--touch", "kernels"][..],
        &["--touch", "kernels", "--allocator", "immediate"],
        &["--touch", "kernels", "--no-segments"],
        &["--touch", "kernels", "--no-pool"],
        &["--touch", "kernels", "--threads", "4"],
        &["--touch", "fill", "--rounds", "2"],
    ] {
        let object = replay(TWO_STREAMS, more);
        assert!(object["allocations"].as_u64().unwrap() > 0, "{more:?}");
    }
}

#[test]
fn commands_on_more_blocks_than_a_part_of_their_log_has_find_their_numbers() {
    const BLOCKS: usize = (16 << 10) + 100;
    let lines = (0..BLOCKS).flat_map(|block| [format!("a {block} 4096 0"), format!("f {block}")]);
    let trace = lines.collect::<Vec<_>>().join("\n");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("many.trace");
    fs::write(&file, trace).unwrap();
    let object = replay(file.to_str().unwrap(), &["--touch", "kernels"]);
    assert_eq!(object["allocations"], BLOCKS);
}

#[test]
fn a_device_may_be_behind_with_every_allocator() {
    for more in [
        &["--touch", "kernels"][..],
        &["--allocator", "immediate"],
        &["--no-pool"],
        &["--rounds", "2", "--threads", "2"],
    ] {
        let object = replay(TWO_STREAMS, &[&["--behind", "200us"], more].concat());
        assert_eq!(object["behind_us"], 200.0);
        assert!(
            object["peak_pending_bytes"].as_u64().unwrap() > 0,
            "{more:?}"
        );
        assert_eq!(object["wait_time_us"], Value::Null);
    }
}

#[test]
fn a_profile_is_for_the_mock_alone() {
    let ran = binpool(&["replay", "--backend", "cuda", TRACE, "--profile", "h200"]);
    assert_eq!(ran.status, 2);
    let text = "`--profile` is for the mock";
    assert!(ran.errors.contains(text), "{}", ran.errors);
}

#[test]
fn what_a_backend_does_not_have_is_an_error_that_says_what_to_use() {
    for (backend, allocator, text) in [
        ("cuda", "deferred", "use `--allocator immediate`"),
        ("cuda", "svm", "or `--backend opencl`"),
    ] {
        let allocator = ["--allocator", allocator, TRACE];
        let ran = on_cuda(&[&["replay", "--backend", backend], &allocator[..]].concat());
        assert_eq!(ran.status, 1);
        assert!(ran.errors.contains(text), "{}", ran.errors);
    }
}

#[test]
fn a_device_is_named_by_its_number_or_a_part_of_its_name() {
    let trace = ["--scale", "4096", TRACE];
    let named = |name| {
        let replay = ["replay", "--backend", "cuda", "--device", name];
        on_cuda(&[&replay[..], &trace].concat())
    };
    for name in ["0", "1", "any", "gpu", "Stand"] {
        let ran = named(name);
        assert_eq!(ran.status, 0, "{name}: {}", ran.errors);
        assert!(ran.output.starts_with("cuda on stand-in"), "{}", ran.output);
    }
    for name in ["2", "cpu", "abacus"] {
        let ran = named(name);
        assert_eq!((ran.status, &*ran.output), (1, ""));
        let there = "there is [0] stand-in, [1] stand-in";
        assert!(ran.errors.contains(there), "{}", ran.errors);
    }
}

#[test]
fn without_a_driver_the_error_says_what_to_install() {
    if CudaLibrary::load().is_ok() {
        return;
    }
    for command in [
        &["replay", "--backend", "cuda", TRACE][..],
        &["devices", "--backend", "cuda"],
    ] {
        let ran = binpool(command);
        assert_eq!((ran.status, &*ran.output), (1, ""));
        assert!(
            ran.errors.contains("install NVIDIA's driver"),
            "{}",
            ran.errors
        );
    }
    // OpenCL's devices are listed anyway, and that is no reason to warn.
    let ran = binpool(&["devices"]);
    assert_eq!((ran.status, &*ran.errors), (0, ""));
    assert!(ran.output.contains("\nno CUDA devices: "), "{}", ran.output);
    let ran = binpool(&["devices", "--json"]);
    assert_eq!((ran.status, &*ran.errors), (0, ""));
}

#[test]
fn cuda_devices_are_listed_after_those_of_opencl_and_before_those_of_vulkan() {
    let listed = objects(&on_cuda(&["devices", "--json"]));
    let is_of = |backend: &'static str| move |object: &&Value| object["backend"] == backend;
    let of_cuda: Vec<_> = listed.iter().filter(is_of("cuda")).collect();
    assert_eq!(of_cuda.len(), 2);
    let mut backends: Vec<_> = listed.iter().map(|object| &object["backend"]).collect();
    backends.dedup();
    assert_eq!(backends, ["opencl", "cuda", "vulkan"]);
    let expected =
        json!({"backend": "cuda", "index": 1, "name": "stand-in", "capacity_bytes": 1 << 30});
    assert_eq!(*of_cuda[1], expected);
    let ran = on_cuda(&["devices", "1", "--backend", "cuda"]);
    assert_eq!(ran.status, 0, "{}", ran.errors);
    assert!(
        ran.output.starts_with("[1] stand-in (CUDA)\n"),
        "{}",
        ran.output
    );
    assert!(ran.output.contains("1.0 GiB"), "{}", ran.output);
    let ran = on_cuda(&["devices", "2", "--backend", "cuda"]);
    assert_eq!(ran.status, 1);
}

#[test]
fn what_is_measured_has_the_calls_of_virtual_memory() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cuda.json");
    let file = file.to_str().unwrap();
    let measure = ["devices", "--backend", "cuda", "--measure", "--quick"];
    let ran = on_cuda(&[&measure[..], &["-o", file]].concat());
    assert_eq!(ran.status, 0, "{}", ran.errors);
    for title in ["us for pages of", "map, with access", "us for blocks of"] {
        assert!(ran.output.contains(title), "{}", ran.output);
    }
    let written: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    for call in ["create_pages", "map", "unmap", "release_pages"] {
        let points = written["costs"][call].as_array().unwrap();
        // Up to an eighth of the device.
        assert_eq!(points.len(), 4, "{call}: {points:?}");
    }
    let ran = binpool(&[
        "replay",
        "--profile",
        file,
        "--allocator",
        "virtual-memory",
        "--scale",
        "256",
        TRACE,
    ]);
    assert_eq!(ran.status, 0, "{}", ran.errors);
}
