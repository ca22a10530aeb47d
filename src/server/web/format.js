// Numbers as a person reads them.
export const count = (number) => Number(number).toLocaleString('en');

export function seconds(value) {
  if (value < 10) return `${value.toFixed(1)} s`;
  if (value < 60) return `${Math.round(value)} s`;
  return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
}

const speed = (value) => `${value >= 100 ? count(Math.round(value)) : value.toFixed(1)} tok/s`;

// What an answer cost, as a list of short statements; empty when the server sent nothing about it.
export function costs({ usage, timings }) {
  const parts = [];
  if (usage) {
    const thinking = usage.completion_tokens_details?.reasoning_tokens ?? 0;
    parts.push(`${count(usage.completion_tokens)} tokens` + (thinking ? ` (${count(thinking)} thinking)` : ''));
  }
  if (timings?.decode_tok_s) parts.push(speed(timings.decode_tok_s));
  if (timings?.prefill_tok_s && timings.prefill_tokens) {
    parts.push(`prompt ${count(timings.prefill_tokens)} tokens at ${speed(timings.prefill_tok_s)}`);
  }
  if (usage) {
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    parts.push(`${count(cached)} of ${count(usage.prompt_tokens)} prompt tokens from the cache`);
  }
  if (timings?.queue_s >= 0.1) parts.push(`waited ${seconds(timings.queue_s)}`);
  return parts;
}

// JSON laid out for reading; a text that is none stays as it is.
export function prettyJson(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
