//! Kernels that are ready to run.

use std::{ffi::CStr, sync::Arc};

use ash::vk;

use super::{Commands, Device, Named as _, VulkanError};

/// A kernel with its constants, which takes its arguments as push constants.
pub(crate) struct Pipeline {
    device: Arc<Device>,
    layout: vk::PipelineLayout,
    raw: vk::Pipeline,
}

impl Pipeline {
    /// Makes a kernel of the function `entry` of a module of SPIR-V.
    pub(crate) fn new(
        device: &Arc<Device>,
        words: &[u32],
        entry: &CStr,
        constants: &[u32],
    ) -> Result<Self, VulkanError> {
        let raw = device.raw();
        let ranges = [vk::PushConstantRange::default()
            .stage_flags(vk::ShaderStageFlags::COMPUTE)
            .size(device.facts.push_constants)];
        let info = vk::PipelineLayoutCreateInfo::default().push_constant_ranges(&ranges);
        // SAFETY: The device lives.
        let layout =
            unsafe { raw.create_pipeline_layout(&info, None) }.of("vkCreatePipelineLayout")?;
        // It is destroyed where the rest fails.
        let mut pipeline = Self {
            device: Arc::clone(device),
            layout,
            raw: vk::Pipeline::null(),
        };
        let info = vk::ShaderModuleCreateInfo::default().code(words);
        // SAFETY: The device lives; the caller promises that the words are SPIR-V.
        let module = unsafe { raw.create_shader_module(&info, None) }.of("vkCreateShaderModule")?;
        let entries: Vec<_> = (0_u32..)
            .zip(constants)
            .map(|(number, _)| vk::SpecializationMapEntry {
                constant_id: number,
                offset: 4 * number,
                size: 4,
            })
            .collect();
        let bytes: Vec<u8> = constants
            .iter()
            .flat_map(|constant| constant.to_ne_bytes())
            .collect();
        let special = vk::SpecializationInfo::default()
            .map_entries(&entries)
            .data(&bytes);
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(module)
            .name(entry)
            .specialization_info(&special);
        let infos = [vk::ComputePipelineCreateInfo::default()
            .stage(stage)
            .layout(layout)];
        // SAFETY: The module, the layout and the structs live during the call.
        let made = unsafe { raw.create_compute_pipelines(vk::PipelineCache::null(), &infos, None) };
        // SAFETY: Pipelines do not need their modules.
        unsafe { raw.destroy_shader_module(module, None) };
        let made = made
            .map_err(|(_, result)| result)
            .of("vkCreateComputePipelines")?;
        pipeline.raw = made.first().copied().unwrap_or_default();
        Ok(pipeline)
    }

    /// The most bytes of arguments.
    pub(crate) fn most_bytes(&self) -> usize {
        self.device.facts.push_constants as usize
    }

    /// Records a launch.
    pub(crate) fn record(&self, commands: Commands<'_>, groups: [u32; 3], arguments: &[u8]) {
        let (raw, buffer, [x, y, z]) = (commands.raw, commands.buffer, groups);
        // SAFETY: The buffer is being recorded; the pipeline lives until its commands have ended.
        unsafe { raw.cmd_bind_pipeline(buffer, vk::PipelineBindPoint::COMPUTE, self.raw) };
        if !arguments.is_empty() {
            let (layout, stage) = (self.layout, vk::ShaderStageFlags::COMPUTE);
            // SAFETY: The bytes fit into the range of the layout.
            unsafe { raw.cmd_push_constants(buffer, layout, stage, 0, arguments) };
        }
        // SAFETY: As above; the caller of a launch promises what the kernel touches.
        unsafe { raw.cmd_dispatch(buffer, x, y, z) };
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        let raw = self.device.raw();
        // SAFETY: No command uses it any more; null is allowed.
        unsafe { raw.destroy_pipeline(self.raw, None) };
        // SAFETY: As above.
        unsafe { raw.destroy_pipeline_layout(self.layout, None) };
    }
}
