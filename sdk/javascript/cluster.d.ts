import type { KubernetesObject } from "admittance";

/** The error of a failed lookup. */
export class ClusterError extends Error {
  readonly kind: "unavailable" | "timeout" | "refused";
}

/** Returns one object, or undefined if it does not exist. Omit the namespace for cluster-scoped kinds. */
export function get(
  apiVersion: string,
  kind: string,
  which: { namespace?: string; name: string },
): KubernetesObject | undefined;

/** Returns the objects of a kind in a namespace, or in all namespaces if none is given. */
export function list(
  apiVersion: string,
  kind: string,
  which?: { namespace?: string; labelSelector?: string },
): KubernetesObject[];
