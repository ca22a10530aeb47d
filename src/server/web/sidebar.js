// The list of chats. On a narrow screen it is a drawer over the page.
import { action, byId, el, icon } from './dom.js';

export class Sidebar {
  constructor({ onNew, onDelete }) {
    this.onDelete = onDelete;
    this.menu = byId('menu');
    this.menu.append(icon('menu'));
    this.menu.addEventListener('click', () => this.setOpen(true));
    byId('shade').addEventListener('click', () => this.setOpen(false));
    byId('new-chat').addEventListener('click', onNew);
    matchMedia('(max-width: 800px)').addEventListener('change', () => this.setOpen(false));
  }

  get isOpen() {
    return document.body.classList.contains('drawer');
  }

  setOpen(open) {
    if (open === this.isOpen) return;
    document.body.classList.toggle('drawer', open);
    byId('shade').hidden = !open;
    byId('page').inert = open;  // the keyboard stays in the drawer
    this.menu.setAttribute('aria-expanded', String(open));
    if (open) byId('new-chat').focus();
    else this.menu.focus();
  }

  show(chats, currentId, isRunning) {
    const rows = chats.map(({ id, title }) => el('li', {},
      el('a', { href: `#${id}`, 'aria-current': id === currentId && 'page', title, on: { click: () => this.setOpen(false) } },
        title, isRunning(id) && el('span', { class: 'dot', role: 'img', 'aria-label': 'writing' })),
      action('trash', `Delete ${title}`, () => this.onDelete(id))));
    byId('chats').replaceChildren(el('ul', {}, rows));
  }
}
