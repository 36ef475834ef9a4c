// Models that read a picture: `show` makes what is shown of an answer, `texts` gives the texts that
// the picture is compared with.
const startPictures = (task, path, show, texts = () => []) => runs => {
  const section = byId(task), side = byId('picture-side').content.cloneNode(true);
  const preview = side.querySelector('img'), input = side.querySelector('input');
  section.querySelector('.pictures').prepend(side);
  let picture = null;
  const send = async (card, file, signal) => {
    const { type } = file;
    if (!['image/png', 'image/jpeg'].includes(type)) throw new Error(say('no-picture'));
    const query = new URLSearchParams([['run', card.run.name],
      ...texts().map(text => ['text', text])]);
    const answer = await ask(`${path}?${query}`, file, { signal, type, told: card.say });
    const found = await answer.json();
    card.say('');
    card.body.replaceChildren(...show(found));
  };
  const started = startCards(section, runs, 100, () => picture, send);
  const open = file => {
    if (!file) return;
    picture = file;
    const reader = new FileReader();
    reader.addEventListener('load', () => {
      preview.src = reader.result;
      preview.alt = file.name;
      preview.hidden = !file.type.startsWith('image/');
    });
    reader.readAsDataURL(file);
    started.again();
  };
  input.addEventListener('change', () => open(input.files[0]));
  document.addEventListener('paste', event => {
    if (!section.hidden) open(event.clipboardData.files[0]);
  });
  return { ...started, drop: ([file]) => open(file) };
};
const startImageLabels = startPictures('image-classification', 'api/classify-image',
  ({ predictions }) => predictions.map(chances));
const startCaptions = startPictures('captions', 'api/caption', ({ captions }) =>
  captions.flatMap(({ text, log_probability: score, truncated }) => [
    taper.element('p', 'target', text),
    taper.element('p', 'muted', [say('probability', { probability: percent(Math.exp(score)) }),
      truncated && say('cut-short')].filter(Boolean).join(' · '))]));
const startMatches = runs => {
  const field = byId('candidates');
  const started = startPictures('image-text', 'api/match',
    ({ predictions }) => predictions.map(chances), () => linesOf(field))(runs);
  if (runs.some(run => run.labels)) field.placeholder = say('candidates-or-labels');
  field.addEventListener('input', started.again);
  return started;
};
