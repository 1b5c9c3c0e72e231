/** Returns the value of an environment variable, or undefined if the stage does not grant it. */
export function get(name: string): string | undefined;
