/** Writes a line to the operator's log. */
type Line = (message: unknown) => void;

export const trace: Line;
export const debug: Line;
export const info: Line;
export const warn: Line;
export const error: Line;
