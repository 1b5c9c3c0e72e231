#include "admittance.h"

#include <stdlib.h>
#include <string.h>

// Allocates memory. If there is none, the call of the plugin ends.
static void *allocate(size_t size) {
  void *memory = calloc(1, size > 0 ? size : 1);
  if (memory == NULL) abort();
  return memory;
}

// Moves a list to memory with space for one more item, and returns a pointer to that item.
static void *grow(void *list, size_t length, size_t size) {
  void *memory = realloc(list, (length + 1) * size);
  if (memory == NULL) abort();
  memset((char *)memory + length * size, 0, size);
  return memory;
}

plugin_string_t text(const char *string) {
  return (plugin_string_t){(uint8_t *)string, strlen(string)};
}

static plugin_string_t copy(const char *string) {
  plugin_string_t one = text(string);
  return join_texts(&one, 1);
}

bool text_equals(plugin_string_t one, plugin_string_t other) {
  return one.len == other.len && (one.len == 0 || memcmp(one.ptr, other.ptr, one.len) == 0);
}

plugin_string_t join_texts(const plugin_string_t *texts, size_t count) {
  plugin_string_t whole = {NULL, 0};
  for (size_t i = 0; i < count; i++) whole.len += texts[i].len;
  whole.ptr = allocate(whole.len);
  uint8_t *end = whole.ptr;
  for (size_t i = 0; i < count; i++) {
    if (texts[i].len > 0) memcpy(end, texts[i].ptr, texts[i].len);
    end += texts[i].len;
  }
  return whole;
}

// The `skip` functions return the position after the skipped text, which is at most `end`.

static uint8_t *skip_separators(uint8_t *at, uint8_t *end) {
  while (at < end && strchr(" \t\r\n,:", *at) != NULL && *at != 0) at++;
  return at;
}

static uint8_t *skip_string(uint8_t *at, uint8_t *end) {
  at++;
  while (at < end && *at != '"') at += *at == '\\' && at + 1 < end ? 2 : 1;
  return at < end ? at + 1 : end;
}

static uint8_t *skip_value(uint8_t *at, uint8_t *end) {
  size_t depth = 0;
  while (at < end) {
    if (*at == '"') {
      at = skip_string(at, end);
    } else if (*at == '{' || *at == '[') {
      depth++;
      at++;
    } else if (*at == '}' || *at == ']') {
      if (depth == 0) return at;
      depth--;
      at++;
    } else if (depth > 0) {
      at++;
      continue;
    } else {
      while (at < end && strchr(" \t\r\n,:]}", *at) == NULL) at++;
    }
    if (depth == 0) return at;
  }
  return end;
}

// Reads the next value in an object or an array. Returns false if there is none.
static bool next_value(plugin_string_t whole, char opening, uint8_t *after, plugin_string_t *value) {
  uint8_t *end = whole.ptr + whole.len;
  if (whole.len == 0 || *whole.ptr != opening) return false;
  uint8_t *at = skip_separators(after != NULL ? after : whole.ptr + 1, end);
  value->ptr = at;
  value->len = (size_t)(skip_value(at, end) - at);
  return value->len > 0;
}

static uint8_t *end_of(plugin_string_t value) {
  return value.len > 0 ? value.ptr + value.len : NULL;
}

bool json_next_member(plugin_string_t object, plugin_string_t *key, plugin_string_t *value) {
  plugin_string_t name;
  if (!next_value(object, '{', end_of(*value), &name) || !next_value(object, '{', end_of(name), value)) return false;
  *key = json_string(name);
  return true;
}

bool json_next_element(plugin_string_t array, plugin_string_t *element) {
  return next_value(array, '[', end_of(*element), element);
}

plugin_string_t json_get(plugin_string_t object, const char *key) {
  return json_get_text(object, text(key));
}

plugin_string_t json_get_text(plugin_string_t object, plugin_string_t wanted) {
  plugin_string_t key, value = {NULL, 0}, found = {NULL, 0};
  while (json_next_member(object, &key, &value)) {
    if (text_equals(key, wanted)) found = value;
  }
  return found;
}

bool json_is_string(plugin_string_t value) {
  return value.len > 1 && *value.ptr == '"';
}

// Reads four hexadecimal digits.
static uint32_t read_hexadecimal(const uint8_t *digits) {
  uint32_t number = 0;
  for (int i = 0; i < 4; i++) {
    uint8_t digit = digits[i];
    number = number * 16 + (uint32_t)(digit <= '9' ? digit - '0' : (digit | 32) - 'a' + 10);
  }
  return number;
}

static uint8_t *write_utf8(uint8_t *to, uint32_t character) {
  if (character < 0x80) {
    *to++ = (uint8_t)character;
  } else if (character < 0x800) {
    *to++ = (uint8_t)(0xC0 | character >> 6);
    *to++ = (uint8_t)(0x80 | (character & 0x3F));
  } else if (character < 0x10000) {
    *to++ = (uint8_t)(0xE0 | character >> 12);
    *to++ = (uint8_t)(0x80 | (character >> 6 & 0x3F));
    *to++ = (uint8_t)(0x80 | (character & 0x3F));
  } else {
    *to++ = (uint8_t)(0xF0 | character >> 18);
    *to++ = (uint8_t)(0x80 | (character >> 12 & 0x3F));
    *to++ = (uint8_t)(0x80 | (character >> 6 & 0x3F));
    *to++ = (uint8_t)(0x80 | (character & 0x3F));
  }
  return to;
}

plugin_string_t json_string(plugin_string_t value) {
  plugin_string_t content = {NULL, 0};
  if (!json_is_string(value)) return content;
  content.ptr = allocate(value.len);
  const uint8_t *at = value.ptr + 1, *end = value.ptr + value.len - 1;
  uint8_t *to = content.ptr;
  while (at < end) {
    if (*at != '\\' || at + 1 >= end) {
      *to++ = *at++;
      continue;
    }
    const char *escapes = "b\bf\fn\nr\rt\t";
    const char *escape = at[1] == 0 ? NULL : strchr("bfnrt", at[1]);
    if (escape != NULL) {
      *to++ = (uint8_t)*(strchr(escapes, at[1]) + 1);
    } else if (at[1] == 'u' && at + 6 <= end) {
      uint32_t character = read_hexadecimal(at + 2);
      bool is_high = character >= 0xD800 && character < 0xDC00;
      if (is_high && at + 12 <= end && at[6] == '\\' && at[7] == 'u') {
        uint32_t low = read_hexadecimal(at + 8);
        if (low >= 0xDC00 && low < 0xE000) {
          character = 0x10000 + ((character - 0xD800) << 10) + (low - 0xDC00);
          at += 6;
        }
      }
      // Half of a surrogate pair becomes the replacement character.
      to = write_utf8(to, character >= 0xD800 && character < 0xE000 ? 0xFFFD : character);
      at += 4;
    } else {
      *to++ = at[1];
    }
    at += 2;
  }
  content.len = (size_t)(to - content.ptr);
  return content;
}

plugin_string_t json_quote(plugin_string_t content) {
  static const char digits[] = "0123456789abcdef";
  plugin_string_t quoted = {allocate(content.len * 6 + 2), 0};
  uint8_t *to = quoted.ptr;
  *to++ = '"';
  for (size_t i = 0; i < content.len; i++) {
    uint8_t byte = content.ptr[i];
    if (byte < 0x20) {
      memcpy(to, "\\u00", 4);
      to[4] = (uint8_t)digits[byte >> 4];
      to[5] = (uint8_t)digits[byte & 15];
      to += 6;
    } else {
      if (byte == '"' || byte == '\\') *to++ = '\\';
      *to++ = byte;
    }
  }
  *to++ = '"';
  quoted.len = (size_t)(to - quoted.ptr);
  return quoted;
}

plugin_string_t pointer_escape(plugin_string_t key) {
  plugin_string_t escaped = {allocate(key.len * 2), 0};
  for (size_t i = 0; i < key.len; i++) {
    bool is_special = key.ptr[i] == '~' || key.ptr[i] == '/';
    if (is_special) escaped.ptr[escaped.len++] = '~';
    escaped.ptr[escaped.len++] = is_special ? (key.ptr[i] == '/' ? '1' : '0') : key.ptr[i];
  }
  return escaped;
}

void describe(plugin_description_t *description, const char *name, const char *version, const char *summary) {
  *description = (plugin_description_t){.name = copy(name), .version = copy(version), .summary = copy(summary)};
}

static plugin_list_string_t list_of(const char *string) {
  plugin_list_string_t list = {allocate(sizeof(plugin_string_t)), 1};
  list.ptr[0] = copy(string);
  return list;
}

void supports(plugin_description_t *description, const char *group, const char *version, const char *resource) {
  admittance_plugin_types_list_resource_rule_t *rules = &description->resources;
  rules->ptr = grow(rules->ptr, rules->len, sizeof(*rules->ptr));
  rules->ptr[rules->len++] =
      (admittance_plugin_types_resource_rule_t){list_of(group), list_of(version), list_of(resource)};
}

void requests(plugin_description_t *description, uint8_t capability, const char *name) {
  admittance_plugin_types_list_capability_t *capabilities = &description->capabilities;
  capabilities->ptr = grow(capabilities->ptr, capabilities->len, sizeof(*capabilities->ptr));
  // The text is at the same offset in all capabilities.
  capabilities->ptr[capabilities->len++] =
      (admittance_plugin_types_capability_t){.tag = capability, .val = {.cluster = copy(name)}};
}

void add_mistake(plugin_list_settings_error_t *mistakes, plugin_string_t pointer, plugin_string_t message) {
  mistakes->ptr = grow(mistakes->ptr, mistakes->len, sizeof(*mistakes->ptr));
  mistakes->ptr[mistakes->len++] = (plugin_settings_error_t){join(pointer), join(message)};
}

void reject_unknown(plugin_list_settings_error_t *mistakes, plugin_string_t settings, const char *const *keys) {
  plugin_string_t key, value = {NULL, 0};
  while (json_next_member(settings, &key, &value)) {
    const char *const *known = keys;
    while (*known != NULL && !text_equals(key, text(*known))) known++;
    if (*known != NULL) continue;
    plugin_string_t expected = {NULL, 0};
    for (known = keys; *known != NULL; known++) {
      expected = join(expected, text(known == keys ? "`" : ", `"), text(*known), text("`"));
    }
    plugin_string_t pointer = join(text("/"), pointer_escape(key));
    add_mistake(mistakes, pointer, join(text("there is no such setting; write one of "), expected));
  }
}

bool allow(plugin_response_t *response) {
  *response = (plugin_response_t){.verdict = {.tag = ADMITTANCE_PLUGIN_TYPES_VERDICT_ALLOW}};
  return true;
}

bool patch(plugin_response_t *response, plugin_string_t operations) {
  *response = (plugin_response_t){
      .verdict = {.tag = ADMITTANCE_PLUGIN_TYPES_VERDICT_PATCH, .val = {.patch = join(operations)}}};
  return true;
}

bool deny(plugin_response_t *response, plugin_string_t message) {
  admittance_plugin_types_denial_t denial = {403, copy("Forbidden"), join(message)};
  *response =
      (plugin_response_t){.verdict = {.tag = ADMITTANCE_PLUGIN_TYPES_VERDICT_DENY, .val = {.deny = denial}}};
  return true;
}
