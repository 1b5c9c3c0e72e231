//! Label selectors as text: `app=web,tier in (db, cache),!canary`.

use admittance_admission::{
    LabelOperator, LabelRequirement, LabelSelector, Labels, NAME_PART_LENGTH, is_dns_subdomain, is_name_part,
};

// A plugin may send any label selector. A list compares each object with each requirement of the selector, such as
// `app=web`. To keep that cheap, a selector has a maximum length and a maximum number of requirements.
const MAX_LENGTH: usize = 4 << 10;
const MAX_REQUIREMENTS: usize = 64;

/// The label selector of a list, with the grammar and meaning of Kubernetes' `labels.Parse`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TextSelector {
    sets: LabelSelector,
    bounds: Vec<LabelBound>,
}

/// A requirement `key>1` or `key<9`: the value of the label must be a whole number above or below the bound.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LabelBound {
    key: String,
    side: Side,
    limit: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Above,
    Below,
}

impl LabelBound {
    fn is_met(&self, labels: &Labels) -> bool {
        let number = labels.get(&self.key).and_then(|label| label.parse::<i64>().ok());
        number.is_some_and(|number| match self.side {
            Side::Above => number > self.limit,
            Side::Below => number < self.limit,
        })
    }
}

impl TextSelector {
    /// Parses a selector; empty text selects everything. The error is a sentence about the text.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_LENGTH {
            return Err(format!(
                "the label selector has {} bytes; the limit is {MAX_LENGTH}",
                text.len()
            ));
        }
        let mut reader = SelectorReader {
            words: split_words(text),
            position: 0,
        };
        reader
            .read_selector()
            .map_err(|reason| format!("the label selector `{text}` is invalid: {reason}"))
    }

    pub(crate) fn matches(&self, labels: &Labels) -> bool {
        self.sets.matches(labels) && self.bounds.iter().all(|bound| bound.is_met(labels))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SelectorWord<'a> {
    /// A sign of the grammar: one of `( ) , ! = == != < >`.
    Sign(&'a str),
    Name(&'a str),
}

impl<'a> SelectorWord<'a> {
    fn text(self) -> &'a str {
        match self {
            Self::Sign(text) | Self::Name(text) => text,
        }
    }
}

fn split_words(text: &str) -> Vec<SelectorWord<'_>> {
    let is_sign = |letter: char| matches!(letter, '(' | ')' | ',' | '!' | '=' | '<' | '>');
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (word, after) = if is_sign(first) {
            let length = if rest.starts_with("==") || rest.starts_with("!=") {
                2
            } else {
                1
            };
            let (word, after) = rest.split_at(length);
            (SelectorWord::Sign(word), after)
        } else {
            let end = rest.find(|letter: char| is_sign(letter) || letter.is_whitespace());
            let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
            (SelectorWord::Name(word), after)
        };
        words.push(word);
        rest = after.trim_start();
    }
    words
}

struct SelectorReader<'a> {
    words: Vec<SelectorWord<'a>>,
    position: usize,
}

impl<'a> SelectorReader<'a> {
    fn peek(&self) -> Option<SelectorWord<'a>> {
        self.words.get(self.position).copied()
    }

    fn take(&mut self) -> Option<SelectorWord<'a>> {
        let word = self.peek();
        self.position += 1;
        word
    }

    fn ends_requirement(&self) -> bool {
        matches!(self.peek(), None | Some(SelectorWord::Sign(",")))
    }

    fn read_selector(&mut self) -> Result<TextSelector, String> {
        let mut sets = Vec::new();
        let mut bounds = Vec::new();
        if self.peek().is_none() {
            return Ok(TextSelector::default());
        }
        loop {
            self.read_requirement(&mut sets, &mut bounds)?;
            if sets.len() + bounds.len() > MAX_REQUIREMENTS {
                return Err(format!("it has more than {MAX_REQUIREMENTS} requirements"));
            }
            match self.take() {
                None => break,
                Some(SelectorWord::Sign(",")) => {}
                Some(word) => return Err(format!("expected a comma before `{}`", word.text())),
            }
        }
        Ok(TextSelector {
            sets: LabelSelector::new(sets),
            bounds,
        })
    }

    fn read_requirement(
        &mut self,
        sets: &mut Vec<LabelRequirement>,
        bounds: &mut Vec<LabelBound>,
    ) -> Result<(), String> {
        let set = |key: &str, operator, values| {
            LabelRequirement::new(key, operator, values).map_err(|error| format!("at `{key}`: {error}"))
        };
        if self.peek() == Some(SelectorWord::Sign("!")) {
            self.take();
            sets.push(set(self.read_key("after `!`")?, LabelOperator::DoesNotExist, vec![])?);
            return Ok(());
        }
        let key = self.read_key("at the start of a requirement")?;
        if self.ends_requirement() {
            sets.push(set(key, LabelOperator::Exists, vec![])?);
            return Ok(());
        }
        let operator = self.take().map_or("", SelectorWord::text);
        match operator {
            "=" | "==" => sets.push(set(key, LabelOperator::In, vec![self.read_value()?])?),
            "!=" => sets.push(set(key, LabelOperator::NotIn, vec![self.read_value()?])?),
            "in" => sets.push(set(key, LabelOperator::In, self.read_values(operator)?)?),
            "notin" => sets.push(set(key, LabelOperator::NotIn, self.read_values(operator)?)?),
            "<" | ">" => bounds.push(self.read_bound(key, operator)?),
            other => {
                return Err(format!(
                    "`{other}` after `{key}` is not an operator: use one of =, ==, !=, in, notin, <, >"
                ));
            }
        }
        Ok(())
    }

    fn read_key(&mut self, position_text: &str) -> Result<&'a str, String> {
        match self.take() {
            Some(SelectorWord::Name(key)) => check_key(key).map(|()| key),
            Some(SelectorWord::Sign(sign)) => Err(format!("expected a label key {position_text}, found `{sign}`")),
            None => Err(format!("expected a label key {position_text}")),
        }
    }

    fn read_value(&mut self) -> Result<String, String> {
        if self.ends_requirement() {
            return Ok(String::new());
        }
        match self.take() {
            Some(SelectorWord::Name(value)) => check_value(value).map(|()| value.to_owned()),
            other => Err(format!(
                "expected a value, found `{}`",
                other.map_or("", SelectorWord::text)
            )),
        }
    }

    /// Reads a list of values such as `(a, b)`. If there is nothing between two commas, that counts as an empty value.
    fn read_values(&mut self, operator: &str) -> Result<Vec<String>, String> {
        if self.take() != Some(SelectorWord::Sign("(")) {
            return Err(format!("`{operator}` needs values in parentheses"));
        }
        let mut values = Vec::new();
        if self.peek() == Some(SelectorWord::Sign(")")) {
            self.take();
            return Ok(values);
        }
        loop {
            let value = match self.peek() {
                Some(SelectorWord::Name(value)) => {
                    self.take();
                    check_value(value)?;
                    value
                }
                _ => "",
            };
            values.push(value.to_owned());
            match self.take() {
                Some(SelectorWord::Sign(",")) => {}
                Some(SelectorWord::Sign(")")) => return Ok(values),
                Some(word) => return Err(format!("expected a comma before `{}`", word.text())),
                None => return Err("a parenthesis is not closed".to_owned()),
            }
        }
    }

    fn read_bound(&mut self, key: &str, operator: &str) -> Result<LabelBound, String> {
        let value = self.read_value()?;
        let limit = value
            .parse()
            .map_err(|_| format!("`{key}{operator}` needs a whole number, not `{value}`"))?;
        Ok(LabelBound {
            key: key.to_owned(),
            side: if operator == ">" { Side::Above } else { Side::Below },
            limit,
        })
    }
}

fn check_key(key: &str) -> Result<(), String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if prefix.is_none_or(is_dns_subdomain) && is_name_part(name) {
        Ok(())
    } else {
        Err(format!(
            "`{key}` is not a valid label key: write a name, or a domain, a slash and a name"
        ))
    }
}

fn check_value(value: &str) -> Result<(), String> {
    if value.is_empty() || is_name_part(value) {
        Ok(())
    } else {
        Err(format!(
            "`{value}` is not a valid label value: at most {NAME_PART_LENGTH} letters, digits, `-`, `_` and `.`, with a \
             letter or digit at both ends"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn selectors_match_labels_as_in_kubernetes() {
        // (selector, labels, whether they match). The rows are from `TestSelectorMatches` and `TestSetSelectorParser`
        // in `pkg/labels` of Kubernetes' apimachinery, and from the documentation of labels and selectors.
        let table: [(&str, &[(&str, &str)], bool); 46] = [
            ("", &[("x", "y")], true),
            ("  ", &[], true),
            ("x=y", &[("x", "y")], true),
            ("x=y", &[("x", "z")], false),
            ("x=y", &[], false),
            ("x==y", &[("x", "y")], true),
            ("x = y", &[("x", "y")], true),
            ("x=y,z=w", &[("x", "y"), ("z", "w")], true),
            ("x=y,z=w", &[("x", "y"), ("z", "v")], false),
            ("x!=y,z!=w", &[("x", "z"), ("z", "a")], true),
            ("x!=y", &[("x", "y")], false),
            ("x!=y", &[], true),
            ("x=", &[("x", "")], true),
            ("x=", &[], false),
            ("x=,z=w", &[("x", ""), ("z", "w")], true),
            ("x!=", &[("x", "a")], true),
            ("notin=in", &[("notin", "in")], true),
            ("in in (in)", &[("in", "in")], true),
            ("x", &[("x", "z")], true),
            ("x", &[("y", "z")], false),
            ("!x", &[("y", "z")], true),
            ("!x", &[("x", "z")], false),
            ("!x,!y", &[], true),
            ("x in (a,b)", &[("x", "b")], true),
            ("x in (a,b)", &[("x", "c")], false),
            ("x in (a,b)", &[], false),
            ("x in(a)", &[("x", "a")], true),
            ("x\tin ( a , b )", &[("x", "a")], true),
            ("x in (,b)", &[("x", "")], true),
            ("x in (a,)", &[("x", "")], true),
            ("x in (a,,b)", &[("x", "")], true),
            ("x in (,)", &[("x", "")], true),
            ("x in (,)", &[("x", "a")], false),
            ("x notin (a,b)", &[("x", "c")], true),
            ("x notin (a,b)", &[("x", "a")], false),
            ("x notin (a,b)", &[], true),
            ("x>1", &[("x", "2")], true),
            ("x>1", &[("x", "1")], false),
            ("x>1", &[("x", "many")], false),
            ("x>1", &[], false),
            ("x<7", &[("x", "6")], true),
            ("x<7", &[("x", "8")], false),
            ("x > 1, x < 7", &[("x", "3")], true),
            (
                "a=b,c!=d,e in (x,y),f notin (z),g,!h",
                &[("a", "b"), ("e", "y"), ("g", "")],
                true,
            ),
            (
                "a=b,c!=d,e in (x,y),f notin (z),g,!h",
                &[("a", "b"), ("e", "y"), ("g", ""), ("h", "")],
                false,
            ),
            (
                "node-role.kubernetes.io/control-plane,kubernetes.io/os=linux",
                &[
                    ("node-role.kubernetes.io/control-plane", ""),
                    ("kubernetes.io/os", "linux"),
                ],
                true,
            ),
        ];
        for (text, pairs, expected) in table {
            let selector = TextSelector::parse(text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(selector.matches(&labels(pairs)), expected, "{text:?} and {pairs:?}");
        }
    }

    #[test]
    fn an_invalid_selector_is_refused_with_the_position_of_the_mistake() {
        // (text that Kubernetes' `labels.Parse` refuses, part of the message)
        for (text, message_part) in [
            (",", "at the start of a requirement, found `,`"),
            ("x,", "at the start of a requirement"),
            ("x=y,,z=w", "found `,`"),
            ("=y", "found `=`"),
            ("x=a||y=b", "`a||y` is not a valid label value"),
            ("x==a==b", "before `==`"),
            ("!x=a", "before `=`"),
            ("!", "after `!`"),
            ("!(x)", "after `!`, found `(`"),
            ("x y", "`y` after `x` is not an operator"),
            ("x in a", "parentheses"),
            ("x in (a", "not closed"),
            ("x in (a b)", "before `b`"),
            ("x in (a!)", "before `!`"),
            ("x in ()", "needs values"),
            ("x notin ()", "needs values"),
            ("x in (a)b", "before `b`"),
            ("x=(a)", "expected a value, found `(`"),
            ("x>", "whole number"),
            ("x>1.5", "whole number"),
            ("x>one", "whole number"),
            ("x=-a", "`-a` is not a valid label value"),
            ("a/b/c", "not a valid label key"),
            ("/b", "not a valid label key"),
            ("Upper.io/b", "not a valid label key"),
            ("-b", "not a valid label key"),
        ] {
            let error = TextSelector::parse(text).unwrap_err();
            assert!(error.contains(message_part), "{text:?}: {error}");
            assert!(error.starts_with(&format!("the label selector `{text}` is invalid: ")));
        }
        let longest_selector = vec!["!a"; MAX_REQUIREMENTS].join(",");
        TextSelector::parse(&longest_selector).unwrap();
        let error = TextSelector::parse(&format!("{longest_selector},b")).unwrap_err();
        assert!(error.ends_with("it has more than 64 requirements"), "{error}");
        let error = TextSelector::parse(&format!("x in ({})", "a,".repeat(MAX_LENGTH))).unwrap_err();
        assert_eq!(error, "the label selector has 8199 bytes; the limit is 4096");
        let long = "a".repeat(NAME_PART_LENGTH + 1);
        assert!(TextSelector::parse(&long).is_err());
        assert!(TextSelector::parse(&format!("x={long}")).is_err());
    }
}
