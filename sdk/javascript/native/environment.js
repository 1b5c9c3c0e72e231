// Outside of the sandbox, these are the variables of the process.

export const get = (name) => process.env[name];
