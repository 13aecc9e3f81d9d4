//! Images and buffers that are bound to parts of the same memory, written and read back.

use std::array;

use ash::vk;
use binpool_gpu_allocator::{
    MemoryLocation,
    vulkan::{Allocation, AllocationCreateDesc, AllocationScheme, Allocator},
};

use crate::{allocator, common, common::Parts};

const SIDE: u32 = 60;
const BYTES: usize = (SIDE * SIDE * 4) as usize;

struct Scene<'a> {
    parts: &'a Parts,
    allocator: Allocator,
}

impl Scene<'_> {
    fn allocate(
        &self,
        requirements: vk::MemoryRequirements,
        location: MemoryLocation,
        linear: bool,
    ) -> Allocation {
        let desc = AllocationCreateDesc {
            name: if linear { "a buffer" } else { "an image" },
            requirements,
            location,
            linear,
            allocation_scheme: AllocationScheme::GpuAllocatorManaged,
        };
        self.allocator.allocate(&desc).unwrap()
    }

    fn buffer(&self, location: MemoryLocation) -> (vk::Buffer, Allocation) {
        let device = &self.parts.device;
        let usage = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
        let info = vk::BufferCreateInfo::default()
            .size(BYTES as u64)
            .usage(usage);
        // SAFETY: The device lives.
        let buffer = unsafe { device.create_buffer(&info, None) }.unwrap();
        // SAFETY: The buffer lives.
        let needs = unsafe { device.get_buffer_memory_requirements(buffer) };
        let allocation = self.allocate(needs, location, true);
        // SAFETY: The memory is free, and of the buffer's kind.
        unsafe { device.bind_buffer_memory(buffer, allocation.memory(), allocation.offset()) }
            .unwrap();
        (buffer, allocation)
    }

    fn image(&self) -> (vk::Image, Allocation) {
        let image = self.unbound_image();
        // SAFETY: The image lives.
        let needs = unsafe { self.parts.device.get_image_memory_requirements(image) };
        let allocation = self.allocate(needs, MemoryLocation::GpuOnly, false);
        self.bind(image, &allocation);
        (image, allocation)
    }

    fn bind(&self, image: vk::Image, to: &Allocation) {
        // SAFETY: The memory is free, and of the image's kind.
        unsafe {
            self.parts
                .device
                .bind_image_memory(image, to.memory(), to.offset())
        }
        .unwrap();
    }

    fn unbound_image(&self) -> vk::Image {
        let device = &self.parts.device;
        let info = vk::ImageCreateInfo::default()
            .image_type(vk::ImageType::TYPE_2D)
            .format(vk::Format::R8G8B8A8_UNORM)
            .extent(extent())
            .mip_levels(1)
            .array_layers(1)
            .samples(vk::SampleCountFlags::TYPE_1)
            .usage(vk::ImageUsageFlags::TRANSFER_SRC | vk::ImageUsageFlags::TRANSFER_DST);
        // SAFETY: The device lives.
        unsafe { device.create_image(&info, None) }.unwrap()
    }
}

/// Runs what `record` records.
pub(crate) fn run(parts: &Parts, record: impl FnOnce(&ash::Device, vk::CommandBuffer)) {
    let device = &parts.device;
    let (family, queue) = parts.queues[0];
    let info = vk::CommandPoolCreateInfo::default().queue_family_index(family);
    // SAFETY: The device lives, and everything here until the queue has come to its end.
    unsafe {
        let pool = device.create_command_pool(&info, None).unwrap();
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(pool)
            .command_buffer_count(1);
        let commands = device.allocate_command_buffers(&info).unwrap();
        let begin = vk::CommandBufferBeginInfo::default();
        device.begin_command_buffer(commands[0], &begin).unwrap();
        record(device, commands[0]);
        device.end_command_buffer(commands[0]).unwrap();
        let submit = vk::SubmitInfo::default().command_buffers(&commands);
        device
            .queue_submit(queue, &[submit], vk::Fence::null())
            .unwrap();
        device.queue_wait_idle(queue).unwrap();
        device.destroy_command_pool(pool, None);
    }
}

fn extent() -> vk::Extent3D {
    vk::Extent3D {
        width: SIDE,
        height: SIDE,
        depth: 1,
    }
}

fn layers() -> vk::ImageSubresourceLayers {
    vk::ImageSubresourceLayers::default()
        .aspect_mask(vk::ImageAspectFlags::COLOR)
        .layer_count(1)
}

/// Puts an image into a layout, after all transfers before.
fn into_layout(
    device: &ash::Device,
    commands: vk::CommandBuffer,
    image: vk::Image,
    [from, to]: [vk::ImageLayout; 2],
) {
    let all = vk::AccessFlags::TRANSFER_WRITE | vk::AccessFlags::TRANSFER_READ;
    let transfer = vk::PipelineStageFlags::TRANSFER;
    let barrier = vk::ImageMemoryBarrier::default()
        .image(image)
        .old_layout(from)
        .new_layout(to)
        .src_access_mask(vk::AccessFlags::TRANSFER_WRITE)
        .dst_access_mask(all)
        .subresource_range(
            vk::ImageSubresourceRange::default()
                .aspect_mask(vk::ImageAspectFlags::COLOR)
                .level_count(1)
                .layer_count(1),
        );
    let none = vk::DependencyFlags::empty();
    // SAFETY: It is being recorded.
    unsafe {
        device.cmd_pipeline_barrier(commands, transfer, transfer, none, &[], &[], &[barrier]);
    };
}

#[test]
fn images_and_buffers_in_between_keep_their_bytes() {
    let parts = common::parts();
    let scene = Scene {
        parts: &parts,
        allocator: allocator(&parts),
    };
    // One after the other, so that they are neighbours where they share memory.
    let all: [_; 6] = array::from_fn(|_| {
        (
            scene.image(),
            scene.buffer(MemoryLocation::CpuToGpu),
            scene.buffer(MemoryLocation::GpuOnly),
            scene.buffer(MemoryLocation::GpuToCpu),
        )
    });
    let copy = vk::BufferImageCopy::default()
        .image_subresource(layers())
        .image_extent(extent());
    let whole = vk::BufferCopy::default().size(BYTES as u64);
    let mut all = all;
    for (index, (_, (_, upload), ..)) in (1_u8..).zip(&mut all) {
        upload.mapped_slice_mut().unwrap()[..BYTES].fill(index);
    }
    run(&parts, |device, commands| {
        use vk::ImageLayout as Layout;
        for ((image, _), (upload, _), (middle, _), _) in &all {
            into_layout(
                device,
                commands,
                *image,
                [Layout::UNDEFINED, Layout::TRANSFER_DST_OPTIMAL],
            );
            // SAFETY: It is being recorded; the resources live.
            unsafe {
                device.cmd_copy_buffer_to_image(
                    commands,
                    *upload,
                    *image,
                    Layout::TRANSFER_DST_OPTIMAL,
                    &[copy],
                );
                device.cmd_fill_buffer(commands, *middle, 0, BYTES as u64, 0xffff_ffff);
            }
        }
        // All images are read after all were written, through the buffers in between.
        for ((image, _), _, (middle, _), _) in &all {
            let to_read = [Layout::TRANSFER_DST_OPTIMAL, Layout::TRANSFER_SRC_OPTIMAL];
            into_layout(device, commands, *image, to_read);
            // SAFETY: As above.
            unsafe {
                device.cmd_copy_image_to_buffer(
                    commands,
                    *image,
                    Layout::TRANSFER_SRC_OPTIMAL,
                    *middle,
                    &[copy],
                );
            }
        }
        for ((image, _), _, (middle, _), (back, _)) in &all {
            let same = [Layout::TRANSFER_SRC_OPTIMAL; 2];
            into_layout(device, commands, *image, same);
            let barrier = vk::MemoryBarrier::default()
                .src_access_mask(vk::AccessFlags::TRANSFER_WRITE)
                .dst_access_mask(vk::AccessFlags::TRANSFER_READ);
            let transfer = vk::PipelineStageFlags::TRANSFER;
            let none = vk::DependencyFlags::empty();
            // SAFETY: As above.
            unsafe {
                device.cmd_pipeline_barrier(
                    commands,
                    transfer,
                    transfer,
                    none,
                    &[barrier],
                    &[],
                    &[],
                );
                device.cmd_copy_buffer(commands, *middle, *back, &[whole]);
            }
        }
    });
    for (index, (image, upload, middle, back)) in (1_u8..).zip(all) {
        let bytes = &back.1.mapped_slice().unwrap()[..BYTES];
        assert!(bytes.iter().all(|&byte| byte == index), "image {index}");
        for (buffer, allocation) in [upload, middle, back] {
            // SAFETY: The queue has come to its end.
            unsafe { parts.device.destroy_buffer(buffer, None) };
            scene.allocator.free(allocation).unwrap();
        }
        // SAFETY: As above.
        unsafe { parts.device.destroy_image(image.0, None) };
        scene.allocator.free(image.1).unwrap();
    }
    assert!(scene.allocator.generate_report().allocations.is_empty());
}

/// The validation layer checks whether memory of its own is bound to what it is for.
#[test]
fn an_image_may_have_memory_of_its_own() {
    let parts = common::parts();
    let scene = Scene {
        parts: &parts,
        allocator: allocator(&parts),
    };
    let image = scene.unbound_image();
    // SAFETY: The image lives.
    let requirements = unsafe { parts.device.get_image_memory_requirements(image) };
    let desc = AllocationCreateDesc {
        name: "an image",
        requirements,
        location: MemoryLocation::GpuOnly,
        linear: false,
        allocation_scheme: AllocationScheme::DedicatedImage(image),
    };
    let own = scene.allocator.allocate(&desc).unwrap();
    assert!(own.is_dedicated() && own.offset() == 0);
    assert_eq!(scene.allocator.capacity(), requirements.size);
    scene.bind(image, &own);
    // SAFETY: No command uses it.
    unsafe { parts.device.destroy_image(image, None) };
    scene.allocator.free(own).unwrap();
    assert_eq!(scene.allocator.capacity(), 0);
}
