//! Reports the results of test cases, for people, scripts or CI.

mod junit;

use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde_json::{Value, json};

use super::{case::TestCase, comparison::UnmetExpectation};
use crate::{
    human,
    output::{BAD, BOLD, DIM, GOOD, sanitize_line, sanitize_lines, write},
    project::Project,
    table::strip_styles,
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum TestFormat {
    /// Human-readable, coloured on a terminal.
    #[default]
    Text,
    /// One JSON document.
    Json,
    /// The XML of JUnit, which CI services read.
    Junit,
}

#[derive(Debug)]
pub(super) struct TestedCase {
    file: String,
    line: u32,
    name: String,
    time: Duration,
    failures: Vec<UnmetExpectation>,
}

impl TestedCase {
    pub(super) fn new(case: &TestCase, time: Duration, failures: Vec<UnmetExpectation>) -> Self {
        Self {
            file: case.location.file.clone(),
            line: case.location.line,
            name: case.name.clone(),
            time,
            failures,
        }
    }

    /// Returns the result of the project's native tests. Their output is not part of it, because the tests have already
    /// printed it to standard error.
    pub(super) fn from_native_tests(project: &Project, started: Instant, are_passed: bool) -> Self {
        let failure = UnmetExpectation::new("native", "the native tests failed; their output is above");
        Self {
            file: project.manifest().to_owned(),
            line: 0,
            name: project.test_command(),
            time: started.elapsed(),
            failures: if are_passed { Vec::new() } else { vec![failure] },
        }
    }

    pub(super) fn is_passed(&self) -> bool {
        self.failures.is_empty()
    }

    fn failure_reason(&self) -> String {
        let whys = self.failures.iter().map(|failure| {
            let mut text = format!("{}: {}", failure.aspect, failure.message);
            for line in &failure.diff {
                text += &format!("\n{}", strip_styles(line));
            }
            text
        });
        whys.collect::<Vec<_>>().join("\n")
    }
}

/// Text is printed at once, so that people need not wait for all tests.
pub(super) fn print_rows(format: TestFormat, tested: &[TestedCase]) -> crate::Result<()> {
    match format {
        TestFormat::Text => Ok(write(&rows_text(tested))?),
        TestFormat::Json | TestFormat::Junit => Ok(()),
    }
}

pub(super) fn print_result(format: TestFormat, tested: &[TestedCase]) -> crate::Result<()> {
    let text = match format {
        TestFormat::Text => total_text(tested),
        TestFormat::Json => serde_json::to_string_pretty(&to_json(tested))? + "\n",
        TestFormat::Junit => junit::junit_document(tested),
    };
    Ok(write(&text)?)
}

fn count_results(tested: &[TestedCase]) -> (usize, usize) {
    let passed = tested.iter().filter(|case| case.is_passed()).count();
    (passed, tested.len() - passed)
}

fn rows_text(tested: &[TestedCase]) -> String {
    let mut text = String::new();
    for (file, cases) in group_by_file(tested) {
        text += &format!("{BOLD}{}{BOLD:#}\n", sanitize_line(file));
        for case in cases {
            let (style, word) = if case.is_passed() {
                (GOOD, "ok  ")
            } else {
                (BAD, "FAIL")
            };
            let (name, time) = (sanitize_line(&case.name), human::duration(case.time));
            text += &format!("  {style}{word}{style:#}  {name}  {DIM}{time}{DIM:#}\n");
            for failure in &case.failures {
                let message = sanitize_lines(&failure.message).replace('\n', "\n          ");
                text += &format!("        {}: {message}\n", failure.aspect);
                for line in &failure.diff {
                    text += &format!("          {line}\n");
                }
            }
        }
    }
    text
}

fn total_text(tested: &[TestedCase]) -> String {
    let (passed, failed) = count_results(tested);
    format!("\n{passed} passed, {failed} failed\n")
}

/// Groups results by file. The results of one file must stand next to each other in `tested`.
fn group_by_file(tested: &[TestedCase]) -> impl Iterator<Item = (&str, &[TestedCase])> {
    let files = tested.chunk_by(|case, next| case.file == next.file);
    files.filter_map(|cases| Some((cases.first()?.file.as_str(), cases)))
}

/// Returns the results as JSON. Scripts depend on the form, so fields may only be added.
fn to_json(tested: &[TestedCase]) -> Value {
    let (passed, failed) = count_results(tested);
    let cases = tested.iter().map(|case| {
        let failures = case.failures.iter().map(|failure| {
            let diff: Vec<_> = failure.diff.iter().map(|line| strip_styles(line)).collect();
            json!({"what": failure.aspect, "message": failure.message, "diff": diff})
        });
        json!({
            "file": case.file,
            "line": case.line,
            "name": case.name,
            "passed": case.is_passed(),
            "milliseconds": case.time.as_micros() as f64 / 1e3,
            "failures": failures.collect::<Vec<_>>(),
        })
    });
    json!({"passed": passed, "failed": failed, "cases": cases.collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_cases() -> Vec<TestedCase> {
        let case = |file: &str, name: &str, failures| TestedCase {
            file: file.to_owned(),
            line: 3,
            name: name.to_owned(),
            time: Duration::from_micros(1500),
            failures,
        };
        let differs = UnmetExpectation {
            diff: vec![format!("{BAD}- 1{BAD:#}"), format!("{GOOD}+ 2{GOOD:#}")],
            ..UnmetExpectation::new("object", "it \"differs\" <here>\u{1b}")
        };
        vec![
            case("tests/a.yaml", "first", vec![]),
            case("tests/a.yaml", "second #2", vec![differs]),
            case("tests/b.yaml", "third", vec![]),
        ]
    }

    #[test]
    fn the_text_report_has_a_line_for_each_case() {
        let expected = "tests/a.yaml\n  ok    first  1.50ms\n  FAIL  second #2  1.50ms\n        \
                        object: it \"differs\" <here> \n          - 1\n          + 2\ntests/b.yaml\n  ok    third  1.50ms\n\n\
                        2 passed, 1 failed\n";
        assert_eq!(
            strip_styles(&(rows_text(&sample_cases()) + &total_text(&sample_cases()))),
            expected
        );
    }

    #[test]
    fn the_json_report_lists_cases_and_differences() {
        let report = to_json(&sample_cases());
        assert_eq!((&report["passed"], &report["failed"]), (&json!(2), &json!(1)));
        let second = &report["cases"][1];
        assert_eq!((&second["line"], &second["passed"]), (&json!(3), &json!(false)));
        assert_eq!(second["failures"][0]["diff"], json!(["- 1", "+ 2"]));
    }

    #[test]
    fn the_junit_report_lists_cases_and_failures() {
        let expected = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="admittance" tests="3" failures="1" time="0.004500">
  <testsuite name="tests/a.yaml" tests="2" failures="1" time="0.003000">
    <testcase classname="tests/a.yaml" name="first" time="0.001500"/>
    <testcase classname="tests/a.yaml" name="second #2" time="0.001500">
      <failure message="object: it &quot;differs&quot; &lt;here&gt; ">object: it &quot;differs&quot; &lt;here&gt; &#10;- 1&#10;+ 2</failure>
    </testcase>
  </testsuite>
  <testsuite name="tests/b.yaml" tests="1" failures="0" time="0.001500">
    <testcase classname="tests/b.yaml" name="third" time="0.001500"/>
  </testsuite>
</testsuites>
"#;
        assert_eq!(junit::junit_document(&sample_cases()), expected);
    }
}
