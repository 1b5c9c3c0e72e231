// Refuses objects whose label differs from their namespace's.

#include "admittance.h"

// The key of the label that must be the same as in the namespace.
static plugin_string_t label;

void exports_plugin_describe(plugin_description_t *description) {
  describe(description, "{{name}}", "0.1.0", "{{summary}}");
  supports(description, "", "v1", "pods");
  supports(description, "apps", "v1", "deployments");
  requests(description, ADMITTANCE_PLUGIN_TYPES_CAPABILITY_CLUSTER, "v1/Namespace");
}

bool exports_plugin_configure(plugin_json_t *settings, plugin_list_settings_error_t *mistakes) {
  reject_unknown(mistakes, *settings, (const char *[]){"label", NULL});
  label = json_string(json_get(*settings, "label"));
  if (label.len == 0) add_mistake(mistakes, text("/label"), text("the label has no name; give one"));
  return mistakes->len == 0;
}

// Returns the value of the label; empty for an object without the label.
static plugin_string_t label_of(plugin_string_t object) {
  return json_string(json_get_text(json_get(json_get(object, "metadata"), "labels"), label));
}

bool exports_plugin_admit(plugin_request_t *request, plugin_response_t *response, plugin_string_t *error) {
  if (!request->object.is_some || !request->namespace_.is_some) return allow(response);
  plugin_string_t name = request->namespace_.val, version = text("v1"), kind = text("Namespace");
  admittance_plugin_cluster_option_json_t namespace;
  admittance_plugin_cluster_error_t failure;
  if (!admittance_plugin_cluster_get(&version, &kind, NULL, &name, &namespace, &failure)) {
    // If a lookup fails, the stage fails, and its `failurePolicy` decides.
    *error = join(text("the namespace `"), name, text("` cannot be read"));
    return false;
  }
  plugin_string_t expected = {NULL, 0};
  if (namespace.is_some) expected = label_of(namespace.val);
  if (expected.len == 0 || text_equals(label_of(request->object.val), expected)) return allow(response);
  return deny(response, join(text("metadata.labels: `"), label, text("` must be `"), expected,
                             text("`, as in the namespace `"), name, text("`")));
}
