// Outside of the sandbox, lines go to standard error.

const line = (level) => (message) => console.error(`${level}: ${message}`);

export const trace = line("trace");
export const debug = line("debug");
export const info = line("info");
export const warn = line("warn");
export const error = line("error");
