//! Finds the names in a PromQL expression. Prometheus' own tool checks the syntax.

use std::collections::BTreeSet;

/// The metrics and labels that a PromQL expression names.
pub(super) struct PromqlExpression {
    pub(super) selectors: Vec<Selector>,
    /// The labels by which the expression groups series or joins them.
    pub(super) groupings: BTreeSet<String>,
}

/// A selector in a PromQL expression. It selects the series of a metric whose labels have the required values:
/// `matchers` has these labels and values.
pub(super) struct Selector {
    pub(super) name: String,
    pub(super) matchers: Vec<(String, String)>,
}

/// PromQL keywords after which labels follow in parentheses.
const GROUPING_KEYWORDS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];

const OPERATORS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];

impl PromqlExpression {
    pub(super) fn parse(text: &str) -> Self {
        let mut parsed = Self {
            selectors: Vec::new(),
            groupings: BTreeSet::new(),
        };
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            rest = if first.is_ascii_digit() {
                // Skips a number, such as `0.5`, or a duration, such as `5m`.
                rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '.')
            } else if first == '[' {
                rest.split_once(']').unwrap().1
            } else if is_word_character(first) {
                parsed.read_word(rest)
            } else {
                &rest[first.len_utf8()..]
            };
            rest = rest.trim_start();
        }
        parsed
    }

    /// Reads a word from the start of the text. If labels or label matchers follow the word, reads them as well.
    /// Returns the rest of the text.
    fn read_word<'t>(&mut self, text: &'t str) -> &'t str {
        let (word, rest) = split_word(text);
        let rest = rest.trim_start();
        if GROUPING_KEYWORDS.contains(&word) {
            let (labels, rest) = rest.strip_prefix('(').unwrap().split_once(')').unwrap();
            let labels = labels.split(',').map(|label| label.trim().to_owned());
            self.groupings.extend(labels);
            return rest;
        }
        let is_function = rest.starts_with('(') || GROUPING_KEYWORDS.contains(&split_word(rest).0);
        if OPERATORS.contains(&word) || is_function {
            return rest;
        }
        let (matchers, rest) = match rest.strip_prefix('{') {
            Some(rest) => parse_matchers(rest),
            None => (Vec::new(), rest),
        };
        self.selectors.push(Selector {
            name: word.to_owned(),
            matchers,
        });
        rest
    }
}

/// Parses the label matchers behind a `{`. Returns them, and the text behind the `}`.
fn parse_matchers(mut text: &str) -> (Vec<(String, String)>, &str) {
    let mut matchers = Vec::new();
    loop {
        text = text.trim_start_matches([',', ' ']);
        if let Some(rest) = text.strip_prefix('}') {
            return (matchers, rest);
        }
        let (label, rest) = split_word(text);
        let rest = rest.trim_start_matches(['=', '~', '!', ' ']);
        let (value, rest) = rest.strip_prefix('"').unwrap().split_once('"').unwrap();
        matchers.push((label.to_owned(), value.to_owned()));
        text = rest;
    }
}

fn is_word_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

fn split_word(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c| !is_word_character(c)).unwrap_or(text.len()))
}

#[test]
fn metric_names_are_found_in_expressions() {
    let parsed = PromqlExpression::parse(
        "histogram_quantile(0.99, sum by (le, a) (rate(x_bucket{b=\"1|2\",c!~\"3\"}[5m]))) > 7 * 86400\n\
         and on (d) y unless sum(z) without (e) - time()",
    );
    let names: Vec<_> = parsed.selectors.iter().map(|selector| selector.name.as_str()).collect();
    assert_eq!(names, ["x_bucket", "y", "z"]);
    let [first, ..] = parsed.selectors.as_slice() else {
        panic!("there are three");
    };
    let expected = [("b", "1|2"), ("c", "3")].map(|(label, value)| (label.to_owned(), value.to_owned()));
    assert_eq!(first.matchers, expected);
    let groupings: Vec<_> = parsed.groupings.iter().map(String::as_str).collect();
    assert_eq!(groupings, ["a", "d", "e", "le"]);
}
