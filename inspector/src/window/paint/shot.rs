//! A picture of the window without a window: the same widgets, drawn into memory.

use std::iter::once;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use egui::epaint::ClippedPrimitive;
use egui::{Color32, FullOutput, RawInput, Rect, TexturesDelta, Vec2};

use super::raster::{Canvas, Raster};

/// What draws a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Renderer {
    /// A graphics driver if there is one, else the CPU.
    Auto,
    /// A graphics driver (lavapipe counts).
    Gpu,
    /// The CPU, without any driver.
    Cpu,
}

/// How a picture is to be.
#[derive(Clone, Copy, Debug)]
pub struct Shot {
    /// Width and height in pixels.
    pub size: (u32, u32),
    /// Pixels per point.
    pub scale: f32,
    /// Dark or light.
    pub dark: bool,
    /// What draws it.
    pub renderer: Renderer,
}

/// Passes before the picture: widgets that measure themselves need more than one.
const PASSES: usize = 6;
const WAIT: Duration = Duration::from_secs(30);

/// A graphics device without a screen.
pub struct Gpu(egui_wgpu::RenderState);

impl Gpu {
    /// Opens a device; software drivers count.
    ///
    /// # Errors
    /// What to install when there is none.
    pub fn open() -> Result<Self> {
        let mut setup = egui_wgpu::WgpuSetupCreateNew::without_display_handle();
        setup.instance_descriptor.backends = wgpu::Backends::VULKAN;
        setup.instance_descriptor.flags = wgpu::InstanceFlags::empty();
        let setup = egui_wgpu::WgpuSetup::CreateNew(setup);
        let instance = pollster::block_on(setup.new_instance());
        let config = egui_wgpu::WgpuConfiguration { wgpu_setup: setup, ..Default::default() };
        let options = egui_wgpu::RendererOptions::PREDICTABLE;
        let made = egui_wgpu::RenderState::create(&config, &instance, None, options);
        pollster::block_on(made).map(Self).map_err(|error| {
            anyhow!(
                "no graphics driver to draw with ({error}); install one (Debian: apt install \
                 libvulkan1 mesa-vulkan-drivers), or say --renderer cpu"
            )
        })
    }

    /// The format that pictures are drawn in.
    pub fn format(&self) -> wgpu::TextureFormat {
        self.0.target_format
    }
}

/// Runs `ui` until it has settled and gives the last picture as a PNG. `ui` is told the format
/// that it draws on, if it draws on a GPU, and says whether it waits for a thread.
///
/// # Errors
/// No driver where one was asked for; a size that cannot be.
pub fn render(
    shot: Shot,
    mut ui: impl FnMut(&mut egui::Ui, Option<wgpu::TextureFormat>) -> bool,
) -> Result<Vec<u8>> {
    let gpu = match shot.renderer {
        Renderer::Cpu => None,
        Renderer::Gpu => Some(Gpu::open()?),
        Renderer::Auto => Gpu::open().ok(),
    };
    let format = gpu.as_ref().map(Gpu::format);
    let ctx = egui::Context::default();
    ctx.set_theme(if shot.dark { egui::Theme::Dark } else { egui::Theme::Light });
    super::apply(&ctx);
    ctx.all_styles_mut(|style| style.animation_time = 0.0);
    let (mut textures, mut output) = (TexturesDelta::default(), FullOutput::default());
    let (mut pass, mut left) = (0, PASSES);
    while left > 0 {
        let mut busy = false;
        output = ctx.run_ui(input(shot, pass), |root| busy = ui(root, format));
        textures.append(std::mem::take(&mut output.textures_delta));
        pass += 1;
        if busy {
            std::thread::sleep(Duration::from_millis(10));
        } else {
            left -= 1;
        }
    }
    let meshes = ctx.tessellate(std::mem::take(&mut output.shapes), shot.scale);
    let paper = ctx.style_of(if shot.dark { egui::Theme::Dark } else { egui::Theme::Light });
    let paper = paper.visuals.panel_fill;
    match gpu {
        Some(gpu) => by_gpu(&gpu, shot, paper, textures, &meshes),
        None => by_cpu(shot, paper, &mut textures, &meshes),
    }
}

fn input(shot: Shot, pass: usize) -> RawInput {
    let points = Vec2::new(shot.size.0 as f32, shot.size.1 as f32) / shot.scale;
    let mut input = RawInput {
        screen_rect: Some(Rect::from_min_size(egui::Pos2::ZERO, points)),
        time: Some(pass as f64),
        ..RawInput::default()
    };
    if let Some(viewport) = input.viewports.get_mut(&egui::ViewportId::ROOT) {
        viewport.native_pixels_per_point = Some(shot.scale);
    }
    input
}

fn by_cpu(
    shot: Shot,
    paper: Color32,
    textures: &mut TexturesDelta,
    meshes: &[ClippedPrimitive],
) -> Result<Vec<u8>> {
    let mut raster = Raster::default();
    let mut set: Vec<_> = textures.set.drain().collect();
    textures.free.clear();
    set.sort_by_key(|(id, _)| *id);
    for (id, deltas) in &set {
        deltas.iter().for_each(|delta| raster.texture(*id, delta));
    }
    let (width, height) = (shot.size.0 as usize, shot.size.1 as usize);
    let mut canvas = Canvas { width, height, pixels: vec![paper; width * height] };
    raster.draw(&mut canvas, meshes, shot.scale);
    let bytes: Vec<u8> = canvas.pixels.iter().flat_map(|pixel| pixel.to_array()).collect();
    encode(shot.size, &bytes)
}

fn by_gpu(
    gpu: &Gpu,
    shot: Shot,
    paper: Color32,
    mut textures: TexturesDelta,
    meshes: &[ClippedPrimitive],
) -> Result<Vec<u8>> {
    let state = &gpu.0;
    let mut renderer = state.renderer.write();
    let mut set: Vec<_> = textures.set.drain().collect();
    textures.free.clear();
    set.sort_by_key(|(id, _)| *id);
    for (id, deltas) in set {
        for delta in deltas {
            renderer.update_texture(&state.device, &state.queue, id, &delta);
        }
    }
    let (width, height) = shot.size;
    let screen = egui_wgpu::ScreenDescriptor {
        size_in_pixels: [width, height],
        pixels_per_point: shot.scale,
    };
    let mut encoder = state.device.create_command_encoder(&Default::default());
    let buffers =
        renderer.update_buffers(&state.device, &state.queue, &mut encoder, meshes, &screen);
    let texture = target(state, shot.size)?;
    let view = texture.create_view(&wgpu::TextureViewDescriptor::default());
    let clear = paper.to_normalized_gamma_f32().map(f64::from);
    let mut pass = encoder
        .begin_render_pass(&wgpu::RenderPassDescriptor {
            color_attachments: &[Some(wgpu::RenderPassColorAttachment {
                view: &view,
                resolve_target: None,
                depth_slice: None,
                ops: wgpu::Operations {
                    load: wgpu::LoadOp::Clear(wgpu::Color {
                        r: clear[0],
                        g: clear[1],
                        b: clear[2],
                        a: 1.0,
                    }),
                    store: wgpu::StoreOp::Store,
                },
            })],
            ..Default::default()
        })
        .forget_lifetime();
    renderer.render(&mut pass, meshes, &screen);
    drop(pass);
    state.queue.submit(buffers.into_iter().chain(once(encoder.finish())));
    encode(shot.size, &read_back(state, &texture, shot.size)?)
}

fn target(state: &egui_wgpu::RenderState, (width, height): (u32, u32)) -> Result<wgpu::Texture> {
    let most = state.device.limits().max_texture_dimension_2d;
    if width > most || height > most {
        bail!("a picture of {width}x{height} is too large for this driver (at most {most} a side)");
    }
    Ok(state.device.create_texture(&wgpu::TextureDescriptor {
        label: Some("picture"),
        size: wgpu::Extent3d { width, height, depth_or_array_layers: 1 },
        mip_level_count: 1,
        sample_count: 1,
        dimension: wgpu::TextureDimension::D2,
        format: state.target_format,
        usage: wgpu::TextureUsages::RENDER_ATTACHMENT | wgpu::TextureUsages::COPY_SRC,
        view_formats: &[],
    }))
}

fn read_back(
    state: &egui_wgpu::RenderState,
    texture: &wgpu::Texture,
    (width, height): (u32, u32),
) -> Result<Vec<u8>> {
    let row = (width * 4).next_multiple_of(wgpu::COPY_BYTES_PER_ROW_ALIGNMENT);
    let buffer = state.device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("picture's pixels"),
        size: u64::from(row) * u64::from(height),
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let mut encoder = state.device.create_command_encoder(&Default::default());
    let layout =
        wgpu::TexelCopyBufferLayout { offset: 0, bytes_per_row: Some(row), rows_per_image: None };
    encoder.copy_texture_to_buffer(
        texture.as_image_copy(),
        wgpu::TexelCopyBufferInfo { buffer: &buffer, layout },
        wgpu::Extent3d { width, height, depth_or_array_layers: 1 },
    );
    let done = state.queue.submit(once(encoder.finish()));
    let slice = buffer.slice(..);
    let (sender, receiver) = std::sync::mpsc::channel();
    slice.map_async(wgpu::MapMode::Read, move |result| drop(sender.send(result)));
    let wait = wgpu::PollType::Wait { submission_index: Some(done), timeout: Some(WAIT) };
    state.device.poll(wait).context("waiting for the driver to draw")?;
    receiver.recv().context("the driver gave no answer")?.context("reading the picture")?;
    let data = slice.get_mapped_range().context("reading the picture")?;
    let rows = data.chunks_exact(row as usize);
    Ok(rows.flat_map(|pixels| &pixels[..width as usize * 4]).copied().collect())
}

/// A PNG of opaque pixels, as small as can be: pictures of windows go into manuals and mails.
fn encode((width, height): (u32, u32), rgba: &[u8]) -> Result<Vec<u8>> {
    let rgb: Vec<u8> = rgba.chunks_exact(4).flat_map(|pixel| &pixel[..3]).copied().collect();
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_compression(png::Compression::Best);
    encoder.set_adaptive_filter(png::AdaptiveFilterType::Adaptive);
    let mut writer = encoder.write_header().context("encoding the picture")?;
    writer.write_image_data(&rgb).context("encoding the picture")?;
    writer.finish().context("encoding the picture")?;
    Ok(bytes)
}
