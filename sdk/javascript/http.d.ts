/** The error of a request that got no response. */
export class HttpError extends Error {
  readonly kind: "unavailable" | "invalid" | "unreachable" | "timeout" | "too-large";
}

/** A response, whatever its status is. Redirects are not followed. */
export interface HttpResponse {
  readonly status: number;
  readonly headers: [string, string][];
  readonly body: Uint8Array;
  /** Returns the first header of this name. The case of the name does not matter. */
  header(name: string): string | undefined;
  text(): string;
  json(): unknown;
}

/** Sends a request, and waits for the complete response. */
export function send(
  url: string,
  options?: { method?: string; headers?: Record<string, string>; body?: string | Uint8Array },
): HttpResponse;
