//! Shapes in pixels, origin at the top left.

/// Red, green and blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Color(pub u8, pub u8, pub u8);

/// An upright rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rect {
    pub x: f32,
    pub y: f32,
    pub w: f32,
    pub h: f32,
}

impl Rect {
    pub const fn new(x: f32, y: f32, w: f32, h: f32) -> Self {
        Self { x, y, w, h }
    }

    pub fn right(&self) -> f32 {
        self.x + self.w
    }

    pub fn bottom(&self) -> f32 {
        self.y + self.h
    }
}

/// How a rectangle is filled: never by colour alone where the meaning is not a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// One colour.
    Solid(Color),
    /// Thin lines rising to the right.
    Hatch { back: Color, line: Color },
    /// Broad bands falling to the right.
    Stripes { back: Color, line: Color },
}

/// Which point of a text is at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// Something to draw.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    Rect {
        rect: Rect,
        fill: Fill,
        /// What it is, for whoever points at it; empty for nothing.
        tip: String,
    },
    Line {
        points: Vec<(f32, f32)>,
        width: f32,
        color: Color,
        /// Lengths of dash and gap; `None` for a full line.
        dash: Option<(f32, f32)>,
    },
    Area {
        points: Vec<(f32, f32)>,
        color: Color,
    },
    Text {
        /// On the baseline.
        at: (f32, f32),
        size: f32,
        anchor: Anchor,
        color: Color,
        text: String,
    },
}

/// A whole picture, back to front.
#[derive(Clone, Debug, PartialEq)]
pub struct Scene {
    pub width: f32,
    pub height: f32,
    pub paper: Color,
    pub shapes: Vec<Shape>,
}

/// Adds shapes to a scene.
pub struct Pen {
    scene: Scene,
}

impl Pen {
    pub fn new(width: f32, height: f32, paper: Color) -> Self {
        Self { scene: Scene { width, height, paper, shapes: Vec::new() } }
    }

    pub fn finish(self) -> Scene {
        self.scene
    }

    pub fn rect(&mut self, rect: Rect, fill: Fill) {
        self.tip_rect(rect, fill, String::new());
    }

    pub fn tip_rect(&mut self, rect: Rect, fill: Fill, tip: String) {
        self.scene.shapes.push(Shape::Rect { rect, fill, tip });
    }

    pub fn line(&mut self, points: Vec<(f32, f32)>, width: f32, color: Color) {
        self.scene.shapes.push(Shape::Line { points, width, color, dash: None });
    }

    pub fn dashed(&mut self, points: Vec<(f32, f32)>, color: Color, width: f32, dash: (f32, f32)) {
        self.scene.shapes.push(Shape::Line { points, width, color, dash: Some(dash) });
    }

    pub fn area(&mut self, points: Vec<(f32, f32)>, color: Color) {
        self.scene.shapes.push(Shape::Area { points, color });
    }

    pub fn text(&mut self, at: (f32, f32), size: f32, anchor: Anchor, color: Color, text: &str) {
        let text = text.to_owned();
        self.scene.shapes.push(Shape::Text { at, size, anchor, color, text });
    }
}
