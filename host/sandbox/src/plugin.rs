use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use admittance_admission::{
    Deadline, Failure, FailureKind, Grants, Hook, LongCallPredictor, Request, Response, is_audit, offload, run_long,
    shortened,
};
use async_trait::async_trait;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime::Store;

use crate::{
    CallLimits, ConfigurationTime, Description, Error, PluginConfig,
    capabilities::logging::CallLog,
    contract::{self, bindings::admittance::plugin::types},
    engine::SandboxInner,
    error::{SettingsMistake, join_mistakes},
    failure::failure_from_error,
    imports::LinkedComponent,
    kubewarden::{LoadedPolicy, PolicyCache},
    store::{CallState, StoreParameters},
};

/// The maximum number of characters that the message of a failure quotes from an error that the plugin returned.
const MAX_OWN_ERROR: usize = 2000;

/// A configured plugin that is ready for calls. Each call runs in a new instance. Cheap to clone.
#[derive(Clone, derive_more::Debug)]
#[debug("Plugin {{ name: {:?}, plugin: {:?}, .. }}", _0.name, _0.base.description.name)]
pub struct Plugin(Arc<PluginState>);

struct PluginState {
    sandbox: Arc<SandboxInner>,
    base: Arc<Base>,
    name: Arc<str>,
    limits: CallLimits,
    grants: Arc<Grants>,
    cache: Arc<PolicyCache>,
    predictor: LongCallPredictor,
}

/// Code that plugins with the same module and settings share.
pub(crate) struct Base {
    pub(crate) guest: PluginGuest,
    pub(crate) description: Description,
    pub(crate) configuration_time: ConfigurationTime,
    /// Whether it was logged that the plugin changes objects although its description does not declare `mutates`.
    pub(crate) is_warning_logged: AtomicBool,
}

impl Base {
    fn warn_of_undeclared_change(&self, response: &types::Response, stage: &str) {
        let is_change = matches!(response.verdict, types::Verdict::Patch(_) | types::Verdict::Replace(_));
        if is_change && !self.description.mutates && !self.is_warning_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                stage,
                plugin = self.description.name,
                "the plugin changes objects without declaring it; write `mutates` in its description"
            );
        }
    }
}

pub(crate) enum PluginGuest {
    Component {
        linked: LinkedComponent,
        /// The settings, if every call must run `configure`; otherwise `None`.
        settings: Option<String>,
    },
    Policy(LoadedPolicy),
}

impl Plugin {
    /// Returns the plugin's description of itself.
    pub fn description(&self) -> &Description {
        &self.0.base.description
    }

    /// Returns whether the plugin was configured once, or is configured in every call.
    pub fn configuration_time(&self) -> &ConfigurationTime {
        &self.0.base.configuration_time
    }

    /// Creates a plugin with the same code and settings, but another name, limits and grants.
    ///
    /// # Errors
    ///
    /// Fails when the memory limit exceeds the sandbox's maximum.
    pub fn with_config(&self, config: &PluginConfig) -> Result<Self, Error> {
        self.0.sandbox.check_limits(config)?;
        Ok(Self::new(&self.0.sandbox, Arc::clone(&self.0.base), config))
    }

    pub(crate) fn new(sandbox: &Arc<SandboxInner>, base: Arc<Base>, config: &PluginConfig) -> Self {
        Self(Arc::new(PluginState {
            sandbox: Arc::clone(sandbox),
            base,
            name: config.name.as_str().into(),
            limits: config.limits.clone(),
            grants: Arc::new(config.grants.clone()),
            cache: Arc::default(),
            predictor: LongCallPredictor::default(),
        }))
    }
}

impl PluginState {
    async fn run_call(
        self: Arc<Self>,
        request: Arc<Request>,
        deadline: Deadline,
        log: CallLog,
        slot: CallSlot,
    ) -> Result<Response, Failure> {
        let running_guard = self.sandbox.keep_ticking();
        let measurement = self.sandbox.config.meter.as_ref().map(|meter| meter.begin_call());
        let mut store = CallState::new_store(
            &self.sandbox,
            StoreParameters {
                log,
                limits: &self.limits,
                grants: &self.grants,
                user: &request.user,
                recorder: request.recorder.as_ref(),
                deadline,
                processor_time: None,
                preparing: matches!(&self.base.guest, PluginGuest::Component { settings: Some(_), .. }),
            },
        );
        let answer = self.answer_request(&mut store, &request, deadline).await;
        // The slot is released last, because the next call needs the resources that the instance returns to the pool.
        match measurement {
            Some(measured) => measured.end_call(store.data().guest_start_and_end(), || drop(store)),
            None => drop(store),
        }
        drop((running_guard, slot));
        answer
    }

    async fn answer_request(
        &self,
        store: &mut Store<CallState>,
        request: &Request,
        deadline: Deadline,
    ) -> Result<Response, Failure> {
        let answer = match &self.base.guest {
            PluginGuest::Component { linked, settings } => {
                call_component(linked, settings.as_deref(), store, request).await
            }
            PluginGuest::Policy(policy) => policy.admit(store, request, &self.cache).await,
        };
        store.data_mut().record_guest_end();
        store.data().log.finish();
        match answer {
            Ok(Ok(response)) => {
                self.base.warn_of_undeclared_change(&response, &self.name);
                let (size, limit) = (contract::response_size(&response), self.limits.output);
                self.predictor.learn_answer(size);
                offload(size, deadline, move || contract::convert_response(response, limit)).await?
            }
            Ok(Err(message)) => Err(self.own_error_failure(message)),
            Err(error) => Err(failure_from_error(&error, store.data())),
        }
    }

    fn timeout_failure(&self, deadline: Deadline, call_deadline: Deadline) -> Failure {
        let limit = if deadline < call_deadline {
            format!("the stage's limit of {:?}", self.limits.time)
        } else {
            "its deadline".to_owned()
        };
        Failure::new(
            FailureKind::Timeout,
            format!("the plugin gave no verdict within {limit}"),
        )
    }
}

async fn call_component(
    linked: &LinkedComponent,
    settings: Option<&str>,
    store: &mut Store<CallState>,
    request: &Request,
) -> wasmtime::Result<Result<types::Response, String>> {
    let instance = linked.pre.instantiate_async(&mut *store).await?;
    store.data_mut().record_guest_start();
    if let Some(settings) = settings {
        let configure = instance
            .get_typed_func::<(&str,), (Result<(), Vec<types::SettingsError>>,)>(&mut *store, &linked.configure)?;
        if let (Err(mistakes),) = configure.call_async(&mut *store, (settings,)).await? {
            return Ok(Err(format!(
                "it rejected its settings: {}",
                join_mistakes(&settings_mistakes(mistakes))
            )));
        }
        store.data_mut().apply_grants();
    }
    let lists = contract::ContractLists::from_request(request);
    let extra = lists.extra();
    let admit = instance
        .get_typed_func::<(types::Request<'_>,), (Result<types::Response, String>,)>(&mut *store, &linked.admit)?;
    let (answer,) = admit
        .call_async(&mut *store, (contract::convert_request(request, &lists, &extra),))
        .await?;
    Ok(answer)
}

pub(crate) fn settings_mistakes(mistakes: Vec<types::SettingsError>) -> Vec<SettingsMistake> {
    mistakes
        .into_iter()
        .map(|mistake| SettingsMistake {
            pointer: mistake.pointer,
            message: mistake.message,
        })
        .collect()
}

#[async_trait]
impl Hook for Plugin {
    async fn admit(&self, request: &Arc<Request>, call_deadline: Deadline) -> Result<Response, Failure> {
        let plugin = &self.0;
        let deadline = call_deadline.within(plugin.limits.time);
        let slot = plugin.acquire_slot(deadline).await?;
        let log = CallLog::new(Arc::clone(&plugin.name), request.uid.clone(), plugin.limits.log);
        let call = Box::pin(Arc::clone(plugin).run_call(Arc::clone(request), deadline, log.clone(), slot));
        match tokio::time::timeout_at(deadline.instant(), run_long(call, &plugin.predictor)).await {
            Ok(Err(failure)) if failure.kind == FailureKind::Timeout => {
                Err(plugin.timeout_failure(deadline, call_deadline))
            }
            Ok(answer) => answer,
            Err(_) => {
                log.close();
                Err(plugin.timeout_failure(deadline, call_deadline))
            }
        }
    }
}

/// The permits that a call holds while it runs. Every call holds a permit for a slot. A call of a stage in mode `Audit`
/// also holds the second permit. There are fewer such permits than slots, so audits cannot occupy all slots.
type CallSlot = (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>);

impl PluginState {
    async fn acquire_slot(&self, deadline: Deadline) -> Result<CallSlot, Failure> {
        // A call in mode `Audit` needs two permits: one for audits, and a slot. It waits for the permit for audits
        // first, so that it does not occupy a slot during this wait.
        let audit_permit = if is_audit() {
            Some(self.acquire_permit(&self.sandbox.audits, deadline).await?)
        } else {
            None
        };
        Ok((self.acquire_permit(&self.sandbox.calls, deadline).await?, audit_permit))
    }

    async fn acquire_permit(
        &self,
        semaphore: &Arc<Semaphore>,
        deadline: Deadline,
    ) -> Result<OwnedSemaphorePermit, Failure> {
        if let Ok(permit) = Arc::clone(semaphore).try_acquire_owned() {
            return Ok(permit);
        }
        match tokio::time::timeout_at(deadline.instant(), Arc::clone(semaphore).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(self.overloaded_failure()),
        }
    }

    fn overloaded_failure(&self) -> Failure {
        let slots = self.sandbox.config.calls_in_flight;
        let message = if is_audit() {
            format!("no slot was free until the deadline; stages in mode Audit use half of the {slots} slots for calls")
        } else {
            format!("all {slots} slots for calls were in use until the deadline")
        };
        Failure::new(FailureKind::Overloaded, message)
    }

    fn own_error_failure(&self, message: String) -> Failure {
        let message = shortened(&message, MAX_OWN_ERROR);
        Failure::new(FailureKind::Error, format!("the plugin returned an error: {message}"))
    }
}
