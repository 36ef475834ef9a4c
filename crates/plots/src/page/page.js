// Tools of every page, under the name `taper`.
const taper = {
  isChinese: document.documentElement.lang.startsWith('zh'),
  // A text in the language of the page.
  say: (english, chinese) => (taper.isChinese ? chinese : english),
  // What the page keeps under an id.
  data: id => JSON.parse(document.getElementById(id).textContent),
  // An element with a class and text, which is never read as HTML.
  element(name, className, text) {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  },
  button(text, name, act) {
    const made = taper.element('button', 'small', text);
    made.type = 'button';
    made.title = name;
    // A sign says nothing to those who hear it.
    if (!/\p{L}/u.test(text)) made.setAttribute('aria-label', name);
    made.addEventListener('click', act);
    return made;
  },
  // A control with its name before it.
  labelled(text, control) {
    const label = taper.element('label', 'field', text);
    label.append(control);
    return label;
  },
  select(options, changed) {
    const made = taper.element('select');
    taper.options(made, options);
    made.addEventListener('change', changed);
    return made;
  },
  // Replaces the options of a list; keeps the chosen one if it is still there.
  options(list, options) {
    const before = list.value;
    list.replaceChildren(...options.map(([value, text]) => {
      const option = taper.element('option', '', text);
      option.value = value;
      return option;
    }));
    if (options.some(([value]) => String(value) === before)) list.value = before;
  },
  // An element of a drawing.
  drawn(name, attributes) {
    const made = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  },
  // Five digits, with separators: 595,706 and 0.17732.
  number(value) {
    if (value === null || value === undefined || Number.isNaN(value)) return '–';
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e12)) return value.toExponential(2);
    return new Intl.NumberFormat('en', { maximumSignificantDigits: size >= 1e4 ? 12 : 5,
      maximumFractionDigits: 5 }).format(size >= 1e4 ? Math.round(value) : value);
  },
  // Few characters, for axes: 250k, 3M, 2e-5.
  short(value) {
    const size = Math.abs(value);
    if (size !== 0 && size < 1e-3) return value.toExponential(1).replace('.0e', 'e');
    for (const [unit, one] of [['T', 1e12], ['G', 1e9], ['M', 1e6], ['k', 1e3]]) {
      if (size >= one && (one > 1e3 || size >= 1e4)) return `${+(value / one).toFixed(2)}${unit}`;
    }
    return String(+value.toPrecision(6));
  },
  // The value of a variable of colour in the theme of now. Canvases do not know variables.
  colour(variable) {
    taper.probe ??= document.body.appendChild(taper.element('span', 'unseen'));
    taper.probe.style.color = `var(${variable})`;
    return getComputedStyle(taper.probe).color;
  },
  // Calls back once the page has been painted.
  later(act) {
    requestAnimationFrame(() => setTimeout(act));
  },
  // Calls back whenever the theme has changed.
  onTheme(act) {
    document.addEventListener('taper-theme', act);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', act);
  },
};

document.getElementById('theme').addEventListener('click', () => {
  const root = document.documentElement;
  const chosen = root.style.colorScheme;
  const dark = chosen ? chosen === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  root.style.colorScheme = dark ? 'light' : 'dark';
  document.dispatchEvent(new Event('taper-theme'));
});

// Marks the link of the section that is read.
taper.follow = () => {
  const links = new Map([...document.querySelectorAll('nav a[href^="#"]')].map(link =>
    [document.getElementById(link.hash.slice(1)), link]));
  if (!links.size) return;
  const seen = new Set();
  const watch = new IntersectionObserver(entries => {
    for (const { target, isIntersecting } of entries) {
      seen[isIntersecting ? 'add' : 'delete'](target);
    }
    const first = [...links.keys()].find(section => seen.has(section));
    for (const [section, link] of links) {
      if (section === first) link.setAttribute('aria-current', 'true');
      else link.removeAttribute('aria-current');
    }
  }, { rootMargin: '-56px 0px -60% 0px' });
  for (const section of links.keys()) if (section) watch.observe(section);
};
taper.follow();
