// @ts-check
// Refuses objects that do not carry a label.

import { allow, deny, plugin } from "admittance";

export const { describe, configure, admit } = plugin({
  name: "{{name}}",
  version: "0.1.0",
  summary: "Refuses objects that do not carry a label.",
  resources: ["v1/pods", "apps/v1/deployments"],
  settings: {
    type: "object",
    description: "The label that every object must carry.",
    required: ["label"],
    properties: {
      label: { type: "string", minLength: 1, description: "The label's key." },
      values: {
        type: "array",
        items: { type: "string", minLength: 1 },
        default: [],
        description: "The allowed values; if there are none, any value is allowed.",
      },
    },
  },
  admit(request, { label, values }) {
    if (!request.object) return allow();
    // Some APIs have objects without metadata, or with `labels: null`.
    const value = request.object.metadata?.labels?.[label];
    if (value === undefined) return deny(`metadata.labels: \`${label}\` is missing; add it`);
    if (values.length > 0 && !values.includes(value)) {
      return deny(`metadata.labels: \`${label}\` is \`${value}\`; use one of: ${values.join(", ")}`);
    }
    return allow();
  },
  warmUp: { apiVersion: "v1", kind: "Pod", metadata: { name: "sample", labels: { app: "sample" } } },
});
