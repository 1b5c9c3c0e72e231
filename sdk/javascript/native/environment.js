// Outside of the sandbox the variables are those of the process.

export const get = (name) => process.env[name];
