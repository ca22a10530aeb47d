// Builds elements from data. Text goes in as text: no string here ever becomes HTML.
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === 'class') node.className = value;
    else if (name === 'on') for (const [type, handler] of Object.entries(value)) node.addEventListener(type, handler);
    else node.setAttribute(name, value === true ? '' : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const byId = (id) => document.getElementById(id);

const SHAPES = {
  menu: 'M4 6h16M4 12h16M4 18h16',
  settings: 'M4 8h9M19 8h1M4 16h1M11 16h9M16 5v6M8 13v6',
  download: 'M12 4v11m-5-5 5 5 5-5M5 20h14',
  copy: 'M9 9h11v11H9zM5 15H4V4h11v1',
  done: 'M5 13l4 4L19 7',
  redo: 'M20 11a8 8 0 1 0-2.3 6.3M20 4v7h-7',
  edit: 'M4 20h4L19 9l-4-4L4 16zM13 7l4 4',
  trash: 'M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13',
  send: 'M12 20V5M6 11l6-6 6 6',
  stop: 'M7 7h10v10H7z',
  tool: 'M14.5 6.5a4 4 0 0 0-5 5L4 17v3h3l5.5-5.5a4 4 0 0 0 5-5L15 12l-3-3z',
};

export function icon(name) {
  const space = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(space, 'svg');
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.setAttribute('class', 'icon');
  svg.setAttribute('aria-hidden', 'true');
  const path = document.createElementNS(space, 'path');
  path.setAttribute('d', SHAPES[name]);
  svg.append(path);
  return svg;
}

// A button that shows an icon, and a word where there is room for it.
export function action(iconName, label, handler, { word = '', ...props } = {}) {
  return el('button', { type: 'button', class: 'action', 'aria-label': label, title: label, on: { click: handler }, ...props },
    icon(iconName), word && el('span', {}, word));
}

export function copyButton(textOf, label) {
  const button = action('copy', label, async () => {
    const done = await copyText(textOf());
    button.replaceChildren(done ? icon('done') : icon('copy'), el('span', {}, done ? 'Copied' : 'Not copied'));
    setTimeout(() => button.replaceChildren(icon('copy')), 1500);
  });
  return button;
}

// The clipboard's own interface exists only on https and on this machine; from another one in the house the old way is
// all there is.
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = el('textarea', { class: 'visually-hidden', readonly: true });
    area.value = text;
    const before = document.activeElement;
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    before?.focus();
    return done;
  }
}

// Grows a text area with its text, up to the height that the style sheet allows.
export function autosize(area) {
  const fit = () => {
    area.style.height = 'auto';
    area.style.height = `${area.scrollHeight + area.offsetHeight - area.clientHeight}px`;
  };
  area.addEventListener('input', fit);
  return fit;
}

// Enter sends and Shift+Enter breaks the line, but not while an input method composes a character.
export function sendsOnEnter(area, send) {
  area.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
}
