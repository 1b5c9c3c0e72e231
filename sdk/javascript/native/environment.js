// Outside of the sandbox, plugins get the environment variables of the process.

export const get = (name) => process.env[name];
