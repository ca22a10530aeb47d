// A block of code with its language, a copy button and, once it is complete, colours.
import { copyButton, el } from './dom.js';
import { highlight } from './highlighter.js';

export class CodeBlock {
  constructor(language, text, growing) {
    this.language = language;
    this.code = el('code', {});
    this.node = el('div', { class: 'code' },
      el('div', { class: 'code-head' }, el('span', {}, language || 'text'), copyButton(() => this.text, 'Copy this code')),
      el('pre', { tabindex: '0', 'aria-label': language ? `Code in ${language}` : 'Code' }, this.code));
    this.update(text, growing);
  }

  update(text, growing) {
    if (text !== this.text) this.code.replaceChildren(text);
    this.text = text;
    if (growing || !this.language) return;
    highlight(this.language, text).then((coloured) => {
      // The block may have changed meanwhile, and colours may never change the text.
      if (coloured && this.text === text && coloured.textContent === text) this.code.replaceChildren(coloured);
    });
  }
}
