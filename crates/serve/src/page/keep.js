// Texts that the page keeps: terms, the history of this browser, and what an address shares.
const MOST_KEPT = 30, LONGEST_KEPT = 2000, SETTLED = 1500;
const keepTexts = (source, changed) => {
  const glossary = byId('glossary'), list = byId('history'), around = byId('history-of');
  // Lines of a term and its translation, with a tab or an equals sign between the two.
  const terms = () => Object.fromEntries(glossary.value.split(/\r\n|\r|\n/)
    .map(line => line.split(/\t|=/).map(part => part.trim()))
    .filter(parts => parts.length === 2 && parts.every(Boolean)));
  const stored = () => {
    try { return JSON.parse(localStorage.getItem('taper-history')) ?? []; } catch { return []; }
  };
  const store = texts => {
    // Where nothing may be kept, there is no history.
    try { localStorage.setItem('taper-history', JSON.stringify(texts)); } catch { /* as above */ }
    draw(texts);
  };
  const draw = texts => {
    around.hidden = !texts.length;
    list.replaceChildren(...texts.map(text => {
      const item = taper.element('li'), button = taper.element('button', '', text);
      button.type = 'button';
      button.addEventListener('click', () => {
        source.value = text;
        changed();
        source.focus();
      });
      item.append(button);
      return item;
    }));
  };
  let timer;
  const remember = text => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (source.value.trim() !== text.trim() || text.length > LONGEST_KEPT) return;
      // A text that was typed on stays one.
      const others = stored().filter(one => !text.startsWith(one));
      store([text, ...others].slice(0, MOST_KEPT));
    }, SETTLED);
  };
  byId('forget').addEventListener('click', () => {
    store([]);
    source.focus();
  });
  glossary.addEventListener('input', changed);
  const share = byId('share');
  share.addEventListener('click', async () => {
    const parts = new URLSearchParams({ text: source.value });
    if (glossary.value.trim()) parts.set('terms', glossary.value);
    history.replaceState(null, '', `#${parts}`);
    let told = 'in-address';
    try {
      await navigator.clipboard.writeText(location.href);
      told = 'copied';
    } catch { /* the address is in its bar */ }
    byId('spoken').textContent = say(told);
    share.textContent = say(told);
    setTimeout(() => { share.textContent = say('share'); }, 2500);
  });
  const restore = () => {
    draw(stored());
    const parts = new URLSearchParams(location.hash.slice(1));
    if (!parts.has('text')) return;
    source.value = parts.get('text');
    if (parts.has('terms')) {
      glossary.value = parts.get('terms');
      glossary.closest('details').open = true;
    }
    changed();
  };
  addEventListener('hashchange', restore);
  return { terms, remember, restore };
};
