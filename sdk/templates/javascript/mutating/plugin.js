// @ts-check
// Adds a label to objects without it.

import { allow, mutate, plugin } from "admittance";

export const { describe, configure, admit } = plugin({
  name: "{{name}}",
  version: "0.1.0",
  summary: "Adds a label to objects without it.",
  mutates: true,
  resources: ["v1/pods", "apps/v1/deployments"],
  settings: {
    type: "object",
    description: "The label that objects get.",
    required: ["label", "value"],
    properties: {
      label: { type: "string", minLength: 1, description: "The label's key." },
      value: { type: "string", description: "The value for objects without the label." },
    },
  },
  admit(request, { label, value }) {
    if (!request.object) return allow();
    return mutate(request, (object) => {
      // Some APIs have objects without metadata, or with `labels: null`.
      object.metadata ??= {};
      object.metadata.labels ??= {};
      object.metadata.labels[label] ??= value;
    });
  },
  warmUp: { apiVersion: "v1", kind: "Pod", metadata: { name: "sample", labels: { app: "sample" } } },
});
