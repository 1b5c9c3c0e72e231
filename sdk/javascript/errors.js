// Errors of lookups and HTTP requests: the reasons why a call of the host failed.

class HostError extends Error {
  /** `kind` is an error kind of the contract: `unavailable`, `timeout` and so on. */
  constructor(kind, detail) {
    super(detail === undefined ? kind : `${kind}: ${detail}`);
    this.kind = kind;
    this.name = this.constructor.name;
  }
}

/** The error of a failed lookup, of the kind `unavailable`, `timeout` or `refused`. */
export class ClusterError extends HostError {}

/** The error of a failed request, of the kind `unavailable`, `invalid`, `unreachable`, `timeout` or `too-large`. */
export class HttpError extends HostError {}

/** Calls the host. Throws a `Failure` for an error `{ tag, val }` of the contract. */
export function attempt(Failure, call) {
  try {
    return call();
  } catch (error) {
    const { tag, val } = error?.payload ?? error ?? {};
    throw tag === undefined ? error : new Failure(tag, val);
  }
}
