// The environment variables that the stage grants under `allow.environment`.

import environment from "wasi:cli/environment";

/** Returns the value of a variable, or undefined if it is not granted. */
export function get(name) {
  return environment.getEnvironment().find(([key]) => key === name)?.[1];
}
