use std::{fs, path::PathBuf};

use admittance::{Application, Error, Host, admission::Phase};
use tempfile::TempDir;

/// A directory with definitions and a history. It is deleted when this value is dropped.
pub(crate) struct ChangesScene {
    pub(crate) folder: TempDir,
}

impl ChangesScene {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().unwrap();
        fs::create_dir(folder.path().join("chains")).unwrap();
        Self { folder }
    }

    pub(crate) fn chains(&self) -> PathBuf {
        self.folder.path().join("chains")
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        fs::write(self.chains().join(file), text).unwrap();
    }

    pub(crate) fn remove(&self, file: &str) {
        fs::remove_file(self.chains().join(file)).unwrap();
    }

    pub(crate) fn read(&self, file: &str) -> String {
        fs::read_to_string(self.chains().join(file)).unwrap()
    }

    pub(crate) async fn start(&self) -> Result<Host, Error> {
        Host::builder()
            .definitions(self.chains())
            .history(self.folder.path().join("history"))
            .build()
            .await
    }

    pub(crate) async fn start_without_history(&self) -> Result<Host, Error> {
        Host::builder().definitions(self.chains()).build().await
    }
}

/// Returns the definition of a chain with one stage. The stage calls a webhook whose URL has this path.
pub(crate) fn chain(name: &str, path: &str) -> String {
    format!(
        "apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata:
  name: {name}
spec:
  rules:
    - operations: [CREATE]
      kinds: [Pod]
  stages:
    - name: hook
      webhook:
        protocol: AdmissionReview
        url: https://127.0.0.1:1/{path}
"
    )
}

pub(crate) fn plugin(name: &str, source: &str) -> String {
    let webhook = chain(name, "1");
    let (head, _) = webhook.split_once("      webhook:").unwrap();
    format!("{head}      plugin: {{ source: \"{source}\" }}\n")
}

/// Returns a short text about the live table, such as `2 a=1 b=1 !`: the revision is 2, the first webhooks of the
/// chains `a` and `b` have the path `1`, and `!` means that there is a problem.
pub(crate) fn live_summary(host: &Host) -> String {
    let status = host.status();
    let chains = status.chains.iter().map(|chain| {
        let hook = &chain.stages[0].hook;
        let url = match hook.fact_text("url") {
            Some(url) => url.rsplit('/').next().unwrap_or_default().to_owned(),
            None => format!("{hook:?}"),
        };
        format!(" {}={url}", chain.name)
    });
    let problem = if status.problem.is_some() { " !" } else { "" };
    let text = format!("{}{}{problem}", status.revision, chains.collect::<String>());
    let table = host.table();
    assert_eq!(table.revision(), status.revision);
    for chain in &status.chains {
        assert!(table.chain(Phase::Mutating, &chain.name).is_some());
    }
    text
}

pub(crate) fn change_options_by(name: &str) -> Application {
    let mut application = Application::default();
    application.by = Some(name.to_owned());
    application
}

pub(crate) fn dry_run_options() -> Application {
    let mut application = Application::default();
    application.dry_run = true;
    application
}
