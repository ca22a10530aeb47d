// Colours for code, made in a worker: a text on which a grammar takes for ever costs two seconds of another thread and
// the colours of that block, not the page.
const LIMIT_MS = 2000;
const LONGEST = 100000;
const CACHED = 300;

const purify = window.DOMPurify(window);
const PURIFY = { ALLOWED_TAGS: ['span'], ALLOWED_ATTR: ['class'], ALLOW_DATA_ATTR: false, ALLOW_ARIA_ATTR: false, RETURN_DOM_FRAGMENT: true };

let worker = null;
let running = Promise.resolve();
const cache = new Map();  // language and text → HTML, or null where there are no colours

// A fragment to put in place of the text, or null.
export async function highlight(language, text) {
  if (text.length > LONGEST) return null;
  const name = `${language}\n${text}`;
  if (!cache.has(name)) {
    // One at a time, so that the limit measures one block.
    running = running.then(() => (cache.has(name) ? cache.get(name) : ask(language, text)));
    cache.set(name, await running);
    if (cache.size > CACHED) cache.delete(cache.keys().next().value);
  }
  const html = cache.get(name);
  return html ? purify.sanitize(html, PURIFY) : null;
}

function ask(language, text) {
  return new Promise((resolve) => {
    const end = (html, broken) => {
      clearTimeout(timer);
      if (broken) {
        worker?.terminate();
        worker = null;
      }
      resolve(html);
    };
    let timer = setTimeout(() => end(null, true), LIMIT_MS + (worker ? 0 : 3000));  // a new one has to load first
    try {
      worker ??= new Worker('web/highlight_worker.js');
    } catch {
      end(null, true);
      return;
    }
    worker.onmessage = ({ data }) => end(data, false);
    worker.onerror = () => end(null, true);
    worker.postMessage({ language, text });
  });
}
