//! What programs rely on of wgpu's memory, by its public interface: `scripts/clients wgpu` runs this on gpu-allocator and over binpool.

use std::{
    future::Future,
    num::NonZeroU64,
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    thread,
};

use wgpu::{
    util::{BufferInitDescriptor, DeviceExt, StagingBelt},
    Buffer, BufferUsages as Usages, Device, MapMode, MemoryHints, Queue, TextureUsages,
};

/// The value of a future that waits for nothing, as those of wgpu outside of browsers.
fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it waits"),
    }
}

fn adapter() -> wgpu::Adapter {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = wgpu::Backends::VULKAN;
    let instance = wgpu::Instance::new(descriptor);
    ready(instance.request_adapter(&wgpu::RequestAdapterOptions::default())).unwrap()
}

fn open(memory_hints: MemoryHints) -> (Device, Queue) {
    let descriptor = wgpu::DeviceDescriptor {
        memory_hints,
        ..Default::default()
    };
    ready(adapter().request_device(&descriptor)).unwrap()
}

fn gpu() -> (Device, Queue) {
    open(MemoryHints::Performance)
}

fn buffer(device: &Device, size: u64, usage: Usages) -> Buffer {
    device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("a buffer"),
        size,
        usage,
        mapped_at_creation: false,
    })
}

fn numbered(bytes: u64) -> Vec<u8> {
    (0..bytes).map(|n| (n % 251) as u8).collect()
}

fn wait(device: &Device) {
    device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
}

/// The bytes of a buffer that may be mapped for reads.
fn mapped(device: &Device, buffer: &Buffer) -> Vec<u8> {
    buffer.map_async(MapMode::Read, .., |mapped| mapped.unwrap());
    wait(device);
    let bytes = buffer.get_mapped_range(..).unwrap().to_vec();
    buffer.unmap();
    bytes
}

/// The bytes of any buffer, by a copy.
fn read(device: &Device, queue: &Queue, from: &Buffer) -> Vec<u8> {
    let back = buffer(device, from.size(), Usages::MAP_READ | Usages::COPY_DST);
    let mut encoder = device.create_command_encoder(&Default::default());
    encoder.copy_buffer_to_buffer(from, 0, &back, 0, from.size());
    queue.submit([encoder.finish()]);
    mapped(device, &back)
}

fn texture(device: &Device, width: u32, height: u32, layers: u32) -> wgpu::Texture {
    device.create_texture(&wgpu::TextureDescriptor {
        label: Some("a texture"),
        size: extent(width, height, layers),
        mip_level_count: 1,
        sample_count: 1,
        dimension: wgpu::TextureDimension::D2,
        format: wgpu::TextureFormat::Rgba8Unorm,
        usage: TextureUsages::COPY_SRC | TextureUsages::COPY_DST,
        view_formats: &[],
    })
}

fn extent(width: u32, height: u32, depth_or_array_layers: u32) -> wgpu::Extent3d {
    wgpu::Extent3d {
        width,
        height,
        depth_or_array_layers,
    }
}

fn rows(buffer: &Buffer, width: u32, height: u32) -> wgpu::TexelCopyBufferInfo<'_> {
    wgpu::TexelCopyBufferInfo {
        buffer,
        layout: wgpu::TexelCopyBufferLayout {
            offset: 0,
            bytes_per_row: Some(width * 4),
            rows_per_image: Some(height),
        },
    }
}

const COPIED: Usages = Usages::COPY_SRC.union(Usages::COPY_DST);

#[test]
fn a_new_buffer_has_zeros_though_its_memory_was_used() {
    let (device, queue) = gpu();
    for round in 0..4 {
        let size = 65_536 << round;
        let used = buffer(&device, size, COPIED);
        queue.write_buffer(&used, 0, &vec![0xff; size as usize]);
        queue.submit([]);
        wait(&device);
        drop(used);
        let new = buffer(&device, size, COPIED);
        assert!(read(&device, &queue, &new).iter().all(|byte| *byte == 0));
    }
}

#[test]
fn a_new_texture_has_zeros_though_its_memory_was_used() {
    let (device, queue) = gpu();
    for _ in 0..3 {
        let used = texture(&device, 128, 128, 1);
        let layout = rows(&buffer(&device, 4, COPIED), 128, 128).layout;
        let bytes = vec![0xff; 128 * 128 * 4];
        queue.write_texture(used.as_image_copy(), &bytes, layout, extent(128, 128, 1));
        queue.submit([]);
        wait(&device);
        drop(used);
        let new = texture(&device, 128, 128, 1);
        let back = buffer(&device, 128 * 128 * 4, Usages::MAP_READ | Usages::COPY_DST);
        let mut encoder = device.create_command_encoder(&Default::default());
        let to = rows(&back, 128, 128);
        encoder.copy_texture_to_buffer(new.as_image_copy(), to, extent(128, 128, 1));
        queue.submit([encoder.finish()]);
        assert!(mapped(&device, &back).iter().all(|byte| *byte == 0));
    }
}

#[test]
fn a_buffer_that_is_mapped_at_its_creation_keeps_what_is_written() {
    let (device, queue) = gpu();
    // One that may be mapped, and one whose bytes go another way.
    for usage in [Usages::MAP_WRITE | Usages::COPY_SRC, COPIED] {
        for size in [4, 256, 100_000, 5_000_000] {
            let new = device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size,
                usage,
                mapped_at_creation: true,
            });
            new.get_mapped_range_mut(..)
                .unwrap()
                .copy_from_slice(&numbered(size));
            new.unmap();
            assert!(
                read(&device, &queue, &new) == numbered(size),
                "{size} bytes"
            );
        }
    }
}

#[test]
fn a_buffer_is_made_of_bytes() {
    let (device, queue) = gpu();
    for size in [4, 1024, 333_332] {
        let new = device.create_buffer_init(&BufferInitDescriptor {
            label: None,
            contents: &numbered(size),
            usage: COPIED,
        });
        assert!(read(&device, &queue, &new) == numbered(size));
    }
}

#[test]
fn mapping_for_writes_and_for_reads_sees_the_same_bytes() {
    let (device, queue) = gpu();
    let size = 70_000;
    let written = buffer(&device, size, Usages::MAP_WRITE | Usages::COPY_SRC);
    for round in 0..3 {
        written.map_async(MapMode::Write, .., |mapped| mapped.unwrap());
        wait(&device);
        let bytes: Vec<u8> = numbered(size).iter().map(|byte| byte ^ round).collect();
        written
            .get_mapped_range_mut(..)
            .unwrap()
            .copy_from_slice(&bytes);
        written.unmap();
        assert!(read(&device, &queue, &written) == bytes, "round {round}");
    }
}

#[test]
fn a_part_of_a_buffer_is_mapped_where_it_lies() {
    let (device, queue) = gpu();
    let back = buffer(&device, 4096, Usages::MAP_READ | Usages::COPY_DST);
    queue.write_buffer(&back, 0, &numbered(4096));
    queue.submit([]);
    back.map_async(MapMode::Read, 1024..2048, |mapped| mapped.unwrap());
    wait(&device);
    let part = back.get_mapped_range(1040..1056).unwrap().to_vec();
    assert_eq!(part, numbered(4096)[1040..1056]);
    // What was not mapped is refused.
    assert!(back.get_mapped_range(0..16).is_err());
    back.unmap();
}

#[test]
fn a_mapping_that_is_given_up_is_told() {
    let (device, _queue) = gpu();
    let back = buffer(&device, 4096, Usages::MAP_READ | Usages::COPY_DST);
    let told = Arc::new(Mutex::new(None));
    let result = Arc::clone(&told);
    back.map_async(MapMode::Read, .., move |mapped| {
        *result.lock().unwrap() = Some(mapped.is_err());
    });
    back.destroy();
    wait(&device);
    assert_eq!(*told.lock().unwrap(), Some(true));
}

#[test]
fn buffers_and_textures_copy_to_each_other() {
    let (device, queue) = gpu();
    for (width, height, layers) in [(64, 1, 1), (64, 64, 4), (256, 33, 1), (512, 512, 2)] {
        let size = u64::from(width * height * layers * 4);
        let from = buffer(&device, size, COPIED);
        queue.write_buffer(&from, 0, &numbered(size));
        let [first, second] = [(); 2].map(|()| texture(&device, width, height, layers));
        let back = buffer(&device, size, COPIED);
        let mut encoder = device.create_command_encoder(&Default::default());
        let all = extent(width, height, layers);
        encoder.copy_buffer_to_texture(rows(&from, width, height), first.as_image_copy(), all);
        encoder.copy_texture_to_texture(first.as_image_copy(), second.as_image_copy(), all);
        encoder.copy_texture_to_buffer(second.as_image_copy(), rows(&back, width, height), all);
        queue.submit([encoder.finish()]);
        assert!(read(&device, &queue, &back) == numbered(size));
    }
}

#[test]
fn buffers_and_textures_beside_each_other_keep_their_bytes() {
    let (device, queue) = gpu();
    let mut both = Vec::new();
    for number in 0..40_u64 {
        let size = 64 * 64 * 4;
        let bytes: Vec<u8> = numbered(size)
            .iter()
            .map(|byte| byte ^ number as u8)
            .collect();
        let linear = buffer(&device, size, COPIED);
        queue.write_buffer(&linear, 0, &bytes);
        let optimal = texture(&device, 64, 64, 1);
        let layout = rows(&linear, 64, 64).layout;
        queue.write_texture(optimal.as_image_copy(), &bytes, layout, extent(64, 64, 1));
        both.push((linear, optimal, bytes));
        if number % 3 == 2 {
            drop(both.swap_remove((number as usize * 7) % both.len()));
        }
    }
    queue.submit([]);
    for (linear, optimal, bytes) in &both {
        assert!(read(&device, &queue, linear) == *bytes);
        let back = buffer(&device, bytes.len() as u64, COPIED);
        let mut encoder = device.create_command_encoder(&Default::default());
        let to = rows(&back, 64, 64);
        encoder.copy_texture_to_buffer(optimal.as_image_copy(), to, extent(64, 64, 1));
        queue.submit([encoder.finish()]);
        assert!(read(&device, &queue, &back) == *bytes);
    }
}

#[test]
fn a_large_buffer_keeps_its_first_and_its_last_bytes() {
    let (device, queue) = gpu();
    let size = device.limits().max_buffer_size.min(200 << 20);
    let large = buffer(&device, size, COPIED);
    queue.write_buffer(&large, 0, &[1; 256]);
    queue.write_buffer(&large, size - 256, &[2; 256]);
    let back = buffer(&device, 512, Usages::MAP_READ | Usages::COPY_DST);
    let mut encoder = device.create_command_encoder(&Default::default());
    encoder.copy_buffer_to_buffer(&large, 0, &back, 0, 256);
    encoder.copy_buffer_to_buffer(&large, size - 256, &back, 256, 256);
    queue.submit([encoder.finish()]);
    assert_eq!(mapped(&device, &back), [[1; 256], [2; 256]].concat());
}

#[test]
fn many_small_buffers_are_made_and_dropped_and_keep_their_bytes() {
    let (device, queue) = gpu();
    let mut live: Vec<(Buffer, u8)> = Vec::new();
    for step in 0..3000_usize {
        let size = 4 * (1 + (step * 37) % 97) as u64;
        let new = buffer(&device, size, COPIED);
        queue.write_buffer(&new, 0, &vec![step as u8; size as usize]);
        live.push((new, step as u8));
        if live.len() > 400 {
            live.swap_remove((step * 31) % live.len());
        }
        if step % 500 == 499 {
            queue.submit([]);
            let (any, byte) = &live[step % live.len()];
            assert!(read(&device, &queue, any).iter().all(|it| it == byte));
        }
    }
    queue.submit([]);
    for (one, byte) in live.iter().step_by(40) {
        assert!(read(&device, &queue, one).iter().all(|it| it == byte));
    }
}

#[test]
fn threads_make_and_drop_buffers() {
    let (device, queue) = gpu();
    thread::scope(|scope| {
        for thread in 0..4_u8 {
            let (device, queue) = (&device, &queue);
            scope.spawn(move || {
                let mut live = Vec::new();
                for step in 0..200_u64 {
                    let new = buffer(device, 256 + 4 * (step * 997 % 5000), COPIED);
                    queue.write_buffer(&new, 0, &vec![thread; new.size() as usize]);
                    live.push(new);
                    if live.len() > 20 {
                        live.swap_remove(step as usize % 20);
                    }
                }
                for one in live {
                    assert!(read(device, queue, &one).iter().all(|byte| *byte == thread));
                }
            });
        }
    });
}

#[test]
fn a_buffer_may_be_dropped_while_a_submit_uses_it() {
    let (device, queue) = gpu();
    let back = buffer(&device, 1 << 20, Usages::MAP_READ | Usages::COPY_DST);
    for byte in 0..10 {
        let from = buffer(&device, 1 << 20, COPIED);
        queue.write_buffer(&from, 0, &vec![byte; 1 << 20]);
        let mut encoder = device.create_command_encoder(&Default::default());
        encoder.copy_buffer_to_buffer(&from, 0, &back, 0, 1 << 20);
        drop(from);
        queue.submit([encoder.finish()]);
        // Takes its memory, if that is given back too soon.
        let next = buffer(&device, 1 << 20, COPIED);
        queue.write_buffer(&next, 0, &vec![0xee; 1 << 20]);
        queue.submit([]);
        assert!(mapped(&device, &back).iter().all(|it| *it == byte));
    }
}

#[test]
fn a_staging_belt_uses_its_chunks_again() {
    let (device, queue) = gpu();
    let target = buffer(&device, 1 << 16, COPIED);
    let mut belt = StagingBelt::new(device.clone(), 4096);
    for round in 0..20_u8 {
        let mut encoder = device.create_command_encoder(&Default::default());
        // The last one is larger than a chunk.
        for (offset, size) in [(0, 1024), (1024, 3072), (4096, 16_384)] {
            let bytes: Vec<u8> = numbered(size).iter().map(|byte| byte ^ round).collect();
            let size = NonZeroU64::new(size).unwrap();
            belt.write_buffer(&mut encoder, &target, offset, size)
                .copy_from_slice(&bytes);
        }
        belt.finish();
        queue.submit([encoder.finish()]);
        belt.recall();
        let all = read(&device, &queue, &target);
        for (offset, size) in [(0, 1024), (1024, 3072), (4096, 16_384)] {
            let bytes: Vec<u8> = numbered(size).iter().map(|byte| byte ^ round).collect();
            assert!(all[offset..offset + size as usize] == bytes);
        }
    }
}

#[test]
fn a_request_that_does_not_fit_is_an_error_of_memory_and_others_go_on() {
    let (device, queue) = gpu();
    let limits = device.limits();
    let (side, layers) = (
        limits.max_texture_dimension_2d,
        limits.max_texture_array_layers,
    );
    // Of more memory than any device has.
    let scope = device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
    let large = texture(&device, side, side, layers);
    let error = ready(scope.pop());
    assert!(
        matches!(error, Some(wgpu::Error::OutOfMemory { .. })),
        "{side} x {side} x {layers}: {error:?}"
    );
    drop(large);
    wait(&device);
    let small = buffer(&device, 4096, COPIED);
    queue.write_buffer(&small, 0, &numbered(4096));
    assert!(read(&device, &queue, &small) == numbered(4096));
}

#[test]
fn a_device_that_is_destroyed_says_so_and_refuses_buffers() {
    let (device, queue) = gpu();
    let told = Arc::new(Mutex::new(Vec::new()));
    let reasons = Arc::clone(&told);
    device.set_device_lost_callback(move |reason, _| reasons.lock().unwrap().push(reason));
    let live = buffer(&device, 1 << 20, COPIED);
    queue.write_buffer(&live, 0, &numbered(1 << 20));
    queue.submit([]);
    device.destroy();
    let _any = device.poll(wgpu::PollType::wait_indefinitely());
    assert_eq!(*told.lock().unwrap(), [wgpu::DeviceLostReason::Destroyed]);
    let scope = device.push_error_scope(wgpu::ErrorFilter::Validation);
    let refused = buffer(&device, 1 << 20, COPIED);
    let mapping = Arc::new(Mutex::new(None));
    let result = Arc::clone(&mapping);
    refused.map_async(MapMode::Read, .., move |mapped| {
        *result.lock().unwrap() = Some(mapped.is_err());
    });
    drop(ready(scope.pop()));
    assert_eq!(*mapping.lock().unwrap(), Some(true));
    drop((live, refused));
}

#[test]
fn a_report_has_what_is_alive_by_its_label() {
    let (device, queue) = gpu();
    let before = device.generate_allocator_report().unwrap();
    let live: Vec<_> = [4096_u64, 100_000, 3 << 20]
        .map(|size| {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: Some(&format!("{size} bytes")),
                size,
                usage: COPIED,
                mapped_at_creation: false,
            })
        })
        .into();
    let report = device.generate_allocator_report().unwrap();
    for one in &live {
        let name = format!("{} bytes", one.size());
        let found: Vec<_> = report
            .allocations
            .iter()
            .filter(|it| it.name == name)
            .collect();
        assert_eq!(found.len(), 1, "{name}");
        assert!(found[0].size >= one.size());
    }
    let bytes: u64 = live.iter().map(Buffer::size).sum();
    assert!(report.total_allocated_bytes >= before.total_allocated_bytes + bytes);
    assert!(report.total_reserved_bytes >= report.total_allocated_bytes);
    let in_blocks: usize = report
        .blocks
        .iter()
        .map(|block| block.allocations.len())
        .sum();
    assert_eq!(in_blocks, report.allocations.len());
    let reserved: u64 = report.blocks.iter().map(|block| block.size).sum();
    assert_eq!(reserved, report.total_reserved_bytes);
    drop(live);
    queue.submit([]);
    wait(&device);
    let after = device.generate_allocator_report().unwrap();
    assert!(!after
        .allocations
        .iter()
        .any(|it| it.name.ends_with(" bytes")));
    assert!(after.total_allocated_bytes <= before.total_allocated_bytes);
}

#[test]
fn each_hint_of_memory_gives_buffers_that_work() {
    let manual = MemoryHints::Manual {
        suballocated_device_memory_block_size: 1 << 20..8 << 20,
    };
    for hints in [MemoryHints::Performance, MemoryHints::MemoryUsage, manual] {
        let (device, queue) = open(hints);
        let all: Vec<_> = [256_u64, 60_000, 5 << 20, 20 << 20]
            .map(|size| {
                let new = buffer(&device, size, COPIED);
                queue.write_buffer(&new, 0, &numbered(size));
                new
            })
            .into();
        for one in &all {
            assert!(read(&device, &queue, one) == numbered(one.size()));
        }
    }
}
