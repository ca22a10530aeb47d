// The conversation on the page: one view a message, of which only the one being written changes.
import { AssistantView } from './assistant_view.js';
import { UserView } from './user_view.js';

const NEAR_END = 60;  // pixels from the end at which the page follows the text

export class Thread {
  constructor({ root, scroller, toEnd, handlers }) {
    Object.assign(this, { root, scroller, toEnd, handlers });
    this.views = [];
    this.editing = null;
    this.follows = true;
    this.pending = 0;     // the frame or timer that will render
    this.renderMs = 0;    // what the last rendering took
    this.clock = setInterval(() => this.views.at(-1)?.tick(), 1000);
    this.viewHandlers = {
      ...handlers, startEdit: (view) => this.#startEdit(view), endEdit: () => this.#endEdit(),
    };
    scroller.addEventListener('scroll', () => this.#scrolled(), { passive: true });
    toEnd.addEventListener('click', () => this.scrollToEnd());
    new ResizeObserver(() => this.follows && this.scrollToEnd()).observe(scroller);
  }

  // Makes the views those of these messages, keeping the nodes of the messages that stay.
  show(messages) {
    let same = 0;
    while (same < messages.length && this.views[same]?.message === messages[same]) ++same;
    if (this.editing && this.views.indexOf(this.editing) >= same) this.#endEdit();
    for (const view of this.views.splice(same)) view.node.remove();
    for (const message of messages.slice(same)) {
      const View = message.role === 'assistant' ? AssistantView : UserView;
      const view = new View(message, this.viewHandlers);
      this.views.push(view);
      this.root.append(view.node);
    }
    this.views.forEach((view, at) => view.setLast(at === this.views.length - 1));
  }

  // The message changed: render at the next frame, and less often where a rendering takes long.
  changed(message) {
    if (this.pending) return;
    const frame = () => requestAnimationFrame(() => {
      this.pending = 0;
      this.render(message);
    });
    this.pending = this.renderMs > 12 ? setTimeout(frame, 4 * this.renderMs) : frame();
  }

  render(message) {
    const view = this.views.at(-1);
    if (view?.message !== message) return;
    const start = performance.now();
    view.update();
    if (this.follows) this.scrollToEnd();
    this.renderMs = performance.now() - start;
  }

  scrollToEnd() {
    this.follows = true;
    this.toEnd.hidden = true;
    this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  editLast() {
    this.views.findLast((view) => view.message.role === 'user')?.edit();
  }

  #scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    this.follows = scrollHeight - scrollTop - clientHeight < NEAR_END;
    this.toEnd.hidden = this.follows;
  }

  #startEdit(view) {
    if (this.handlers.busy()) return null;
    const at = this.views.indexOf(view);
    if (this.editing) return null;
    this.editing = view;
    for (const { node } of this.views.slice(at + 1)) {
      node.classList.add('dropped');
      node.inert = true;
    }
    return this.views.length - at - 1;
  }

  #endEdit() {
    this.editing = null;
    for (const { node } of this.views) {
      node.classList.remove('dropped');
      node.inert = false;
    }
  }
}
