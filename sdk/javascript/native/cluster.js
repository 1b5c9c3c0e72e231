// Outside of the sandbox, there is no control plane. The cases of `admittance test` run inside, and can have one.

import { ClusterError } from "../errors.js";

export { ClusterError };

export function get() {
  throw new ClusterError("unavailable", "look-ups need the sandbox");
}

export const list = get;
