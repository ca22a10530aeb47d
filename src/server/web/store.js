// Chats in localStorage, one record each under its own name, so that two tabs do not overwrite each other's list.
const PREFIX = 'lily.chat.';
const fallback = new Map();  // where the browser stores nothing

const storage = (() => {
  try {
    return window.localStorage;
  } catch {
    return null;
  }
})();

export function newChat() {
  const bytes = crypto.getRandomValues(new Uint8Array(8));
  const id = Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
  return { id, title: '', created: Date.now(), updated: Date.now(), messages: [] };
}

// {id, title, updated} of every chat, the latest first.
export function listChats() {
  const chats = [...fallback.values()].map((text) => parse(text));
  for (let at = 0; storage && at < storage.length; ++at) {
    const name = storage.key(at);
    if (name.startsWith(PREFIX)) chats.push(parse(storage.getItem(name)));
  }
  return chats.filter(Boolean).map(({ id, title, updated }) => ({ id, title, updated }))
    .sort((a, b) => b.updated - a.updated);
}

export function loadChat(id) {
  const chat = parse(fallback.get(id) ?? storage?.getItem(PREFIX + id));
  for (const message of chat?.messages ?? []) {
    if (!message.partial) continue;
    delete message.partial;  // the page went away while this answer was being written
    message.stopped = true;
  }
  return chat;
}

// False when the browser has no room: the chat is then kept until the page closes.
export function saveChat(chat) {
  const text = JSON.stringify(chat);
  try {
    storage.setItem(PREFIX + chat.id, text);
    fallback.delete(chat.id);
    return true;
  } catch {
    fallback.set(chat.id, text);
    return false;
  }
}

export function removeChat(id) {
  fallback.delete(id);
  storage?.removeItem(PREFIX + id);
}

// Calls back with the id of a chat that another tab changed or removed.
export function onForeignChange(callback) {
  window.addEventListener('storage', (event) => {
    if (event.key?.startsWith(PREFIX)) callback(event.key.slice(PREFIX.length));
  });
}

// What was stored may be from another version, or damaged: anything without the right shape counts as absent.
function parse(text) {
  try {
    const chat = JSON.parse(text);
    return typeof chat.id === 'string' && Array.isArray(chat.messages) ? chat : null;
  } catch {
    return null;
  }
}
