// Markdown of the model to nodes. The text is hostile: HTML in it is shown as text, what marked makes of the rest goes
// through DOMPurify, and only the tags and attributes listed here come out.
import { el } from './dom.js';
import { CodeBlock } from './code_block.js';

const { marked, DOMPurify } = window;

// Tags that models write into tables and lists, and that can do nothing without attributes.
const PLAIN_TAGS = /&lt;(\/?)(br|sub|sup|kbd|b|i|u|s|em|strong|mark|small)\s*(\/?)&gt;/gi;

const escape = (text) => text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;').replace(/"/g, '&quot;');

const renderer = {
  html: (html) => escape(html).replace(PLAIN_TAGS, '<$1$2$3>'),
  // Pictures would be fetched from other hosts, which learn of the conversation: their description stands for them.
  image: (href, title, text) => `<em>[picture: ${text || escape(title || 'without description')}]</em>`,
  checkbox: (checked) => (checked ? '☑ ' : '☐ '),
};
marked.use({ renderer, gfm: true, breaks: false, headerIds: false, mangle: false, silent: false });

const PURIFY = {
  ALLOWED_TAGS: ['p', 'br', 'hr', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'ul', 'ol', 'li', 'blockquote', 'pre', 'code', 'em',
    'strong', 'del', 's', 'b', 'i', 'u', 'a', 'sub', 'sup', 'kbd', 'mark', 'small', 'table', 'thead', 'tbody', 'tr', 'th', 'td'],
  ALLOWED_ATTR: ['href', 'title', 'align', 'start', 'class'],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};
DOMPurify.addHook('uponSanitizeAttribute', (node, data) => {
  if (data.attrName === 'class' && !/^language-[\w+#.-]+$/.test(data.attrValue)) data.keepAttr = false;
});
DOMPurify.addHook('afterSanitizeAttributes', (node) => {
  if (node.nodeName !== 'A') return;
  node.setAttribute('target', '_blank');
  node.setAttribute('rel', 'noopener noreferrer');
});

// Shows a growing text. Blocks that did not change keep their nodes, so that a long answer costs no more a frame than
// its last block, and a selection in it survives.
export class MarkdownView {
  constructor() {
    this.node = el('div', { class: 'markdown' });
    this.blocks = [];  // {key, node, code}
  }

  update(text, complete) {
    let tokens;
    try {
      tokens = marked.lexer(text);
    } catch {
      tokens = Object.assign([{ type: 'plain', raw: text }], { links: {} });  // nested too deeply for the parser
    }
    // A link's target may come after the link: it is part of what a block looks like.
    const links = Object.keys(tokens.links).length ? JSON.stringify(tokens.links) : '';
    const shown = tokens.filter((token) => token.type !== 'space' && token.type !== 'def');
    shown.forEach((token, at) => {
      const growing = !complete && at === shown.length - 1;
      this.#show(at, token, growing, `${token.type}${growing ? '…' : ''}${links}\n${token.raw}`);
    });
    for (const { node } of this.blocks.splice(shown.length)) node.remove();
  }

  #show(at, token, growing, key) {
    const old = this.blocks[at];
    if (old?.key === key) return;
    if (old?.code && token.type === 'code' && old.code.language === languageOf(token)) {
      old.code.update(token.text, growing);
      old.key = key;
      return;
    }
    const block = { key, node: el('div', { class: 'block' }) };
    if (token.type === 'code') {
      block.code = new CodeBlock(languageOf(token), token.text, growing);
      block.node.append(block.code.node);
    } else {
      block.node.append(render(token));
    }
    if (old) old.node.replaceWith(block.node);
    else this.node.append(block.node);
    this.blocks[at] = block;
  }
}

const languageOf = (token) => (token.lang ?? '').trim().split(/\s+/)[0];

function render(token) {
  if (token.type === 'plain') return el('p', { class: 'plain' }, token.raw);
  let fragment;
  try {
    fragment = DOMPurify.sanitize(marked.parser([token]), PURIFY);
  } catch {
    return el('p', { class: 'plain' }, token.raw);
  }
  for (const pre of fragment.querySelectorAll('pre')) {  // code inside a list or a quotation
    const code = pre.querySelector('code');
    const language = code?.className.replace(/^language-/, '') ?? '';
    pre.replaceWith(new CodeBlock(language, (code ?? pre).textContent.replace(/\n$/, ''), false).node);
  }
  for (const table of fragment.querySelectorAll('table')) {  // a wide one scrolls by itself, by keyboard too
    const frame = el('div', { class: 'table', tabindex: '0', role: 'region', 'aria-label': 'Table' });
    table.replaceWith(frame);
    frame.append(table);
  }
  return fragment;
}
