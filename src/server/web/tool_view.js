// The tool calls of an answer, and the fields for their results.
import { CodeBlock } from './code_block.js';
import { autosize, el, icon, sendsOnEnter } from './dom.js';
import { prettyJson } from './format.js';

export class ToolView {
  constructor(sendResults) {
    this.node = el('div', { class: 'calls' });
    this.sendResults = sendResults;
    this.calls = [];
    this.form = null;
  }

  update(calls, complete) {
    calls.forEach((call, at) => {
      this.calls[at] ??= this.#add();
      const { name, code } = this.calls[at];
      if (name.textContent !== call.function.name) name.textContent = call.function.name;
      code.update(complete ? prettyJson(call.function.arguments) : call.function.arguments, !complete);
    });
  }

  #add() {
    const name = el('strong', {});
    const code = new CodeBlock('json', '', true);
    this.node.append(el('section', { class: 'call', 'aria-label': 'Tool call' },
      el('p', { class: 'call-name' }, icon('tool'), 'calls ', name), code.node));
    return { name, code };
  }

  // The results are typed by the person: this page runs no tool.
  askForResults(calls) {
    if (this.form) return;
    const areas = calls.map((call, at) => {
      const label = calls.length > 1 ? `Result of ${call.function.name} (${at + 1} of ${calls.length})` : `Result of ${call.function.name}`;
      return el('textarea', { rows: '2', 'aria-label': label, placeholder: label });
    });
    const send = () => {
      const empty = areas.find((area) => !area.value.trim());
      if (empty) empty.focus();
      else this.sendResults(areas.map((area) => area.value));
    };
    for (const area of areas) {
      sendsOnEnter(area, send);
      autosize(area);
    }
    this.form = el('form', { class: 'results', on: { submit: (event) => { event.preventDefault(); send(); } } }, areas,
      el('div', { class: 'buttons' },
        el('button', { type: 'submit', class: 'primary' }, calls.length > 1 ? 'Send the results' : 'Send the result')));
    this.node.append(this.form);
  }

  stopAsking() {
    this.form?.remove();
    this.form = null;
  }
}
