//! Compiles the targets of `tests/fuzz` for libFuzzer, and runs them.
//!
//! The compiler wrapper `tests/fuzz/rustc` instruments only the crates of this workspace; dependencies are compiled as
//! for the tests. No sanitizer is used, because the stable compiler has none, and no target runs the few lines of
//! unsafe code in the workspace. Findings are written to `target/fuzz`.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Mutex,
    thread,
};

use clap::Args;

use crate::{
    apt::is_on_path,
    command::{Error, become_program, built_program, cargo_command, root, run, say},
    folders::{create_directory, file_error},
};

/// The timeout for each input of a fuzz target, in seconds. It is long enough for a busy machine.
const INPUT_TIMEOUT_SECONDS: u32 = 30;

/// The maximum length of generated inputs, in bytes. libFuzzer takes longer to mutate longer inputs.
const MAX_INPUT_LENGTH: u32 = 8192;

const MAX_LOG_LINES: usize = 40;

#[derive(Debug, Args)]
pub(crate) struct Fuzz {
    /// The targets to run, from `tests/fuzz/corpus` [default: all].
    targets: Vec<String>,
    /// Seconds for which each target runs.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// The number of targets that run concurrently.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Arguments for the program of a single target, which then runs in the foreground. A file of
    /// `target/fuzz/artifacts` makes it try this input again, and `-help=1` shows the options of libFuzzer.
    #[arg(last = true)]
    rest: Vec<OsString>,
}

pub(crate) fn run_targets(arguments: &Fuzz) -> Result<(), Error> {
    let all = list_targets()?;
    if let Some(unknown) = arguments.targets.iter().find(|name| !all.contains(name)) {
        return Err(Error::Missing(format!(
            "unknown fuzz target `{unknown}`; expected one of {}",
            all.join(", ")
        )));
    }
    let target_names = if arguments.targets.is_empty() {
        &all
    } else {
        &arguments.targets
    };
    let program = build()?;
    if !arguments.rest.is_empty() {
        return match target_names.as_slice() {
            [target] => become_program(fuzz_command(&program, target).args(&arguments.rest)),
            _ => Err(Error::Missing(
                "arguments after `--` require exactly one target before them".to_owned(),
            )),
        };
    }
    say(&format!(
        "Fuzzing {} targets for {} seconds each, {} at a time",
        target_names.len(),
        arguments.seconds,
        arguments.jobs
    ));
    let waiting = Mutex::new(target_names.iter().rev());
    let failed = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..arguments.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().ok().and_then(|mut waiting| waiting.next());
                    let Some(target) = next else { break };
                    if let Err(error) = fuzz(&program, target, arguments.seconds)
                        && let Ok(mut failed) = failed.lock()
                    {
                        failed.push(error);
                    }
                }
            });
        }
    });
    match failed.into_inner().unwrap_or_default().into_iter().next() {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

fn corpora() -> PathBuf {
    root().join("tests/fuzz/corpus")
}

fn list_targets() -> Result<Vec<String>, Error> {
    let folder = corpora();
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).map_err(file_error(&folder))? {
        names.push(
            entry
                .map_err(file_error(&folder))?
                .file_name()
                .to_string_lossy()
                .into_owned(),
        );
    }
    names.sort();
    Ok(names)
}

fn build() -> Result<PathBuf, Error> {
    if !is_on_path("c++") {
        return Err(Error::Missing(
            "libFuzzer is compiled from C++, but `c++` was not found: install g++ or clang".to_owned(),
        ));
    }
    say("Compiling the fuzz targets");
    run(cargo_command()
        // The whole workspace is selected, so that Cargo builds dependencies with the same features as in the tests.
        .args(["build", "--locked", "--workspace", "--example", "fuzz"])
        .args(["--features", "admittance-fuzz/libfuzzer"])
        .env("RUSTC_WORKSPACE_WRAPPER", root().join("tests/fuzz/rustc")))?;
    built_program("debug/examples", "fuzz")
}

fn fuzz_command(program: &Path, target: &str) -> Command {
    let mut command = Command::new(program);
    command.env("ADMITTANCE_FUZZ_TARGET", target).current_dir(root());
    command
}

fn fuzz(program: &Path, target: &str, seconds: u32) -> Result<(), Error> {
    let top = root().join("target/fuzz");
    let (corpus, artifacts) = (top.join("corpus").join(target), top.join("artifacts").join(target));
    create_directory(&corpus)?;
    create_directory(&artifacts)?;
    let seeds = corpora().join(target);
    let words = top.join(format!("{target}.dict"));
    fs::write(&words, dictionary(&seeds)?).map_err(file_error(&words))?;
    let log = top.join(format!("{target}.log"));
    let output = File::create(&log).map_err(file_error(&log))?;
    let errors = output.try_clone().map_err(file_error(&log))?;
    let status = fuzz_command(program, target)
        .arg(&corpus)
        .arg(&seeds)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-timeout={INPUT_TIMEOUT_SECONDS}"))
        .arg(format!("-max_len={MAX_INPUT_LENGTH}"))
        .arg(format!("-dict={}", words.display()))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg("-print_final_stats=1")
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .status()
        .map_err(|source| Error::Start {
            program: program.into(),
            source,
        })?;
    let log_bytes = fs::read(&log).map_err(file_error(&log))?;
    let log_text = String::from_utf8_lossy(&log_bytes);
    if status.success() {
        say(&format!("{target}: {}", summary(&log_text)));
        return Ok(());
    }
    let lines: Vec<&str> = log_text.lines().collect();
    let last = lines
        .get(lines.len().saturating_sub(MAX_LOG_LINES)..)
        .unwrap_or_default();
    eprintln!(
        "{}\n==> {target} FAILED. Try the input again with `cargo task fuzz {target} -- {}/<file>`",
        last.join("\n"),
        artifacts.display()
    );
    Err(Error::Logged {
        program: program.into(),
        status,
        log,
    })
}

fn summary(log_text: &str) -> String {
    let number = |name: &str| {
        let line = log_text.lines().rev().find_map(|line| line.strip_prefix(name));
        line.map_or("?", str::trim).to_owned()
    };
    format!(
        "{} inputs, {} new, {} MB",
        number("stat::number_of_executed_units:"),
        number("stat::new_units_added:"),
        number("stat::peak_rss_mb:")
    )
}

/// Returns the words in the corpus as a dictionary for libFuzzer. libFuzzer finds the strings with which a program
/// compares its input only if a sanitizer is used, and none is used here.
fn dictionary(seeds: &Path) -> Result<String, Error> {
    let mut words = BTreeSet::new();
    for entry in fs::read_dir(seeds).map_err(file_error(seeds))? {
        let path = entry.map_err(file_error(seeds))?.path();
        let bytes = fs::read(&path).map_err(file_error(&path))?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let parts = text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '/' | '-' | '_')));
        words.extend(parts.filter(|word| (2..=40).contains(&word.len())).map(str::to_owned));
    }
    Ok(words.into_iter().map(|word| format!("\"{word}\"\n")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fuzz_target_has_a_dictionary() {
        let targets = list_targets().expect("the targets are there");
        assert!(targets.len() >= 14, "{targets:?}");
        for target in targets {
            let words = dictionary(&corpora().join(&target)).expect("its corpus can be read");
            assert!(!words.is_empty(), "{target}");
        }
    }

    #[test]
    fn the_summary_of_a_fuzz_run_has_inputs_and_memory() {
        let log_text =
            "INFO: x\nstat::number_of_executed_units: 123\nstat::new_units_added:          4\nstat::peak_rss_mb: 55\n";
        assert_eq!(summary(log_text), "123 inputs, 4 new, 55 MB");
    }
}
