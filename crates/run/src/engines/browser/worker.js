// A translator in a thread of its own. The first message has the files and the module; each later
// message is a request.

let translator;

async function begin({ module, files }) {
  const compiled = await WebAssembly.compile(module);
  const system = fileSystem(new Map(Object.entries(files)), (line) => console.log(line));
  const { exports } = await WebAssembly.instantiate(compiled, system.imports(compiled));
  system.useMemory(exports.memory);
  exports._initialize();
  return { system, exports };
}

function answer({ system, exports }, request) {
  system.write('/request.json', JSON.stringify(request));
  if (!exports.taper_answer()) throw new Error('the module wrote no answer');
  return JSON.parse(system.read('/answer.json'));
}

onmessage = async ({ data }) => {
  try {
    if (data.module !== undefined) {
      translator = await begin(data);
      // Loads the model before the first sentence is typed.
      const loaded = answer(translator, { lines: [] });
      postMessage({ ready: loaded.error === undefined, error: loaded.error });
    } else {
      postMessage({ id: data.id, answer: answer(translator, data.request) });
    }
  } catch (error) {
    postMessage({ id: data.id, error: String(error.message ?? error) });
  }
};
