//! `admittance doctor`: checks a configuration and this machine before `serve` is started.

mod machine;

use std::{
    io,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::ExitCode,
    time::SystemTime,
};

use admittance::Moment;
use admittance_admin::{AdminConfig, EXPIRY_WARNING_PERIOD};
use admittance_bcs::zookeeper::Ensembles;
use admittance_driver::{Config, bind_advice};
use admittance_net::tls::CertificateState;
use axum::body::Body;
use clap::Args;
use http::Request;
use serde::Serialize;

use self::machine::MachineFacts;
use crate::{
    check, directories,
    output::{BAD, GOOD, Output, WARN, sanitize_line},
    serve::{self, DEFAULT_CONFIG},
};

/// Check a configuration and this machine, and say what is wrong and what to do.
///
/// The command checks all that `check` checks, and looks at: whether modules can be fetched, ports, certificates and
/// their dates, the store and the history, file permissions, the kernel and its limits, the clock, and whether the
/// upstream answers. Nothing is changed, except that modules are fetched into the store. Exits with 1 when `serve`
/// would not work.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance doctor
  admittance doctor --config /etc/admittance/admittance.yaml --output json")]
pub(crate) struct Arguments {
    /// The configuration of `serve`.
    #[arg(long, value_name = "FILE", default_value = DEFAULT_CONFIG, env = "ADMITTANCE_CONFIG")]
    config: PathBuf,
    /// The directory of modules and their compiled forms, as for `serve`.
    #[arg(long, value_name = "DIRECTORY", env = "ADMITTANCE_STORE")]
    store: Option<PathBuf>,
    /// The output format.
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Severity {
    Ok,
    Warning,
    Problem,
}

/// The result of one check. Scripts depend on its JSON form, so fields may only be added.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct DoctorFinding {
    severity: Severity,
    subject: &'static str,
    message: String,
}

impl DoctorFinding {
    fn ok(subject: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Ok, subject, message)
    }

    fn warning(subject: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, subject, message)
    }

    fn problem(subject: &'static str, message: impl Into<String>) -> Self {
        Self::new(Severity::Problem, subject, message)
    }

    fn new(severity: Severity, subject: &'static str, message: impl Into<String>) -> Self {
        Self {
            severity,
            subject,
            message: message.into(),
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> crate::Result<ExitCode> {
    let findings = collect_findings(arguments)?;
    arguments
        .output
        .print(&findings, |findings| findings.iter().map(finding_line).collect())?;
    let is_problem = |finding: &DoctorFinding| finding.severity == Severity::Problem;
    Ok(crate::exit_code(!findings.iter().any(is_problem)))
}

fn finding_line(finding: &DoctorFinding) -> String {
    let (style, word) = match finding.severity {
        Severity::Ok => (GOOD, "ok     "),
        Severity::Warning => (WARN, "warning"),
        Severity::Problem => (BAD, "problem"),
    };
    format!(
        "{style}{word}{style:#}  {}: {}\n",
        finding.subject,
        sanitize_line(&finding.message)
    )
}

fn collect_findings(arguments: &Arguments) -> crate::Result<Vec<DoctorFinding>> {
    let Arguments {
        config: path, store, ..
    } = arguments;
    let machine = MachineFacts::read();
    let mut findings = vec![machine.check_kernel(), machine.check_descriptors()];
    let Moment(now) = Moment::now();
    findings.extend(check_clock(path, now));
    if let Err(problem) = serve::check_config_exists(path) {
        findings.push(DoctorFinding::problem("configuration", problem));
        return Ok(findings);
    }
    let config = match Config::read(path) {
        Ok(config) => config,
        Err(mistakes) => {
            let of_configuration = |mistake: &_| DoctorFinding::problem("configuration", format!("{mistake}"));
            findings.extend(mistakes.iter().map(of_configuration));
            return Ok(findings);
        }
    };
    let admin = config.admin.as_ref();
    findings.extend(check_port("listen.address", config.listen.address));
    findings.extend(admin.and_then(|admin| check_port("admin.address", admin.address())));
    let refusal = admin.and_then(AdminConfig::refusal);
    findings.extend(refusal.map(|why| DoctorFinding::warning("admin.address", why.to_string())));
    findings.extend(
        certificate_states(&config)
            .iter()
            .filter_map(|status| check_certificate(status, now)),
    );
    let store_directory = store.clone().or(config.store.directory.clone());
    let store = directories::store_directory(store_directory.clone());
    findings.push(check_directory("store", store.as_deref()));
    let history = directories::history_directory(config.history.directory.clone(), path);
    findings.push(check_directory("history", history.as_deref()));
    findings.extend(crate::block_on(check_upstream(&config))?);
    let checked = check::check_configuration(path, store_directory)?;
    let problems = checked.problems.into_iter();
    findings.extend(problems.map(|mistake| DoctorFinding::problem("definitions", mistake)));
    let warnings = checked.warnings.into_iter();
    findings.extend(warnings.map(|warning| DoctorFinding::warning("definitions", warning)));
    if !findings.iter().any(|finding| finding.subject == "definitions") {
        findings.push(DoctorFinding::ok(
            "definitions",
            "all of them, their modules and the configuration are valid",
        ));
    }
    Ok(findings)
}

/// If the clock is slow, certificates and signatures seem not to be valid yet.
fn check_clock(config: &Path, now: SystemTime) -> Option<DoctorFinding> {
    let is_behind = config.metadata().ok()?.modified().ok()? > now;
    is_behind.then(|| {
        let message = format!(
            "{} was changed in the future: the clock of this machine is behind; synchronise it, for example with \
             `timedatectl set-ntp true`",
            config.display()
        );
        DoctorFinding::warning("clock", message)
    })
}

fn check_port(subject: &'static str, address: SocketAddr) -> Option<DoctorFinding> {
    let error = match TcpListener::bind(address) {
        Ok(_) => return Some(DoctorFinding::ok(subject, format!("{address} is free"))),
        Err(error) => error,
    };
    let advice = bind_advice(&error);
    if error.kind() == io::ErrorKind::AddrInUse {
        let message = format!("{address} is in use, perhaps by this program (`admittance status` shows that){advice}");
        return Some(DoctorFinding::warning(subject, message));
    }
    let message = format!("{address}: {error}{advice}");
    Some(DoctorFinding::problem(subject, message))
}

fn certificate_states(config: &Config) -> Vec<CertificateState> {
    let admin = config.admin.as_ref().and_then(AdminConfig::tls);
    let ports = config.listen.tls.iter().chain(admin.map(|tls| &tls.server));
    let clients = config.front.client_tls();
    let of_ports = ports.filter_map(|tls| tls.status());
    of_ports.chain(clients.iter().filter_map(|tls| tls.status())).collect()
}

fn check_certificate(status: &CertificateState, now: SystemTime) -> Option<DoctorFinding> {
    const SUBJECT: &str = "certificate";
    let name = status.certificate;
    let not_after = status.not_after?;
    let renewal_hint = "`admittance certs --renew` renews those that it made";
    Some(match not_after.duration_since(now) {
        Err(_) => DoctorFinding::problem(
            SUBJECT,
            format!("the certificate of {name} has expired: replace it; {renewal_hint}"),
        ),
        Ok(remaining) if remaining <= EXPIRY_WARNING_PERIOD => {
            let hours = remaining.as_secs() / 3600;
            DoctorFinding::warning(
                SUBJECT,
                format!("the certificate of {name} expires in {hours} hours: replace it; {renewal_hint}"),
            )
        }
        Ok(remaining) => {
            let days = remaining.as_secs() / 86_400;
            DoctorFinding::ok(
                SUBJECT,
                format!("the certificate of {name} is valid for {days} more days"),
            )
        }
    })
}

fn check_directory(subject: &'static str, path: Option<&Path>) -> DoctorFinding {
    let Some(path) = path else {
        let message = "none: every start fetches and compiles modules again, and there is no rollback after it; name one \
                       in the configuration";
        return DoctorFinding::warning(subject, message);
    };
    let location = path.display();
    let write_probe = std::fs::create_dir_all(path).and_then(|()| tempfile::tempfile_in(path));
    match (write_probe, machine::free_space(path)) {
        (Err(error), _) => DoctorFinding::problem(
            subject,
            format!(
                "{location}: {error}; give it to the user that `serve` runs as (`chown`), or name another directory"
            ),
        ),
        (Ok(_), Some(free)) if free < machine::NEEDED_SPACE => DoctorFinding::warning(
            subject,
            format!(
                "{location}: only {} MiB are free on its file system; make room",
                free >> 20
            ),
        ),
        (Ok(_), _) => DoctorFinding::ok(subject, format!("{location} can be written")),
    }
}

async fn check_upstream(config: &Config) -> Option<DoctorFinding> {
    const SUBJECT: &str = "upstream";
    let connection = match config.front.connect(&Ensembles::open(&config.zookeeper)) {
        Ok(upstream_connection) => upstream_connection?,
        Err(error) => return Some(DoctorFinding::problem(SUBJECT, error.to_string())),
    };
    let request = Request::get("/").body(Body::empty()).ok()?;
    Some(match connection.upstream.send(request).await {
        Ok(response) => DoctorFinding::ok(SUBJECT, format!("it answers ({} for /)", response.status().as_u16())),
        Err(error) => DoctorFinding::problem(
            SUBJECT,
            format!(
                "{}: start it, or correct `upstream` in the configuration",
                error.reason()
            ),
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_port_that_is_taken_is_reported_with_advice() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let finding = check_port("listen.address", listener.local_addr().unwrap()).unwrap();
        assert_eq!(finding.severity, Severity::Warning);
        assert!(finding.message.contains("in use"), "{}", finding.message);
        // No machine has the address 192.0.2.1, because it is reserved for documentation.
        let finding = check_port("listen.address", "192.0.2.1:8080".parse().unwrap()).unwrap();
        assert_eq!(finding.severity, Severity::Problem);
        assert!(finding.message.contains("no such address"), "{}", finding.message);
    }

    #[test]
    fn certificates_that_expired_or_expire_soon_are_reported() {
        let now = SystemTime::now();
        for (not_after, expected) in [
            (now - Duration::from_secs(1), Severity::Problem),
            (now + Duration::from_secs(3600), Severity::Warning),
            (now + Duration::from_secs(30 * 86_400), Severity::Ok),
        ] {
            let status = CertificateState {
                certificate: "listen",
                not_after: Some(not_after),
                problem: None,
            };
            assert_eq!(check_certificate(&status, now).unwrap().severity, expected);
        }
    }

    #[test]
    fn doctor_reports_a_directory_that_is_not_writable() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(check_directory("store", Some(&file)).severity, Severity::Problem);
        assert_ne!(
            check_directory("store", Some(folder.path())).severity,
            Severity::Problem
        );
        assert_eq!(check_directory("store", None).severity, Severity::Warning);
    }

    #[test]
    fn a_clock_earlier_than_the_configuration_file_is_reported() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let now = SystemTime::now();
        assert_eq!(check_clock(file.path(), now + Duration::from_secs(60)), None);
        assert!(check_clock(file.path(), now - Duration::from_secs(3600)).is_some());
    }
}
