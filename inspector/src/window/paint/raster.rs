//! Draws egui's triangles on the CPU: pictures where no graphics driver is installed.

use std::collections::HashMap;

use egui::epaint::{ClippedPrimitive, ImageDelta, Primitive, Vertex};
use egui::{Color32, ColorImage, Rect, TextureId, TextureWrapMode};

/// A picture in memory with the textures that triangles use.
#[derive(Default)]
pub struct Raster {
    textures: HashMap<TextureId, (ColorImage, bool)>,
}

/// Pixels, row by row.
pub struct Canvas {
    pub width: usize,
    pub height: usize,
    pub pixels: Vec<Color32>,
}

impl Raster {
    /// Takes a new or changed texture.
    pub fn texture(&mut self, id: TextureId, delta: &ImageDelta) {
        let egui::ImageData::Color(image) = &delta.image;
        let repeats = delta.options.wrap_mode == TextureWrapMode::Repeat;
        let Some([x, y]) = delta.pos else {
            self.textures.insert(id, ((**image).clone(), repeats));
            return;
        };
        let Some((whole, _)) = self.textures.get_mut(&id) else { return };
        let (from, to) = (image.width(), whole.width());
        for row in 0..image.height() {
            let target = (y + row) * to + x;
            let source = &image.pixels[row * from..(row + 1) * from];
            if let Some(part) = whole.pixels.get_mut(target..target + from) {
                part.copy_from_slice(source);
            }
        }
    }

    /// Draws all meshes, back to front.
    pub fn draw(&self, canvas: &mut Canvas, all: &[ClippedPrimitive], scale: f32) {
        for primitive in all {
            let Primitive::Mesh(mesh) = &primitive.primitive else { continue };
            let Some((image, repeats)) = self.textures.get(&mesh.texture_id) else { continue };
            let clip = primitive.clip_rect * scale;
            for corners in mesh.indices.chunks_exact(3) {
                let [a, b, c] = [corners[0], corners[1], corners[2]];
                let corner = |at: u32| scaled(mesh.vertices[at as usize], scale);
                let texture = Texture { image, repeats: *repeats };
                triangle(canvas, &texture, clip, [corner(a), corner(b), corner(c)]);
            }
        }
    }
}

fn scaled(mut vertex: Vertex, scale: f32) -> Vertex {
    vertex.pos = (vertex.pos.to_vec2() * scale).to_pos2();
    vertex
}

struct Texture<'a> {
    image: &'a ColorImage,
    repeats: bool,
}

impl Texture<'_> {
    fn texel(&self, x: f32, y: f32) -> [f32; 4] {
        let side = |at: f32, size: usize| {
            let at = if self.repeats { at.rem_euclid(size as f32) } else { at.max(0.0) };
            (at as usize).min(size - 1)
        };
        let (x, y) = (side(x, self.image.width()), side(y, self.image.height()));
        self.image.pixels[y * self.image.width() + x].to_array().map(f32::from)
    }

    /// Between four texels, as the font's texture wants it; patterns are sharp.
    fn sample(&self, u: f32, v: f32) -> [f32; 4] {
        let (x, y) = (u * self.image.width() as f32, v * self.image.height() as f32);
        if self.repeats {
            return self.texel(x, y);
        }
        let (x, y) = (x - 0.5, y - 0.5);
        let (fx, fy) = (x - x.floor(), y - y.floor());
        let row = |y: f32| mix(self.texel(x.floor(), y), self.texel(x.floor() + 1.0, y), fx);
        mix(row(y.floor()), row(y.floor() + 1.0), fy)
    }
}

fn mix(a: [f32; 4], b: [f32; 4], part: f32) -> [f32; 4] {
    std::array::from_fn(|at| a[at] + (b[at] - a[at]) * part)
}

/// Pixels whose middle is inside, with the rule that a shared edge belongs to one side only.
fn triangle(canvas: &mut Canvas, texture: &Texture<'_>, clip: Rect, mut v: [Vertex; 3]) {
    let edge = |a: Vertex, b: Vertex, x: f32, y: f32| {
        (b.pos.x - a.pos.x) * (y - a.pos.y) - (b.pos.y - a.pos.y) * (x - a.pos.x)
    };
    let area = edge(v[0], v[1], v[2].pos.x, v[2].pos.y);
    if area == 0.0 || !area.is_finite() {
        return;
    }
    if area < 0.0 {
        v.swap(1, 2);
    }
    let area = area.abs();
    let low = |at: fn(&Vertex) -> f32, least: f32| {
        v.iter().map(at).fold(f32::MAX, f32::min).max(least).max(0.0).floor() as usize
    };
    let high = |at: fn(&Vertex) -> f32, most: f32, size: usize| {
        let end = v.iter().map(at).fold(f32::MIN, f32::max).min(most).max(0.0).ceil();
        (end as usize).min(size)
    };
    let (x0, x1) = (low(|v| v.pos.x, clip.left()), high(|v| v.pos.x, clip.right(), canvas.width));
    let (y0, y1) = (low(|v| v.pos.y, clip.top()), high(|v| v.pos.y, clip.bottom(), canvas.height));
    let owns = |a: Vertex, b: Vertex| {
        let (dx, dy) = (b.pos.x - a.pos.x, b.pos.y - a.pos.y);
        dy < 0.0 || (dy == 0.0 && dx > 0.0)
    };
    let sides = [(1, 2), (2, 0), (0, 1)];
    let owned = sides.map(|(a, b)| owns(v[a], v[b]));
    for py in y0..y1 {
        for px in x0..x1 {
            let (x, y) = (px as f32 + 0.5, py as f32 + 0.5);
            let w = sides.map(|(a, b)| edge(v[a], v[b], x, y));
            if (0..3).all(|at| w[at] > 0.0 || (w[at] == 0.0 && owned[at]))
                && clip.contains([x, y].into())
            {
                shade(canvas, texture, &v, w.map(|w| w / area), (px, py));
            }
        }
    }
}

fn shade(
    canvas: &mut Canvas,
    texture: &Texture<'_>,
    v: &[Vertex; 3],
    w: [f32; 3],
    at: (usize, usize),
) {
    let blend = |part: fn(&Vertex) -> f32| (0..3).map(|at| w[at] * part(&v[at])).sum::<f32>();
    let texel = texture.sample(blend(|v| v.uv.x), blend(|v| v.uv.y));
    let tint = [
        blend(|v| f32::from(v.color.r())),
        blend(|v| f32::from(v.color.g())),
        blend(|v| f32::from(v.color.b())),
        blend(|v| f32::from(v.color.a())),
    ];
    let source: [f32; 4] = std::array::from_fn(|part| texel[part] * tint[part] / 255.0);
    let pixel = &mut canvas.pixels[at.1 * canvas.width + at.0];
    let below = pixel.to_array().map(f32::from);
    let over = |part: usize| (source[part] + below[part] * (1.0 - source[3] / 255.0)).round() as u8;
    *pixel = Color32::from_rgba_premultiplied(over(0), over(1), over(2), over(3));
}
