// What the server serves decides what the page shows.
const starters = { translation: startTranslation, chat: startChat,
  'language-model': startPrompts, classification: startLabels, tagging: startTags,
  'question-answering': startAnswers, captions: startCaptions, 'image-text': startMatches,
  'image-classification': startImageLabels };
const isFit = (run, task) => (task === 'chat' ? run.chats : run.task === task);
document.querySelector('header').insertBefore(document.querySelector('.links'), byId('theme'));
// What becomes of files that are dropped, wherever on the page.
let dropped = null;
const hasFiles = event => dropped && [...event.dataTransfer.types].includes('Files');
const mark = isOver => document.body.classList.toggle('is-over', isOver);
addEventListener('dragover', event => {
  if (!hasFiles(event)) return;
  event.preventDefault();
  mark(true);
});
addEventListener('dragleave', event => { if (!event.relatedTarget) mark(false); });
addEventListener('drop', event => {
  if (!hasFiles(event)) return;
  event.preventDefault();
  mark(false);
  dropped([...event.dataTransfer.files], event.target);
});
const begin = async () => {
  const state = byId('state');
  state.hidden = false;
  state.textContent = say('loading');
  let served;
  try {
    served = (await (await ask('api/runs')).json()).runs;
  } catch (error) {
    state.textContent = error.message;
    return;
  }
  state.hidden = true;
  byId('key-form').hidden = true;
  const tasks = Object.keys(starters).filter(task => served.some(run => isFit(run, task)));
  const started = {};
  for (const task of tasks) {
    started[task] = starters[task](served.filter(run => isFit(run, task)));
  }
  const nav = byId('tasks'), choice = byId('runs');
  const show = task => {
    for (const other of tasks) byId(other).hidden = other !== task;
    for (const button of nav.children) {
      button.setAttribute('aria-pressed', String(button.value === task));
    }
    const { cards, again, drop } = started[task];
    dropped = drop ?? null;
    choice.hidden = cards.length < 2;
    choice.replaceChildren(choice.firstElementChild, ...cards.map(card => {
      const label = taper.element('label', '', ` ${card.run.name}`);
      const box = taper.element('input');
      box.type = 'checkbox';
      box.checked = card.isChosen();
      box.addEventListener('change', () => {
        card.card.hidden = !box.checked;
        again();
      });
      label.prepend(box);
      return label;
    }));
  };
  nav.hidden = tasks.length < 2;
  nav.replaceChildren(...tasks.map(task => {
    const button = taper.element('button', '', say(task));
    button.type = 'button';
    button.value = task;
    button.addEventListener('click', () => show(task));
    return button;
  }));
  if (!tasks.length) {
    state.hidden = false;
    state.textContent = say('no-page');
    return;
  }
  show(tasks[0]);
  byId(tasks[0]).querySelector('textarea')?.focus();
};
byId('key-form').addEventListener('submit', event => {
  event.preventDefault();
  key.set(byId('key').value);
  begin();
});
begin();
