// What is sent to the server: the settings that are set, and the conversation.
import { NUMBERS, parseTools } from './settings.js';

export function requestBody(settings, messages, model) {
  const body = { messages: history(settings, messages), stream: true, stream_options: { include_usage: true } };
  if (model) body.model = model;
  for (const { name } of NUMBERS) if (typeof settings[name] === 'number') body[name] = settings[name];
  const template = {};
  for (const name of ['enable_thinking', 'preserve_thinking']) {
    if (typeof settings[name] === 'boolean') template[name] = settings[name];
  }
  if (Object.keys(template).length) body.chat_template_kwargs = template;
  const tools = parseTools(settings.tools);
  if (tools.length) body.tools = tools;
  return body;
}

function history(settings, messages) {
  const sent = messages.map(toWire).filter(Boolean);
  return settings.system.trim() ? [{ role: 'system', content: settings.system }, ...sent] : sent;
}

// Thinking goes back with its answer: that is what lets the server find the conversation in its cache.
function toWire(message) {
  if (message.role === 'user') return { role: 'user', content: message.content };
  if (message.role === 'tool') return { role: 'tool', tool_call_id: message.tool_call_id, content: message.content };
  const calls = (message.tool_calls ?? []).filter((call) => isComplete(message, call));
  if (!message.content && !message.reasoning_content && !calls.length) return null;  // failed before it said a word
  const wire = { role: 'assistant', content: message.content };
  if (message.reasoning_content) wire.reasoning_content = message.reasoning_content;
  if (calls.length) wire.tool_calls = calls;
  return wire;
}

// A call that was cut while its arguments were being written was never made.
export function isComplete(message, call) {
  if (message.finish === 'tool_calls') return true;
  try {
    return typeof JSON.parse(call.function.arguments) === 'object';
  } catch {
    return false;
  }
}
