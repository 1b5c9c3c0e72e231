//! Benchmarks, and their comparison with another revision.

use std::{
    ffi::{OsStr, OsString},
    fs,
    path::PathBuf,
    process::Command,
};

use clap::Args;

use crate::{
    command::{Error, cargo_command, root, run, say, target_directory},
    folders::remove_directory,
};

#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// Also compile the program of this revision, measure both programs under load in alternating rounds, and fail if
    /// the current one is slower by more than the noise in any row.
    #[arg(long, value_name = "REVISION", conflicts_with = "rest")]
    compare: Option<String>,
    /// The profile of Cargo, to try the benchmarks with a development build.
    #[arg(long, default_value = "release", hide = true)]
    profile: String,
    /// The blocks of benchmarks to measure, such as `mesos`, and options of `cargo bench`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

pub(crate) fn measure(arguments: &Bench) -> Result<(), Error> {
    let profile = &arguments.profile;
    say("Compiling the driver and the benchmarks (some minutes the first time)");
    run(cargo_command()
        .args(["build", "--workspace", "--profile", profile])
        .args(["--bin", "admittance", "--bench", "admission"]))?;
    let mut command = cargo_command();
    command.args(["bench", "--workspace", "--profile", profile, "--bench", "admission"]);
    match &arguments.compare {
        None => command.args(&arguments.rest),
        Some(revision) => {
            let mut compare = OsString::from("--compare=");
            compare.push(other_build(revision, profile)?);
            command.args([OsStr::new("--"), OsStr::new("throughput"), &compare])
        }
    };
    say("Running the benchmarks");
    run(&mut command)
}

/// Returns the path of the program of another revision. It is compiled on first use, in its own directory.
fn other_build(revision: &str, profile: &str) -> Result<PathBuf, Error> {
    let directory = target_directory().join("compare");
    let (tree, target) = (directory.join("tree"), directory.join("target"));
    let git = || {
        let mut git = Command::new("git");
        git.current_dir(root());
        git
    };
    let commit = commit(git(), revision)?;
    let program = directory.join(format!("admittance-{profile}-{commit}"));
    if program.exists() {
        return Ok(program);
    }
    remove_directory(&tree)?;
    run(git().args(["worktree", "prune"]))?;
    run(git()
        .args(["worktree", "add", "--force", "--detach"])
        .arg(&tree)
        .arg(&commit))?;
    say(&format!(
        "Compiling the driver of {revision} (some minutes the first time)"
    ));
    run(cargo_command()
        .args(["build", "--locked", "--package", "admittance-cli", "--profile", profile])
        .current_dir(&tree)
        .env("CARGO_TARGET_DIR", &target))?;
    run(git().args(["worktree", "remove", "--force"]).arg(&tree))?;
    let folder = if profile == "dev" { "debug" } else { profile };
    let copied = fs::copy(target.join(folder).join("admittance"), &program);
    copied.map_err(|source| Error::File {
        path: program.clone(),
        source,
    })?;
    Ok(program)
}

fn commit(mut git: Command, revision: &str) -> Result<String, Error> {
    let output = git
        .args(["rev-parse", "--verify", "--quiet", "--end-of-options"])
        .arg(format!("{revision}^{{commit}}"))
        .output()
        .map_err(|source| Error::Start {
            program: "git".into(),
            source,
        })?;
    if !output.status.success() {
        return Err(Error::Missing(format!(
            "{revision} is not a revision of this repository; `git log --oneline` lists some"
        )));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
