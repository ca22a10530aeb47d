// The server's HTTP interface. Every failure is an ApiError, whose text is for the person at the page.
import { eventData } from './sse.js';
import { currentKey } from './key.js';

export class ApiError extends Error {
  constructor(message, { status = 0, code = '', retryAfter = '' } = {}) {
    super(message);
    Object.assign(this, { status, code, retryAfter });
  }
}

export async function listModels() {
  const response = await request('v1/models', {});
  return (await response.json()).data ?? [];
}

// Yields the chunks of a streamed answer. Returns only when the server said that the answer is complete.
export async function* streamChat(body, signal, onIgnored) {
  const response = await request('v1/chat/completions', {
    method: 'POST', body: JSON.stringify(body), signal, headers: { 'Content-Type': 'application/json' },
  });
  const ignored = response.headers.get('x-lily-ignored');
  if (ignored) onIgnored(ignored);
  try {
    for await (const data of eventData(response.body)) {
      if (data === '[DONE]') return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw fromBody(chunk, {});
      yield chunk;
    }
  } catch (error) {
    if (error instanceof ApiError || signal.aborted) throw error;
    throw new ApiError(`The connection broke: ${error.message}`, { code: 'connection' });
  }
  throw new ApiError('The connection ended before the answer was complete.', { code: 'connection' });
}

async function request(path, { headers = {}, ...options }) {
  const key = currentKey();
  if (key) headers = { ...headers, Authorization: `Bearer ${key}` };
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: 'no-store', credentials: 'omit', redirect: 'error' });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError('The server cannot be reached.', { code: 'unreachable' });
  }
  if (response.ok) return response;
  const about = { status: response.status, retryAfter: response.headers.get('retry-after') ?? '' };
  throw fromBody(await response.json().catch(() => ({})), about);
}

function fromBody(body, about) {
  const error = typeof body.error === 'object' && body.error ? body.error : {};
  const message = error.message || (typeof body.error === 'string' ? body.error : '') || `The server answered ${about.status}.`;
  return new ApiError(message, { ...about, code: String(error.code ?? error.type ?? '') });
}
