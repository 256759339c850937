//! Rust source for the rules: without comments and texts, and with its tests marked.
//!
//! This is not a parser. It knows just enough to tell code from prose, to match braces, and to find
//! `use` and `#[cfg(test)]`. It relies on rustfmt's layout for the rest.

use std::ops::Range;

/// One file of Rust.
#[derive(Debug)]
pub(crate) struct Source {
    /// The code, with every byte in its place. Comments, texts and characters are blank.
    code: String,
    /// The parts that are compiled only for tests.
    tests: Vec<Range<usize>>,
}

impl Source {
    pub(crate) fn new(text: &str, all_tests: bool) -> Self {
        let code = blank(text);
        let tests = if all_tests { std::iter::once(0..code.len()).collect() } else { tests(&code) };
        Self { code, tests }
    }

    /// The line of a byte, from 1.
    fn line(&self, at: usize) -> usize {
        self.code[..at].matches('\n').count() + 1
    }

    /// Finds `pattern` as a whole word: the line, and whether it is in a test. If the pattern ends
    /// in punctuation, any character may follow.
    pub(crate) fn find(&self, pattern: &str) -> Vec<(usize, bool)> {
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let bytes = self.code.as_bytes();
        let starts_word = pattern.as_bytes().first().is_some_and(is_word);
        let ends_word = pattern.as_bytes().last().is_some_and(is_word);
        self.code
            .match_indices(pattern)
            .filter(|(at, _)| {
                let before = at.checked_sub(1).and_then(|at| bytes.get(at));
                let after = bytes.get(at + pattern.len());
                let continues = (starts_word && before.is_some_and(is_word))
                    || (ends_word && after.is_some_and(is_word));
                !continues
            })
            .map(|(at, _)| (self.line(at), self.in_test(at)))
            .collect()
    }

    fn in_test(&self, at: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&at))
    }

    /// Every `use`: its line, whether it is in a test, and the path without spaces.
    pub(crate) fn uses(&self) -> Vec<(usize, bool, String)> {
        let mut uses = Vec::new();
        for (at, _) in self.code.match_indices("use ") {
            let line_start = self.code[..at].rfind('\n').map_or(0, |at| at + 1);
            let before = self.code[line_start..at].trim();
            if !before.is_empty() && !before.starts_with("pub") {
                continue;
            }
            let path = self.code[at + 4..].split(';').next().unwrap_or_default();
            let path = path.split_whitespace().collect::<Vec<_>>().join(" ");
            let path = path.replace(" as ", "@").replace(' ', "").replace('@', " as ");
            uses.push((self.line(at), self.in_test(at), path));
        }
        uses
    }

    /// Finds the names that follow `prefix`, such as `crate::`, one by one: `crate::{a::b, c}`
    /// gives `a` and `c`.
    pub(crate) fn heads(&self, prefix: &str) -> Vec<(usize, bool, String)> {
        let mut heads = Vec::new();
        for (at, _) in self.code.match_indices(prefix) {
            if self.code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let rest = &self.code[at + prefix.len()..];
            for head in top_level_names(rest) {
                heads.push((self.line(at), self.in_test(at), head));
            }
        }
        heads
    }
}

/// The names at the start of a path or of a group of paths.
fn top_level_names(rest: &str) -> Vec<String> {
    if !rest.starts_with('{') {
        return vec![name_at(rest)];
    }
    let mut names = Vec::new();
    let (mut depth, mut expects_name) = (0, false);
    for (at, c) in rest.char_indices() {
        match c {
            '{' => {
                depth += 1;
                expects_name = depth == 1;
            }
            '}' if depth == 1 => break,
            '}' => depth -= 1,
            ',' => expects_name = depth == 1,
            c if c.is_whitespace() => {}
            _ if expects_name => {
                names.push(name_at(&rest[at..]));
                expects_name = false;
            }
            _ => {}
        }
    }
    names
}

fn name_at(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// The body in braces of the item at `from`, or `None` if it ends without one.
fn body(code: &str, from: usize) -> Option<Range<usize>> {
    let mut nested = 0;
    let mut open = None;
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => nested += 1,
            b')' | b']' => nested -= 1,
            b';' if nested == 0 => return None,
            b'{' if nested == 0 => {
                open = Some(at);
                break;
            }
            _ => {}
        }
    }
    let open = open?;
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(open..at + 1);
        }
    }
    None
}

/// The items that are compiled only for tests.
fn tests(code: &str) -> Vec<Range<usize>> {
    const MARK: &str = "#[cfg(test)]";
    let item = |(at, _)| {
        let after = at + MARK.len();
        let end = body(code, after).map_or_else(
            || code[after..].find(';').map_or(code.len(), |end| after + end),
            |body| body.end,
        );
        at..end
    };
    code.match_indices(MARK).map(item).collect()
}

/// Replaces comments, texts and characters by spaces; lines and columns stay.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let length = line_comment(rest)
            .or_else(|| block_comment(rest))
            .or_else(|| raw_text(rest, at.checked_sub(1).map(|at| bytes[at])))
            .or_else(|| quoted(rest));
        if let Some(length) = length {
            let blanked = &rest[..length];
            code.extend(blanked.iter().map(|byte| if *byte == b'\n' { b'\n' } else { b' ' }));
            at += length;
        } else {
            // Only ASCII is ever searched for.
            code.push(if rest[0].is_ascii() { rest[0] } else { b'_' });
            at += 1;
        }
    }
    String::from_utf8(code).expect("only ASCII was written")
}

fn line_comment(rest: &[u8]) -> Option<usize> {
    rest.starts_with(b"//")
        .then(|| rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()))
}

fn block_comment(rest: &[u8]) -> Option<usize> {
    if !rest.starts_with(b"/*") {
        return None;
    }
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match rest.get(at..at + 2) {
            Some(b"/*") => depth += 1,
            Some(b"*/") => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return Some(at);
        }
    }
    Some(rest.len())
}

/// `r"…"` and `r#"…"#`. A `b` or `c` before them was already copied as code.
fn raw_text(rest: &[u8], before: Option<u8>) -> Option<usize> {
    let in_word = before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if rest[0] != b'r' || (in_word && !matches!(before, Some(b'b' | b'c'))) {
        return None;
    }
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return None;
    }
    let end = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
    let start = 2 + hashes;
    let length = rest[start..].windows(end.len()).position(|window| window == end);
    Some(length.map_or(rest.len(), |length| start + length + end.len()))
}

/// `"…"` and `'…'`, but not a lifetime.
fn quoted(rest: &[u8]) -> Option<usize> {
    let quote = rest[0];
    let is_character = || match rest.get(1)? {
        b'\\' => Some(()),
        first => {
            // A character is followed by its quote at once; a lifetime is not.
            let width = match first {
                0..0x80 => 1,
                0x80..0xe0 => 2,
                0xe0..0xf0 => 3,
                _ => 4,
            };
            (rest.get(1 + width) == Some(&b'\'')).then_some(())
        }
    };
    if quote != b'"' && (quote != b'\'' || is_character().is_none()) {
        return None;
    }
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return Some(at + 1),
            _ => at += 1,
        }
    }
    Some(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_blank_and_code_stays_where_it_was() {
        // source, what is left of it
        let table = [
            ("a // b\nc", "a     \nc"),
            ("a /* b /* c */ d */ e", "a                   e"),
            (r#"f("x\"y", 'z', '\'', '"')"#, "f(      ,    ,     ,    )"),
            ("g::<'a>('ä', x)", "g::<'a>(    , x)"),
            (r##"h(r#"a "b" c"#, br"d")"##, "h(            , b    )"),
            ("for_r\"x\"", "for_r   "),
            ("ü", "__"),
        ];
        for (text, code) in table {
            assert_eq!(blank(text), code, "{text}");
        }
    }

    #[test]
    fn words_are_found_whole_and_tests_are_told_apart() {
        let text = "fn a() { sleep(1); no_sleep(2) }\n#[cfg(test)]\nmod tests {\n\
                    fn b() { sleep(3) }\n}\nfn c() { sleep(4) }";
        let source = Source::new(text, false);
        assert_eq!(source.find("sleep("), [(1, false), (4, true), (6, false)]);
        assert_eq!(Source::new("sleep(1)", true).find("sleep"), [(1, true)]);
        assert_eq!(Source::new("sleeping", false).find("sleep"), []);
    }

    #[test]
    fn names_after_a_prefix_are_listed_one_by_one() {
        let source = Source::new("use crate::{a::{b, c}, d};\ncrate::e::f(); mycrate::g;", false);
        let heads: Vec<_> = source.heads("crate::").into_iter().map(|(_, _, head)| head).collect();
        assert_eq!(heads, ["a", "d", "e"]);
    }

    #[test]
    fn uses_are_found_over_several_lines() {
        let source = Source::new("pub use a::{\n    b,\n    c as d,\n};\nlet reuse = x;", false);
        assert_eq!(source.uses(), [(1, false, "a::{b,c as d,}".to_owned())]);
    }
}
