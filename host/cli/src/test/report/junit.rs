//! Writes results as JUnit XML, which CI services read.

use std::time::Duration;

use super::{TestedCase, count_results, group_by_file};

pub(super) fn junit_document(tested: &[TestedCase]) -> String {
    let mut text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
    text += &format!("<testsuites name=\"admittance\" {}>\n", total_attributes(tested));
    for (file, cases) in group_by_file(tested) {
        let suite = escape(file);
        text += &format!("  <testsuite name=\"{suite}\" {}>\n", total_attributes(cases));
        for case in cases {
            let (name, time) = (escape(&case.name), case.time.as_secs_f64());
            text += &format!("    <testcase classname=\"{suite}\" name=\"{name}\" time=\"{time:.6}\"");
            text += &match case.failures.first() {
                None => "/>\n".to_owned(),
                Some(first) => format!(
                    ">\n      <failure message=\"{}\">{}</failure>\n    </testcase>\n",
                    escape(&format!("{}: {}", first.aspect, first.message)),
                    escape(&case.failure_reason())
                ),
            };
        }
        text += "  </testsuite>\n";
    }
    text + "</testsuites>\n"
}

fn total_attributes(cases: &[TestedCase]) -> String {
    let (_, failed) = count_results(cases);
    let time: Duration = cases.iter().map(|case| case.time).sum();
    let (tests, seconds) = (cases.len(), time.as_secs_f64());
    format!("tests=\"{tests}\" failures=\"{failed}\" time=\"{seconds:.6}\"")
}

fn escape(text: &str) -> String {
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
