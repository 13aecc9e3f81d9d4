//! Buffers, textures, a kernel and mappings of wgpu: prints their results, and the figures of one side.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Instant,
};

use wgpu::{BufferUsages as Usages, TextureUsages};

const SHADER: &str = "
@group(0) @binding(0) var<storage, read_write> numbers: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&numbers)) {
        numbers[id.x] = numbers[id.x] * 3u + id.x;
    }
}";

/// Numbers, by splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

struct Gpu {
    device: wgpu::Device,
    queue: wgpu::Queue,
    pipeline: wgpu::ComputePipeline,
    /// The most that was taken, and what was in use then.
    peak: (u64, u64),
}

impl Gpu {
    fn open() -> Self {
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        descriptor.backends = wgpu::Backends::VULKAN;
        let instance = wgpu::Instance::new(descriptor);
        let options = wgpu::RequestAdapterOptions::default();
        let adapter = ready(instance.request_adapter(&options)).unwrap();
        let descriptor = wgpu::DeviceDescriptor {
            memory_hints: wgpu::MemoryHints::MemoryUsage,
            ..Default::default()
        };
        let (device, queue) = ready(adapter.request_device(&descriptor)).unwrap();
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: None,
            source: wgpu::ShaderSource::Wgsl(SHADER.into()),
        });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: Default::default(),
            cache: None,
        });
        Self {
            device,
            queue,
            pipeline,
            peak: (0, 0),
        }
    }

    fn buffer(&self, size: u64, usage: Usages) -> wgpu::Buffer {
        self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("a buffer"),
            size,
            usage,
            mapped_at_creation: false,
        })
    }

    fn texture(&self, side: u32) -> wgpu::Texture {
        self.device.create_texture(&wgpu::TextureDescriptor {
            label: Some("a texture"),
            size: extent(side),
            mip_level_count: 1,
            sample_count: 1,
            dimension: wgpu::TextureDimension::D2,
            format: wgpu::TextureFormat::Rgba8Unorm,
            usage: TextureUsages::COPY_SRC | TextureUsages::COPY_DST,
            view_formats: &[],
        })
    }

    fn note_peak(&mut self) {
        let report = self.device.generate_allocator_report().unwrap();
        let now = (report.total_reserved_bytes, report.total_allocated_bytes);
        self.peak = self.peak.max(now);
    }

    fn wait(&self) {
        self.device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
    }

    /// Reads a buffer by mapping it, and returns the sum of its numbers, each with its place.
    fn sum(&self, buffer: &wgpu::Buffer) -> u64 {
        buffer.slice(..).map_async(wgpu::MapMode::Read, |mapped| mapped.unwrap());
        self.wait();
        let view = buffer.slice(..).get_mapped_range().unwrap();
        let words = view.chunks_exact(4).zip(1_u64..);
        let sum = words.fold(0_u64, |sum, (word, place)| {
            let word = u32::from_ne_bytes(word.try_into().unwrap());
            sum.wrapping_add(u64::from(word).wrapping_mul(place))
        });
        drop(view);
        buffer.unmap();
        sum & 0xffff_ffff
    }

    /// Writes numbers, and has a kernel change them.
    fn computed(&self, count: u32) -> u64 {
        let bytes = u64::from(count) * 4;
        let numbers = self.buffer(bytes, Usages::STORAGE | Usages::COPY_DST | Usages::COPY_SRC);
        let back = self.buffer(bytes, Usages::MAP_READ | Usages::COPY_DST);
        let data: Vec<u8> = (0..count).flat_map(|n| (n ^ 0x5a5a).to_ne_bytes()).collect();
        self.queue.write_buffer(&numbers, 0, &data);
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &self.pipeline.get_bind_group_layout(0),
            entries: &[wgpu::BindGroupEntry {
                binding: 0,
                resource: numbers.as_entire_binding(),
            }],
        });
        let mut encoder = self.device.create_command_encoder(&Default::default());
        {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&self.pipeline);
            pass.set_bind_group(0, &group, &[]);
            pass.dispatch_workgroups(count.div_ceil(64), 1, 1);
        }
        encoder.copy_buffer_to_buffer(&numbers, 0, &back, 0, bytes);
        self.queue.submit([encoder.finish()]);
        self.sum(&back)
    }

    /// Writes a texture, and copies it to another one and to a buffer.
    fn through_textures(&self, side: u32) -> u64 {
        let [first, second] = [self.texture(side), self.texture(side)];
        let layout = wgpu::TexelCopyBufferLayout {
            offset: 0,
            bytes_per_row: Some(side * 4),
            rows_per_image: None,
        };
        let data: Vec<u8> = (0..side * side * 4).map(|n| (n % 249) as u8).collect();
        let size = extent(side);
        self.queue.write_texture(first.as_image_copy(), &data, layout, size);
        let back = self.buffer(data.len() as u64, Usages::MAP_READ | Usages::COPY_DST);
        let mut encoder = self.device.create_command_encoder(&Default::default());
        encoder.copy_texture_to_texture(first.as_image_copy(), second.as_image_copy(), size);
        let to = wgpu::TexelCopyBufferInfo {
            buffer: &back,
            layout,
        };
        encoder.copy_texture_to_buffer(second.as_image_copy(), to, size);
        self.queue.submit([encoder.finish()]);
        self.sum(&back)
    }

    /// Makes and drops buffers and textures at random, and returns the sum of those that were looked at.
    fn replaced(&mut self) -> u64 {
        let mut random = Random(7);
        let mut sum = 0_u64;
        let mut buffers = Vec::new();
        let mut textures = Vec::new();
        for step in 0..600_u64 {
            let bytes = 256 * (1 + random.below([8, 200, 4000][step as usize % 3]));
            let usage = Usages::MAP_READ | Usages::COPY_DST;
            let buffer = self.buffer(bytes, usage);
            let data: Vec<u8> = (0..bytes).map(|n| ((n + step) % 253) as u8).collect();
            self.queue.write_buffer(&buffer, 0, &data);
            buffers.push(buffer);
            if step % 4 == 0 {
                textures.push(self.texture(64 << random.below(3)));
            }
            if buffers.len() > 60 {
                self.queue.submit([]);
                let old = buffers.swap_remove(random.below(60) as usize);
                sum = sum.wrapping_add(self.sum(&old));
            }
            if textures.len() > 20 {
                textures.swap_remove(random.below(20) as usize);
            }
            if step % 16 == 0 {
                self.note_peak();
            }
        }
        self.queue.submit([]);
        for buffer in &buffers {
            sum = sum.wrapping_add(self.sum(buffer));
        }
        sum & 0xffff_ffff
    }

    /// Returns the microseconds of making a buffer and dropping it, with 1000 others alive, which are replaced at random.
    fn pair(&self) -> f64 {
        let mut random = Random(1);
        let usage = Usages::STORAGE | Usages::COPY_DST;
        let mut size = || 256 * (1 + random.below(256));
        let mut live: Vec<_> = (0..1000).map(|_| self.buffer(size(), usage)).collect();
        let mut random = Random(2);
        let mut times: Vec<f64> = (0..20)
            .map(|_| {
                let start = Instant::now();
                for _ in 0..500 {
                    let size = 256 * (1 + random.below(256));
                    live[random.below(1000) as usize] = self.buffer(size, usage);
                }
                start.elapsed().as_secs_f64() * 1e6 / 500.0
            })
            .collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }
}

fn extent(side: u32) -> wgpu::Extent3d {
    wgpu::Extent3d {
        width: side,
        height: side,
        depth_or_array_layers: 1,
    }
}

/// The value of a future that waits for nothing, as those of wgpu outside of browsers.
fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it waits"),
    }
}

fn main() {
    let mut gpu = Gpu::open();
    let computed: Vec<u64> = [10, 1000, 70_000].map(|count| gpu.computed(count)).into();
    let textures: Vec<u64> = [64, 256, 512].map(|side| gpu.through_textures(side)).into();
    let replaced = gpu.replaced();
    let (reserved, allocated) = gpu.peak;
    let pair = gpu.pair();
    println!(
        r#"{{"result": "{computed:?} {textures:?} {replaced}", "host_us": {pair:.2}, "memory_over_live": {:.2}}}"#,
        reserved as f64 / allocated as f64
    );
}
