// A message of the person, which can be edited in place, or the result of a tool.
import { action, autosize, copyButton, el, sendsOnEnter } from './dom.js';
import { prettyJson } from './format.js';

export class UserView {
  constructor(message, handlers) {
    this.message = message;
    this.handlers = handlers;
    const tool = message.role === 'tool';
    this.node = el('article', {
      class: tool ? 'message tool' : 'message user', 'aria-label': tool ? `Result of ${message.name}` : 'You',
    });
    this.#show();
  }

  update() {}
  tick() {}
  setLast() {}

  #show() {
    const { message } = this;
    if (message.role === 'tool') {
      this.node.replaceChildren(
        el('details', { class: 'fold' },
          el('summary', {}, `Result of ${message.name}`), el('pre', { tabindex: '0' }, prettyJson(message.content))));
      return;
    }
    this.node.replaceChildren(
      el('div', { class: 'bubble' }, message.content),
      el('div', { class: 'foot' },
        copyButton(() => message.content, 'Copy this message'),
        action('edit', 'Edit this message', () => this.edit())));
  }

  edit() {
    const following = this.handlers.startEdit(this);  // how many messages come after this one; null while one is written
    if (following === null) return;
    const area = el('textarea', { class: 'edit', 'aria-label': 'Edit your message' });
    area.value = this.message.content;
    const cancel = () => {
      this.handlers.endEdit();
      this.#show();
      this.node.querySelector('.action:last-child')?.focus();
    };
    const send = () => {
      if (!area.value.trim()) return;
      this.handlers.endEdit();
      this.handlers.edited(this.message, area.value);
    };
    sendsOnEnter(area, send);
    area.addEventListener('keydown', (event) => {
      if (event.key !== 'Escape') return;
      event.stopPropagation();
      cancel();
    });
    const drops = following === 1 ? 'the message below' : `the ${following} messages below`;
    this.node.replaceChildren(area,
      el('div', { class: 'buttons' },
        following > 0 && el('span', { class: 'quiet', role: 'status' }, `Sending drops ${drops}.`),
        el('button', { type: 'button', on: { click: cancel } }, 'Cancel'),
        el('button', { type: 'button', class: 'primary', on: { click: send } }, 'Send')));
    autosize(area)();
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
  }
}
