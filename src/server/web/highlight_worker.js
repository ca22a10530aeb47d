// The worker behind highlighter.js: {language, text} → HTML, or null for a language that is not known.
importScripts('vendor/highlight.min.js');

self.onmessage = ({ data: { language, text } }) => {
  let html = null;
  try {
    if (self.hljs.getLanguage(language)) html = self.hljs.highlight(language, text, true).value;
  } catch {
    // no colours then
  }
  self.postMessage(html);
};
