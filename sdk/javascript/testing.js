// Native tests: calls a plugin without WebAssembly, in the form in which the host calls it.

import { SettingsErrors } from "./index.js";
import { requestFor } from "./sample.js";

export const create = (object) => requestFor("create", object);
export const update = (oldObject, object) => requestFor("update", object, oldObject);
export const remove = (oldObject) => requestFor("delete", undefined, oldObject);
export const connect = (options) => requestFor("connect", options);

/** Configures a plugin: `import * as component from "../src/plugin.js"`. Throws SettingsErrors. */
export function configure(component, settings = {}) {
  component.describe();
  try {
    component.configure(JSON.stringify(settings));
  } catch (error) {
    throw Array.isArray(error) ? new SettingsErrors(error) : error;
  }
  return { admit: (request) => new Outcome(component, request) };
}

/** The response of a plugin. */
class Outcome {
  constructor(component, request) {
    let response;
    try {
      response = component.admit(request);
    } catch (error) {
      throw typeof error === "string" ? new Error(error) : error;
    }
    const { tag, val } = response.verdict;
    this.allowed = tag !== "deny";
    this.denial = tag === "deny" ? val : undefined;
    this.patch = tag === "patch" ? JSON.parse(val) : [];
    this.replacement = tag === "replace" ? JSON.parse(val) : undefined;
    this.warnings = response.warnings;
    this.auditAnnotations = Object.fromEntries(response.auditAnnotations);
  }
}
