//! A program for a GPU, in WGSL.

use wgpu::{
    BindGroup, BindGroupDescriptor, BindGroupEntry, BindGroupLayout, BindGroupLayoutDescriptor,
    BindGroupLayoutEntry, BindingResource, BindingType, BufferBindingType, CommandEncoder,
    ComputePassDescriptor, ComputePipeline, ComputePipelineDescriptor, PipelineCompilationOptions,
    PipelineLayoutDescriptor, ShaderModuleDescriptor, ShaderSource, ShaderStages,
};

use super::{Gpu, side};

/// A small buffer that is the same for all that is computed at once.
pub(crate) const UNIFORM: BindingType = buffer(BufferBindingType::Uniform);
/// A buffer that is read.
pub(crate) const READ: BindingType = buffer(BufferBindingType::Storage { read_only: true });
/// A buffer that is read and written.
pub(crate) const WRITTEN: BindingType = buffer(BufferBindingType::Storage { read_only: false });

const fn buffer(ty: BufferBindingType) -> BindingType {
    BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None }
}

/// A program, compiled for one device.
#[derive(Debug)]
pub(crate) struct Program {
    name: &'static str,
    layout: BindGroupLayout,
    pipeline: ComputePipeline,
}

impl Program {
    /// Compiles the function `name`, whose bindings are numbered in this order. Inside of
    /// [`Gpu::checked`], as all that follows.
    pub(crate) fn new(
        gpu: &Gpu,
        name: &'static str,
        source: &str,
        bindings: &[BindingType],
    ) -> Self {
        let device = gpu.device();
        let entries: Vec<BindGroupLayoutEntry> = (0..)
            .zip(bindings)
            .map(|(binding, ty)| BindGroupLayoutEntry {
                binding,
                visibility: ShaderStages::COMPUTE,
                ty: *ty,
                count: None,
            })
            .collect();
        let described = BindGroupLayoutDescriptor { label: Some(name), entries: &entries };
        let layout = device.create_bind_group_layout(&described);
        let shader = device.create_shader_module(ShaderModuleDescriptor {
            label: Some(name),
            source: ShaderSource::Wgsl(source.into()),
        });
        let pipeline = device.create_compute_pipeline(&ComputePipelineDescriptor {
            label: Some(name),
            layout: Some(&device.create_pipeline_layout(&PipelineLayoutDescriptor {
                label: Some(name),
                bind_group_layouts: &[Some(&layout)],
                ..PipelineLayoutDescriptor::default()
            })),
            module: &shader,
            entry_point: Some(name),
            compilation_options: PipelineCompilationOptions::default(),
            cache: None,
        });
        Self { name, layout, pipeline }
    }

    /// What it is to compute with, in the order of its bindings.
    pub(crate) fn bind<'a>(
        &self,
        gpu: &Gpu,
        resources: impl IntoIterator<Item = BindingResource<'a>>,
    ) -> BindGroup {
        let entries: Vec<BindGroupEntry<'_>> = (0..)
            .zip(resources)
            .map(|(binding, resource)| BindGroupEntry { binding, resource })
            .collect();
        gpu.device().create_bind_group(&BindGroupDescriptor {
            label: Some(self.name),
            layout: &self.layout,
            entries: &entries,
        })
    }

    /// Adds a dispatch of so many workgroups in a row.
    pub(crate) fn dispatch(&self, commands: &mut CommandEncoder, bound: &BindGroup, groups: usize) {
        let described = ComputePassDescriptor { label: Some(self.name), timestamp_writes: None };
        let mut pass = commands.begin_compute_pass(&described);
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, bound, &[]);
        pass.dispatch_workgroups(side(groups), 1, 1);
    }
}
