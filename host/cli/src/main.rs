//! The program `admittance`, with a module for each command or group of commands.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod agent;
mod arguments;
mod audit;
mod bench;
mod certs;
mod check;
mod cluster;
mod dev;
mod directories;
mod doctor;
mod exporter;
mod files;
mod help;
mod host;
mod human;
mod import;
mod init;
mod kubeconfig;
mod kubernetes;
mod logging;
mod modules;
mod new;
mod output;
mod process_metrics;
mod progress;
mod project;
mod remote;
mod replay;
mod report;
mod request_file;
mod run;
mod schema;
mod serve;
mod shell;
mod simulation;
mod table;
mod test;

use std::{process::ExitCode, time::Duration};

use admittance_admission::find_similar;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, error::ErrorKind};

use crate::output::BAD;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs admission hooks as WebAssembly components, in front of any control plane.
#[derive(Debug, Parser)]
#[command(name = "admittance", version, propagate_version = true, max_term_width = HELP_WIDTH)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Init(init::Arguments),
    New(new::Arguments),
    Test(test::Arguments),
    Dev(dev::Arguments),
    Run(run::Arguments),
    Bench(bench::Arguments),
    Check(check::Arguments),
    Doctor(doctor::Arguments),
    Import(import::Arguments),
    Audit(audit::Arguments),
    Serve(serve::Arguments),
    Status(remote::StatusArguments),
    History(remote::HistoryArguments),
    Diff(remote::DiffArguments),
    Rollback(remote::RollbackArguments),
    Get(remote::GetArguments),
    Apply(remote::ApplyArguments),
    Delete(remote::DeleteArguments),
    Candidates(remote::CandidatesArguments),
    Promote(remote::PromoteArguments),
    Rollout(remote::RolloutArguments),
    Disable(remote::DisableArguments),
    Enable(remote::EnableArguments),
    Decisions(remote::DecisionsArguments),
    Explain(remote::ExplainArguments),
    Record(remote::RecordArguments),
    Users(remote::UsersArguments),
    Tokens(remote::TokensArguments),
    Clusters(remote::ClustersArguments),
    RegisterTokens(remote::RegisterTokensArguments),
    Permissions(remote::PermissionsArguments),
    Replay(replay::Arguments),
    Pull(modules::PullArguments),
    Push(modules::PushArguments),
    Inspect(modules::InspectArguments),
    /// Compile a component from standard input to standard output. The program starts this command itself, as a child
    /// process.
    #[command(hide = true)]
    Compile {
        /// The size of the component and the limits of its compilation: a JSON object.
        job: String,
    },
    Certs(certs::Arguments),
    Kubernetes(kubernetes::Arguments),
    Agent(agent::Arguments),
    Kubeconfig(kubeconfig::Arguments),
    Schema(schema::Arguments),
    Completions(shell::CompletionsArguments),
    Man(shell::ManArguments),
}

const HELP_WIDTH: usize = 100;

/// The exit code for wrong usage or invalid input. It is not 1, because that means that a request was refused.
const INVALID_EXIT_CODE: u8 = 2;

/// The exit code for temporary failures: `EX_TEMPFAIL` of sysexits.h.
const TRANSIENT_EXIT_CODE: u8 = 75;

fn main() -> ExitCode {
    shell::handle_completion_request();
    let parsed = Arguments::command().try_get_matches();
    let matches = parsed.unwrap_or_else(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            help::grouped_program().get_matches()
        }
        _ => with_suggestions(error).exit(),
    });
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let result = arguments.command.run();
    logging::flush();
    result.unwrap_or_else(|error| {
        anstream::eprintln!("{BAD}error:{BAD:#} {}", admittance_net::causes::chain(&*error));
        let is_transient = error
            .downcast_ref::<admittance::Error>()
            .is_some_and(admittance::Error::is_transient);
        ExitCode::from(if is_transient {
            TRANSIENT_EXIT_CODE
        } else {
            INVALID_EXIT_CODE
        })
    })
}

/// Removes suggestions that are too different from what was typed. clap would also suggest `audit` for `stauts`.
fn with_suggestions(mut error: clap::Error) -> clap::Error {
    use clap::error::{ContextKind, ContextValue};

    for (value_kind, suggestion_kind) in [
        (ContextKind::InvalidSubcommand, ContextKind::SuggestedSubcommand),
        (ContextKind::InvalidValue, ContextKind::SuggestedValue),
    ] {
        let Some(ContextValue::String(text)) = error.get(value_kind) else {
            continue;
        };
        let suggestions = match error.get(suggestion_kind) {
            Some(ContextValue::String(name)) => find_similar(text, [name.clone()]),
            Some(ContextValue::Strings(names)) => find_similar(text, names.clone()),
            _ => continue,
        };
        error.remove(suggestion_kind);
        if suggestions.is_empty() {
            error.remove(ContextKind::Suggested);
        } else {
            error.insert(suggestion_kind, ContextValue::Strings(suggestions));
        }
    }
    if let Some(ContextValue::String(text)) = error.get(ContextKind::InvalidArg)
        && error.kind() == ErrorKind::UnknownArgument
        && std::env::args().nth(1).is_some_and(|command| command == "apply")
        && !text.starts_with('-')
    {
        let tip = format!("name the file with -f: apply -f {text}").into();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    error
}

impl Command {
    fn run(self) -> Result<ExitCode> {
        match self {
            Self::Serve(arguments) => return serve::run(arguments),
            Self::Check(arguments) => return check::run(arguments),
            Self::Doctor(arguments) => return doctor::run(&arguments),
            Self::Import(arguments) => return import::run(&arguments),
            Self::Audit(arguments) => return audit::run(&arguments),
            Self::Run(arguments) => return run::run(&arguments),
            Self::Bench(arguments) => return bench::run(&arguments),
            Self::Test(arguments) => return test::run(&arguments),
            Self::Status(arguments) => return arguments.run(),
            Self::Explain(arguments) => return arguments.run(),
            Self::Replay(arguments) => return replay::run(&arguments),
            Self::Compile { job } => return Ok(admittance_sandbox::compile(&job)),
            Self::History(arguments) => arguments.run()?,
            Self::Diff(arguments) => arguments.run()?,
            Self::Rollback(arguments) => arguments.run()?,
            Self::Get(arguments) => arguments.run()?,
            Self::Apply(arguments) => arguments.run()?,
            Self::Delete(arguments) => arguments.run()?,
            Self::Candidates(arguments) => arguments.run()?,
            Self::Promote(arguments) => arguments.run()?,
            Self::Rollout(arguments) => arguments.run()?,
            Self::Disable(arguments) => arguments.run()?,
            Self::Enable(arguments) => arguments.run()?,
            Self::Decisions(arguments) => arguments.run()?,
            Self::Record(arguments) => arguments.run()?,
            Self::Users(arguments) => arguments.run()?,
            Self::Tokens(arguments) => arguments.run()?,
            Self::Clusters(arguments) => arguments.run()?,
            Self::RegisterTokens(arguments) => arguments.run()?,
            Self::Permissions(arguments) => arguments.run()?,
            Self::Pull(arguments) => arguments.run()?,
            Self::Push(arguments) => arguments.run()?,
            Self::Inspect(arguments) => arguments.run()?,
            Self::Certs(arguments) => certs::run(&arguments)?,
            Self::Kubernetes(arguments) => kubernetes::run(&arguments)?,
            Self::Agent(arguments) => agent::run(&arguments)?,
            Self::Kubeconfig(arguments) => kubeconfig::run(&arguments)?,
            Self::Init(arguments) => init::run(&arguments)?,
            Self::New(arguments) => new::run(&arguments)?,
            Self::Dev(arguments) => dev::run(&arguments)?,
            Self::Schema(arguments) => schema::run(&arguments)?,
            Self::Completions(arguments) => arguments.run()?,
            Self::Man(arguments) => arguments.run()?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

type Error = Box<dyn std::error::Error + Send + Sync>;

type Result<T> = std::result::Result<T, Error>;

/// The time for which a command that ends waits for threads that are reading a file or resolving a name.
const THREADS_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns the exit code of a command that judges requests or objects: 0 if none is refused, and 1 if one is.
fn exit_code(is_clean: bool) -> ExitCode {
    ExitCode::from(u8::from(!is_clean))
}

fn block_on<F: Future>(future: F) -> Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let output = runtime.block_on(future);
    runtime.shutdown_timeout(THREADS_TIMEOUT);
    Ok(output)
}

#[cfg(test)]
fn assert_acceptance(lines: &[(&str, bool)]) {
    for (line, is_accepted) in lines {
        let words = ["admittance"].into_iter().chain(line.split_whitespace());
        assert_eq!(Arguments::try_parse_from(words).is_ok(), *is_accepted, "{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_in_arguments_are_reported_with_the_closest_word_or_an_example() {
        for (line, expected, unexpected) in [
            ("stauts", "a similar subcommand exists: 'status'", "audit"),
            ("version", "unrecognized subcommand", "permissions"),
            ("completions tcsh", "invalid value 'tcsh'", "similar"),
            ("rollback x", "`admittance history` lists them", "digit"),
            ("serve --listen 127.0.0.1", "as in 127.0.0.1:8080", "syntax"),
            ("disable a/b --reason c --for 5", "as in 30s, 10m or 1h", "5sec"),
        ] {
            let words = ["admittance"].into_iter().chain(line.split_whitespace());
            let error = with_suggestions(Arguments::try_parse_from(words).unwrap_err()).to_string();
            assert!(
                error.contains(expected) && !error.contains(unexpected),
                "{line}: {error}"
            );
        }
    }
}
