//! The choice of a running program to look on at.

use std::net::SocketAddr;

use egui::{Context, Key, RichText, TextEdit, Ui};
use terrane_trace::file::Status;

use super::app::{Inspector, Notice};
use super::attach::Target;
use super::overlays::window;
use super::picker::Picker;
use super::run::Work;
use crate::units;

impl Inspector {
    /// Draws the choice, if it is open.
    pub(super) fn show_attach(&mut self, ctx: &Context) {
        let Some(mut picker) = self.attaching.take() else { return };
        if ctx.input(|input| input.key_pressed(Key::Escape)) {
            return;
        }
        let mut chosen = None;
        let mut is_closed = false;
        window(ctx, "attach", |ui| {
            ui.set_width(460.0_f32.min(ctx.content_rect().width() - 60.0));
            ui.horizontal(|ui| {
                ui.label(RichText::new("Attach to a program").strong());
                ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
                    is_closed = ui.small_button("Close").clicked();
                    if ui.small_button("Look again").clicked() {
                        picker.look_again(ctx);
                    }
                });
            });
            chosen = programs(ui, &mut picker);
            ui.separator();
            chosen = chosen.take().or_else(|| over_tcp(ui, &mut picker));
            ui.separator();
            secret(ui, "control token", &mut picker.control);
            ui.weak("Only for \"Compact now\". Without it the program is only looked at.");
        });
        match chosen {
            Some(Ok(target)) => {
                let control = picker.control.trim().to_owned();
                self.start_run(ctx, Work::Attach(target, control));
            }
            Some(Err(text)) => {
                self.notices.push(Notice { text, is_error: true });
                self.attaching = Some(picker);
            }
            None if is_closed => {}
            None => self.attaching = Some(picker),
        }
    }
}

/// Programs of this user that let others look on.
fn programs(ui: &mut Ui, picker: &mut Picker) -> Option<Result<Target, String>> {
    if picker.is_asking(ui.ctx()) {
        ui.horizontal(|ui| {
            ui.spinner();
            ui.weak("asking who is there…");
        });
        return None;
    }
    if picker.found.is_empty() {
        ui.weak(
            "No program of yours shows its allocator. In a program, one line does it: \
             let shown = terrane::inspect(&alloc)?; (feature live), for as long as `shown` is kept.",
        );
    }
    // So many may run that they go beyond the screen.
    let most = (ui.ctx().content_rect().height() * 0.45).max(60.0);
    let list = egui::ScrollArea::vertical().id_salt("programs").max_height(most);
    list.auto_shrink([false, true]).show(ui, |ui| listed(ui, picker)).inner
}

/// A line for each program.
fn listed(ui: &mut Ui, picker: &Picker) -> Option<Result<Target, String>> {
    let mut chosen = None;
    for one in &picker.found {
        // Named after the program, so that a click stays one whoever is listed before it.
        ui.push_id(format!("{:?}", one.target), |ui| {
            ui.horizontal_wrapped(|ui| {
                let button = ui.add_enabled(!one.is_silent, egui::Button::new("Attach"));
                if button.accessible_name(format!("Attach to {}", one.text)).clicked() {
                    chosen = Some(Ok(one.target.clone()));
                }
                ui.label(&one.text);
                let Status { allocated, reserved, .. } = one.status;
                let (live, reserved) = (units::bytes(allocated), units::bytes(reserved));
                ui.weak(match one.is_silent {
                    true => "does not answer any more".to_owned(),
                    false => format!("{live} live, {reserved} reserved"),
                });
            });
        });
    }
    chosen
}

/// An address on this machine, such as the end of a tunnel, with the token.
fn over_tcp(ui: &mut Ui, picker: &mut Picker) -> Option<Result<Target, String>> {
    ui.weak("Or over TCP of this machine, such as the end of an ssh tunnel:");
    ui.horizontal(|ui| {
        ui.label("address");
        let field = TextEdit::singleline(&mut picker.address).hint_text("127.0.0.1:7411");
        ui.add(field.desired_width(150.0)).accessible_name("address");
    });
    secret(ui, "token", &mut picker.token);
    let is_typed = !picker.address.trim().is_empty();
    let button = ui.add_enabled(is_typed, egui::Button::new("Attach over TCP"));
    if !button.clicked() {
        return None;
    }
    let typed = picker.address.trim();
    let address: Result<SocketAddr, _> = typed.parse();
    let bad = || format!("`{typed}` is no address: give one with a port, as in 127.0.0.1:7411");
    let token = picker.token.trim().to_owned();
    Some(address.map(|at| Target::Tcp(at, token)).map_err(|_| bad()))
}

/// A field whose contents nobody reads over a shoulder.
fn secret(ui: &mut Ui, name: &str, text: &mut String) {
    ui.horizontal(|ui| {
        ui.label(name);
        let field = TextEdit::singleline(text).password(true).desired_width(240.0);
        ui.add(field).accessible_name(name);
    });
}
