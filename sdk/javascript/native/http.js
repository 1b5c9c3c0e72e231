// Outside of the sandbox nothing is sent.

import { HttpError } from "../errors.js";

export { HttpError };

export function send() {
  throw new HttpError("unavailable", "requests need the sandbox");
}
