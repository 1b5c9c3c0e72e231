// Adds a label to objects without it.

#include "admittance.h"

// The label's key, and the value for objects without the label.
static plugin_string_t label, value;

void exports_plugin_describe(plugin_description_t *description) {
  describe(description, "{{name}}", "0.1.0", "{{summary}}");
  description->mutates = true;
  supports(description, "", "v1", "pods");
  supports(description, "apps", "v1", "deployments");
}

bool exports_plugin_configure(plugin_json_t *settings, plugin_list_settings_error_t *mistakes) {
  reject_unknown(mistakes, *settings, (const char *[]){"label", "value", NULL});
  label = json_string(json_get(*settings, "label"));
  if (label.len == 0) add_mistake(mistakes, text("/label"), text("the label has no name; give one"));
  plugin_string_t given = json_get(*settings, "value");
  if (!json_is_string(given)) add_mistake(mistakes, text("/value"), text("the value is missing; give a text"));
  value = json_string(given);
  return mistakes->len == 0;
}

bool exports_plugin_admit(plugin_request_t *request, plugin_response_t *response, plugin_string_t *error) {
  if (!request->object.is_some) return allow(response);
  plugin_string_t labels = json_get(json_get(request->object.val, "metadata"), "labels");
  if (json_get_text(labels, label).len > 0) return allow(response);
  // If there is no object with labels, an object that contains the label is added.
  if (labels.len == 0 || *labels.ptr != '{') {
    return patch(response, join(text("[{\"op\": \"add\", \"path\": \"/metadata/labels\", \"value\": {"),
                                json_quote(label), text(": "), json_quote(value), text("}}]")));
  }
  plugin_string_t path = json_quote(join(text("/metadata/labels/"), pointer_escape(label)));
  return patch(response, join(text("[{\"op\": \"add\", \"path\": "), path, text(", \"value\": "),
                              json_quote(value), text("}]")));
}
