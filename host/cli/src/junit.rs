//! The XML of JUnit, which CI services read.

use std::time::Duration;

/// The cases of one file or kind.
pub(crate) struct Suite<'a> {
    pub(crate) name: &'a str,
    pub(crate) cases: Vec<Case<'a>>,
}

pub(crate) struct Case<'a> {
    pub(crate) name: &'a str,
    pub(crate) time: Duration,
    /// `None`: it passed.
    pub(crate) failure: Option<Failure>,
}

pub(crate) struct Failure {
    /// In one line.
    pub(crate) message: String,
    /// Everything.
    pub(crate) text: String,
}

/// The document of these suites.
pub(crate) fn write(suites: &[Suite<'_>]) -> String {
    let mut text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
    let all = totals(suites.iter().flat_map(|suite| &suite.cases));
    text += &format!("<testsuites name=\"admittance\" {all}>\n");
    for Suite { name, cases } in suites {
        let suite = escaped(name);
        text += &format!("  <testsuite name=\"{suite}\" {}>\n", totals(cases));
        for case in cases {
            let (name, time) = (escaped(case.name), case.time.as_secs_f64());
            text += &format!("    <testcase classname=\"{suite}\" name=\"{name}\" time=\"{time:.6}\"");
            match &case.failure {
                None => text += "/>\n",
                Some(failure) => {
                    text += &format!(
                        ">\n      <failure message=\"{}\">{}</failure>\n    </testcase>\n",
                        escaped(&failure.message),
                        escaped(&failure.text)
                    );
                }
            }
        }
        text += "  </testsuite>\n";
    }
    text + "</testsuites>\n"
}

fn totals<'a>(cases: impl IntoIterator<Item = &'a Case<'a>>) -> String {
    let (mut tests, mut failures, mut time) = (0_usize, 0_usize, Duration::ZERO);
    for case in cases {
        tests += 1;
        failures += usize::from(case.failure.is_some());
        time += case.time;
    }
    format!(
        "tests=\"{tests}\" failures=\"{failures}\" time=\"{:.6}\"",
        time.as_secs_f64()
    )
}

/// For XML: most control characters cannot be written in it at all.
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
