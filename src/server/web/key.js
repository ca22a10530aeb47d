// The API key: kept until the tab closes, or in this browser when the person asks for that.
const NAME = 'lily.key';

function area(name) {
  try {
    return window[name];
  } catch {
    return null;  // storage is switched off
  }
}

let memory = '';  // holds it where the browser stores nothing

export function currentKey() {
  return memory || (area('sessionStorage')?.getItem(NAME) ?? area('localStorage')?.getItem(NAME) ?? '');
}

export function setKey(key, remember) {
  forgetKey();
  memory = key;
  try {
    area(remember ? 'localStorage' : 'sessionStorage')?.setItem(NAME, key);
  } catch {
    // memory has it
  }
}

export function forgetKey() {
  memory = '';
  area('sessionStorage')?.removeItem(NAME);
  area('localStorage')?.removeItem(NAME);
}
