//! The font that texts are drawn and measured with: egui's, so that pictures and window agree.

use ab_glyph::{Font as _, FontRef, InvalidFont, PxScale, ScaleFont as _};

/// A font for texts.
pub struct Font(FontRef<'static>);

impl Font {
    /// The built-in font.
    ///
    /// # Errors
    /// None in a sound build.
    pub fn new() -> Result<Self, InvalidFont> {
        FontRef::try_from_slice(epaint_default_fonts::UBUNTU_LIGHT).map(Self)
    }

    /// The width of a text in pixels.
    pub fn width(&self, text: &str, size: f32) -> f32 {
        let scaled = self.0.as_scaled(PxScale::from(size));
        text.chars().map(|c| scaled.h_advance(scaled.glyph_id(c))).sum()
    }

    /// Calls `each` with the coverage (0 to 1) of every pixel of a text that starts at `at` on its
    /// baseline.
    pub fn draw(&self, text: &str, size: f32, at: (f32, f32), mut each: impl FnMut(i32, i32, f32)) {
        let scaled = self.0.as_scaled(PxScale::from(size));
        let mut x = at.0;
        for c in text.chars() {
            let id = scaled.glyph_id(c);
            let glyph = id.with_scale_and_position(size, ab_glyph::point(x, at.1));
            x += scaled.h_advance(id);
            let Some(outline) = self.0.outline_glyph(glyph) else { continue };
            let corner = outline.px_bounds().min;
            outline.draw(|dx, dy, coverage| {
                each(corner.x as i32 + dx as i32, corner.y as i32 + dy as i32, coverage);
            });
        }
    }
}
