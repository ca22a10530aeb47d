// [what, contrast with the background behind it] of every element that shows a text of its own.
const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
const rgb = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data]; };
const luminance = ([r, g, b]) => [r, g, b].map((c) => c / 255)
  .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
  .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
const behind = (node) => { for (; node; node = node.parentElement) {
  const colour = rgb(getComputedStyle(node).backgroundColor); if (colour[3] === 255) return colour; } return [255, 255, 255]; };
return [...document.querySelectorAll('body *')].filter((node) => node.checkVisibility({ visibilityProperty: true, opacityProperty: true })
    && !node.closest(':disabled') && [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim()))
  .map((node) => { const [a, b] = [luminance(rgb(getComputedStyle(node).color)), luminance(behind(node))].sort((x, y) => y - x);
    return [`${node.tagName}.${node.className}: ${node.textContent.trim().slice(0, 20)}`, (a + 0.05) / (b + 0.05)]; });
