// The settings: plain data in localStorage. A blank one is not sent, so that the server's default holds.
const NAME = 'lily.settings';

export const NUMBERS = [
  { name: 'temperature', label: 'Temperature', min: 0, max: 5, step: 'any', help: '0 takes the likeliest token' },
  { name: 'top_p', label: 'Top p', min: 0, max: 1, step: 'any', help: 'keeps the likeliest tokens of this total' },
  { name: 'top_k', label: 'Top k', min: 0, step: 1, help: 'keeps this many tokens' },
  { name: 'min_p', label: 'Min p', min: 0, max: 1, step: 'any', help: 'drops what is rarer than this part of the best' },
  { name: 'max_tokens', label: 'Max tokens', min: 1, step: 1, help: 'ends the answer, thinking included' },
  { name: 'seed', label: 'Seed', step: 1, help: 'the same seed gives the same text' },
];
export const SWITCHES = [
  { name: 'enable_thinking', label: 'Thinking', help: 'the model thinks before it answers' },
  { name: 'preserve_thinking', label: 'Keep thinking', help: 'earlier thinking stays in the prompt; cheapest with the cache' },
];
export const EXAMPLE_TOOLS = [{
  type: 'function',
  function: {
    name: 'get_weather',
    description: 'The weather at a place now',
    parameters: {
      type: 'object',
      properties: { city: { type: 'string' }, unit: { type: 'string', enum: ['celsius', 'fahrenheit'] } },
      required: ['city'],
    },
  },
}];

const DEFAULTS = { system: '', tools: '', model: '', theme: '' };

export function loadSettings() {
  try {
    return { ...DEFAULTS, ...JSON.parse(localStorage.getItem(NAME)) };
  } catch {
    return { ...DEFAULTS };
  }
}

export function saveSettings(settings) {
  try {
    localStorage.setItem(NAME, JSON.stringify(settings));
  } catch {
    // they hold until the page closes
  }
}

export function applyTheme({ theme }) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

// The list of tools that the text describes; throws an Error that says what is wrong with it.
export function parseTools(text) {
  if (!text.trim()) return [];
  const tools = JSON.parse(text);
  if (!Array.isArray(tools)) throw new Error('expected a list: [ { "type": "function", "function": { … } } ]');
  tools.forEach((tool, index) => {
    if (tool?.type !== 'function' || typeof tool.function?.name !== 'string' || !tool.function.name) {
      throw new Error(`entry ${index + 1}: expected { "type": "function", "function": { "name": … } }`);
    }
  });
  return tools;
}
