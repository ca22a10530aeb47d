// The settings as a form. onSave gets the new ones when the person saves.
import { byId, el } from './dom.js';
import { currentKey, forgetKey } from './key.js';
import { askForKey } from './key_dialog.js';
import { EXAMPLE_TOOLS, NUMBERS, SWITCHES, parseTools } from './settings.js';

export function openSettings(settings, onSave) {
  const dialog = byId('settings');
  const system = el('textarea', { id: 'set-system', rows: '4', placeholder: 'You are a helpful assistant.' });
  system.value = settings.system;
  const numbers = NUMBERS.map((number) => numberField(number, settings[number.name]));
  const switches = SWITCHES.map((each) => choice(each, [['', 'as the model has it'], ['on', 'on'], ['off', 'off']],
    settings[each.name] === undefined ? '' : settings[each.name] ? 'on' : 'off'));
  const theme = choice({ name: 'theme', label: 'Colours' }, [['', 'as the system has it'], ['light', 'light'], ['dark', 'dark']], settings.theme);
  const tools = toolsField(settings.tools);

  const save = (event) => {
    event.preventDefault();
    if (!tools.check()) return;
    const changed = { ...settings, system: system.value, tools: tools.area.value, theme: theme.input.value };
    for (const { name, input } of numbers) changed[name] = input.value === '' ? undefined : Number(input.value);
    for (const { name, input } of switches) changed[name] = input.value === '' ? undefined : input.value === 'on';
    onSave(changed);
    dialog.close();
  };
  dialog.replaceChildren(el('form', { on: { submit: save } },
    el('div', { class: 'fields' },
      el('h2', { id: 'settings-title' }, 'Settings'),
      el('p', { class: 'quiet' }, 'They hold for every chat from the next answer on. A blank one leaves the choice to the server.'),
      el('label', { for: 'set-system' }, 'System prompt'), system,
      el('fieldset', {}, el('legend', {}, 'Sampling'), el('div', { class: 'grid' }, numbers.map(({ node }) => node))),
      el('fieldset', {}, el('legend', {}, 'Thinking'), el('div', { class: 'grid' }, switches.map(({ node }) => node))),
      tools.node,
      el('fieldset', {}, el('legend', {}, 'This page'), el('div', { class: 'grid' }, theme.node, keyField(dialog)))),
    el('div', { class: 'buttons' },
      el('button', { type: 'button', on: { click: () => dialog.close() } }, 'Cancel'),
      el('button', { type: 'submit', class: 'primary' }, 'Save'))));
  dialog.showModal();
}

function numberField({ name, label, help, ...limits }, value) {
  const input = el('input', {
    type: 'number', id: `set-${name}`, placeholder: 'default', 'aria-describedby': `help-${name}`, ...limits,
  });
  if (value !== undefined) input.value = value;
  return { name, input, node: field(name, label, help, input) };
}

function choice({ name, label, help }, options, value) {
  const input = el('select', { id: `set-${name}`, 'aria-describedby': help && `help-${name}` },
    options.map(([key, text]) => el('option', { value: key }, text)));
  input.value = value;
  return { name, input, node: field(name, label, help, input) };
}

function field(name, label, help, input) {
  return el('div', {}, el('label', { for: `set-${name}` }, label), input,
    help && el('p', { id: `help-${name}`, class: 'quiet' }, help));
}

function toolsField(text) {
  const area = el('textarea', { id: 'set-tools', rows: '6', class: 'mono', spellcheck: 'false', 'aria-describedby': 'help-tools tools-error' });
  const error = el('p', { id: 'tools-error', class: 'warning', role: 'alert' });
  area.value = text;
  const check = () => {
    try {
      parseTools(area.value);
      error.textContent = '';
    } catch (problem) {
      error.textContent = `Not a list of tools: ${problem.message}`;
      area.focus();
    }
    return !error.textContent;
  };
  area.addEventListener('change', check);
  const example = el('button', {
    type: 'button', on: { click: () => { area.value = JSON.stringify(EXAMPLE_TOOLS, null, 2); check(); } },
  }, 'Insert an example');
  return {
    area, check,
    node: el('fieldset', {}, el('legend', {}, 'Tools'),
      el('label', { for: 'set-tools' }, 'Definitions as JSON'), area, error,
      el('p', { id: 'help-tools', class: 'quiet' }, 'The page runs no tool: it shows the call and lets you type the result.'),
      el('div', { class: 'buttons' }, example)),
  };
}

function keyField(dialog) {
  const button = el('button', {
    type: 'button',
    on: {
      click: () => {
        if (currentKey()) {
          forgetKey();
          button.textContent = 'Enter a key';
        } else {
          dialog.close();
          askForKey();
        }
      },
    },
  }, currentKey() ? 'Forget the key' : 'Enter a key');
  return el('div', {}, el('span', { class: 'label' }, 'API key'), button);
}
