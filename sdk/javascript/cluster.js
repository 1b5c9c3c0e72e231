// Look-ups in the control plane, of the kinds that the stage grants under `allow.cluster`.

import cluster from "admittance:plugin/cluster";

import { ClusterError, attempt } from "./errors.js";

export { ClusterError };

/** One object, or undefined if it does not exist. */
export function get(apiVersion, kind, { namespace, name }) {
  const text = attempt(ClusterError, () => cluster.get(apiVersion, kind, namespace ?? null, name));
  return text == null ? undefined : JSON.parse(text);
}

/** The objects of a kind; without a namespace, those of all namespaces. */
export function list(apiVersion, kind, { namespace, labelSelector = "" } = {}) {
  const texts = attempt(ClusterError, () => cluster.list(apiVersion, kind, namespace ?? null, labelSelector));
  return texts.map((text) => JSON.parse(text));
}
