//! Everything that can be done, in one table: menus, palette, tooltips, help, keys and
//! documentation come from it.

use egui::{Key, KeyboardShortcut, Modifiers};

use super::layout::Coloring;
use super::view::{Arrangement, View};

/// Something that can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    Open,
    OpenPath,
    Attach,
    RunDemo,
    RunDemoOn,
    RunVulkan,
    RunCompacting,
    RunVulkanCompacting,
    ReplaySim,
    ReplayVulkan,
    CompactNow,
    StopRun,
    CloseFile,
    NextFile,
    Quit,
    CopyAsLine,
    CopyTable,
    CopyCsv,
    Palette,
    Find,
    Help,
    Back,
    Forward,
    Fit,
    ZoomIn,
    ZoomOut,
    PanLeft,
    PanRight,
    PanUp,
    PanDown,
    ZoomToSelection,
    ClearSelection,
    StepBack,
    StepForward,
    LeapBack,
    LeapForward,
    ToStart,
    ToEnd,
    ToPeak,
    ToFailure,
    ToMark,
    Mark,
    PlayPause,
    ToggleAxis,
    ThemeSystem,
    ThemeLight,
    ThemeDark,
    ReducedMotion,
    Larger,
    Smaller,
    NormalSize,
    Color(Coloring),
    Arrange(Arrangement),
    Show(View),
}

impl Command {
    /// Whether charts do it, while they are drawn.
    pub const fn is_for_charts(self) -> bool {
        matches!(
            self,
            Self::Fit
                | Self::ZoomIn
                | Self::ZoomOut
                | Self::ZoomToSelection
                | Self::PanLeft
                | Self::PanRight
                | Self::PanUp
                | Self::PanDown
        )
    }
}

/// The menu that a command is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Menu {
    File,
    Edit,
    Go,
    View,
    Layout,
    Window,
    Help,
}

impl Menu {
    /// All, in the order of the menu bar.
    pub const ALL: [Self; 7] =
        [Self::File, Self::Edit, Self::Go, Self::View, Self::Layout, Self::Window, Self::Help];

    /// As in the menu bar.
    pub const fn title(self) -> &'static str {
        match self {
            Self::File => "File",
            Self::Edit => "Edit",
            Self::Go => "Go",
            Self::View => "View",
            Self::Layout => "Layout",
            Self::Window => "Window",
            Self::Help => "Help",
        }
    }
}

/// A row of the table.
#[derive(Clone, Debug)]
pub struct Entry {
    pub command: Command,
    pub menu: Menu,
    /// As in the menu.
    pub title: String,
    /// What it does, in a sentence.
    pub tip: &'static str,
    pub key: Option<KeyboardShortcut>,
}

const NONE: Modifiers = Modifiers::NONE;
const CTRL: Modifiers = Modifiers::COMMAND;
const ALT: Modifiers = Modifiers::ALT;
const SHIFT: Modifiers = Modifiers::SHIFT;
const CTRL_SHIFT: Modifiers = Modifiers { shift: true, ..Modifiers::COMMAND };

type Row = (Command, Menu, &'static str, &'static str, Option<(Modifiers, Key)>);

const ROWS: &[Row] = {
    use Command as C;
    use Menu as M;
    &[
        (C::Open, M::File, "Open file…", "Choose a file to open", Some((CTRL, Key::O))),
        (C::OpenPath, M::File, "Open path…", "Type the path of a file", Some((CTRL_SHIFT, Key::O))),
        (
            C::Attach,
            M::File,
            "Attach to a program…",
            "Look on at the allocator of a running program",
            Some((CTRL_SHIFT, Key::A)),
        ),
        (
            C::RunDemo,
            M::File,
            "Run the demo workload",
            "Replay a recorded training run on the simulated device and watch its heap",
            Some((CTRL, Key::R)),
        ),
        (
            C::RunDemoOn,
            M::File,
            "Run the demo on the CPU device",
            "The same with real memory, every block filled and verified",
            None,
        ),
        (
            C::RunCompacting,
            M::File,
            "Run the demo with compaction",
            "On a simulated device that cannot page: live blocks are moved together now and then",
            None,
        ),
        (
            C::RunVulkan,
            M::File,
            "Run the demo on Vulkan",
            "On a Vulkan device of its own, apart from the one that draws this window",
            None,
        ),
        (
            C::RunVulkanCompacting,
            M::File,
            "Run the demo on Vulkan with compaction",
            "The same from plain segments: live blocks are moved together now and then",
            None,
        ),
        (
            C::ReplaySim,
            M::File,
            "Replay this file",
            "Its requests through this allocator, on the simulated device",
            None,
        ),
        (
            C::ReplayVulkan,
            M::File,
            "Replay this file on Vulkan",
            "Its requests on a Vulkan device of its own, sizes divided to fit it",
            None,
        ),
        (
            C::CompactNow,
            M::File,
            "Compact now",
            "Move the live blocks of the run or of the program together at once",
            None,
        ),
        (
            C::StopRun,
            M::File,
            "Stop or let go",
            "End the run, or let the program go on alone; what was seen stays",
            None,
        ),
        (C::NextFile, M::File, "Next file", "Switch to the next open file", Some((CTRL, Key::Tab))),
        (C::CloseFile, M::File, "Close file", "Close the file shown", Some((CTRL, Key::W))),
        (C::Quit, M::File, "Quit", "Close the window", Some((CTRL, Key::Q))),
        (
            C::CopyAsLine,
            M::Edit,
            "Copy as command",
            "Copy the command line that draws this view without a window",
            Some((CTRL_SHIFT, Key::C)),
        ),
        (
            C::CopyTable,
            M::Edit,
            "Copy table as text",
            "Copy the rows shown, columns apart by tabs",
            None,
        ),
        (C::CopyCsv, M::Edit, "Copy table as CSV", "Copy the rows shown as CSV", None),
        (
            C::Find,
            M::Edit,
            "Find",
            "Search the table that was used last: text, an address, a range 0xA-0xB, or >=4MiB",
            Some((CTRL, Key::F)),
        ),
        (
            C::ClearSelection,
            M::Edit,
            "Clear selection",
            "Select nothing, let nothing stand out",
            Some((NONE, Key::Escape)),
        ),
        (C::Back, M::Go, "Back", "The view as it was before", Some((ALT, Key::ArrowLeft))),
        (C::Forward, M::Go, "Forward", "Undo Back", Some((ALT, Key::ArrowRight))),
        (
            C::StepBack,
            M::Go,
            "One event back",
            "Show the moment one event earlier",
            Some((NONE, Key::ArrowLeft)),
        ),
        (
            C::StepForward,
            M::Go,
            "One event on",
            "Show the moment one event later",
            Some((NONE, Key::ArrowRight)),
        ),
        (
            C::LeapBack,
            M::Go,
            "1 % back",
            "Show the moment a hundredth of the run earlier",
            Some((SHIFT, Key::ArrowLeft)),
        ),
        (
            C::LeapForward,
            M::Go,
            "1 % on",
            "Show the moment a hundredth of the run later",
            Some((SHIFT, Key::ArrowRight)),
        ),
        (
            C::ToStart,
            M::Go,
            "To the start",
            "Show the moment before the first event",
            Some((NONE, Key::Home)),
        ),
        (
            C::ToEnd,
            M::Go,
            "To the end",
            "Show the moment after the last event",
            Some((NONE, Key::End)),
        ),
        (
            C::ToPeak,
            M::Go,
            "To the peak",
            "Show the moment with the most active bytes",
            Some((NONE, Key::Num1)),
        ),
        (
            C::ToFailure,
            M::Go,
            "To the failure",
            "Show the request that failed last, then those before it",
            Some((NONE, Key::Num2)),
        ),
        (
            C::ToMark,
            M::Go,
            "To the next mark",
            "Show the next moment that you marked",
            Some((NONE, Key::Num3)),
        ),
        (C::Mark, M::Go, "Mark this moment", "Set or remove a mark", Some((NONE, Key::M))),
        (C::PlayPause, M::Go, "Play or pause", "Let time run", Some((NONE, Key::Space))),
        (C::Fit, M::View, "Fit", "Show everything", Some((NONE, Key::F))),
        (
            C::ZoomIn,
            M::View,
            "Zoom in",
            "Twice as large (also Ctrl+wheel at the cursor)",
            Some((NONE, Key::Plus)),
        ),
        (C::ZoomOut, M::View, "Zoom out", "Half as large", Some((NONE, Key::Minus))),
        (
            C::ZoomToSelection,
            M::View,
            "Zoom to the selection",
            "Fill the map with what is selected",
            Some((NONE, Key::Z)),
        ),
        (C::PanLeft, M::View, "Pan left", "Move the view", Some((NONE, Key::A))),
        (C::PanRight, M::View, "Pan right", "Move the view", Some((NONE, Key::D))),
        (C::PanUp, M::View, "Pan up", "Move the view", Some((NONE, Key::W))),
        (C::PanDown, M::View, "Pan down", "Move the view", Some((NONE, Key::S))),
        (
            C::ToggleAxis,
            M::View,
            "Time by clock or by events",
            "What the axis of time counts",
            Some((NONE, Key::T)),
        ),
        (
            C::ThemeSystem,
            M::Window,
            "Theme of the system",
            "Dark or light as the system says",
            None,
        ),
        (C::ThemeLight, M::Window, "Light theme", "Dark on light", None),
        (C::ThemeDark, M::Window, "Dark theme", "Light on dark", None),
        (C::ReducedMotion, M::Window, "Reduced motion", "Nothing slides or fades", None),
        (C::Larger, M::Window, "Larger", "Text and everything else", Some((CTRL, Key::Plus))),
        (C::Smaller, M::Window, "Smaller", "Text and everything else", Some((CTRL, Key::Minus))),
        (C::NormalSize, M::Window, "Normal size", "100 %", Some((CTRL, Key::Num0))),
        (C::Palette, M::Help, "All commands…", "Find a command by its name", Some((CTRL, Key::K))),
        (C::Help, M::Help, "Keys", "All keys", Some((NONE, Key::Questionmark))),
    ]
};

/// The table.
pub fn table() -> Vec<Entry> {
    let mut table: Vec<Entry> = ROWS
        .iter()
        .map(|(command, menu, title, tip, key)| Entry {
            command: *command,
            menu: *menu,
            title: (*title).to_owned(),
            tip,
            key: key.map(|(modifiers, key)| KeyboardShortcut::new(modifiers, key)),
        })
        .collect();
    let row = |command, menu, title: String, tip| Entry { command, menu, title, tip, key: None };
    for coloring in Coloring::ALL {
        let title = format!("Colour by {}", coloring.name());
        table.push(row(Command::Color(coloring), Menu::View, title, "What colour stands for"));
    }
    for arrangement in Arrangement::ALL {
        let title = format!("Layout: {}", arrangement.title());
        table.push(row(Command::Arrange(arrangement), Menu::Layout, title, "Arrange the views"));
    }
    for view in View::ALL {
        let title = format!("Show {}", view.title());
        table.push(row(Command::Show(view), Menu::Layout, title, view.tip()));
    }
    table
}

/// The commands whose keys were pressed; the keys are taken from the input.
pub fn pressed(ctx: &egui::Context, table: &[Entry]) -> Vec<Command> {
    // Keys without Ctrl or Alt belong to whoever types.
    let typing = ctx.egui_wants_keyboard_input();
    let mut keyed: Vec<(&KeyboardShortcut, Command)> =
        table.iter().filter_map(|entry| Some((entry.key.as_ref()?, entry.command))).collect();
    // Those with more modifiers first: Ctrl+Shift+O is not Ctrl+O.
    let weight = |m: &Modifiers| u8::from(m.shift) + u8::from(m.alt) + u8::from(m.command);
    keyed.sort_by_key(|(key, _)| std::cmp::Reverse(weight(&key.modifiers)));
    let mut commands = Vec::new();
    for (key, command) in keyed {
        let plain = !key.modifiers.command && !key.modifiers.alt;
        if plain && typing {
            continue;
        }
        let hit = ctx.input_mut(|input| {
            let wrong = plain && (input.modifiers.command || input.modifiers.alt);
            !wrong && input.consume_shortcut(key)
        });
        if hit {
            commands.push(command);
        }
    }
    commands
}

/// A key as people write it.
pub fn key_text(key: &KeyboardShortcut) -> String {
    let mut text = String::new();
    for (held, name) in [
        (key.modifiers.command, "Ctrl+"),
        (key.modifiers.alt, "Alt+"),
        (key.modifiers.shift, "Shift+"),
    ] {
        if held {
            text.push_str(name);
        }
    }
    // Symbols such as arrows are in no font of ours.
    let symbol = key.logical_key.symbol_or_name();
    text + if symbol.is_ascii() { symbol } else { key.logical_key.name() }
}

/// The table as a page of the manual.
pub fn as_markdown() -> String {
    let mut text = String::from("| menu | command | key | what it does |\n|---|---|---|---|\n");
    for entry in table() {
        let key = entry.key.as_ref().map(key_text).unwrap_or_default();
        let key = if key.is_empty() { key } else { format!("`{key}`") };
        text += &format!("| {} | {} | {key} | {} |\n", entry.menu.title(), entry.title, entry.tip);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_key_and_no_title_is_given_twice() {
        let (mut keys, mut titles) = (HashSet::new(), HashSet::new());
        for entry in table() {
            assert!(titles.insert(entry.title.clone()), "{}", entry.title);
            if let Some(key) = entry.key {
                assert!(keys.insert(key), "{} has a key twice: {}", entry.title, key_text(&key));
            }
        }
    }

    #[test]
    fn the_manual_has_the_table_as_it_is() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/inspector-keys.md");
        let page = std::fs::read_to_string(path).unwrap_or_default();
        let table = as_markdown();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            let head = "# Commands and keys of the inspector\n\nMade from the program's own \
                table; a test keeps it so.\n\n";
            std::fs::write(path, format!("{head}{table}")).unwrap();
            return;
        }
        assert!(page.contains(&table), "run the tests with UPDATE_DOCS=1 and commit the page");
    }
}
