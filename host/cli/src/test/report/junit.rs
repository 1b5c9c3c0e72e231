//! Writes results as JUnit XML, which CI services read.

use std::time::Duration;

use super::{TestedCase, by_file, counts};

pub(super) fn document(tested: &[TestedCase]) -> String {
    let mut text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
    text += &format!("<testsuites name=\"admittance\" {}>\n", totals(tested));
    for (file, cases) in by_file(tested) {
        let suite = escaped(file);
        text += &format!("  <testsuite name=\"{suite}\" {}>\n", totals(cases));
        for case in cases {
            let (name, time) = (escaped(&case.name), case.time.as_secs_f64());
            text += &format!("    <testcase classname=\"{suite}\" name=\"{name}\" time=\"{time:.6}\"");
            text += &match case.failures.first() {
                None => "/>\n".to_owned(),
                Some(first) => format!(
                    ">\n      <failure message=\"{}\">{}</failure>\n    </testcase>\n",
                    escaped(&format!("{}: {}", first.aspect, first.message)),
                    escaped(&case.failure_reason())
                ),
            };
        }
        text += "  </testsuite>\n";
    }
    text + "</testsuites>\n"
}

fn totals(cases: &[TestedCase]) -> String {
    let (_, failed) = counts(cases);
    let time: Duration = cases.iter().map(|case| case.time).sum();
    let (tests, seconds) = (cases.len(), time.as_secs_f64());
    format!("tests=\"{tests}\" failures=\"{failed}\" time=\"{seconds:.6}\"")
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\n' => escaped += "&#10;",
            letter if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => escaped.push(' '),
            letter => escaped.push(letter),
        }
    }
    escaped
}
