// Lookups in the control plane, limited to the kinds that the stage grants under `allow.cluster`.

import cluster from "admittance:plugin/cluster";

import { ClusterError, attempt } from "./errors.js";

export { ClusterError };

/** Returns one object, or undefined if it does not exist. */
export function get(apiVersion, kind, { namespace, name }) {
  const text = attempt(ClusterError, () => cluster.get(apiVersion, kind, namespace ?? null, name));
  return text == null ? undefined : JSON.parse(text);
}

/** Returns the objects of a kind in a namespace, or in all namespaces if none is given. */
export function list(apiVersion, kind, { namespace, labelSelector = "" } = {}) {
  const texts = attempt(ClusterError, () => cluster.list(apiVersion, kind, namespace ?? null, labelSelector));
  return texts.map((text) => JSON.parse(text));
}
