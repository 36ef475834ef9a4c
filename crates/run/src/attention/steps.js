// One step at a time, by buttons or by the keys of arrows.
const steps = [...document.querySelectorAll('section.step')];
const [before, after, place] =
  ['before', 'after', 'place'].map(name => document.getElementById(name));
let at = 0;
const show = number => {
  at = Math.min(steps.length - 1, Math.max(0, number));
  steps.forEach((step, index) => { step.hidden = index !== at; });
  before.disabled = at === 0;
  after.disabled = at === steps.length - 1;
  place.textContent = `${at + 1} / ${steps.length}`;
};
before.addEventListener('click', () => show(at - 1));
after.addEventListener('click', () => show(at + 1));
document.addEventListener('keydown', event => {
  // Within a figure the arrows move over its values.
  if (event.target.closest('svg') || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === 'ArrowRight' || event.key === 'n') show(at + 1);
  if (event.key === 'ArrowLeft' || event.key === 'b') show(at - 1);
});
show(0);
