//! Starts Debian's `docker-registry` for one test, on a free port.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

/// The environment variable that contains the path of the program `docker-registry`. If it is not set, the program is
/// looked for in `PATH`.
const PROGRAM_VARIABLE: &str = "ADMITTANCE_TEST_REGISTRY";

/// A timeout that is not reached even on a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) enum RegistryLogin<'a> {
    Open,
    /// The registry requires basic authentication, as the user `ada` with the password `open sesame`.
    Basic,
    /// The registry requires bearer tokens, which a token server issues.
    Token {
        realm: &'a str,
        /// The PEM certificate of the key with which the token server signs tokens.
        signed_by: &'a str,
    },
}

pub(crate) const USER: (&str, &str) = ("ada", "open sesame");

/// The output of `htpasswd -nbB -C 5 ada "open sesame"`.
const HTPASSWD: &str = "ada:$2b$05$abcdefghijklmnopqrstuupx2xBUC4954936wVIjyyPHmUBFu0wCW\n";

#[derive(Debug)]
pub(crate) struct Registry {
    pub(crate) name: String,
    directory: TempDir,
    _program: Child,
}

impl Registry {
    /// Starts a registry. `tls` contains the paths of its certificate and key; `None` disables TLS.
    pub(crate) async fn start(access: RegistryLogin<'_>, tls: Option<(&Path, &Path)>) -> Self {
        let directory = TempDir::new().unwrap();
        let config = directory.path().join("config.yml");
        let text = configuration(directory.path(), access, tls);
        // The registry reads YAML, of which JSON is a subset.
        fs::write(&config, text.to_string()).unwrap();
        let mut program = Command::new(find_program())
            .arg("serve")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(program.stderr.take().unwrap()).lines();
        let listening = async {
            let mut earlier_output = String::new();
            while let Some(line) = lines.next_line().await.unwrap() {
                let entry: Value = serde_json::from_str(&line).unwrap_or_default();
                let message = entry["msg"].as_str().unwrap_or_default();
                if let Some(rest) = message.strip_prefix("listening on ") {
                    return rest.trim_end_matches(", tls").to_owned();
                }
                earlier_output.push_str(&line);
                earlier_output.push('\n');
            }
            panic!("docker-registry ended:\n{earlier_output}");
        };
        let name = tokio::time::timeout(TEST_TIMEOUT, listening).await.unwrap();
        // The registry's output is read, because the registry would block on a full pipe and exit on a closed one.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self {
            name,
            directory,
            _program: program,
        }
    }

    pub(crate) fn blob_path(&self, digest: &str) -> PathBuf {
        let hex = digest.trim_start_matches("sha256:");
        self.directory
            .path()
            .join("data/docker/registry/v2/blobs/sha256")
            .join(&hex[..2])
            .join(hex)
            .join("data")
    }
}

fn configuration(directory: &Path, access: RegistryLogin<'_>, tls: Option<(&Path, &Path)>) -> Value {
    let mut config = json!({
        "version": 0.1,
        "log": {"level": "info", "formatter": "json", "accesslog": {"disabled": true}},
        "storage": {"filesystem": {"rootdirectory": directory.join("data")}, "delete": {"enabled": true}},
        "http": {"addr": "127.0.0.1:0", "secret": "of one test"},
    });
    if let Some((certificate, key)) = tls {
        config["http"]["tls"] = json!({"certificate": certificate, "key": key});
    }
    match access {
        RegistryLogin::Open => {}
        RegistryLogin::Basic => {
            let path = directory.join("htpasswd");
            fs::write(&path, HTPASSWD).unwrap();
            config["auth"] = json!({"htpasswd": {"realm": "test", "path": path}});
        }
        RegistryLogin::Token { realm, signed_by } => {
            let path = directory.join("signers.pem");
            fs::write(&path, signed_by).unwrap();
            config["auth"] = json!({"token": {
                "realm": realm, "service": "test", "issuer": "test", "rootcertbundle": path,
            }});
        }
    }
    config
}

fn find_program() -> PathBuf {
    if let Some(path) = env::var_os(PROGRAM_VARIABLE) {
        return path.into();
    }
    let directories = env::var_os("PATH").unwrap_or_default();
    let candidates = env::split_paths(&directories).map(|directory| directory.join("docker-registry"));
    candidates.into_iter().find(|path| path.is_file()).unwrap_or_else(|| {
        panic!(
            "there is no `docker-registry`: run the tests with `cargo task test`, install Debian's package of \
             that name, or name the program in {PROGRAM_VARIABLE}"
        )
    })
}
