//! Colours of the window. What has an order (sizes, ages) goes from near the background to far
//! from it in lightness, so it is told apart without seeing hues; what has none uses the palette of
//! Okabe and Ito, made for all kinds of colour vision, and is named in a legend too. Free and
//! pending memory have patterns.

use egui::{Color32, CornerRadius, Stroke, Visuals};

/// The colours of one theme.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// Whether the background is dark.
    pub dark: bool,
    /// Background of charts.
    pub paper: Color32,
    /// Text.
    pub ink: Color32,
    /// Text that explains.
    pub faint: Color32,
    /// Lines behind data.
    pub grid: Color32,
    /// Six steps: small to large, young to old.
    pub steps: [Color32; 6],
    /// Eight colours without order; the last is for the rest.
    pub kinds: [Color32; 8],
    /// Free memory: back and lines.
    pub free: (Color32, Color32),
    /// Pending memory: back and stripes.
    pub pending: (Color32, Color32),
    /// Reserved bytes.
    pub reserved: Color32,
    /// Active bytes.
    pub active: Color32,
    /// Requested bytes.
    pub requested: Color32,
    /// Failures and the ends of segments.
    pub alarm: Color32,
    /// What is selected.
    pub select: Color32,
    /// The moment shown.
    pub now: Color32,
}

const fn rgb(hex: u32) -> Color32 {
    Color32::from_rgb((hex >> 16) as u8, (hex >> 8) as u8, hex as u8)
}

const fn all<const N: usize>(hex: [u32; N]) -> [Color32; N] {
    let mut colors = [Color32::BLACK; N];
    let mut at = 0;
    while at < N {
        colors[at] = rgb(hex[at]);
        at += 1;
    }
    colors
}

impl Look {
    /// Dark ink on light paper.
    pub const LIGHT: Self = Self {
        dark: false,
        paper: rgb(0xf6_f7_f9),
        ink: rgb(0x1c_20_26),
        faint: rgb(0x59_62_70),
        grid: rgb(0xdd_e0_e6),
        steps: all([0xf3_d4_6a, 0xa8_d2_8e, 0x5c_b8_a4, 0x34_8f_b2, 0x38_62_a0, 0x2d_34_70]),
        kinds: all([
            0x00_72_b2, 0xe6_9f_00, 0x00_9e_73, 0xcc_79_a7, 0x56_b4_e9, 0xd5_5e_00, 0x4a_3f_2e,
            0x62_68_70,
        ]),
        free: (rgb(0xf1_f2_f5), rgb(0xc6_cc_d6)),
        pending: (rgb(0xff_e2_be), rgb(0xd9_6a_14)),
        reserved: rgb(0x6d_75_82),
        active: rgb(0x2b_86_ab),
        requested: rgb(0x38_4a_8c),
        alarm: rgb(0x00c4_3232),
        select: rgb(0xd6_00_6c),
        now: rgb(0xb0_3a_00),
    };

    /// Light ink on dark paper.
    pub const DARK: Self = Self {
        dark: true,
        paper: rgb(0x15_18_1d),
        ink: rgb(0xe6_e9_ee),
        faint: rgb(0x9a_a4_b2),
        grid: rgb(0x2b_30_38),
        steps: all([0x3f_3b_78, 0x3a_61_a8, 0x2d_8f_b4, 0x4f_b9_a0, 0xa5_d4_83, 0xf4_dc_7c]),
        kinds: all([
            0x3d_9b_dc, 0xe6_9f_00, 0x1f_b8_8d, 0xd9_8c_b8, 0x8f_d0_f5, 0xf0_7f_3a, 0xe5_dc_58,
            0x6c_75_83,
        ]),
        free: (rgb(0x1d_21_27), rgb(0x40_47_52)),
        pending: (rgb(0x5a_37_14), rgb(0xf0_9a_3e)),
        reserved: rgb(0x97_a1_b0),
        active: rgb(0x4f_b4_dc),
        requested: rgb(0x4a_5f_b5),
        alarm: rgb(0xff_6b_6b),
        select: rgb(0xff_5c_b0),
        now: rgb(0xff_b3_5c),
    };

    /// The colours of a theme.
    pub const fn of(dark: bool) -> Self {
        if dark { Self::DARK } else { Self::LIGHT }
    }

    /// A colour faded towards the paper: what is not in focus.
    pub fn fade(&self, color: Color32) -> Color32 {
        let mix = |part: u8, paper: u8| ((u16::from(part) + 3 * u16::from(paper)) / 4) as u8;
        let paper = self.paper;
        Color32::from_rgb(
            mix(color.r(), paper.r()),
            mix(color.g(), paper.g()),
            mix(color.b(), paper.b()),
        )
    }

    /// Black or white, whichever can be read on a colour.
    pub fn on(color: Color32) -> Color32 {
        let linear = |part: u8| (f32::from(part) / 255.0).powf(2.2);
        let light =
            0.2126 * linear(color.r()) + 0.7152 * linear(color.g()) + 0.0722 * linear(color.b());
        // Where contrast with black and with white is the same.
        if light > 0.18 { Color32::from_gray(12) } else { Color32::WHITE }
    }
}

/// Gives the widgets the colours and the text the symbols that the window uses.
pub fn apply(ctx: &egui::Context) {
    let mut fonts = egui::FontDefinitions::default();
    if let Some(family) = fonts.families.get_mut(&egui::FontFamily::Proportional) {
        // Arrows and triangles.
        family.push("Hack".to_owned());
    }
    ctx.set_fonts(fonts);
    for theme in [egui::Theme::Dark, egui::Theme::Light] {
        let dark = theme == egui::Theme::Dark;
        let look = Look::of(dark);
        ctx.set_visuals_of(theme, visuals(&look));
        ctx.style_mut_of(theme, |style| {
            style.spacing.item_spacing = egui::vec2(8.0, 5.0);
            style.spacing.button_padding = egui::vec2(7.0, 3.0);
            style.spacing.menu_margin = egui::Margin::same(6);
            style.interaction.tooltip_delay = 0.25;
        });
    }
}

fn visuals(look: &Look) -> Visuals {
    let mut visuals = if look.dark { Visuals::dark() } else { Visuals::light() };
    let panel = if look.dark { rgb(0x1b_1f_25) } else { rgb(0xfc_fc_fd) };
    visuals.panel_fill = panel;
    visuals.window_fill = if look.dark { rgb(0x23_28_30) } else { rgb(0xff_ff_ff) };
    visuals.extreme_bg_color = if look.dark { rgb(0x12_15_19) } else { rgb(0xff_ff_ff) };
    visuals.faint_bg_color = if look.dark { rgb(0x20_24_2b) } else { rgb(0xf3_f4_f7) };
    visuals.text_edit_bg_color = Some(if look.dark { rgb(0x12_15_19) } else { rgb(0xec_ee_f2) });
    visuals.override_text_color = Some(look.ink);
    visuals.weak_text_color = Some(look.faint);
    visuals.widgets.noninteractive.bg_stroke = Stroke::new(1.0, look.grid);
    visuals.selection.bg_fill = if look.dark { rgb(0x2f_4f_77) } else { rgb(0xc6_dc_f5) };
    visuals.selection.stroke = Stroke::new(1.0, look.ink);
    visuals.hyperlink_color = if look.dark { rgb(0x7f_b8_f0) } else { rgb(0x1f_5f_a8) };
    let round = CornerRadius::same(4);
    for widget in [
        &mut visuals.widgets.inactive,
        &mut visuals.widgets.hovered,
        &mut visuals.widgets.active,
        &mut visuals.widgets.open,
    ] {
        widget.corner_radius = round;
    }
    visuals
}

#[cfg(test)]
mod tests {
    use super::*;

    fn light(color: Color32) -> f32 {
        let linear = |part: u8| (f32::from(part) / 255.0).powf(2.2);
        0.2126 * linear(color.r()) + 0.7152 * linear(color.g()) + 0.0722 * linear(color.b())
    }

    fn contrast(a: Color32, b: Color32) -> f32 {
        let (a, b) = (light(a), light(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn steps_are_ordered_by_lightness_and_text_is_readable() {
        for look in [Look::LIGHT, Look::DARK] {
            let lights: Vec<f32> = look.steps.iter().map(|color| light(*color)).collect();
            let rising = lights.windows(2).all(|pair| pair[0] < pair[1]);
            let falling = lights.windows(2).all(|pair| pair[0] > pair[1]);
            assert!(if look.dark { rising } else { falling }, "{lights:?}");
            assert!(contrast(look.ink, look.paper) > 10.0);
            assert!(contrast(look.faint, look.paper) > 4.5, "{:?}", look.dark);
            for color in look.steps.iter().chain(&look.kinds) {
                assert!(contrast(Look::on(*color), *color) > 3.0, "{color:?}");
            }
        }
    }

    /// A colour as people see it whose cones of one kind do not work: Machado, Oliveira and
    /// Fernandes 2009, severity 1.
    fn seen(color: Color32, matrix: [[f32; 3]; 3]) -> [f32; 3] {
        let linear =
            [color.r(), color.g(), color.b()].map(|part| (f32::from(part) / 255.0).powf(2.2));
        matrix.map(|row| row.iter().zip(linear).map(|(a, b)| a * b).sum::<f32>().clamp(0.0, 1.0))
    }

    /// Lightness and the two opposed colours of CIELAB.
    fn lab(rgb: [f32; 3]) -> [f32; 3] {
        let rows = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]];
        let xyz = rows.map(|row: [f32; 3]| row.iter().zip(rgb).map(|(a, b)| a * b).sum::<f32>());
        let white = [0.9505, 1.0, 1.089];
        let root = |at: usize| {
            let part = xyz[at] / white[at];
            if part > 0.008_856 { part.cbrt() } else { 7.787 * part + 16.0 / 116.0 }
        };
        let [x, y, z] = [root(0), root(1), root(2)];
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    #[test]
    fn kinds_and_steps_are_told_apart_with_any_kind_of_colour_vision() {
        let visions = [
            ("all", [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
            (
                "no red",
                [
                    [0.152_286, 1.052_583, -0.204_868],
                    [0.114_503, 0.786_281, 0.099_216],
                    [-0.003_882, -0.048_116, 1.051_998],
                ],
            ),
            (
                "no green",
                [
                    [0.367_322, 0.860_646, -0.227_968],
                    [0.280_085, 0.672_501, 0.047_413],
                    [-0.011_820, 0.042_940, 0.968_881],
                ],
            ),
            (
                "no blue",
                [
                    [1.255_528, -0.076_749, -0.178_779],
                    [-0.078_411, 0.930_809, 0.147_602],
                    [0.004_733, 0.691_367, 0.303_900],
                ],
            ),
        ];
        for look in [Look::LIGHT, Look::DARK] {
            for (vision, matrix) in visions {
                for colors in [&look.kinds[..], &look.steps[..]] {
                    let seen: Vec<[f32; 3]> =
                        colors.iter().map(|color| lab(seen(*color, matrix))).collect();
                    for (at, a) in seen.iter().enumerate() {
                        for (other, b) in seen.iter().enumerate().skip(at + 1) {
                            let apart: f32 = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum();
                            let names = (vision, look.dark, colors[at], colors[other]);
                            assert!(apart.sqrt() > 12.0, "{} apart: {names:?}", apart.sqrt());
                        }
                    }
                }
            }
        }
    }
}
