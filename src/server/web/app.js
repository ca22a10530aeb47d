// The page: joins the stored chats, the settings and the server to what is on the screen.
import { listModels } from './api.js';
import { Composer } from './composer.js';
import { byId, el, icon } from './dom.js';
import { count } from './format.js';
import { askForKey } from './key_dialog.js';
import { newReply, receive } from './reply.js';
import { requestBody } from './request.js';
import { applyTheme, loadSettings, saveSettings } from './settings.js';
import { openSettings } from './settings_dialog.js';
import { Sidebar } from './sidebar.js';
import { listChats, loadChat, newChat, onForeignChange, removeChat, saveChat } from './store.js';
import { Thread } from './thread.js';
import { toast } from './toast.js';

const SAVE_EVERY_MS = 1000;

let settings = loadSettings();
let models = [];
let chat = newChat();       // the one on the screen
const running = new Map();  // id → {chat, reply, abort}: answers go on being written while another chat is shown
let savedAt = 0;
let toldFull = false;         // that the browser has no room
let leaving = false;           // the page is being left: its requests fail, which is no failure of the server

const thread = new Thread({
  root: byId('thread'), scroller: byId('scroller'), toEnd: byId('to-end'),
  handlers: {
    busy: () => running.has(chat.id),
    regenerate: answerAgain,
    retry: retry,
    edited: (message, text) => {
      chat.messages.splice(chat.messages.indexOf(message));
      say(text);
    },
    toolResults: (message, results) => {
      message.tool_calls.forEach((call, at) => {
        chat.messages.push({ role: 'tool', tool_call_id: call.id, name: call.function.name, content: results[at] });
      });
      answer(chat);
    },
  },
});
const composer = new Composer({ onSend: say, onStop: stop, onEditLast: () => thread.editLast() });
const sidebar = new Sidebar({ onNew: startNewChat, onDelete: deleteChat });

// --- the conversation

function say(text) {
  if (running.has(chat.id)) return;
  chat.messages.push({ role: 'user', content: text });
  if (!chat.title) chat.title = text.replace(/\s+/g, ' ').slice(0, 80);
  answer(chat);
}

async function answer(target) {
  let body;
  try {
    body = requestBody(settings, target.messages, currentModel()?.id);
  } catch (error) {
    toast(`The tools in the settings are no valid JSON: ${error.message}`, { label: 'Settings', act: showSettings });
    refresh();
    return;
  }
  const reply = newReply();
  const abort = new AbortController();
  target.messages.push(reply);
  running.set(target.id, { chat: target, reply, abort });
  save(target);
  if (location.hash !== `#${target.id}`) history.pushState(null, '', `#${target.id}`);
  refresh();
  thread.scrollToEnd();
  byId('status').textContent = 'Lily is answering.';
  await receive(reply, body, abort.signal, () => {
    if (target === chat) thread.changed(reply);
    if (Date.now() - savedAt > SAVE_EVERY_MS) save(target);
  });
  running.delete(target.id);
  if (!abort.signal.reason?.deleted) save(target);
  if (target === chat) thread.render(reply);
  refresh();
  byId('status').textContent = reply.error ? 'The answer failed.' : reply.stopped ? 'Stopped.' : 'The answer is complete.';
  if (reply.error?.status === 401 && target === chat) retry();
}

function stop() {
  running.get(chat.id)?.abort.abort();
}

// The last answer is dropped and asked for again.
function answerAgain() {
  if (running.has(chat.id)) return;
  while (chat.messages.at(-1)?.role === 'assistant') chat.messages.pop();
  answer(chat);
}

async function retry() {
  const target = chat;
  if (chat.messages.at(-1)?.error?.status === 401 && !(await askForKey())) return;
  if (target !== chat) return;
  if (!models.length) connect();
  answerAgain();
}

function save(target) {
  if (leaving) return;
  savedAt = Date.now();
  target.updated = savedAt;
  const kept = saveChat(target);
  if (!kept && !toldFull) {
    toast('This browser has no room for the chat: it is kept until the page closes. Export it, or delete others.',
      { label: 'Export', act: () => exportChat(target) });
  }
  toldFull = !kept;
}

// --- chats

function openChat(next) {
  chat = next;
  thread.show([]);  // views belong to one chat's objects
  refresh();
  thread.scrollToEnd();
  focusComposer();
}

function openFromAddress() {
  const id = location.hash.slice(1);
  if (id === chat.id) return;
  openChat(running.get(id)?.chat ?? loadChat(id) ?? newChat());
}

function startNewChat() {
  history.pushState(null, '', location.pathname + location.search);
  sidebar.setOpen(false);
  openChat(newChat());
}

function deleteChat(id) {
  const gone = running.get(id)?.chat ?? loadChat(id);
  running.get(id)?.abort.abort({ deleted: true });
  removeChat(id);
  if (id === chat.id) startNewChat();
  else refresh();
  if (gone) {
    toast(`Deleted “${gone.title.slice(0, 40)}”.`, { label: 'Undo', act: () => { saveChat(gone); refresh(); } });
  }
}

function exportChat(target) {
  const blob = new Blob([JSON.stringify({ ...target, settings }, null, 2)], { type: 'application/json' });
  const address = URL.createObjectURL(blob);
  const name = target.title.replace(/[^\p{L}\p{N}]+/gu, '-').slice(0, 40) || 'chat';
  el('a', { href: address, download: `lily-${name}.json` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

// --- the server

const currentModel = () => models.find(({ id }) => id === settings.model) ?? models[0];

async function connect() {
  try {
    models = await listModels();
  } catch (error) {
    byId('model-name').textContent = error.message;
    if (error.status === 401 && await askForKey()) await connect();
    return;
  }
  refresh();
}

function showModel() {
  const model = currentModel();
  if (!model) return;
  byId('model-name').textContent = model.max_model_len ? `${model.id} · ${count(model.max_model_len)} tokens` : model.id;
  const choice = byId('model-choice');
  choice.hidden = models.length < 2;
  choice.replaceChildren(...models.map(({ id }) => el('option', { value: id }, id)));
  choice.value = model.id;
}

// --- what is on the screen

function refresh() {
  const title = chat.title || 'New chat';
  thread.show(chat.messages);
  document.body.classList.toggle('empty', chat.messages.length === 0);
  byId('chat-title').textContent = title;
  document.title = chat.title ? `${title} · Lily` : 'Lily';
  byId('export').disabled = chat.messages.length === 0;
  composer.setBusy(running.has(chat.id));
  if (document.activeElement === document.body) focusComposer();  // the button that had the focus is gone
  sidebar.show(listChats(), chat.id, (id) => running.has(id));
  showModel();
  showFill();
}

// How much of the model's window the conversation takes.
function showFill() {
  const usage = chat.messages.findLast((message) => message.usage)?.usage;
  const limit = currentModel()?.max_model_len;
  byId('hint').textContent = usage && limit
    ? `${count(usage.prompt_tokens + usage.completion_tokens)} of ${count(limit)} tokens of the window in use` : '';
}

// Not on a touch screen, where it would bring up the keyboard over the conversation.
function focusComposer() {
  if (!matchMedia('(pointer: coarse)').matches && !document.querySelector('dialog[open]')) composer.focus();
}

function showSettings() {
  openSettings(settings, (changed) => {
    settings = changed;
    saveSettings(settings);
    applyTheme(settings);
  });
}

function onKey(event) {
  if (document.querySelector('dialog[open]')) return;
  const typing = /^(TEXTAREA|INPUT|SELECT)$/.test(event.target.tagName);
  if (event.key === 'Escape') {
    if (sidebar.isOpen) sidebar.setOpen(false);
    else stop();
  } else if ((event.ctrlKey || event.metaKey) && event.shiftKey && event.code === 'KeyO') {
    event.preventDefault();
    startNewChat();
  } else if (event.key === '/' && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    composer.focus();
  }
}

applyTheme(settings);
byId('open-settings').append(icon('settings'));
byId('open-settings').addEventListener('click', showSettings);
byId('export').append(icon('download'));
byId('export').addEventListener('click', () => exportChat(chat));
byId('model-choice').addEventListener('change', ({ target }) => {
  settings.model = target.value;
  saveSettings(settings);
  refresh();
});
document.addEventListener('keydown', onKey);
window.addEventListener('popstate', openFromAddress);
window.addEventListener('hashchange', openFromAddress);
window.addEventListener('beforeunload', () => {
  running.forEach((turn) => save(turn.chat));
  leaving = true;
  setTimeout(() => { leaving = false; }, 2000);  // when it stays after all
});
onForeignChange((id) => {
  const stored = id === chat.id && !running.has(id) && loadChat(id);
  if (stored) chat = stored;
  refresh();
});
openFromAddress();
connect();
