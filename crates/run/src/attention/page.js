// One figure at a time: of the chosen part, layer and head.
const choices = taper.data('choices');
const lists = ['part', 'layer', 'head'].map(name => document.getElementById(name));
const values = (name, among) => [...new Set(among.map(one => one[name]))];
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
  let among = choices;
  for (const list of lists) {
    fill(list, values(list.id, among));
    among = among.filter(one => one[list.id] === list.value);
  }
  for (const one of choices) {
    document.getElementById(one.id).hidden = one !== among[0];
  }
  const [part, layer, head] = lists.map(list => list.value);
  document.getElementById('chosen').textContent = `${part}, layer ${layer}, head ${head}`;
};
const move = (list, step) => {
  const last = list.options.length - 1;
  list.selectedIndex = Math.min(last, Math.max(0, list.selectedIndex + step));
  choose();
};
for (const list of lists) list.addEventListener('change', choose);
document.addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.tagName === 'SELECT') return;
  const [part, layer, head] = lists;
  const keys = { h: [head, -1], l: [head, 1], j: [layer, 1], k: [layer, -1] };
  if (event.key in keys) move(...keys[event.key]);
  if (event.key === 'p') {
    part.selectedIndex = (part.selectedIndex + 1) % part.options.length;
    choose();
  }
});
choose();
if (choices.some(one => one.part === 'cross')) {
  lists[0].value = 'cross';
  choose();
}
