//! The scenarios, in their order.
//!
//! This API server is Kubernetes 1.20. What cannot be tested with it:
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
mod bare;
mod callers;
mod documents;
mod edge;
mod failures;
pub(crate) mod gateway;
mod installation;
mod kept;
mod mutating;
mod operations;
mod refusals;
mod replicas;
pub(crate) mod resources;
mod selectors;
mod updates;

use std::{pin::Pin, sync::Arc};

use crate::cluster::Cluster;

/// A user's action and its expected result.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// Runs the scenario. It panics if something is wrong.
    pub(crate) play: fn(Arc<Cluster>) -> Playing,
}

pub(crate) type Playing = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Lists scenarios by their modules and functions, which become their names.
macro_rules! scenarios {
    ($($module:ident: $($function:ident,)+;)+) => {
        &[$($(Scenario {
            name: concat!(stringify!($module), "::", stringify!($function)),
            play: |cluster| Box::pin($module::$function(cluster)),
        },)+)+]
    };
}

/// All scenarios, simplest first.
pub(crate) const SCENARIOS: &[Scenario] = scenarios! {
    bare:
        pods_are_stored_as_they_are,
        policies_distinguish_users,
        a_dry_run_stores_nothing,
    ;
    mutating:
        pods_gain_the_sidecar,
        a_dry_run_is_dry,
        every_path_runs_its_chains,
        reviews_of_v1beta1_are_answered,
        warnings_reach_the_user,
        a_second_round_changes_nothing_more,
        the_audit_log_tells_what_was_changed,
        a_large_object_is_changed,
    ;
    refusals:
        refused_pods_show_the_message,
        a_refusal_keeps_its_code_and_reason,
        a_dry_run_is_refused_too,
        validating_chains_see_what_mutating_ones_made,
    ;
    failures:
        a_server_that_is_gone,
        a_stage_that_traps,
        a_patch_that_does_not_apply,
        a_stage_that_is_too_slow,
    ;
    selectors:
        a_label_turns_a_chain_off,
        a_namespace_is_known_as_soon_as_it_is_there,
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
        the_api_server_shows_its_certificate,
        a_caller_of_another_authority_is_turned_away,
    ;
    documents:
        a_webhook_is_called_and_then_becomes_a_plugin,
        a_match_condition_holds,
    ;
    edge:
        a_lost_node_keeps_its_pods,
        addresses_on_a_lost_node_stay_ready,
    ;
    installation:
        the_printed_manifests_inject_and_refuse,
    ;
    resources:
        chains_are_written_with_kubectl,
        policies_of_gatekeeper_are_read,
    ;
    kept:
        chains_take_effect_without_a_registration,
    ;
    replicas:
        changes_go_live_everywhere_at_once,
    ;
    audits:
        what_exists_is_audited,
    ;
    gateway:
        a_cluster_is_used_directly,
        roles_of_a_file_are_bound_in_the_cluster,
        role_bindings_of_the_cluster_decide,
        agents_find_the_addresses_of_api_servers,
        a_cluster_is_used_through_a_tunnel,
        a_hundred_watches_end_with_their_token,
        watches_last,
        the_agent_is_killed_under_load,
        the_gateway_is_killed_under_load,
        one_of_two_gateways_is_killed,
        the_database_is_away_and_comes_back,
        no_client_becomes_another_user,
        no_client_reaches_another_cluster,
        a_register_token_cannot_be_guessed,
    ;
};
