//! `admittance dev`: builds and tests a project after every change, and serves its chain.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::ExitStatus,
};

use admittance_driver::{Config, Connections, Driver, Error, LogFormat, Shutdown};
use admittance_net::causes;
use admittance_watch::{Watch, WatchConfig};
use clap::Args;
use tokio::process::Command;

use crate::{
    arguments::parse_existing_path,
    host, logging,
    output::{BAD, DIM, GOOD},
    project::Project,
    simulation::SurroundingFiles,
};

/// Build and test a plugin's project after every change, and serve its chain to AdmissionReviews.
///
/// Whenever a file of the project changes, the command does what `test` does. It serves the chain with the last build
/// of the plugin: POST AdmissionReviews to /admit. It runs until Ctrl-C.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance dev
  admittance dev --chain chains/ --listen 127.0.0.1:9000
  admittance dev --cluster nodes.yaml --config admittance.yaml
  curl -H 'Content-Type: application/json' --data @review.json http://127.0.0.1:9980/admit")]
pub(crate) struct Arguments {
    /// The directory of the plugin's project.
    #[arg(value_name = "PROJECT", default_value = ".")]
    project: PathBuf,
    /// The chain that is served: a file, or a directory of them [default: chain.yaml in the project].
    #[arg(long, value_name = "FILE|DIRECTORY", value_parser = parse_existing_path)]
    chain: Option<PathBuf>,
    /// The address to serve on; with port 0, the system chooses one [default: listen.address of --config, or
    /// 127.0.0.1:9980].
    #[arg(long, value_name = "ADDRESS", value_parser = crate::arguments::socket_address)]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    surroundings: SurroundingFiles,
    /// A configuration of `serve`, from which the dialect to serve and the settings of modules and signatures are
    /// taken. The definitions that it names are not served.
    #[arg(long, value_name = "FILE", value_parser = parse_existing_path)]
    config: Option<PathBuf>,
    /// The directory of modules and their compiled forms [default: the user's cache directory].
    #[arg(long, value_name = "DIRECTORY", env = "ADMITTANCE_STORE")]
    store: Option<PathBuf>,
    /// Show log lines of this level and above, including the lines that plugins log.
    #[arg(long, value_name = "LEVEL", default_value = "info", env = "ADMITTANCE_LOG")]
    log: String,
}

const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9980);

pub(crate) fn run(arguments: &Arguments) -> crate::Result<()> {
    logging::start(&arguments.log, LogFormat::Auto)?;
    let directory = &arguments.project;
    let Some(project) = Project::in_directory(directory) else {
        let error = format!(
            "{} has none of {}; name the directory of a plugin's project, or create one with `admittance new`",
            directory.display(),
            Project::manifests()
        );
        return Err(error.into());
    };
    let chain = arguments.chain.clone().unwrap_or_else(|| directory.join("chain.yaml"));
    if !chain.exists() {
        let error = format!(
            "{} does not exist; name the chain to serve with --chain",
            chain.display()
        );
        return Err(error.into());
    }
    crate::block_on(async {
        tokio::select! {
            ended = develop(arguments, &project, &chain) => ended,
            interrupted = tokio::signal::ctrl_c() => Ok(interrupted?),
        }
    })?
}

async fn develop(arguments: &Arguments, project: &Project, chain: &Path) -> crate::Result<()> {
    let mut is_serving = false;
    loop {
        // Watching starts before the files are read, so that no change is missed.
        let mut watch = Watch::new(
            watched_paths(&arguments.project, project.files(), chain),
            WatchConfig::default(),
        )
        .await;
        let is_passed = run_tests(arguments).await?.success();
        if !is_serving {
            match serve(arguments, chain).await {
                Ok(()) => is_serving = true,
                Err(error) => anstream::eprintln!("{BAD}error:{BAD:#} {}", causes::chain(&*error)),
            }
        }
        let (style, result) = if is_passed { (GOOD, "passed") } else { (BAD, "failed") };
        anstream::eprintln!("{style}{result}{style:#} {DIM}waiting for a change (Ctrl-C ends it){DIM:#}");
        watch.changed().await;
    }
}

async fn run_tests(arguments: &Arguments) -> crate::Result<ExitStatus> {
    let mut command = Command::new(host::running_program());
    command.arg("test").arg(&arguments.project).kill_on_drop(true);
    if let Some(config) = &arguments.config {
        command.arg("--config").arg(config);
    }
    if let Some(store) = &arguments.store {
        command.arg("--store").arg(store);
    }
    Ok(command.status().await?)
}

async fn serve(arguments: &Arguments, chain: &Path) -> crate::Result<()> {
    let mut config = match &arguments.config {
        Some(path) => Config::read(path)?,
        None => Config::for_reviews(DEFAULT_ADDRESS)?,
    };
    config.listen.address = arguments.listen.unwrap_or(config.listen.address);
    let is_for_reviews = arguments.config.is_none();
    let mut builder = host::builder_for_requests(Some(&config), arguments.store.clone());
    if !arguments.surroundings.is_empty() {
        let sandbox = host::sandbox_config(Some(&config));
        builder = arguments.surroundings.simulate(builder, sandbox)?;
    }
    let host = builder.definitions(chain).build().await?;
    let is_from_file = arguments.listen.is_none() && !is_for_reviews;
    let driver = Driver::bind(config, Connections::default(), host, None)
        .await
        .map_err(|error| match error {
            Error::Bind { address, source, .. } if !is_from_file => Error::Bind {
                setting: "--listen",
                address,
                source,
            },
            error => error,
        })?;
    let address = driver.address();
    if is_for_reviews {
        anstream::eprintln!("POST AdmissionReviews to http://{address}/admit");
    } else {
        anstream::eprintln!("send requests to {address}");
    }
    tokio::spawn(async move { driver.run(Shutdown::default()).await });
    Ok(())
}

fn watched_paths(project: &Path, files: impl Iterator<Item = PathBuf>, chain: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = files.chain([chain.to_owned()]).collect();
    let mut directories = vec![project.join("src"), project.join("tests")];
    while let Some(directory) = directories.pop() {
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        // Symbolic links are skipped because they can form cycles, and `__pycache__` because Python tests write to it.
        let below = entries
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()) && entry.file_name() != "__pycache__");
        directories.extend(below.map(|entry| entry.path()));
        paths.push(directory);
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_directories_of_code_and_tests_are_watched() {
        let folder = tempfile::tempdir().unwrap();
        for directory in ["src/a/b", "src/__pycache__", "tests/cases", "target/debug"] {
            fs::create_dir_all(folder.path().join(directory)).unwrap();
        }
        fs::write(folder.path().join("Cargo.toml"), "").unwrap();
        let project = Project::in_directory(folder.path()).unwrap();
        let paths = watched_paths(folder.path(), project.files(), Path::new("chains"));
        let mut names: Vec<_> = paths
            .iter()
            .map(|path| path.strip_prefix(folder.path()).unwrap_or(path).display().to_string())
            .collect();
        names.sort();
        assert_eq!(
            names,
            [
                "Cargo.toml",
                "build.rs",
                "chains",
                "src",
                "src/a",
                "src/a/b",
                "tests",
                "tests/cases"
            ]
        );
    }
}
