// What a person can do about a failure, by what the server said.
export function advice({ status, code, retryAfter }) {
  if (code === 'unreachable') return 'Is the server still running, and this machine still connected to it? Then retry.';
  if (code === 'connection') return 'What had arrived is kept. Retry asks for the answer again.';
  if (code === 'context_length_exceeded') return 'Start a new chat, edit an earlier message to drop what follows it, or serve the model with a longer window.';
  if (code === 'page') return 'Reload the page, then retry. The chat is kept.';
  if (status === 400 || status === 422) return 'Change the settings or the message that is named, then retry.';
  if (status === 401 || status === 403) return 'Retry asks for the API key.';
  if (status === 404) return 'Choose the model that the server names, then retry.';
  if (status === 413) return 'The conversation is too large to send. Start a new chat.';
  if (status === 429) return retryAfter ? `The server is busy. Retry in ${retryAfter} s.` : 'The server is busy. Retry in a moment.';
  if (status === 503) return 'The server is not ready, or its worker has stopped. Look at its log, then retry.';
  if (status >= 500) return 'The server failed. Its log says why. Retry may work.';
  return 'Retry asks for the answer again.';
}
