// An answer while it is being written: what arrives is added to a plain object, which is also what is stored.
import { ApiError, streamChat } from './api.js';

export function newReply() {
  return { role: 'assistant', content: '', reasoning_content: '', tool_calls: [], partial: true, started: Date.now() };
}

// Fills the reply until it is complete, was stopped, or failed; onChange is called after every change. Never throws:
// what went wrong is in reply.error.
export async function receive(reply, body, signal, onChange) {
  try {
    for await (const chunk of streamChat(body, signal, (names) => { reply.ignored = names; })) {
      addChunk(reply, chunk);
      onChange();
    }
  } catch (error) {
    if (signal.aborted) reply.stopped = true;
    else reply.error = toData(error);
  }
  endThinking(reply);
  delete reply.partial;
  onChange();
}

function toData(error) {
  if (!(error instanceof ApiError)) return { message: `The page failed: ${error.message}`, code: 'page' };
  const { message, status, code, retryAfter } = error;
  return { message, status, code, retryAfter };
}

function addChunk(reply, chunk) {
  if (chunk.usage) reply.usage = chunk.usage;
  if (chunk.timings) reply.timings = chunk.timings;
  const choice = chunk.choices?.[0];
  if (!choice) return;
  const delta = choice.delta ?? {};
  if (delta.reasoning_content) {
    reply.thinking_started ??= Date.now();
    reply.reasoning_content += delta.reasoning_content;
  }
  if (delta.content) {
    endThinking(reply);
    reply.content += delta.content;
  }
  for (const call of delta.tool_calls ?? []) addCall(reply, call);
  if (choice.finish_reason) reply.finish = choice.finish_reason;
}

function endThinking(reply) {
  if (reply.thinking_started && reply.thinking_s === undefined) {
    reply.thinking_s = (Date.now() - reply.thinking_started) / 1000;
  }
}

function addCall(reply, { index = 0, id, function: part = {} }) {
  endThinking(reply);
  while (reply.tool_calls.length <= index) {
    reply.tool_calls.push({ id: '', type: 'function', function: { name: '', arguments: '' } });
  }
  const call = reply.tool_calls[index];
  if (id) call.id = id;
  if (part.name) call.function.name += part.name;
  if (part.arguments) call.function.arguments += part.arguments;
}
