//! Licence expressions such as `(MIT OR Apache-2.0) AND Unicode-3.0`.

/// Whether the allowed licences satisfy `expression` (SPDX, with the slash of old manifests for
/// `OR`). An unreadable expression is not allowed.
pub(crate) fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut reader = Reader { words: &words, allowed };
    let verdict = reader.either();
    verdict.unwrap_or(false) && reader.words.is_empty()
}

struct Reader<'a> {
    words: &'a [&'a str],
    allowed: &'a [String],
}

impl<'a> Reader<'a> {
    fn take(&mut self) -> Option<&'a str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    fn take_if(&mut self, word: &str) -> bool {
        let is_next = self.words.first() == Some(&word);
        if is_next {
            self.words = &self.words[1..];
        }
        is_next
    }

    fn either(&mut self) -> Option<bool> {
        let mut verdict = self.both()?;
        while self.take_if("OR") {
            verdict |= self.both()?;
        }
        Some(verdict)
    }

    fn both(&mut self) -> Option<bool> {
        let mut verdict = self.one()?;
        while self.take_if("AND") {
            verdict &= self.one()?;
        }
        Some(verdict)
    }

    fn one(&mut self) -> Option<bool> {
        if self.take_if("(") {
            let verdict = self.either()?;
            return self.take_if(")").then_some(verdict);
        }
        let mut name = self.take()?.to_owned();
        if self.take_if("WITH") {
            name = format!("{name} WITH {}", self.take()?);
        }
        Some(self.allowed.contains(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_allowed_if_some_choice_of_it_is() {
        let allowed = ["MIT", "Apache-2.0", "Unicode-3.0"].map(str::to_owned);
        let table = [
            ("MIT", true),
            ("GPL-3.0", false),
            ("MIT OR GPL-3.0", true),
            ("GPL-3.0/MIT", true),
            ("MIT AND GPL-3.0", false),
            ("(MIT OR GPL-3.0) AND Unicode-3.0", true),
            ("MIT OR GPL-3.0 AND GPL-2.0", true),
            ("Apache-2.0 WITH LLVM-exception", false),
            ("Apache-2.0 WITH LLVM-exception OR MIT", true),
            ("", false),
            ("MIT OR", false),
            ("(MIT", false),
            ("MIT MIT", false),
        ];
        for (expression, verdict) in table {
            assert_eq!(is_allowed(expression, &allowed), verdict, "{expression:?}");
        }
    }
}
