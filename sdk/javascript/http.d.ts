/** Why there is no response. */
export class HttpError extends Error {
  readonly kind: "unavailable" | "invalid" | "unreachable" | "timeout" | "too-large";
}

/** The response, with any status. Redirects are not followed. */
export interface HttpResponse {
  readonly status: number;
  readonly headers: [string, string][];
  readonly body: Uint8Array;
  /** The first header of this name, in any case. */
  header(name: string): string | undefined;
  text(): string;
  json(): unknown;
}

/** Sends a request, and waits for the complete response. */
export function send(
  url: string,
  options?: { method?: string; headers?: Record<string, string>; body?: string | Uint8Array },
): HttpResponse;
