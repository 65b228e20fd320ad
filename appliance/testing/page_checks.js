// Looks at a page that a person would need much patience for; evaluated by pages.py.
(() => {
  const parse = (colour) => {
    const numbers = colour.match(/[\d.]+/g).map(Number);
    const scale = colour.startsWith("color(") ? 255 : 1;
    return [...numbers.slice(0, 3).map((part) => part * scale), numbers[3] ?? 1];
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const channel = (value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const luminance = (colour) => {
    const [red, green, blue] = colour.slice(0, 3).map((value) => channel(value / 255));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const ground = (element) => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) layers.unshift(parse(getComputedStyle(each).backgroundColor));
    return layers.reduce((below, layer) => over(layer, below), [255, 255, 255, 1]);
  };
  const contrast = (element) => {
    const below = ground(element);
    const text = over(parse(getComputedStyle(element).color), below);
    const [lighter, darker] = [luminance(below), luminance(text)].sort((a, b) => b - a);
    return (lighter + 0.05) / (darker + 0.05);
  };
  const isRead = (element) => [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim())
    && element.getClientRects().length && !element.matches(".unseen, .unseen *, script, noscript, option, [disabled]");
  const show = (element) => `${element.className || element.tagName}: ${element.textContent.trim().slice(0, 40)}`;

  // Texts whose contrast with what is behind them is below 4.5 : 1 (WCAG 2.2, 1.4.3).
  const faint = [...document.querySelectorAll("body *")].filter(isRead)
    .map((element) => [contrast(element), element]).filter(([ratio]) => ratio < 4.5)
    .map(([ratio, element]) => `${ratio.toFixed(2)} ${show(element)}`);

  // Controls without a name that a screen reader could say (WCAG 2.2, 4.1.2).
  const unnamed = [...document.querySelectorAll("a, button, input:not([type=hidden]), select, textarea, summary")]
    .filter((element) => !(element.ariaLabel || element.labels?.length || element.textContent.trim()))
    .map((element) => element.outerHTML.slice(0, 120));

  return { faint, unnamed, overflow: document.documentElement.scrollWidth - window.innerWidth };
})();
