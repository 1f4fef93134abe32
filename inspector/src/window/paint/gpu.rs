//! Cells as instances that stay on the GPU.

use std::collections::HashMap;

use egui::PaintCallbackInfo;
use egui_wgpu::{CallbackResources, CallbackTrait, ScreenDescriptor};
use wgpu::util::DeviceExt as _;

use super::Cells;
use super::cells::Cell;

const SHADER: &str = "
struct Screen { size: vec2f, scale: f32, unused: f32 };
@group(0) @binding(0) var<uniform> screen: Screen;

struct Corner {
    @builtin(position) at: vec4f,
    @location(0) @interpolate(flat) fill: u32,
    @location(1) @interpolate(flat) line: u32,
    @location(2) @interpolate(flat) kind: u32,
};

@vertex
fn corner(
    @builtin(vertex_index) index: u32,
    @location(0) rect: vec4f,
    @location(1) fill: u32,
    @location(2) line: u32,
    @location(3) kind: u32,
) -> Corner {
    let right = f32(index & 1u);
    let low = f32(index >> 1u);
    let at = mix(rect.xy, rect.zw, vec2f(right, low)) / screen.size;
    return Corner(vec4f(at.x * 2.0 - 1.0, 1.0 - at.y * 2.0, 0.0, 1.0), fill, line, kind);
}

@fragment
fn pixel(cell: Corner) -> @location(0) vec4f {
    let at = vec2u(cell.at.xy);
    var color = cell.fill;
    if cell.kind == 1u && (at.x + at.y) % 6u == 0u { color = cell.line; }
    let falling = at.x + 72u - at.y % 72u;
    if cell.kind == 2u && falling % 9u < 4u { color = cell.line; }
    if cell.kind == 3u && ((at.x + at.y) % 8u == 0u || falling % 8u == 0u) { color = cell.line; }
    if cell.kind == 4u && at.x % 6u < 2u && at.y % 6u < 2u { color = cell.line; }
    return unpack4x8unorm(color);
}
";

/// One view's cells, to be drawn in egui's pass.
pub struct Instances {
    key: u64,
    cells: Cells,
    format: wgpu::TextureFormat,
}

impl Instances {
    pub fn new(key: u64, cells: Cells, format: wgpu::TextureFormat) -> Self {
        Self { key, cells, format }
    }
}

struct Buffer {
    generation: u64,
    room: usize,
    count: u32,
    buffer: wgpu::Buffer,
}

struct Drawing {
    pipeline: wgpu::RenderPipeline,
    screen: wgpu::Buffer,
    group: wgpu::BindGroup,
    buffers: HashMap<u64, Buffer>,
}

impl CallbackTrait for Instances {
    fn prepare(
        &self,
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        descriptor: &ScreenDescriptor,
        _encoder: &mut wgpu::CommandEncoder,
        resources: &mut CallbackResources,
    ) -> Vec<wgpu::CommandBuffer> {
        let drawing =
            resources.entry::<Drawing>().or_insert_with(|| Drawing::new(device, self.format));
        let scale = descriptor.pixels_per_point;
        let [width, height] = descriptor.size_in_pixels.map(|side| side as f32 / scale);
        let screen = [width, height, scale, 0.0];
        queue.write_buffer(&drawing.screen, 0, bytemuck::cast_slice(&screen));
        drawing.keep(device, queue, self.key, &self.cells);
        Vec::new()
    }

    fn paint(
        &self,
        info: PaintCallbackInfo,
        pass: &mut wgpu::RenderPass<'static>,
        resources: &CallbackResources,
    ) {
        let Some(drawing) = resources.get::<Drawing>() else { return };
        let Some(buffer) = drawing.buffers.get(&self.key) else { return };
        // Cells are in the whole screen's points; the scissor is the view's.
        let [width, height] = info.screen_size_px.map(|side| side as f32);
        pass.set_viewport(0.0, 0.0, width, height, 0.0, 1.0);
        pass.set_pipeline(&drawing.pipeline);
        pass.set_bind_group(0, &drawing.group, &[]);
        pass.set_vertex_buffer(0, buffer.buffer.slice(..));
        pass.draw(0..4, 0..buffer.count);
    }
}

impl Drawing {
    fn new(device: &wgpu::Device, format: wgpu::TextureFormat) -> Self {
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some("cells"),
            source: wgpu::ShaderSource::Wgsl(SHADER.into()),
        });
        let screen = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("cells: screen"),
            size: 16,
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let pipeline = pipeline(device, &module, format);
        let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("cells"),
            layout: &pipeline.get_bind_group_layout(0),
            entries: &[wgpu::BindGroupEntry { binding: 0, resource: screen.as_entire_binding() }],
        });
        Self { pipeline, screen, group, buffers: HashMap::new() }
    }

    /// Uploads cells that are not there yet.
    fn keep(&mut self, device: &wgpu::Device, queue: &wgpu::Queue, key: u64, cells: &Cells) {
        let bytes: &[u8] = bytemuck::cast_slice(&cells.all);
        let count = cells.all.len() as u32;
        match self.buffers.get_mut(&key) {
            Some(kept) if kept.generation == cells.generation => {}
            Some(kept) if kept.room >= bytes.len() => {
                queue.write_buffer(&kept.buffer, 0, bytes);
                (kept.generation, kept.count) = (cells.generation, count);
            }
            _ => {
                let buffer = device.create_buffer_init(&wgpu::util::BufferInitDescriptor {
                    label: Some("cells"),
                    contents: bytes,
                    usage: wgpu::BufferUsages::VERTEX | wgpu::BufferUsages::COPY_DST,
                });
                let (generation, room) = (cells.generation, bytes.len());
                self.buffers.insert(key, Buffer { generation, room, count, buffer });
            }
        }
    }
}

fn pipeline(
    device: &wgpu::Device,
    module: &wgpu::ShaderModule,
    format: wgpu::TextureFormat,
) -> wgpu::RenderPipeline {
    device.create_render_pipeline(&wgpu::RenderPipelineDescriptor {
        label: Some("cells"),
        layout: None,
        vertex: wgpu::VertexState {
            module,
            entry_point: Some("corner"),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            buffers: &[Some(wgpu::VertexBufferLayout {
                array_stride: size_of::<Cell>() as u64,
                step_mode: wgpu::VertexStepMode::Instance,
                attributes: &wgpu::vertex_attr_array![
                    0 => Float32x4, 1 => Uint32, 2 => Uint32, 3 => Uint32
                ],
            })],
        },
        primitive: wgpu::PrimitiveState {
            topology: wgpu::PrimitiveTopology::TriangleStrip,
            ..wgpu::PrimitiveState::default()
        },
        depth_stencil: None,
        multisample: wgpu::MultisampleState::default(),
        fragment: Some(wgpu::FragmentState {
            module,
            entry_point: Some("pixel"),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            targets: &[Some(wgpu::ColorTargetState {
                format,
                blend: Some(wgpu::BlendState::PREMULTIPLIED_ALPHA_BLENDING),
                write_mask: wgpu::ColorWrites::ALL,
            })],
        }),
        multiview_mask: None,
        cache: None,
    })
}
