// The worker behind highlighter.js: {language, text} → HTML, or null for a language that is not known.
self.Prism = { disableWorkerMessageHandler: true };
importScripts('vendor/prism/prism-core.min.js');

// Languages by the files of vendor/prism; a file is loaded when it is first wanted, after those that it builds on.
const PLAIN = (
  'markup css clike python swift rust bash powershell json yaml toml sql lua perl r julia haskell docker ' +
  'makefile cmake diff ini latex graphql http nginx elixir zig fortran matlab nasm clojure lisp ocaml erlang ' +
  'wasm hcl'
).split(' ');
const NEEDS = {
  javascript: 'clike', typescript: 'javascript', jsx: 'markup javascript', tsx: 'jsx typescript', c: 'clike',
  cpp: 'c', csharp: 'clike', java: 'clike', kotlin: 'clike', go: 'clike', ruby: 'clike',
  'markup-templating': 'markup', php: 'markup-templating', scala: 'java', markdown: 'markup', dart: 'clike',
  protobuf: 'clike', objectivec: 'c', scss: 'css', groovy: 'clike',
};
const ALIASES = {
  html: 'markup', xml: 'markup', svg: 'markup', js: 'javascript', ts: 'typescript', py: 'python', cs: 'csharp',
  kt: 'kotlin', kts: 'kotlin', sh: 'bash', shell: 'bash', yml: 'yaml', rb: 'ruby', hs: 'haskell',
  dockerfile: 'docker', md: 'markdown', tex: 'latex', objc: 'objectivec', elisp: 'lisp', 'c++': 'cpp', cc: 'cpp',
  h: 'cpp', hpp: 'cpp', cuda: 'cpp', cu: 'cpp', 'c#': 'csharp', f90: 'fortran', golang: 'go', rs: 'rust',
  zsh: 'bash', console: 'bash', ps1: 'powershell', jsonc: 'json', json5: 'json', mjs: 'javascript', asm: 'nasm',
  make: 'makefile', ex: 'elixir', pl: 'perl', jl: 'julia', tf: 'hcl', terraform: 'hcl', vue: 'markup', patch: 'diff',
  conf: 'ini', proto: 'protobuf', python3: 'python',
};

const has = (table, name) => Object.hasOwn(table, name);
const known = (name) => PLAIN.includes(name) || has(NEEDS, name);

function load(name) {
  if (has(self.Prism.languages, name)) return;
  for (const base of has(NEEDS, name) ? NEEDS[name].split(' ') : []) load(base);
  importScripts(`vendor/prism/prism-${name}.min.js`);
}

self.onmessage = ({ data: { language, text } }) => {
  const asked = language.toLowerCase();
  const name = has(ALIASES, asked) ? ALIASES[asked] : asked;
  let html = null;
  try {
    if (known(name)) {
      load(name);
      html = self.Prism.highlight(text, self.Prism.languages[name], name);
    }
  } catch {
    // no colours then
  }
  self.postMessage(html);
};
