//! Reports which versions of definitions are live. Stores show this to the authors of the definitions.

use std::{collections::HashMap, path::Path, sync::atomic::Ordering};

use admittance_definitions::{BadDefinition, DefinitionFile, Served};
use tokio::sync::watch;

use crate::{Host, Origin, live::TableProblem};

/// Whether a version of a definition is live, and if not, why.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VersionState {
    /// This version of the definition is live.
    Live,
    /// This version of the definition is invalid, or its modules cannot be fetched.
    Bad(BadDefinition),
    /// No table can be built from all definitions together, so the previous table stays live. Contains the reasons.
    Blocked(Vec<String>),
    /// This version is not live because a rollback has restored an earlier revision.
    RolledBack,
}

impl Host {
    /// Returns a receiver that is notified when the live table, its problem, or the disabled stages may have changed.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.0.changes.subscribe()
    }

    /// Returns for each of these versions of definitions whether it is live; `None` if no table was built from it yet.
    pub fn version_states(&self, versions: &[DefinitionFile]) -> Vec<Option<VersionState>> {
        // A table may go live while this function runs. So the content of the stores is read before the live table: the
        // live table is then at least as new as the content. In the other order, a new version of a definition could be
        // compared with an older table.
        let contents = self.0.stores.known_content();
        let is_building = self.0.building.load(Ordering::Acquire) > 0;
        let live = self.0.live.load_full();
        let files_by_path: HashMap<&Path, &DefinitionFile> = contents
            .iter()
            .flatten()
            .flat_map(|content| content.iter())
            .map(|file| (file.path.as_path(), file))
            .collect();
        let files = live.entry.detail.files.iter();
        let served: HashMap<&Path, &str> = files.map(|file| (file.path.as_path(), file.text.as_str())).collect();
        let problem = live.problem.as_ref();
        let bad_definitions = problem.map(TableProblem::bad_definitions).unwrap_or_default();
        let bad_by_path: HashMap<&Path, &BadDefinition> =
            bad_definitions.iter().map(|bad| (bad.path.as_path(), bad)).collect();
        let state = |version: &DefinitionFile| {
            let path = version.path.as_path();
            let text = version.normalized();
            let is_served = served.get(path) == Some(&&*text);
            let is_judged = !is_building && files_by_path.get(path).is_some_and(|file| file.normalized() == text);
            match (bad_by_path.get(path), problem) {
                (Some(bad), _) if is_served && keeps_version(bad.served) => Some(VersionState::Bad((*bad).clone())),
                (Some(bad), _) if !is_served => is_judged.then(|| VersionState::Bad((*bad).clone())),
                _ if is_served => Some(VersionState::Live),
                _ if !is_judged => None,
                (_, Some(problem)) if problem.bad_definitions().is_empty() => Some(VersionState::Blocked(
                    problem.error.to_string().lines().map(str::to_owned).collect(),
                )),
                _ if matches!(live.entry.revision().origin, Origin::RolledBack { .. }) => {
                    Some(VersionState::RolledBack)
                }
                _ => None,
            }
        };
        versions.iter().map(state).collect()
    }
}

/// Returns whether the newest version of a definition is live in spite of a problem. For example, its module cannot be
/// fetched, so an older module or a failing stage is used.
fn keeps_version(served: Served) -> bool {
    matches!(served, Served::LastModules | Served::FailingStages)
}
