// Labels of texts as they are typed, and of pictures.
const startLabels = runs => {
  const field = byId('to-label');
  if (runs.every(run => run.pairs)) field.placeholder = say('pair-hint');
  const cards = runs.map(run => {
    const card = makeCard(run, '');
    byId('labels').append(card.card);
    return card;
  });
  const label = async (card, lines, signal) => {
    const answer = await ask('api/classify', { run: card.run.name, text: lines },
      { signal, told: card.say });
    const { predictions } = await answer.json();
    if (signal.aborted) return;
    card.say('');
    card.body.replaceChildren(...predictions.map((prediction, number) => {
      const made = taper.element('div', 'labelled');
      made.append(taper.element('p', 'muted', lines[number]), chances(prediction));
      return made;
    }));
  };
  const again = latest(250, async signal => {
    const lines = field.value.split(/\r\n|\r|\n/).filter(line => line.trim());
    const chosen = cards.filter(card => card.isChosen());
    if (!lines.length) {
      for (const card of chosen) card.body.replaceChildren();
      return;
    }
    await Promise.all(chosen.map(card => onCard(card, () => label(card, lines, signal))));
  });
  field.addEventListener('input', again);
  return { cards, again };
};

const startPictures = runs => {
  const drop = byId('drop'), preview = byId('preview');
  const cards = runs.map(run => {
    const card = makeCard(run, '');
    byId('picture-labels').append(card.card);
    return card;
  });
  let shown = null;
  const again = latest(0, async signal => {
    const chosen = cards.filter(card => card.isChosen());
    if (!shown) return;
    await Promise.all(chosen.map(card => onCard(card, async () => {
      if (!['image/png', 'image/jpeg'].includes(shown.type)) throw new Error(say('no-picture'));
      const path = `api/classify-image?run=${encodeURIComponent(card.run.name)}`;
      const answer = await ask(path, shown, { signal, type: shown.type, told: card.say });
      const { predictions } = await answer.json();
      if (signal.aborted) return;
      card.say('');
      card.body.replaceChildren(chances(predictions[0]));
    })));
  });
  const open = file => {
    if (!file) return;
    shown = file;
    const reader = new FileReader();
    reader.addEventListener('load', () => {
      preview.src = reader.result;
      preview.alt = file.name;
      preview.hidden = !file.type.startsWith('image/');
    });
    reader.readAsDataURL(file);
    again();
  };
  byId('picture').addEventListener('change', event => open(event.target.files[0]));
  drop.addEventListener('dragover', event => {
    event.preventDefault();
    drop.classList.add('over');
  });
  drop.addEventListener('dragleave', () => drop.classList.remove('over'));
  drop.addEventListener('drop', event => {
    event.preventDefault();
    drop.classList.remove('over');
    open(event.dataTransfer.files[0]);
  });
  document.addEventListener('paste', event => {
    if (!byId('image-classification').hidden) open(event.clipboardData.files[0]);
  });
  return { cards, again };
};
