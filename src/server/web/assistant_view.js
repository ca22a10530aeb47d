// An answer: thinking, text, tool calls, what went wrong, and what it cost.
import { action, copyButton, el } from './dom.js';
import { advice } from './error_advice.js';
import { costs, seconds } from './format.js';
import { MarkdownView } from './markdown.js';
import { ToolView } from './tool_view.js';

const ENDS = {
  length: 'The answer was cut: it reached max tokens or the end of the window.',
  content_filter: 'The answer was withheld.',
};

export class AssistantView {
  constructor(message, handlers) {
    this.message = message;
    this.handlers = handlers;
    this.summary = el('summary', {});
    this.thoughts = document.createTextNode('');
    this.thinking = el('details', { class: 'fold thinking', hidden: true }, this.summary, el('div', { class: 'thoughts' }, this.thoughts));
    this.waiting = el('p', { class: 'waiting' });
    this.markdown = new MarkdownView();
    this.tools = new ToolView((results) => handlers.toolResults(message, results));
    this.notes = el('div', { class: 'notes' });
    this.foot = el('div', { class: 'foot' });
    this.node = el('article', { class: 'message assistant', 'aria-label': 'Lily' },
      this.thinking, this.waiting, this.markdown.node, this.tools.node, this.notes, this.foot);
    this.last = false;
    this.ended = false;
    this.update();
  }

  setLast(last) {
    if (this.last === last) return;
    this.last = last;
    this.#showEnd();
  }

  update() {
    const { message } = this;
    // A screen reader waits with this node until it is complete, instead of reading every token.
    this.node.setAttribute('aria-busy', message.partial ? 'true' : 'false');
    this.node.classList.toggle('writing', Boolean(message.partial));
    this.thinking.hidden = !message.reasoning_content;
    const grown = message.reasoning_content.slice(this.thoughts.length);
    if (grown) this.thoughts.appendData(grown);
    this.markdown.update(message.content, !message.partial);
    this.tools.update(message.tool_calls, !message.partial);
    this.tick();
    if (!message.partial && !this.ended) this.#showEnd();
  }

  // Called every second while the answer is being written.
  tick() {
    const { message } = this;
    const since = (start) => seconds(Math.max(0, Math.floor((Date.now() - start) / 1000))).replace('.0', '');
    const thinksNow = message.partial && message.thinking_started && message.thinking_s === undefined;
    if (thinksNow) setText(this.summary, `Thinking… ${since(message.thinking_started)}`);
    else if (message.thinking_s !== undefined) setText(this.summary, `Thought for ${seconds(message.thinking_s)}`);
    const silent = message.partial && !message.reasoning_content && !message.content && !message.tool_calls.length;
    this.waiting.hidden = !silent;
    setText(this.waiting, silent ? `Reading the prompt… ${since(message.started)}` : '');
  }

  #showEnd() {
    const { message, last, handlers } = this;
    if (message.partial) {
      return;
    }
    this.ended = true;
    this.notes.replaceChildren(...[
      message.stopped && el('p', { class: 'quiet' }, 'Stopped.'),
      ENDS[message.finish] && el('p', { class: 'quiet' }, ENDS[message.finish]),
      message.ignored && el('p', { class: 'quiet' }, `The server ignored these settings: ${message.ignored}`),
      message.error && this.#errorBox(),
    ].filter(Boolean));
    this.foot.replaceChildren(...[
      message.content && copyButton(() => message.content, 'Copy this answer'),
      last && !message.error && action('redo', 'Regenerate this answer', handlers.regenerate),
      el('ul', { class: 'costs', 'aria-label': 'Speeds' }, costs(message).map((text) => el('li', {}, text))),
    ].filter(Boolean));
    if (last && !message.stopped && !message.error && message.tool_calls.length) this.tools.askForResults(message.tool_calls);
    else this.tools.stopAsking();
  }

  #errorBox() {
    const { error } = this.message;
    return el('div', { class: 'error', role: 'alert' },
      el('p', {}, el('strong', {}, error.message)), el('p', {}, advice(error)),
      this.last && el('button', { type: 'button', class: 'retry', on: { click: this.handlers.retry } }, 'Retry'));
  }
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
