// Errors of look-ups and requests: why a call of the host failed.

class HostError extends Error {
  /** `kind` is that of the contract: `unavailable`, `timeout` and so on. */
  constructor(kind, detail) {
    super(detail === undefined ? kind : `${kind}: ${detail}`);
    this.kind = kind;
    this.name = this.constructor.name;
  }
}

/** A look-up failed: `unavailable`, `timeout` or `refused`. */
export class ClusterError extends HostError {}

/** A request failed: `unavailable`, `invalid`, `unreachable`, `timeout` or `too-large`. */
export class HttpError extends HostError {}

/** Calls the host, which throws `{ tag, val }` of the contract. */
export function attempt(Failure, call) {
  try {
    return call();
  } catch (error) {
    const { tag, val } = error?.payload ?? error ?? {};
    throw tag === undefined ? error : new Failure(tag, val);
  }
}
