// The page: unpacks module and files, and asks the worker for lines that are new.

(async () => {
  const [source, target, state] = ['source', 'target', 'state'].map((id) => document.getElementById(id));
  const texts = taper.data('texts');
  const say = (text, isError) => {
    state.textContent = text;
    state.classList.toggle('error', isError === true);
  };

  async function unpacked(base64) {
    const packed = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    const plain = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
    return new Uint8Array(await new Response(plain).arrayBuffer());
  }

  async function translator() {
    const address = URL.createObjectURL(new Blob([taper.data('worker')], { type: 'text/javascript' }));
    const worker = new Worker(address);
    const waiting = new Map();
    const ready = new Promise((resolve, reject) => {
      worker.onerror = (event) => reject(new Error(event.message));
      worker.onmessage = ({ data }) => {
        if (data.id === undefined) return data.error === undefined ? resolve() : reject(new Error(data.error));
        const { resolve: done, reject: failed } = waiting.get(data.id);
        waiting.delete(data.id);
        data.error === undefined ? done(data.answer) : failed(new Error(data.error));
      };
    });
    const packed = Object.entries(taper.data('files'));
    const files = Object.fromEntries(await Promise.all(packed.map(async ([path, base64]) => [path, await unpacked(base64)])));
    const module = await unpacked(taper.data('module'));
    worker.postMessage({ module, files }, [module.buffer, ...Object.values(files).map((file) => file.buffer)]);
    await ready;
    let next = 0;
    return (request) => new Promise((resolve, reject) => {
      waiting.set(next, { resolve, reject });
      worker.postMessage({ id: next, request });
      next += 1;
    });
  }

  // Translation of each line. When other lines are edited, a line is not translated again.
  const known = new Map();
  const lines = () => source.value.split('\n');

  function show() {
    const shown = lines().map((line, index) => {
      const paragraph = document.createElement('p');
      const answer = line.trim() === '' ? { text: '' } : known.get(line);
      // Until the new translation is there, the line's old one stays.
      const old = target.children[index];
      paragraph.textContent = answer?.text ?? answer?.error ?? old?.textContent ?? '';
      paragraph.classList.toggle('is-old', answer === undefined);
      paragraph.classList.toggle('error', answer?.error !== undefined);
      return paragraph;
    });
    target.replaceChildren(...shown);
  }

  let busy = false;
  async function update(translate) {
    show();
    if (busy) return;
    busy = true;
    try {
      for (;;) {
        const line = lines().find((one) => one.trim() !== '' && !known.has(one));
        if (line === undefined) break;
        const began = performance.now();
        const answer = await translate({ lines: [line] });
        if (answer.error !== undefined) throw new Error(answer.error);
        const [{ translations, error }] = answer;
        known.set(line, error === undefined ? { text: translations[0].text } : { error });
        const seconds = (performance.now() - began) / 1000;
        const words = line.trim().split(/\s+/).length;
        say(texts.speed.replace('{seconds}', seconds.toFixed(2)).replace('{rate}', Math.round(words / seconds)));
        show();
      }
    } catch (error) {
      say(error.message, true);
    } finally {
      busy = false;
    }
  }

  try {
    const began = performance.now();
    const translate = await translator();
    say(texts.ready.replace('{seconds}', ((performance.now() - began) / 1000).toFixed(1)));
    document.body.dataset.ready = 'true';
    source.addEventListener('input', () => update(translate));
    // For other scripts, and for measurements.
    taper.translate = translate;
    update(translate);
  } catch (error) {
    say(error.message, true);
  }
})();
