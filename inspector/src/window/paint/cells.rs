//! Many rectangles at once.
//!
//! Views hand over cells already laid out in points and snapped to pixels, never more than there
//! are pixels. Few of them become one mesh; many go to the GPU as instances that stay there until
//! the view changes.

use std::sync::Arc;

use egui::{Color32, Mesh, Painter, Pos2, Rect, TextureHandle, TextureOptions};

use super::gpu::Instances;

/// How a cell is filled beside its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Pattern {
    /// Nothing more.
    Solid = 0,
    /// Thin lines rising to the right.
    Hatch = 1,
    /// Broad stripes falling to the right.
    Stripes = 2,
    /// Thin lines both ways.
    Cross = 3,
    /// Dots.
    Dots = 4,
}

/// A filled rectangle; 32 bytes, as the shader reads it.
#[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Cell {
    /// Left, top, right, bottom in points.
    pub rect: [f32; 4],
    /// Colour, four bytes: red, green, blue, alpha.
    pub fill: [u8; 4],
    /// Colour of the pattern's lines.
    pub line: [u8; 4],
    /// A [`Pattern`].
    pub pattern: u32,
    unused: u32,
}

impl Cell {
    /// One colour.
    pub fn solid(rect: Rect, fill: Color32) -> Self {
        Self::new(rect, (fill, fill), Pattern::Solid)
    }

    /// A pattern over a colour.
    pub fn new(rect: Rect, (fill, line): (Color32, Color32), pattern: Pattern) -> Self {
        Self {
            rect: [rect.left(), rect.top(), rect.right(), rect.bottom()],
            fill: fill.to_array(),
            line: line.to_array(),
            pattern: pattern as u32,
            unused: 0,
        }
    }

    fn bounds(&self) -> Rect {
        let [left, top, right, bottom] = self.rect;
        Rect::from_min_max(Pos2::new(left, top), Pos2::new(right, bottom))
    }
}

/// Cells with a number that changes when they do.
#[derive(Clone, Default)]
pub struct Cells {
    /// The cells, back to front.
    pub all: Arc<Vec<Cell>>,
    /// Differs whenever `all` does.
    pub generation: u64,
}

impl Cells {
    /// New cells.
    pub fn new(all: Vec<Cell>) -> Self {
        use std::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { all: Arc::new(all), generation: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// Their memory, to hold others, where nothing draws them any more.
    pub fn into_room(self) -> Vec<Cell> {
        Arc::try_unwrap(self.all).unwrap_or_default()
    }
}

/// What cells are drawn on.
#[derive(Clone, Default)]
pub struct Surface {
    /// The format of a wgpu target; without one everything is a mesh.
    pub format: Option<wgpu::TextureFormat>,
    patterns: Option<[TextureHandle; 4]>,
}

/// From so many cells on they go to the GPU as instances.
const INSTANCED_FROM: usize = 3000;
/// Pixels after which all patterns repeat.
const TILE: usize = 72;

impl Surface {
    /// A surface over a wgpu target of this format, or over none.
    pub fn new(format: Option<wgpu::TextureFormat>) -> Self {
        Self { format, patterns: None }
    }

    /// Draws cells. `key` names the view, so that its buffer is found again.
    pub fn draw(&mut self, painter: &Painter, key: u64, cells: &Cells) {
        if let Some(format) = self.format.filter(|_| cells.all.len() >= INSTANCED_FROM) {
            let instances = Instances::new(key, cells.clone(), format);
            let area = painter.clip_rect();
            painter.add(egui_wgpu::Callback::new_paint_callback(area, instances));
            return;
        }
        let mut solid = Mesh::default();
        for cell in cells.all.iter() {
            solid.add_colored_rect(cell.bounds(), color(cell.fill));
        }
        painter.add(solid);
        let scale = painter.ctx().pixels_per_point() / TILE as f32;
        let textures = self.patterns.get_or_insert_with(|| pattern_textures(painter.ctx()));
        for (texture, pattern) in textures.iter().zip(PATTERNS) {
            let mut mesh = Mesh::with_texture(texture.id());
            for cell in cells.all.iter().filter(|cell| cell.pattern == pattern as u32) {
                let at = cell.bounds();
                let uv = Rect::from_min_max(at.min * scale, at.max * scale);
                mesh.add_rect_with_uv(at, uv, color(cell.line));
            }
            if !mesh.is_empty() {
                painter.add(mesh);
            }
        }
    }
}

fn color([r, g, b, a]: [u8; 4]) -> Color32 {
    Color32::from_rgba_premultiplied(r, g, b, a)
}

/// Whether a pixel belongs to a pattern's lines. The shader has the same rule.
fn is_line(pattern: Pattern, x: usize, y: usize) -> bool {
    match pattern {
        Pattern::Solid => false,
        Pattern::Hatch => (x + y).is_multiple_of(6),
        Pattern::Stripes => (x + TILE - y % TILE) % 9 < 4,
        Pattern::Cross => (x + y).is_multiple_of(8) || (x + TILE - y % TILE).is_multiple_of(8),
        Pattern::Dots => x % 6 < 2 && y % 6 < 2,
    }
}

/// All that are more than a colour.
const PATTERNS: [Pattern; 4] = [Pattern::Hatch, Pattern::Stripes, Pattern::Cross, Pattern::Dots];

fn pattern_textures(ctx: &egui::Context) -> [TextureHandle; 4] {
    PATTERNS.map(|pattern| {
        let pixel = |at: usize| {
            let lit = is_line(pattern, at % TILE, at / TILE);
            if lit { Color32::WHITE } else { Color32::TRANSPARENT }
        };
        let pixels = (0..TILE * TILE).map(pixel).collect();
        let image = egui::ColorImage::new([TILE, TILE], pixels);
        let options =
            TextureOptions { wrap_mode: egui::TextureWrapMode::Repeat, ..TextureOptions::NEAREST };
        ctx.load_texture(format!("{pattern:?}"), image, options)
    })
}
