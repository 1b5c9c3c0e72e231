//! The program: `admittance serve`, `check`, `run`, `certs`, `kubernetes`.

mod certs;
mod check;
mod kubernetes;
mod logging;
mod output;
mod progress;
mod report;
mod request_file;
mod run;
mod serve;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::output::BAD;

/// Runs admission hooks as WebAssembly components, in front of any control plane.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Arguments),
    Check(check::Arguments),
    Run(run::Arguments),
    Certs(certs::Arguments),
    Kubernetes(kubernetes::Arguments),
}

/// The exit code when the program was used wrongly or what it was given is wrong; 1 is a refusal.
const WRONG: u8 = 2;

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Serve(arguments) => serve::run(arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Certs(arguments) => certs::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Kubernetes(arguments) => kubernetes::run(&arguments).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        anstream::eprintln!("{BAD}error:{BAD:#} {}", causes(&*error));
        ExitCode::from(WRONG)
    })
}

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// An error with the causes that its own text does not tell.
fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}

/// The runtime for commands that serve nobody else.
fn block_on<F: Future>(future: F) -> Result<F::Output> {
    Ok(tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(future))
}
