//! Runs under way and programs that are looked on at: each feeds a document of its own.

use egui::{Context, Ui};

use super::app::{Inspector, Notice};
use super::commands::Command;
use super::document::Document;
use super::run::{Run, Work};

/// Each is a thread and a recording; more than a person can follow.
const RUNS_MOST: usize = 32;

impl Inspector {
    /// Starts a run or attaches, beside what goes on already.
    pub(super) fn start_run(&mut self, ctx: &Context, work: Work) {
        if self.runs.len() >= RUNS_MOST {
            self.warn("So many runs go on that no other is started; end one first.");
            return;
        }
        self.runs.push(Run::start(ctx, self.settings.coloring, work));
    }

    /// Takes in what runs recorded since the last frame, and how those that are over ended.
    pub(super) fn follow_runs(&mut self) {
        for mut run in std::mem::take(&mut self.runs) {
            // Asked first: whoever ends has handed over all before.
            let outcome = run.outcome();
            if let Some(painted) = run.latest() {
                if let Some(document) = run.document.and_then(|at| self.documents.get_mut(at)) {
                    document.replace(painted);
                } else {
                    self.push(Document::of(painted, self.settings.axis));
                    run.document = Some(self.current);
                }
            }
            let told = run.said().into_iter().map(|text| Notice { text, is_error: true });
            self.notices.extend(told);
            match outcome {
                Some(Ok(text)) => self.notices.push(Notice { text, is_error: false }),
                Some(Err(text)) => {
                    let text = format!("The run ended early: {text}");
                    self.notices.push(Notice { text, is_error: true });
                }
                None => self.runs.push(run),
            }
        }
    }

    /// The run that feeds the document shown; where none does, the only one there is.
    pub(super) fn run_meant(&self) -> Option<&Run> {
        let shown = self.runs.iter().find(|run| run.document == Some(self.current));
        shown.or_else(|| self.runs.first().filter(|_| self.runs.len() == 1))
    }

    /// Asks the run that is meant to move blocks together.
    pub(super) fn compact_now(&mut self) {
        match self.run_meant() {
            Some(run) if run.can_compact() => {
                let document = run.document.and_then(|at| self.documents.get(at));
                run.compact(document.map(|it| it.panels.compaction.asked).unwrap_or_default());
            }
            Some(_) => self.warn(
                "The program takes commands from those with its control token: let go, and give \
                 the token when you attach.",
            ),
            None => self.warn_of_none(),
        }
    }

    /// Ends the run that is meant, or lets the program go.
    pub(super) fn stop_run(&mut self) {
        match self.run_meant() {
            Some(run) => run.stop(),
            None => self.warn_of_none(),
        }
    }

    fn warn_of_none(&mut self) {
        self.warn(if self.runs.is_empty() {
            "Nothing runs here: start a run, or attach to a program."
        } else {
            "Several runs go on: choose the one that is meant, above."
        });
    }

    /// Ends the run of a document that was closed; the others' documents have moved up.
    pub(super) fn forget_runs_of(&mut self, closed: usize) {
        self.runs.retain_mut(|run| match run.document {
            // Dropping it stops it; what it still tells is nobody's.
            Some(at) if at == closed => false,
            Some(at) if at > closed => {
                run.document = Some(at - 1);
                true
            }
            _ => true,
        });
    }

    /// What goes on, beside the names of the open files: of the run shown, and of those that have
    /// shown nothing yet; and what the file shown lacks.
    pub(super) fn show_runs(&self, ui: &mut Ui, commands: &mut Vec<Command>) {
        for run in &self.runs {
            match run.document {
                Some(at) if at == self.current => controls(ui, run, commands),
                None => {
                    ui.spinner();
                    ui.weak(&run.what);
                    if ui.small_button("Cancel").clicked() {
                        run.stop();
                    }
                }
                Some(_) => {}
            }
        }
        if let Some(lost) = self.lost(self.current) {
            let alarm = super::paint::Look::of(ui.visuals().dark_mode).alarm;
            ui.colored_label(alarm, lost);
        }
    }

    /// What a document's recording lost, in words.
    pub(super) fn lost(&self, document: usize) -> Option<&str> {
        let notes = &self.documents.get(document)?.recording.notes;
        notes.iter().find(|note| note.contains("were lost")).map(String::as_str)
    }
}

fn controls(ui: &mut Ui, run: &Run, commands: &mut Vec<Command>) {
    ui.separator();
    ui.weak(&run.what);
    if run.can_compact() {
        let tip = "move live blocks together at once";
        if ui.small_button("Compact now").on_hover_text(tip).clicked() {
            commands.push(Command::CompactNow);
        }
    }
    let end = if run.is_attached { "Let go" } else { "Stop" };
    if ui.small_button(end).clicked() {
        commands.push(Command::StopRun);
    }
}
