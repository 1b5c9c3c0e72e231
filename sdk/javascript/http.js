// HTTP requests to the origins that the stage grants under `allow.http`.

import http from "admittance:plugin/http";

import { HttpError, attempt } from "./errors.js";
import { HttpResponse, requestOf } from "./message.js";

export { HttpError };

/** Sends a request, and returns the response with any status. */
export function send(url, options) {
  const request = requestOf(url, options);
  return new HttpResponse(attempt(HttpError, () => http.send(request)));
}
