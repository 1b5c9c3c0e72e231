//! Runs all tests, and prints a summary.

use std::{
    ffi::OsString,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::Stdio,
};

use crate::command::{Error, cargo_command, say};

#[derive(Debug, Default, PartialEq, Eq)]
struct Count {
    passed: u64,
    failed: u64,
}

/// Runs the tests of the whole workspace, and continues after a failed test. `servers` are the environment variables
/// that tell the tests where the programs of servers are.
pub(crate) fn run(
    rest: impl IntoIterator<Item = OsString>,
    servers: impl IntoIterator<Item = (&'static str, PathBuf)>,
) -> Result<(), Error> {
    say("Running the tests");
    let mut command = cargo_command();
    let program = command.get_program().to_owned();
    let start = |source| Error::Start {
        program: program.clone(),
        source,
    };
    let mut child = command
        .envs(servers)
        .args(["test", "--workspace", "--no-fail-fast"])
        .args(rest)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(start)?;
    let mut count = Count::default();
    if let Some(output) = child.stdout.take() {
        let mut screen = std::io::stdout().lock();
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            count.add(&line);
            // An error is ignored, so that the tests continue although the terminal may be closed.
            let _ = writeln!(screen, "{line}");
        }
    }
    let status = child.wait().map_err(start)?;
    println!("\n{} passed, {} failed", count.passed, count.failed);
    if status.success() {
        Ok(())
    } else {
        Err(Error::Status { program, status })
    }
}

impl Count {
    /// Adds the numbers in a line that summarizes a test binary: `test result: ok. 3 passed; 0 failed; ...`.
    fn add(&mut self, line: &str) {
        let Some((_, numbers)) = line
            .strip_prefix("test result: ")
            .and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        for part in numbers.split("; ") {
            match part.split_once(' ').map(|(number, word)| (number.parse::<u64>(), word)) {
                Some((Ok(number), "passed")) => self.passed += number,
                Some((Ok(number), "failed")) => self.failed += number,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_all_test_binaries_are_summed() {
        let mut count = Count::default();
        for line in [
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test a ... ok",
            "test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s",
            "",
        ] {
            count.add(line);
        }
        assert_eq!(count, Count { passed: 13, failed: 2 });
    }
}
