// Asks for the API key. Resolves to true when one was given, to false when the person closed the dialog.
import { byId, el } from './dom.js';
import { currentKey, setKey } from './key.js';

let open = null;  // the answer awaited, so that two failed requests ask once

export function askForKey() {
  open ??= ask().finally(() => { open = null; });
  return open;
}

function ask() {
  const refused = currentKey() !== '';
  const input = el('input', {
    type: 'password', id: 'key-input', autocomplete: 'off', spellcheck: 'false', required: true,
    pattern: '[ -~]+', title: 'letters, digits and signs of ASCII',
  });
  const remember = el('input', { type: 'checkbox', id: 'key-remember' });
  const dialog = byId('key');
  return new Promise((resolve) => {
    let given = false;
    const form = el('form', {
      on: {
        submit: (event) => {
          event.preventDefault();
          const key = input.value.trim();
          if (!key) return;
          given = true;
          setKey(key, remember.checked);
          dialog.close();
        },
      },
    },
    el('h2', { id: 'key-title' }, 'API key'),
    el('p', refused ? { class: 'warning', role: 'alert' } : {},
      refused ? 'The server did not accept this key.' : 'This server asks for the key that it was started with.'),
    el('label', { for: 'key-input' }, 'Key'), input,
    el('label', { class: 'check' }, remember, 'Remember it in this browser (otherwise until the tab closes)'),
    el('div', { class: 'buttons' },
      el('button', { type: 'button', on: { click: () => dialog.close() } }, 'Cancel'),
      el('button', { type: 'submit', class: 'primary' }, 'Use this key')));
    dialog.replaceChildren(form);
    dialog.addEventListener('close', () => resolve(given), { once: true });
    dialog.showModal();
    input.focus();
  });
}
