//! What all charts have in common: room, pointer, wheel, keys, and a name for those who do not see.

use egui::{Pos2, Rect, Response, Role, Sense, Ui, Vec2, WidgetInfo};

use super::Stage;
use crate::window::commands::Command;
use crate::window::view::View;

/// A chart's room and what was done to it in this frame.
pub struct Canvas {
    /// The chart's room.
    pub rect: Rect,
    /// What the pointer did.
    pub response: Response,
    /// Zoom factor about a point; 1 for none.
    pub zoom: f64,
    /// The point to zoom about.
    pub about: Pos2,
    /// Points to pan by.
    pub pan: Vec2,
    /// Whether everything is to be shown.
    pub fit: bool,
}

/// Points that a key pans by.
const PAN: f32 = 60.0;

impl Canvas {
    /// Takes what room is left and reads pointer, wheel and keys. `name` says what is drawn.
    pub fn new(ui: &mut Ui, stage: &mut Stage<'_>, view: View, name: &str) -> Self {
        let size = ui.available_size().max(Vec2::new(60.0, 60.0));
        let (rect, response) = ui.allocate_exact_size(size, Sense::click_and_drag());
        response.widget_info(|| WidgetInfo::labeled(Role::Image, true, name));
        let mut canvas =
            Self { rect, zoom: 1.0, about: rect.center(), pan: Vec2::ZERO, fit: false, response };
        canvas.pointer(ui, stage, view);
        if *stage.active == view {
            canvas.keys(stage.asked);
        }
        canvas
    }

    fn pointer(&mut self, ui: &Ui, stage: &mut Stage<'_>, view: View) {
        if self.response.contains_pointer() || self.response.has_focus() {
            *stage.active = view;
        }
        if self.response.dragged() {
            self.pan += self.response.drag_delta();
        }
        if let Some(at) = self.response.hover_pos() {
            self.about = at;
            let (zoom, wheel) = ui.input(|input| (input.zoom_delta(), input.smooth_scroll_delta()));
            self.zoom *= f64::from(zoom);
            self.pan += wheel;
        }
    }

    fn keys(&mut self, asked: &[Command]) {
        for command in asked {
            match command {
                Command::Fit => self.fit = true,
                Command::ZoomIn => self.zoom *= 2.0,
                Command::ZoomOut => self.zoom *= 0.5,
                Command::PanLeft => self.pan.x += PAN,
                Command::PanRight => self.pan.x -= PAN,
                Command::PanUp => self.pan.y += PAN,
                Command::PanDown => self.pan.y -= PAN,
                _ => {}
            }
        }
    }

    /// Whether the view moved.
    pub fn moved(&self) -> bool {
        self.zoom != 1.0 || self.pan != Vec2::ZERO
    }
}
