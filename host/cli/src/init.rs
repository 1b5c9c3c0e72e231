//! `admittance init`: writes a first configuration.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::{
    files::{self, FileDraft},
    output::{BOLD, write},
    serve::DEFAULT_CONFIG,
};

/// Write a first configuration, a chain, and a request to try, all with comments. Existing files are not replaced.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance init
  admittance init kubernetes
  admittance init bcs --directory driver")]
pub(crate) struct Arguments {
    /// The API whose requests Admittance checks: any JSON API, kube-apiserver through webhooks, or BCS on Mesos.
    #[arg(value_enum, default_value_t)]
    api: ApiKind,
    /// The directory to which the files are written; created if it does not exist.
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    directory: PathBuf,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum ApiKind {
    #[default]
    Rest,
    Kubernetes,
    Bcs,
}

struct InitTemplate {
    config: &'static str,
    chain: &'static str,
    request: (&'static str, &'static str),
    run_arguments: &'static str,
}

macro_rules! init_template {
    ($folder:literal, $request:literal, $run_arguments:literal) => {
        InitTemplate {
            config: include_str!(concat!("../../../sdk/templates/init/", $folder, "/admittance.yaml")),
            chain: include_str!(concat!("../../../sdk/templates/init/", $folder, "/chain.yaml")),
            request: (
                $request,
                include_str!(concat!("../../../sdk/templates/init/", $folder, "/", $request)),
            ),
            run_arguments: $run_arguments,
        }
    };
}

const CHAIN_FILE: &str = "chains/first.yaml";

pub(crate) fn run(arguments: &Arguments) -> crate::Result<()> {
    let InitTemplate {
        config,
        chain,
        request: (request, content),
        run_arguments,
    } = match arguments.api {
        ApiKind::Rest => init_template!("rest", "body.json", "--request 'PUT /v1/services/web' "),
        ApiKind::Kubernetes => init_template!("kubernetes", "pod.yaml", ""),
        ApiKind::Bcs => init_template!("bcs", "application.json", ""),
    };
    if arguments.directory.is_file() {
        let problem = "it is a file; name a directory with --directory";
        return Err(files::error_at(&arguments.directory)(problem).into());
    }
    let new_files = [(DEFAULT_CONFIG, config), (CHAIN_FILE, chain), (request, content)]
        .map(|(path, content)| (arguments.directory.join(path), content));
    if let Some((path, _)) = new_files.iter().find(|(path, _)| path.exists()) {
        let error = format!("{} exists; name another directory with --directory", path.display());
        return Err(error.into());
    }
    for (path, content) in &new_files {
        std::fs::create_dir_all(files::parent_directory(path)).map_err(files::error_at(path))?;
        FileDraft::new(path, content.as_bytes(), files::PUBLIC_MODE)?.publish(false)?;
    }
    let enter = if arguments.directory == Path::new(".") {
        String::new()
    } else {
        format!("\n  {BOLD}cd {}{BOLD:#}", arguments.directory.display())
    };
    Ok(write(&format!(
        "wrote {DEFAULT_CONFIG}, {CHAIN_FILE} and {request}\n{enter}\n  \
         {BOLD}admittance run chains/ {run_arguments}{request}{BOLD:#}\n      tries the chain, which refuses this \
         request\n  {BOLD}admittance check --config {DEFAULT_CONFIG}{BOLD:#}\n      checks everything\n  \
         {BOLD}admittance serve{BOLD:#}\n      starts the program\n",
    ))?)
}
