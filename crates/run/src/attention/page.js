// In each view one figure at a time: of the chosen part, layer and head.
const views = [...document.querySelectorAll('.attention')].map(view => {
  const figures = [...view.querySelectorAll('figure')];
  const lists = [...view.querySelectorAll('select')];
  const fill = (list, options) => {
    const before = list.value;
    list.replaceChildren(...options.map(text => {
      const option = taper.element('option', '', text);
      option.value = text;
      return option;
    }));
    if (options.includes(before)) list.value = before;
  };
  const choose = () => {
    let among = figures;
    for (const list of lists) {
      fill(list, [...new Set(among.map(figure => figure.dataset[list.name]))]);
      among = among.filter(figure => figure.dataset[list.name] === list.value);
    }
    for (const figure of figures) figure.hidden = figure !== among[0];
  };
  const move = (list, step) => {
    const last = list.options.length - 1;
    list.selectedIndex = Math.min(last, Math.max(0, list.selectedIndex + step));
    choose();
  };
  const press = key => {
    const [part, layer, head] = lists;
    const keys = { h: [head, -1], l: [head, 1], j: [layer, 1], k: [layer, -1] };
    if (key in keys) move(...keys[key]);
    if (key === 'p') {
      part.selectedIndex = (part.selectedIndex + 1) % part.options.length;
      choose();
    }
  };
  for (const list of lists) list.addEventListener('change', choose);
  choose();
  return { view, press };
});
document.addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches('select, input, textarea')) return;
  // Keys are for the view that has the focus, or for the only one.
  const one = views.find(({ view }) => view.contains(event.target));
  (one ?? (views.length === 1 ? views[0] : undefined))?.press(event.key);
});
