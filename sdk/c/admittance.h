// Helpers for plugins in C in addition to the generated bindings: JSON, texts, and the parts of responses.
//
// A text is a `plugin_string_t`: a pointer and a length, without a NUL at its end. A JSON value is a text that is part
// of a larger one; a value that is absent has the length 0. Functions that return a text allocate it, except `text`.
//
// Every call of a plugin has an instance of its own, whose memory is discarded afterwards, so that nothing has to be
// freed. The bindings free what a response consists of: build responses with the functions below, which copy texts.
#ifndef ADMITTANCE_H
#define ADMITTANCE_H

#include "plugin.h"

// Returns a text that shares the memory of a C string.
plugin_string_t text(const char *string);

// Returns whether two texts have the same bytes.
bool text_equals(plugin_string_t one, plugin_string_t other);

// Joins texts: `join(text("`"), key, text("` is missing"))`.
#define join(...) \
  join_texts((plugin_string_t[]){__VA_ARGS__}, sizeof((plugin_string_t[]){__VA_ARGS__}) / sizeof(plugin_string_t))
plugin_string_t join_texts(const plugin_string_t *texts, size_t count);

// Moves to the next member of a JSON object, and returns whether there is one. `value` begins as an empty text; `key`
// gets the member's key without escapes.
bool json_next_member(plugin_string_t object, plugin_string_t *key, plugin_string_t *value);

// Moves to the next element of a JSON array, and returns whether there is one. `element` begins as an empty text.
bool json_next_element(plugin_string_t array, plugin_string_t *element);

// Returns a member of a JSON object, the last one if several have this key.
plugin_string_t json_get(plugin_string_t object, const char *key);

// Returns a member of a JSON object whose key is given as a text.
plugin_string_t json_get_text(plugin_string_t object, plugin_string_t key);

// Returns whether a JSON value is a string.
bool json_is_string(plugin_string_t value);

// Returns the content of a JSON string, without quotes and escapes; an empty text for any other value.
plugin_string_t json_string(plugin_string_t value);

// Writes a text as a JSON string.
plugin_string_t json_quote(plugin_string_t content);

// Escapes a key for a JSON Pointer.
plugin_string_t pointer_escape(plugin_string_t key);

// Fills in the description of a plugin that supports no resources, requests no capabilities and changes no objects.
void describe(plugin_description_t *description, const char *name, const char *version, const char *summary);

// Adds a supported resource: `supports(description, "apps", "v1", "deployments")`.
void supports(plugin_description_t *description, const char *group, const char *version, const char *resource);

// Requests a capability, such as `ADMITTANCE_PLUGIN_TYPES_CAPABILITY_CLUSTER`, for this kind, origin or variable.
void requests(plugin_description_t *description, uint8_t capability, const char *name);

// Adds a mistake in the settings, at a JSON Pointer.
void add_mistake(plugin_list_settings_error_t *mistakes, plugin_string_t pointer, plugin_string_t message);

// Adds a mistake for every member of the settings that is not among these keys. NULL ends the list of keys.
void reject_unknown(plugin_list_settings_error_t *mistakes, plugin_string_t settings, const char *const *keys);

// These functions allow a request unchanged, allow it with a JSON Patch, and deny it with the status 403.
bool allow(plugin_response_t *response);
bool patch(plugin_response_t *response, plugin_string_t operations);
bool deny(plugin_response_t *response, plugin_string_t message);

#endif
