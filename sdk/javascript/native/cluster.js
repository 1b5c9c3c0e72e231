// Native code has no control plane. The cases of `admittance test`, which run in the sandbox, can have one.

import { ClusterError } from "../errors.js";

export { ClusterError };

export function get() {
  throw new ClusterError("unavailable", "look-ups need the sandbox");
}

export const list = get;
