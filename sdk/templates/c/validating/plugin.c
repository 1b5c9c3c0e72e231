// Refuses objects that do not carry a label.

#include "admittance.h"

// The label's key, and the JSON array of its allowed values; if there are none, any value is allowed.
static plugin_string_t label, values;

void exports_plugin_describe(plugin_description_t *description) {
  describe(description, "{{name}}", "0.1.0", "{{summary}}");
  supports(description, "", "v1", "pods");
  supports(description, "apps", "v1", "deployments");
}

bool exports_plugin_configure(plugin_json_t *settings, plugin_list_settings_error_t *mistakes) {
  reject_unknown(mistakes, *settings, (const char *[]){"label", "values", NULL});
  label = json_string(json_get(*settings, "label"));
  if (label.len == 0) add_mistake(mistakes, text("/label"), text("the label has no name; give one"));
  values = json_get(*settings, "values");
  for (plugin_string_t value = {NULL, 0}; json_next_element(values, &value);) {
    if (json_string(value).len == 0) {
      add_mistake(mistakes, text("/values"), text("every value is a text that is not empty"));
    }
  }
  return mistakes->len == 0;
}

bool exports_plugin_admit(plugin_request_t *request, plugin_response_t *response, plugin_string_t *error) {
  if (!request->object.is_some) return allow(response);
  plugin_string_t metadata = json_get(request->object.val, "metadata");
  plugin_string_t actual = json_get_text(json_get(metadata, "labels"), label);
  if (actual.len == 0) {
    return deny(response, join(text("metadata.labels: `"), label, text("` is missing; add it")));
  }
  plugin_string_t allowed = {NULL, 0};
  for (plugin_string_t value = {NULL, 0}; json_next_element(values, &value);) {
    if (text_equals(json_string(value), json_string(actual))) return allow(response);
    allowed = join(allowed, text(allowed.len > 0 ? ", " : ""), json_string(value));
  }
  if (allowed.len == 0) return allow(response);
  return deny(response, join(text("metadata.labels: `"), label, text("` is `"), json_string(actual),
                             text("`; use one of: "), allowed));
}
