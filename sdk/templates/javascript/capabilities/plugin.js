// @ts-check
// Refuses objects whose label differs from their namespace's.

import { allow, deny, plugin } from "admittance";
import { get } from "admittance/cluster";

export const { describe, configure, admit } = plugin({
  name: "{{name}}",
  version: "0.1.0",
  summary: "Refuses objects whose label differs from their namespace's.",
  resources: ["v1/pods", "apps/v1/deployments"],
  capabilities: { cluster: ["v1/Namespace"] },
  settings: {
    type: "object",
    description: "The label that must be the same as in the namespace.",
    required: ["label"],
    properties: { label: { type: "string", minLength: 1, description: "The label's key." } },
  },
  admit(request, { label }) {
    const { object, namespace } = request;
    if (!object || !namespace) return allow();
    // If a lookup fails, the stage fails, and its `failurePolicy` decides.
    const expected = get("v1", "Namespace", { name: namespace })?.metadata?.labels?.[label];
    // Some APIs have objects without metadata, or with `labels: null`.
    if (expected === undefined || object.metadata?.labels?.[label] === expected) return allow();
    return deny(`metadata.labels: \`${label}\` must be \`${expected}\`, as in the namespace \`${namespace}\``);
  },
});
