//! Makes the changes of definitions that clients request.

use std::time::Duration;

use admittance::{Application, ChangeError, Host, Moment};
use admittance_definitions::{BcsObject, ExpectedDefinitions, StoreError};
use tracing::Instrument;

use super::{
    refusal::{BODY_FILE_NAME, DefinitionRefusal},
    stored::{self, StoredBcsDefinition},
};
use crate::definition_name::DefinitionName;

/// The pauses before a change is retried because a concurrent change has interfered.
const RETRY_PAUSES: [Duration; 4] = [
    Duration::from_millis(20),
    Duration::from_millis(40),
    Duration::from_millis(80),
    Duration::from_millis(160),
];

#[derive(Clone, Debug)]
pub(super) enum DefinitionWrite {
    Create(BcsObject),
    Update(BcsObject),
    Delete(DefinitionName),
}

#[derive(Clone, Debug)]
pub(super) struct Changer {
    pub(super) host: Host,
    pub(super) author: Option<String>,
}

#[derive(Debug, thiserror::Error)]
enum AttemptError {
    #[error(transparent)]
    Refused(#[from] DefinitionRefusal),
    #[error(transparent)]
    Host(#[from] ChangeError),
}

impl DefinitionWrite {
    fn name(&self) -> DefinitionName {
        match self {
            Self::Create(object) | Self::Update(object) => DefinitionName::new(object.namespace(), object.name()),
            Self::Delete(name) => name.clone(),
        }
    }

    fn as_str(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Update(_) => "update",
            Self::Delete(_) => "delete",
        }
    }
}

impl Changer {
    /// Makes the change, and completes it even if the client disconnects. Returns warnings for the client.
    pub(super) async fn run(self, change: DefinitionWrite) -> Result<Vec<String>, DefinitionRefusal> {
        match tokio::spawn(async move { self.run_with_retries(&change).await }.in_current_span()).await {
            Ok(result) => result,
            Err(error) => Err(DefinitionRefusal::Failed(format!(
                "the change was interrupted: {error}"
            ))),
        }
    }

    async fn run_with_retries(&self, change: &DefinitionWrite) -> Result<Vec<String>, DefinitionRefusal> {
        let name = change.name();
        let mut pauses = RETRY_PAUSES.iter();
        let result = loop {
            match self.attempt(change, &name).await {
                Ok(warnings) => break Ok(warnings),
                Err(AttemptError::Refused(refusal)) => break Err(refusal),
                Err(AttemptError::Host(error)) => match pauses.next() {
                    Some(pause) if is_conflict(&error) => tokio::time::sleep(*pause).await,
                    _ => break Err(DefinitionRefusal::from_change_error(&name, error)),
                },
            }
        };
        self.log_audit(change, &name, result.as_ref().err());
        result
    }

    async fn attempt(&self, change: &DefinitionWrite, name: &DefinitionName) -> Result<Vec<String>, AttemptError> {
        let existing = stored::find(&self.host, name).await?;
        let not_found = || DefinitionRefusal::NotFound(name.clone());
        match change {
            DefinitionWrite::Create(object) => {
                if let Some(existing) = existing {
                    let refusal = DefinitionRefusal::AlreadyExists {
                        name: name.clone(),
                        location: existing.location(),
                    };
                    return Err(refusal.into());
                }
                let object = object.clone().with_creation_time(&Moment::now().to_string());
                self.apply(&object.to_text(), ExpectedDefinitions::New).await
            }
            DefinitionWrite::Update(object) => {
                let existing = existing.ok_or_else(not_found)?;
                let text = existing.updated_text(object.clone(), &Moment::now().to_string());
                self.apply(&text, ExpectedDefinitions::Existing).await
            }
            DefinitionWrite::Delete(_) => {
                let StoredBcsDefinition { definition, .. } = existing.ok_or_else(not_found)?;
                let application = self.new_application(ExpectedDefinitions::Existing);
                Ok(self.host.delete(&definition.id, &application).await?.warnings)
            }
        }
    }

    async fn apply(&self, text: &str, expected: ExpectedDefinitions) -> Result<Vec<String>, AttemptError> {
        let applied = self
            .host
            .apply(text, BODY_FILE_NAME, &self.new_application(expected))
            .await?;
        Ok(applied.warnings)
    }

    fn new_application(&self, expected: ExpectedDefinitions) -> Application {
        let mut application = Application::default();
        application.by = self.author.clone();
        application.expected = expected;
        application
    }

    fn log_audit(&self, change: &DefinitionWrite, subject: &DefinitionName, refusal: Option<&DefinitionRefusal>) {
        let by = self.author.as_deref().unwrap_or_default();
        let action = change.as_str();
        match refusal {
            None => tracing::info!(
                target: "admittance::audit",
                by, action, %subject,
                "{by}: {action} admissionwebhook {subject}"
            ),
            Some(error) => tracing::info!(
                target: "admittance::audit",
                by, action, %subject, %error,
                "{by}: {action} admissionwebhook {subject} was refused: {error}"
            ),
        }
    }
}

fn is_conflict(error: &ChangeError) -> bool {
    matches!(
        error,
        ChangeError::Store(StoreError::ChangedMeanwhile { .. } | StoreError::Conflict { .. })
    )
}
