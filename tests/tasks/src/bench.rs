//! Benchmarks, and the comparison with another revision.

use std::{ffi::OsString, path::PathBuf, process::Command};

use clap::Args;

use crate::{
    command::{Error, cargo_command, root, run, say, target_directory},
    folders::remove_directory,
};

#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// Also compile the program of this revision, measure both under load in alternating rounds, and say
    /// whether they differ by more than the noise.
    #[arg(long, value_name = "REVISION", conflicts_with = "rest")]
    compare: Option<String>,
    /// The blocks to measure, and options of `cargo bench`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

/// Runs the benchmarks. The plugins and the release build of the program have been compiled.
pub(crate) fn measure(arguments: &Bench) -> Result<(), Error> {
    let mut command = cargo_command();
    command.args(["bench", "--workspace", "--bench", "admission"]);
    match &arguments.compare {
        None => command.args(&arguments.rest),
        Some(revision) => command
            .args(["--", "throughput"])
            .env("ADMITTANCE_BENCH_COMPARE", build(revision)?),
    };
    say("Compiling and running the benchmarks");
    run(&mut command)
}

/// Compiles the program of another revision, in directories of its own.
fn build(revision: &str) -> Result<PathBuf, Error> {
    let directory = target_directory().join("compare");
    let (tree, target) = (directory.join("tree"), directory.join("target"));
    let git = || {
        let mut git = Command::new("git");
        git.current_dir(root());
        git
    };
    remove_directory(&tree)?;
    run(git().args(["worktree", "prune"]))?;
    run(git()
        .args(["worktree", "add", "--force", "--detach"])
        .arg(&tree)
        .arg(revision))?;
    say(&format!(
        "Compiling a release build of {revision} (some minutes the first time)"
    ));
    run(cargo_command()
        .args(["build", "--locked", "--release", "--package", "admittance-cli"])
        .current_dir(&tree)
        .env("CARGO_TARGET_DIR", &target))?;
    run(git().args(["worktree", "remove", "--force"]).arg(&tree))?;
    Ok(target.join("release/admittance"))
}
