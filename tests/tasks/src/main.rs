//! The tasks of the repository: `cargo task demo`, `cargo task test` and so on.
//!
//! Cargo compiles this program before every task, so it has few dependencies and only starts Cargo and other programs.
//! The demo's servers and everything else that needs libraries are separate programs.

mod apt;
mod bench;
mod book;
mod chromium;
mod cluster;
mod command;
mod dist;
mod folders;
mod fuzz;
mod kinds;
mod load;
mod mariadb;
mod packaged;
mod plugins;
mod screenshots;
mod suite;
mod supply_chain;
mod target;
mod tool;
mod toolchains;
mod zookeeper;

use std::{
    env,
    ffi::OsString,
    path::PathBuf,
    process::{Command, ExitCode},
};

use clap::{Parser, Subcommand};
use command::{Error, cargo, say};
use packaged::{PROMTOOL, REGISTRY};
use plugins::PluginSelection;

/// Tasks of the repository.
#[derive(Debug, Parser)]
#[command(name = "cargo task", bin_name = "cargo task", version)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Compile the plugins and copy them to target/plugins.
    Plugins {
        /// Also compile the misbehaving guests of the tests.
        #[arg(long)]
        guests: bool,
    },
    /// Start the driver in front of a small example API.
    Demo {
        /// Passed on to the demo; see `cargo task demo -- --help`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<OsString>,
    },
    /// Compile everything and run every test.
    Test {
        /// Passed on to `cargo test`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<OsString>,
    },
    /// Run every test several times on a busy machine.
    Load(load::ProxyLoad),
    /// Keep one core busy (used by `load`).
    #[command(hide = true)]
    Busy,
    /// Fuzz the parsers of untrusted input, starting with the inputs in tests/fuzz/corpus.
    ///
    /// Findings are written to target/fuzz/artifacts, and new inputs to target/fuzz/corpus.
    Fuzz(fuzz::Fuzz),
    /// Check the dependencies against the RustSec advisories. Needs the network.
    Audit {
        /// Check nothing if the advisories cannot be fetched.
        #[arg(long)]
        if_reachable: bool,
        /// Passed on to `cargo deny check`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<OsString>,
    },
    /// Write the bill of materials of the program (CycloneDX) to target/sbom.
    Sbom,
    /// Compile a release of the program, which contains the stock plugins and the list of its dependencies.
    Release,
    /// Write what a release publishes to target/dist: an archive, a Debian package, an image, the bill of materials and
    /// checksums.
    Dist(dist::Dist),
    /// Start a real Kubernetes API server, and test the webhook server and the gateway with it and kubectl.
    ///
    /// The first time, the API server is compiled from the packages of Debian 12, into
    /// target/kubernetes; that takes some minutes and needs the network.
    Cluster {
        /// Passed on to the task's program; see `cargo task cluster -- --help`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<OsString>,
    },
    /// Change modules under load and kill the program, and then replicas of it, for about half an hour; then measure an
    /// audit of many objects, and a start with many chains.
    Soak {
        /// The number of changes to the chains of three replicas and three drivers; 0 for none.
        #[arg(long, default_value_t = 500)]
        changes: u32,
        /// Passed on to the task's program; see `cargo task soak -- --help`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<OsString>,
    },
    /// Attack the program in every known way, and measure well-behaved requests during each attack.
    Hostile {
        /// Passed on to the task's program; see `cargo task hostile -- --help`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<OsString>,
    },
    /// Write the manual as a searchable book to target/book. The first time, mdBook is compiled.
    Book,
    /// Renew the console's screenshots in docs/console. Chromium is installed if it is missing and this user is root.
    Screenshots,
    /// Compile the plugins and run the benchmarks.
    Bench(bench::Bench),
    /// Generate the file with the fields of Kubernetes' own kinds from the source of client-go. The file is part of the
    /// program.
    Kinds(kinds::KindsCommand),
    /// Install the compilation target of plugins if it is missing.
    Target,
}

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            // Cargo and the programs that it ran have printed the error; this process exits with their code.
            ExitCode::from(error.code())
        }
    }
}

fn run(task: Task) -> Result<(), Error> {
    match task {
        Task::Plugins { guests } => plugins::build(if guests {
            PluginSelection::All
        } else {
            PluginSelection::Plugins
        }),
        Task::Demo { rest } => {
            if rest.iter().any(|argument| argument == "bcs") {
                plugins::build(PluginSelection::Demo)?;
            }
            build_demo()?;
            command::become_built_program("debug", "admittance-demo", &rest)
        }
        Task::Test { rest } => {
            plugins::build(PluginSelection::All)?;
            build_programs()?;
            plugins::run_cases()?;
            suite::run(rest, servers_of_tests())
        }
        Task::Load(arguments) => {
            plugins::build(PluginSelection::All)?;
            build_programs()?;
            load::run(&arguments, &servers_of_tests().collect::<Vec<_>>())
        }
        Task::Busy => {
            load::be_busy();
            Ok(())
        }
        Task::Fuzz(arguments) => fuzz::run_targets(&arguments),
        Task::Audit { if_reachable, rest } => supply_chain::audit(if_reachable, &rest),
        Task::Sbom => supply_chain::sbom().map(drop),
        Task::Release => {
            let this_machine = env::consts::ARCH.parse().map_err(Error::Missing)?;
            supply_chain::release(&plugins::build_compressed()?, &this_machine).map(drop)
        }
        Task::Dist(arguments) => arguments.write(),
        Task::Cluster { rest } => {
            cluster::install()?;
            plugins::build(PluginSelection::All)?;
            let profile = if rest == ["figures"] {
                build_optimised()?;
                "release"
            } else {
                build_programs()?;
                "debug"
            };
            if rest.is_empty() {
                cluster::test_stores()?;
            }
            let databases: Vec<_> = databases().collect();
            let program = command::built_program(profile, "admittance-cluster")?;
            let mut command = if rest.iter().any(|argument| argument == "--stay") {
                Command::new(program)
            } else {
                cluster::in_own_network(&program)
            };
            command::become_program(command.args(&rest).envs(databases))
        }
        Task::Soak { changes, rest } => {
            plugins::build(PluginSelection::All)?;
            build_optimised()?;
            command::run(Command::new(command::built_program("release", "admittance-soak")?).args(&rest))?;
            if rest.iter().any(|argument| argument == "--help") {
                Ok(())
            } else {
                test_at_length(changes)
            }
        }
        Task::Hostile { rest } => {
            plugins::build(PluginSelection::All)?;
            build_optimised()?;
            command::become_built_program("release", "admittance-hostile", &rest)
        }
        Task::Book => book::write(),
        Task::Screenshots => {
            plugins::build(PluginSelection::Plugins)?;
            build_programs()?;
            screenshots::renew()
        }
        Task::Bench(arguments) => {
            plugins::build(PluginSelection::All)?;
            bench::measure(&arguments)
        }
        Task::Kinds(arguments) => arguments.run(),
        Task::Target => target::install(target::PLUGIN_TARGET),
    }
}

/// The environment variable and the path of a program that tests run; `None` if the program is unavailable.
type Prerequisite = Option<(&'static str, PathBuf)>;

fn prerequisite(description: &str, variable: &'static str, result: Result<PathBuf, Error>) -> Prerequisite {
    let path = result.inspect_err(|error| {
        say(&format!(
            "{description} is unavailable for the tests that need it: {error}"
        ))
    });
    Some((variable, path.ok()?))
}

fn databases() -> impl Iterator<Item = (&'static str, PathBuf)> {
    let servers = [
        prerequisite("ZooKeeper", zookeeper::VARIABLE, zookeeper::install()),
        prerequisite("MariaDB", mariadb::VARIABLE, mariadb::install()),
    ];
    servers.into_iter().flatten()
}

fn servers_of_tests() -> impl Iterator<Item = (&'static str, PathBuf)> {
    let other_servers = [
        prerequisite(REGISTRY.name, REGISTRY.variable, REGISTRY.install()),
        prerequisite(PROMTOOL.name, PROMTOOL.variable, PROMTOOL.install()),
        prerequisite("the browser", chromium::VARIABLE, chromium::install()),
        prerequisite(
            "the toolchain of JavaScript",
            toolchains::NPM_VARIABLE,
            toolchains::npm(),
        ),
        prerequisite("TypeScript", toolchains::TYPESCRIPT_VARIABLE, toolchains::typescript()),
        prerequisite("Helm", toolchains::HELM_VARIABLE, toolchains::helm()),
        prerequisite("the toolchain of C", toolchains::CLANG_VARIABLE, toolchains::clang()),
        prerequisite(
            "the toolchain of Python",
            toolchains::WHEELS_VARIABLE,
            toolchains::wheels(),
        ),
    ];
    databases().chain(other_servers.into_iter().flatten())
}

/// Compiles the driver, the demo, and the tests with an API server.
///
/// The command selects the whole workspace and the test `whole`, because dependencies then get the same features as in
/// `cargo test --workspace`, and need not be compiled twice.
fn build_programs() -> Result<(), Error> {
    say("Compiling the driver (some minutes the first time)");
    cargo(argument_list(
        "build --workspace --bin admittance --bin admittance-demo --bin admittance-cluster --test whole",
        [],
    ))
}

/// Compiles the driver and the demo. The test `help` is compiled as well, only so that dependencies get the same
/// features as in `build_programs`.
fn build_demo() -> Result<(), Error> {
    say("Compiling the driver (some minutes the first time)");
    cargo(argument_list(
        "build --workspace --bin admittance --bin admittance-demo --test help",
        [],
    ))
}

/// Compiles release builds. The benchmarks are compiled as well, only so that dependencies get the same features as in
/// `build_programs`.
fn build_optimised() -> Result<(), Error> {
    say("Compiling a release build of the driver (some minutes the first time)");
    cargo(argument_list(
        "build --release --workspace --bin admittance --bin admittance-soak --bin admittance-hostile \
         --bin admittance-cluster --bench admission",
        [],
    ))
}

/// Runs the longest tests one after another, so that they do not disturb each other. Needs the release build.
fn test_at_length(changes: u32) -> Result<(), Error> {
    const CHANGE_TESTS: [&str; 2] = [
        "changes_under_load_go_live_everywhere_at_once",
        "three_drivers_go_live_with_each_change_together",
    ];
    const MEASURING_TESTS: [&str; 2] = [
        "a_large_cluster_is_audited_with_bounded_time_and_memory",
        "thousands_of_chains_are_ready_soon",
    ];
    say(&format!(
        "{changes} changes of chains that three replicas serve, an audit of many objects, and a start with many chains"
    ));
    let test = "test --release --workspace --test whole -- --nocapture --test-threads=1";
    let tests = CHANGE_TESTS.iter().filter(|_| changes > 0).chain(&MEASURING_TESTS);
    let mut command = command::cargo_command();
    command.args(argument_list(test, tests.map(OsString::from)));
    command.envs(prerequisite("ZooKeeper", zookeeper::VARIABLE, zookeeper::install()));
    command::run(command.env("ADMITTANCE_TEST_CHANGES", changes.to_string()))
}

fn argument_list(arguments: &str, rest: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    arguments.split(' ').map(OsString::from).chain(rest).collect()
}
