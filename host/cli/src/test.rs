//! `admittance test`: runs the declarative cases of a plugin or a chain.

mod case;
mod comparison;
mod kyverno;
mod pattern;
mod report;
mod request;
mod runner;
mod suite;

use std::{
    path::{Component, Path, PathBuf},
    process::ExitCode,
    slice,
    time::Instant,
};

use admittance_definitions::Mistakes;
use admittance_driver::{Config, LogFormat};
use clap::Args;

use self::{
    case::{TestCase, TestSubject},
    kyverno::CaseSelector,
    pattern::TextPattern,
    report::{TestFormat, TestedCase},
    runner::TestBench,
};
use crate::{arguments::parse_existing_path, files, logging, modules, project::Project, request_file};

/// Run the cases of a plugin or a chain in the sandbox.
///
/// A project in Rust, JavaScript or Python is built first, unless nothing changed, and its native tests run after the
/// cases. A case is YAML: a request, the settings, the objects of a cluster, and what is expected. Suites of Gatekeeper
/// (`kind: Suite`) and tests of Kyverno (`kyverno-test.yaml`) are read as they are, including those in subdirectories.
/// Exits with 0 when all cases pass, with 1 when one fails, and with 2 when a case cannot be read.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance test
  admittance test chains/pods.yaml
  admittance test images.wasm --cases cases/ --run 'latest' --output junit")]
pub(crate) struct Arguments {
    /// The directory of a plugin's project, a plugin (.wasm, or stock:rego), a chain file, a suite of Gatekeeper, a
    /// test of Kyverno, or a directory of them.
    #[arg(value_name = "PROJECT|PLUGIN|CHAIN", default_value = ".", value_parser = subject)]
    subject: PathBuf,
    /// A file of cases, or a directory of them [default: the directory `tests` next to the plugin or chain, or in the
    /// project]. May be given more than once.
    #[arg(long, value_name = "FILE|DIRECTORY", value_parser = parse_existing_path)]
    cases: Vec<PathBuf>,
    /// Run only the cases whose name contains this text, or matches this regular expression between slashes. No native
    /// tests run then.
    #[arg(long, value_name = "PATTERN")]
    run: Option<TextPattern>,
    /// Run only these cases of Kyverno's tests, such as `policy=require-*, resource=web`. A `*` stands for any text.
    #[arg(long, short = 't', value_name = "policy=NAME,resource=NAME")]
    test_case_selector: Option<CaseSelector>,
    /// Call the webhooks of chains. Without this option, chains with webhooks are refused.
    #[arg(long)]
    call_webhooks: bool,
    /// A configuration of `serve`, of which the dialect and the settings of modules and signatures are used.
    #[arg(long, value_name = "FILE", value_parser = parse_existing_path)]
    config: Option<PathBuf>,
    /// The directory of modules and their compiled forms [default: the user's cache directory].
    #[arg(long, value_name = "DIRECTORY", env = "ADMITTANCE_STORE")]
    store: Option<PathBuf>,
    /// The output format.
    #[arg(long, short, value_enum, default_value_t)]
    output: TestFormat,
    /// Show log lines of this level and above, including the lines that plugins log.
    #[arg(long, value_name = "LEVEL", default_value = "error", env = "ADMITTANCE_LOG")]
    log: String,
}

/// `/...` at the end means the directory before it, as for `gator`.
fn subject(text: &str) -> Result<PathBuf, String> {
    modules::hooks(text.strip_suffix("/...").unwrap_or(text))
}

pub(crate) fn run(arguments: &Arguments) -> crate::Result<ExitCode> {
    logging::start(&arguments.log, LogFormat::Auto)?;
    let config = arguments.config.as_deref().map(Config::read).transpose()?;
    let project = Project::in_directory(&arguments.subject);
    let subject = match &project {
        Some(project) => TestSubject::Plugin(project.build()?),
        None if files::is_module(&arguments.subject) => TestSubject::Plugin(arguments.subject.clone()),
        None => TestSubject::Chains(arguments.subject.clone()),
    };
    let mut cases = read_cases(&case_files(arguments)?, &subject, config.as_ref())?;
    if let Some(pattern) = &arguments.run {
        cases.retain(|case| pattern.is_in(&case.name));
    }
    if let Some(selector) = &arguments.test_case_selector {
        cases.retain(|case| selector.selects(case));
    }
    if cases.is_empty() && (project.is_none() || arguments.run.is_some()) {
        return Err(no_case_message(arguments).into());
    }
    let mut stand = TestBench::new(config, arguments.store.clone(), arguments.call_webhooks);
    let mut tested = crate::block_on(async {
        let mut tested = Vec::new();
        for case in cases {
            stand.prepare(&case).await;
            let started = Instant::now();
            let failures = stand.run_case(&case).await;
            tested.push(TestedCase::new(&case, started.elapsed(), failures));
        }
        tested
    })?;
    report::print_rows(arguments.output, &tested)?;
    if let (Some(project), None, None) = (&project, &arguments.run, &arguments.test_case_selector) {
        let started = Instant::now();
        let native = TestedCase::from_native_tests(project, started, project.test()?);
        report::print_rows(arguments.output, slice::from_ref(&native))?;
        tested.push(native);
    }
    report::print_result(arguments.output, &tested)?;
    Ok(crate::exit_code(tested.iter().all(TestedCase::is_passed)))
}

/// Returns the files with test cases. These are the files that the arguments name. If the arguments name none, these
/// are the suites at the tested path. If there are no suites either, these are the files in the directory `tests`,
/// which is in the tested project or next to the tested file.
fn case_files(arguments: &Arguments) -> Result<Vec<PathBuf>, String> {
    if !arguments.cases.is_empty() {
        return request_file::expand_paths(&arguments.cases);
    }
    let suites = suite::find_suites(&arguments.subject)?;
    if !suites.is_empty() {
        return Ok(suites);
    }
    let directory = default_cases_directory(&arguments.subject);
    if directory.is_dir() {
        request_file::expand_paths(&[directory])
    } else {
        Ok(Vec::new())
    }
}

fn default_cases_directory(subject: &Path) -> PathBuf {
    let beside = if subject.is_dir() {
        subject
    } else {
        files::parent_directory(subject)
    };
    let path = beside.join("tests");
    path.components().filter(|part| *part != Component::CurDir).collect()
}

fn no_case_message(arguments: &Arguments) -> String {
    let locations = match arguments.cases.as_slice() {
        [] => format!("{}/*.yaml", default_cases_directory(&arguments.subject).display()),
        paths => files::join_paths(paths),
    };
    match (&arguments.run, &arguments.test_case_selector) {
        (Some(pattern), None) => format!("no case in {locations} has `{pattern}` in its name"),
        (_, Some(_)) => format!("no case in {locations} is selected; correct --test-case-selector"),
        (None, None) if arguments.subject.is_dir() && arguments.cases.is_empty() => format!(
            "there is no case in {locations}, and {} is not a plugin's project, which has one of {}; write a case, name files \
             with --cases, or create a project with `admittance new`",
            arguments.subject.display(),
            Project::manifests()
        ),
        (None, None) => format!("there is no case in {locations}; write one, or name files with --cases"),
    }
}

fn read_cases(paths: &[PathBuf], subject: &TestSubject, config: Option<&Config>) -> Result<Vec<TestCase>, Mistakes> {
    let dialect = config.and_then(|config| config.front.dialect());
    let mut mistakes = Mistakes::new();
    let cases = paths
        .iter()
        .flat_map(|path| case::read_cases(path, subject, dialect.as_deref(), &mut mistakes))
        .collect();
    mistakes.into_result(cases)
}
