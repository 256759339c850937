//! Events as lines of JSON, for processes that send each other their histories.

use super::event::Event;

/// Writes an event as one line, without a line break.
#[must_use]
pub fn to_line(event: &Event) -> String {
    serde_json::to_string(event).expect("an event has neither maps nor failing parts")
}

/// Reads an event from a line.
///
/// # Errors
///
/// A text that describes what is wrong with the line. A line may be cut off because its process was
/// killed while it wrote.
pub fn from_line(line: &str) -> Result<Event, String> {
    serde_json::from_str(line).map_err(|error| format!("{error}: {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::build::{one_of_each, s};

    #[test]
    fn every_event_comes_back_as_it_was() {
        for event in one_of_each() {
            let line = to_line(&event);
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(from_line(&line), Ok(event), "{line}");
        }
    }

    #[test]
    fn a_line_says_moments_in_nanoseconds() {
        let over = Event { at: s(2.5), what: crate::history::event::What::Over };
        assert_eq!(to_line(&over), r#"{"at":2500000000,"what":"over"}"#);
    }

    #[test]
    fn half_a_line_is_an_error() {
        for event in one_of_each() {
            let line = to_line(&event);
            assert!(from_line(&line[..line.len() / 2]).is_err());
        }
    }
}
