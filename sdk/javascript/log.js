// Lines for the operator's log. The host adds the stage's name and the request's uid.

import logging from "wasi:logging/logging";

const line = (level) => (message) => logging.log(level, "", String(message));

export const trace = line("trace");
export const debug = line("debug");
export const info = line("info");
export const warn = line("warn");
export const error = line("error");
