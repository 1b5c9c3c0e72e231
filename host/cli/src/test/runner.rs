//! Runs test cases: builds tables of their hooks, and simulates the surroundings of their plugins.

use std::{io::Write, path::PathBuf, sync::Arc};

use admittance::{
    Table,
    admission::{GroupVersionKind, HttpGrant, Matcher, Outcome, ResourcePattern},
    definitions::{self, CelDefinition, ChainDefinition, Mistakes},
};
use admittance_admission::did_you_mean;
use admittance_driver::Config;
use admittance_net::causes;
use serde_json::json;

use super::{
    case::{CaseExpectation, CaseHooks, TemplateConstraints, TestCase},
    comparison::{self, UnmetExpectation},
};
use crate::{files, host, replay, report::MismatchedChain, simulation::SimulatedSurroundings};

/// Runs test cases one at a time, and keeps the tables of chains that they have used.
pub(super) struct TestBench {
    config: Option<Config>,
    store: Option<PathBuf>,
    may_call_webhooks: bool,
    surroundings: SimulatedSurroundings,
    tables: Vec<(CaseHooks, Result<Arc<Table>, String>)>,
}

impl TestBench {
    pub(super) fn new(config: Option<Config>, store: Option<PathBuf>, may_call_webhooks: bool) -> Self {
        Self {
            config,
            store,
            may_call_webhooks,
            surroundings: SimulatedSurroundings::default(),
            tables: Vec::new(),
        }
    }

    /// Compiles and configures the hooks of a case. [`admit`](Self::admit) reports their mistakes.
    pub(super) async fn prepare(&mut self, case: &TestCase) {
        if !matches!(case.expected, CaseExpectation::Invalid) {
            let _ = self.table_for(&case.hooks).await;
        }
    }

    pub(super) async fn run_case(&mut self, case: &TestCase) -> Vec<UnmetExpectation> {
        if let (CaseExpectation::Invalid, CaseHooks::Constraints(constraints)) = (&case.expected, &case.hooks) {
            return unmet_refusal(constraints).into_iter().collect();
        }
        match self.admit(case).await {
            Ok(outcome) => comparison::unmet_expectations(case, &outcome),
            Err(failure) => vec![failure],
        }
    }

    async fn admit(&mut self, case: &TestCase) -> Result<Outcome, UnmetExpectation> {
        let built = self.table_for(&case.hooks).await;
        let table = built.map_err(|message| UnmetExpectation::new("hooks", message))?;
        self.surroundings.set_current(case.surroundings.clone());
        if !case.may_call_no_stage() && !table.chains().any(|chain| chain.matches(&case.request)) {
            let reasons = table
                .chains()
                .filter_map(|chain| Some(MismatchedChain::new(chain, &case.request)?.to_string()))
                .collect::<Vec<_>>()
                .join("; ");
            let message = format!("no chain is for the request ({reasons}); if that is right, expect `stages: []`");
            return Err(UnmetExpectation::new("stages", message));
        }
        Ok(table.admit(case.request.clone()).await)
    }

    async fn table_for(&mut self, hooks: &CaseHooks) -> Result<Arc<Table>, String> {
        if let Some((_, table)) = self.tables.iter().find(|(cached_hooks, _)| cached_hooks == hooks) {
            return table.clone();
        }
        let table = self.build_table(hooks).await.map_err(|error| causes::chain(&*error));
        self.tables.push((hooks.clone(), table.clone()));
        table
    }

    async fn build_table(&self, hooks: &CaseHooks) -> crate::Result<Arc<Table>> {
        let definitions = match hooks {
            CaseHooks::Plugin {
                module,
                settings,
                allow,
            } => vec![ChainDefinition::of_plugin(module, settings.clone(), allow.clone())],
            CaseHooks::Chains(paths) => replay::load_without_candidates(paths, self.may_call_webhooks)?,
            CaseHooks::Constraints(constraints) => constraints.load_for_every_operation()?,
            CaseHooks::Kyverno { policies, policy, .. } => load_enforced_policy(policies, policy)?,
        };
        let config = self.config.as_ref();
        let mut sandbox = self.surroundings.sandbox(config);
        if let CaseHooks::Kyverno { servers, .. } = hooks {
            let grants = servers.iter().cloned().map(HttpGrant::from);
            sandbox.policy_http = sandbox.policy_http.iter().cloned().chain(grants).collect();
        }
        let builder = host::host_builder(config, self.store.clone())
            .sandbox(sandbox)
            .namespaces(self.surroundings.clone());
        Ok(host::build_table(builder, definitions).await?)
    }
}

/// Loads a Kyverno policy for a test. Even if the policy only reports violations (`Audit`), its stages deny requests
/// with violations here, so that the test sees each violation.
fn load_enforced_policy(files: &[PathBuf], policy: &str) -> crate::Result<Vec<ChainDefinition>> {
    let mut chains = definitions::load(files)?;
    let names = |chain: &ChainDefinition| match chain.name.rsplit_once('/') {
        Some((_, name)) => [chain.name.clone(), name.to_owned()],
        None => [chain.name.clone(), chain.name.clone()],
    };
    let is_tested = |chain: &ChainDefinition| names(chain).iter().any(|name| name == policy);
    if !chains.iter().any(is_tested) {
        let suggestion = did_you_mean(policy, chains.iter().flat_map(names));
        return Err(format!(
            "there is no policy {policy} in {}{suggestion}",
            files::join_paths(files)
        )
        .into());
    }
    chains.retain(is_tested);
    for stage in chains.iter_mut().flat_map(|chain| &mut chain.stages) {
        if let Some(cel) = stage.hook.get::<CelDefinition>() {
            stage.hook = cel.with_deny_action().into();
        }
    }
    Ok(chains)
}

/// Checks a test which expects that the constraint does not fit its template. Returns `None` if the template's schema
/// refuses the constraint, and otherwise the failure of the test.
fn unmet_refusal(constraints: &TemplateConstraints) -> Option<UnmetExpectation> {
    let is_of_constraint = |file: &str| {
        let mut paths = constraints.constraints.iter();
        paths.any(|path| path.display().to_string() == file)
    };
    let message = match constraints.load_definitions() {
        Ok(_) => "the constraint fits its template".to_owned(),
        Err(error) => match error.downcast_ref::<Mistakes>() {
            Some(mistakes) if mistakes.iter().all(|mistake| is_of_constraint(&mistake.location.file)) => {
                return None;
            }
            _ => error.to_string(),
        },
    };
    Some(UnmetExpectation::new("invalid", message))
}

impl TemplateConstraints {
    fn load_definitions(&self) -> crate::Result<Vec<ChainDefinition>> {
        let gvks = self.kinds.iter().map(|kind| {
            let gvk = GroupVersionKind::from_api_version(kind.api_version(), kind.kind());
            json!({"group": gvk.group, "version": gvk.version, "kind": gvk.kind})
        });
        let sync = json!({
            "apiVersion": "syncset.gatekeeper.sh/v1alpha1",
            "kind": "SyncSet",
            "metadata": {"name": "suite"},
            "spec": {"gvks": gvks.collect::<Vec<_>>()},
        });
        let mut file = tempfile::Builder::new().suffix(".json").tempfile()?;
        file.write_all(sync.to_string().as_bytes())?;
        let mut paths = vec![file.path().to_owned()];
        paths.extend_from_slice(&self.templates);
        paths.extend_from_slice(&self.constraints);
        Ok(definitions::load(&paths)?)
    }

    /// Loads the chains of a suite, and makes them match all operations and resources. A Gatekeeper suite has no
    /// webhook configuration that would select some of them.
    fn load_for_every_operation(&self) -> crate::Result<Vec<ChainDefinition>> {
        let mut chains = self.load_definitions()?;
        for chain in &mut chains {
            let of_stages = chain.stages.iter_mut().flat_map(|stage| &mut stage.spec.rules);
            for rule in chain.rules.iter_mut().chain(of_stages) {
                rule.operations = Matcher::Any;
                rule.resources = vec![ResourcePattern::everything()];
            }
        }
        Ok(chains)
    }
}
