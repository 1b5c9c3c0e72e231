// Outside of the sandbox, no request is sent.

import { HttpError } from "../errors.js";

export { HttpError };

export function send() {
  throw new HttpError("unavailable", "requests need the sandbox");
}
