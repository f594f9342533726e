/** What the demo asks of the management API, over HTTP as any other client would. */
export interface ApiClient {
  get<T>(path: string): Promise<T>;
  post<T>(path: string, body: unknown): Promise<T>;
  patch<T>(path: string, body: unknown): Promise<T>;
  /** The data of each server-sent event, until the server ends the stream. */
  follow<T>(path: string): AsyncGenerator<T>;
}

export function apiClient(baseUrl: string, key: string): ApiClient {
  async function call(method: string, path: string, body?: unknown): Promise<Response> {
    const response = await fetch(`${baseUrl}/api/v1${path}`, {
      method,
      headers: {
        authorization: `Bearer ${key}`,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    if (!response.ok) throw new Error(`${method} ${path} answered ${response.status}: ${await response.text()}`);
    return response;
  }
  return {
    get: async <T>(path: string) => (await (await call('GET', path)).json()) as T,
    post: async <T>(path: string, body: unknown) => (await (await call('POST', path, body)).json()) as T,
    patch: async <T>(path: string, body: unknown) => (await (await call('PATCH', path, body)).json()) as T,
    async *follow<T>(path: string): AsyncGenerator<T> {
      const response = await call('GET', path);
      const decoder = new TextDecoder();
      let rest = '';
      for await (const piece of response.body ?? []) {
        const frames = (rest + decoder.decode(piece, { stream: true })).split('\n\n');
        rest = frames.pop() ?? '';
        for (const frame of frames) {
          const data = frame
            .split('\n')
            .flatMap((line) => (line.startsWith('data:') ? [line.slice(5).trimStart()] : []));
          if (data.length > 0) yield JSON.parse(data.join('\n')) as T;
        }
      }
    },
  };
}
