//! The scenarios, in their order.
//!
//! This API server is Kubernetes 1.20. The following cannot be tested with it:
//!
//! | what | why |
//! |---|---|
//! | `matchConditions` in a webhook configuration | supported from 1.27 on; 1.20 drops the field |
//! | policies in CEL between the webhooks | supported from 1.26 on |
//! | the Pods of `clientConfig.service` | the cluster has no nodes; a Service with an external host is called instead |
//! | namespaces that have `kubernetes.io/metadata.name` automatically | from 1.21 on |
//! | deletion that continues after admission (garbage collection, namespaces) | no controllers run |
//! | containers | the cluster has no nodes; a stand-in for a kubelet answers `exec`, `logs` and `port-forward` |

mod audits;
mod callers;
mod documents;
mod edge;
mod failures;
pub(crate) mod gateway;
mod installation;
mod mutating;
mod no_webhooks;
mod operations;
mod refusals;
mod replicas;
pub(crate) mod resources;
mod selectors;
mod updates;
mod webhook_configurations;

use std::{pin::Pin, sync::Arc};

use crate::cluster::TestCluster;

/// A scenario that runs against the API server: what users do, and what must happen.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) play: fn(Arc<TestCluster>) -> ScenarioFuture,
}

pub(crate) type ScenarioFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Makes a list of scenarios from functions. The name of a scenario is its module and its function.
macro_rules! scenarios {
    ($($module:ident: $($function:ident,)+;)+) => {
        &[$($(Scenario {
            name: concat!(stringify!($module), "::", stringify!($function)),
            play: |cluster| Box::pin($module::$function(cluster)),
        },)+)+]
    };
}

/// All scenarios in the order in which they run. The simplest come first.
pub(crate) const SCENARIOS: &[Scenario] = scenarios! {
    no_webhooks:
        pods_are_stored_unchanged,
        users_have_their_own_permissions,
        a_dry_run_stores_nothing,
    ;
    mutating:
        pods_gain_the_sidecar,
        a_dry_run_changes_the_reply_and_stores_nothing,
        every_path_runs_its_chains,
        reviews_of_v1beta1_are_answered,
        warnings_reach_the_user,
        a_reinvocation_changes_nothing,
        the_audit_log_contains_the_patch,
        a_large_object_is_changed,
    ;
    refusals:
        refused_pods_show_the_message,
        a_refusal_keeps_its_code_and_reason,
        a_dry_run_is_refused_too,
        validating_chains_see_the_mutated_object,
    ;
    failures:
        the_failure_policy_applies_to_an_unreachable_server,
        the_failure_policy_applies_to_a_trap,
        the_failure_policy_applies_to_an_inapplicable_patch,
        the_failure_policy_applies_to_a_slow_stage,
    ;
    selectors:
        a_label_turns_a_chain_off,
        a_new_namespace_is_selected_at_once,
        the_server_starts_without_the_cluster,
    ;
    operations:
        an_update_is_refused,
        a_deletion_is_refused,
        an_eviction_is_refused,
        a_connection_is_refused,
        a_scale_is_refused,
        a_custom_resource_is_changed,
        another_version_is_converted,
        a_namespace_is_admitted_by_its_own_labels,
    ;
    updates:
        a_changed_definition_takes_effect_between_two_creates,
        a_changed_module_takes_effect_between_two_creates,
        a_broken_definition_leaves_the_last_good_one,
        certificates_are_replaced_between_two_creates,
        a_server_hands_over_to_another,
    ;
    callers:
        the_api_server_presents_its_certificate,
        a_caller_with_another_ca_is_refused,
    ;
    documents:
        a_webhook_is_called_and_then_becomes_a_plugin,
        match_conditions_of_a_webhook_are_evaluated,
    ;
    edge:
        a_lost_node_keeps_its_pods,
        addresses_on_a_lost_node_stay_ready,
    ;
    installation:
        pods_of_the_manifests_change_and_deny_requests,
    ;
    resources:
        chains_are_written_with_kubectl,
        policies_of_gatekeeper_are_read,
    ;
    webhook_configurations:
        the_leader_registers_the_webhooks_of_chains,
    ;
    replicas:
        changes_go_live_everywhere_at_once,
    ;
    audits:
        existing_objects_are_audited,
    ;
    gateway:
        a_cluster_is_used_directly,
        roles_of_a_file_are_bound_in_the_cluster,
        role_bindings_of_the_cluster_decide,
        agents_find_the_addresses_of_api_servers,
        a_cluster_is_used_through_a_tunnel,
        a_hundred_watches_end_with_their_token,
        watches_stay_open,
        confirmed_objects_survive_a_kill_of_the_agent,
        confirmed_objects_survive_a_kill_of_the_gateway,
        a_second_gateway_replaces_a_killed_one,
        gateways_survive_an_outage_of_the_database,
        no_client_becomes_another_user,
        no_client_reaches_another_cluster,
        a_register_token_cannot_be_guessed,
    ;
};
