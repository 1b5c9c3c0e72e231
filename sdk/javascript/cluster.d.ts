import type { KubernetesObject } from "admittance";

/** Why a look-up failed. */
export class ClusterError extends Error {
  readonly kind: "unavailable" | "timeout" | "refused";
}

/** One object, or undefined if it does not exist. Without a namespace for cluster-scoped kinds. */
export function get(
  apiVersion: string,
  kind: string,
  which: { namespace?: string; name: string },
): KubernetesObject | undefined;

/** The objects of a kind; without a namespace, those of all namespaces. */
export function list(
  apiVersion: string,
  kind: string,
  which?: { namespace?: string; labelSelector?: string },
): KubernetesObject[];
