// Tabs over panels (WAI-ARIA's pattern): the arrow keys change the tab.
taper.tabs = (label, panels) => {
  taper.tabCount = (taper.tabCount ?? 0) + 1;
  const number = taper.tabCount;
  const place = taper.element('div', 'tabs');
  const list = taper.element('div', 'tablist');
  list.setAttribute('role', 'tablist');
  list.setAttribute('aria-label', label);
  const tabs = panels.map(([name, panel], at) => {
    const tab = taper.element('button', 'tab', name);
    Object.assign(tab, { type: 'button', id: `tab-${number}-${at}` });
    tab.setAttribute('role', 'tab');
    tab.setAttribute('aria-controls', `panel-${number}-${at}`);
    panel.id = `panel-${number}-${at}`;
    panel.setAttribute('role', 'tabpanel');
    panel.setAttribute('aria-labelledby', tab.id);
    tab.addEventListener('click', () => show(at));
    tab.addEventListener('keydown', event => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      const next = (at + step + tabs.length) % tabs.length;
      show(next);
      tabs[next].focus();
    });
    list.append(tab);
    return tab;
  });
  place.append(list, ...panels.map(([, panel]) => panel));
  const show = chosen => {
    tabs.forEach((tab, at) => {
      tab.setAttribute('aria-selected', String(at === chosen));
      tab.tabIndex = at === chosen ? 0 : -1;
      panels[at][1].hidden = at !== chosen;
    });
  };
  show(0);
  return { place, show };
};
