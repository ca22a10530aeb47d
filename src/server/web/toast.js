// A short message at the foot of the page, with one thing to do about it.
import { byId, el } from './dom.js';

export function toast(text, { label, act } = {}) {
  const node = el('div', { class: 'toast' }, el('span', {}, text),
    label && el('button', { type: 'button', on: { click: () => { node.remove(); act(); } } }, label));
  byId('toasts').replaceChildren(node);
  setTimeout(() => node.remove(), 8000);
}
