//! Messages on stderr: plain lines that begin with `leasehold: `, or JSON lines.

use std::io::IsTerminal as _;

use serde_json::{Value, json};

use crate::exit::Failure;
pub(crate) use crate::exit::Level;
use crate::output::{self, Color, escape, object};
use crate::stderr;

/// The way to stderr.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Talk {
    json: bool,
    quiet: bool,
    terminal: bool,
    overwrites: bool,
    color: bool,
}

impl Talk {
    /// Follows the user's wishes and the abilities of stderr.
    pub(crate) fn new(json: bool, quiet: bool, color: Color) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let overwrites = !json && !quiet && output::can_overwrite(&std::io::stderr());
        stderr::set_json(json);
        Self { json, quiet, terminal, overwrites, color: !json && color.on(terminal) }
    }

    /// Whether stderr is a terminal that a person watches, so that a line can be overwritten. While
    /// we are in the background, the line belongs to the shell and its prompt.
    pub(crate) fn on_terminal(&self) -> bool {
        self.overwrites && !stderr::is_in_background()
    }

    /// Whether messages are JSON lines.
    pub(crate) const fn is_json(&self) -> bool {
        self.json
    }

    /// Writes a message. `text` may contain names and words from other clients.
    pub(crate) fn notice(&self, level: Level, event: &str, name: Option<&str>, text: &str) {
        if self.json {
            self.object(
                level,
                "notice",
                json!({ "level": level.as_str(), "event": event, "name": name, "message": text }),
            );
        } else {
            let about = name.map(|name| format!("`{}`: ", escape(name))).unwrap_or_default();
            self.lines(level, &format!("{about}{}", escape(text)));
        }
    }

    /// Reports a failure.
    pub(crate) fn failure(&self, failure: &Failure) {
        if self.json {
            let mut fields = json!({
                "kind": failure.kind,
                "exit_code": failure.exit.shown(),
                "name": failure.name,
                "message": failure.message,
            });
            if let Some(holder) = &failure.holder {
                fields["holder"] = holder.clone();
            }
            self.object(failure.level, "error", fields);
        } else {
            let text = escape_lines(&failure.message);
            self.lines(failure.level, &if self.terminal { node_by_node(&text) } else { text });
        }
    }

    /// Writes one JSON line of this kind.
    pub(crate) fn object(&self, level: Level, kind: &str, fields: Value) {
        if self.quiet && level == Level::Info {
            return;
        }
        stderr::write(&object(kind, fields));
    }

    /// Writes text that is safe for a terminal: our name before the first line, the others
    /// indented.
    pub(crate) fn lines(&self, level: Level, text: &str) {
        if self.quiet && level == Level::Info {
            return;
        }
        let (before, after) = match (self.color, level) {
            (false, _) | (_, Level::Info) => ("", ""),
            (true, Level::Warning) => ("\x1b[33m", "\x1b[0m"),
            (true, Level::Error) => ("\x1b[31m", "\x1b[0m"),
        };
        let mut out = String::new();
        for (index, line) in text.lines().enumerate() {
            let lead = if index == 0 { "leasehold: " } else { "    " };
            out.push_str(&format!("{before}{lead}{line}{after}\n"));
        }
        stderr::write(&out);
    }

    /// Overwrites the current line of the terminal; an empty text clears it.
    pub(crate) fn status(&self, text: &str) {
        if self.on_terminal() {
            // A line that wraps could not be written over.
            let columns = output::columns(rustix::stdio::stderr());
            let shown = output::cut(text, columns.map_or(usize::MAX, |columns| columns - 1));
            stderr::write(&format!("\r\x1b[2K{shown}"));
        }
    }
}

/// Puts the answer of each quorum node on a line of its own, for people. A log keeps one line.
fn node_by_node(text: &str) -> String {
    let Some((head, nodes)) = text.split_once("; see what the nodes say: ") else {
        return text.to_owned();
    };
    format!("{head}; see what the nodes say:\n{}", nodes.replace(" | ", "\n"))
}

fn escape_lines(text: &str) -> String {
    text.lines().map(escape).collect::<Vec<_>>().join("\n")
}
