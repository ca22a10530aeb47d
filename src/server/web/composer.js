// The field for the next message, with the button that sends it or stops the answer.
import { autosize, byId, icon, sendsOnEnter } from './dom.js';

const DRAFT = 'lily.draft';

export class Composer {
  constructor({ onSend, onStop, onEditLast }) {
    this.input = byId('input');
    this.send = byId('send');
    this.stop = byId('stop');
    this.send.append(icon('send'));
    this.stop.append(icon('stop'));
    this.onSend = onSend;
    this.fit = autosize(this.input);
    this.input.value = sessionStorage.getItem(DRAFT) ?? '';
    this.fit();
    this.input.addEventListener('input', () => this.#keep());
    this.input.addEventListener('keydown', (event) => {
      if (event.key !== 'ArrowUp' || this.input.value) return;
      event.preventDefault();
      onEditLast();
    });
    sendsOnEnter(this.input, () => this.#submit());
    byId('composer').addEventListener('submit', (event) => {
      event.preventDefault();
      this.#submit();
    });
    this.stop.addEventListener('click', onStop);
    this.setBusy(false);
  }

  // While an answer is written the next message can be typed, but not sent.
  setBusy(busy) {
    const focused = document.activeElement === this.send || document.activeElement === this.stop;
    this.busy = busy;
    this.send.hidden = busy;
    this.stop.hidden = !busy;
    if (focused) this.input.focus();
    this.#keep();
  }

  focus() {
    this.input.focus();
  }

  #keep() {
    this.send.disabled = !this.input.value.trim();
    sessionStorage.setItem(DRAFT, this.input.value);
  }

  #submit() {
    const text = this.input.value.trim();
    if (!text || this.busy) return;
    this.input.value = '';
    this.fit();
    this.#keep();
    this.onSend(text);
  }
}
